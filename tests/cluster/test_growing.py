"""A worker that joins a cluster while a session runs is used by it, and one that leaves is done without."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import ROOT
from tests.cluster.killing import SETTINGS
from tests.recovery.processes import until
from tests.servers.spark_cluster import SparkCluster

pytestmark = pytest.mark.slow

EXECUTIONS = ("jobs", "resident")

PROGRAM = """
import sys, time
from pathlib import Path
import weft
from tests.spark.files import definition, read_files, rows_of, write

root, master, execution = Path(sys.argv[1]), *sys.argv[2:]
options = weft.Options(partitions=6)
session = weft.Session(checkpoint=root / "ck", master=master, execution=execution, options=options)
for name in ("a", "b"):
    write(root, name, 0)
read_files(session, root, "a", "b")
sql = "SELECT a.n AS x, b.n AS y FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k"
query = session.query(sql, name="q", sink=weft.to_memory())
session.start()
session.process_all_available()
executor, number = session._current_run.loop.executor, 0
for line in map(str.strip, sys.stdin):  # how many tasks there are to be
    began = time.monotonic()
    while executor.tasks != int(line):
        number += 1
        for name in ("a", "b"):
            write(root, name, number)
        session.process_all_available()
        time.sleep(0.2)
    print("tasks", executor.tasks, "after", round(time.monotonic() - began, 1), flush=True)
assert rows_of(query.results()) == definition(root, query), "other rows than by the definition"
print("right after", number, "batches")
session.stop()
"""


class Program:
    """The program, which is told how many tasks there are to be, and says when there are."""

    def __init__(self, root: Path, cluster: SparkCluster, execution: str) -> None:
        settings = " ".join(f"--conf {one}" for one in SETTINGS if "cores.max" not in one)
        with (root / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(root), cluster.master, execution],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell"},
                cwd=ROOT,
                text=True,
            )
        self._log = root / "log"

    def expect(self, tasks: int) -> None:
        """Wait until it has so many tasks."""
        assert self._process.stdin is not None
        said = self.said().count(f"tasks {tasks} after")
        print(tasks, file=self._process.stdin, flush=True)
        until(lambda: self.said().count(f"tasks {tasks} after") > said or self._ended(), self.said)
        assert not self._ended(), self.said()

    def end(self) -> str:
        """Have it compare what it has found with the definition."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(120) == 0, self.said()
        return self.said()

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def _ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(params=EXECUTIONS)
def program(request: pytest.FixtureRequest, tmp_path: Path, cluster: SparkCluster) -> Iterator[Program]:
    found = Program(tmp_path, cluster, request.param)
    yield found
    found.kill()


def test_workers_come_and_go(cluster: SparkCluster, program: Program) -> None:
    """A machine that is added would idle; one that is taken away would end the session."""
    program.expect(2)
    added = cluster.add_worker()
    program.expect(3)
    added.kill()
    program.expect(2)
    cluster.add_worker()
    program.expect(3)
    said = program.end()
    print(
        *(line for line in said.splitlines() if line.startswith(("tasks", "right"))), sep="\n"
    )  # pytest -rP
    assert "right after" in said
