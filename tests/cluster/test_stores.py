"""Spark's executors with everything in an object store that makes trouble: exact, whatever is killed.

A driver that is started again is on another machine: its folder and the caches are other ones, and nothing but the
object store is left of the first.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.cluster.killing import SHORT
from tests.recovery.cases import Case
from tests.servers.spark_cluster import SparkCluster
from tests.shares import numbers, share_of
from tests.storage import s3_server
from tests.storage.s3_front import Front
from tests.storage.stricken import Stricken
from weft.storage.objects import ObjectStorage

# Where a driver is killed, how its batches run, and of which kind the case is.
DRIVERS = [
    ("local", "jobs", "changing"),
    ("local", "resident", "outer"),
    ("cluster", "jobs", "outer"),
    ("cluster", "resident", "fixed"),
]
EXECUTORS = [("jobs", "changing"), ("resident", "outer")]
SECRET = s3_server.environment("")["AWS_SECRET_ACCESS_KEY"]


def given_to_executors(url: str) -> list[str]:
    """How executors of a cluster get what they need: by the environment that Spark gives them."""
    return [f"spark.executorEnv.{name}={value}" for name, value in s3_server.environment(url).items()]


def on_machine(master: str, root: Path, name: str) -> Sequence[str]:
    """The settings of a driver on a machine, whose executors have a cache of their own, too."""
    cache = f"spark.executorEnv.WEFT_CACHE={root / name / 'executors'}"
    return () if master.startswith("local") else (cache,)


def struck(
    where: str, request: pytest.FixtureRequest, root: Path, case: Case, execution: str, stack: ExitStack
) -> Stricken:
    """A case on Spark on this machine, or on a cluster."""
    front = request.getfixturevalue("front")
    if where == "local":
        return Stricken(root, case, front, stack, "local[2]", execution)
    cluster = request.getfixturevalue("cluster")
    settings = [*SHORT, *given_to_executors(front.url)]
    return Stricken(root, case, front, stack, cluster.master, execution, settings)


def finish(one: Stricken) -> None:
    """Compare with the definition, and look for the secret where it must not be."""
    one.check()
    storage = ObjectStorage(one.case.place)
    kept = b"".join(storage.get(entry.name) or b"" for entry in storage.entries())
    assert SECRET.encode() not in kept, "credentials are in the checkpoint or in results"
    assert SECRET not in (one.root / "log").read_text(errors="replace"), "credentials are in a log"


def test_executors_keep_their_state_in_a_store(
    request: pytest.FixtureRequest,
    s3: str,
    tmp_path: Path,
) -> None:
    """Tasks in processes of their own would not find what others have put."""
    (seed,) = numbers(1)
    with ExitStack() as stack:
        one = struck("local", request, tmp_path, Case(seed, 3, "fixed", s3), "jobs", stack)
        run = one.start()
        assert run.wait() == 0, run.tail()
        one.story.append("nothing was killed")
        finish(one)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(share_of(1)))
@pytest.mark.parametrize(("where", "execution", "kind"), DRIVERS)
def test_a_driver_goes_on_elsewhere(
    request: pytest.FixtureRequest,
    s3: str,
    tmp_path: Path,
    where: str,
    execution: str,
    kind: str,
    number: int,
) -> None:
    """What only the first machine had would be lost with it."""
    (seed,) = numbers(1, number)
    with ExitStack() as stack:
        one = struck(where, request, tmp_path, Case(seed, 6, kind, s3), execution, stack)
        run = one.start("first", on_machine(one.master, tmp_path, "first"))
        if one.signal(run, signal.SIGKILL):
            run.end()
            run = one.start("second", on_machine(one.master, tmp_path, "second"))
        assert run.wait() == 0, f"{one.story}\n{run.tail()}"
        finish(one)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(share_of(1)))
@pytest.mark.parametrize(("execution", "kind"), EXECUTORS)
def test_an_executor_is_replaced(
    request: pytest.FixtureRequest,
    cluster: SparkCluster,
    s3: str,
    tmp_path: Path,
    execution: str,
    kind: str,
    number: int,
) -> None:
    """Segments that only its cache had, or parts that it had just put, would be lost or count twice."""
    (seed,) = numbers(1, number)
    with ExitStack() as stack:
        one = struck("cluster", request, tmp_path, Case(seed, 6, kind, s3), execution, stack)
        run = one.start("first", on_machine(one.master, tmp_path, "first"))

        def kill() -> None:
            with suppress(ProcessLookupError, IndexError):
                os.kill(one.rng.choice(cluster.executors()), signal.SIGKILL)

        one.strike(run, "killed an executor", kill)
        if run.wait() != 0:  # where some tasks of the last stage are done, Spark does not repeat the others
            one.story.append(f"it failed, and was started again: {run.tail(500)}")
            run.end()
            run = one.start("first", on_machine(one.master, tmp_path, "first"))
        assert run.wait() == 0, f"{one.story}\n{run.tail()}"
        finish(one)


PROGRAM = """
import sys
import weft
session = weft.Session(checkpoint=sys.argv[1] + "/ck", master=sys.argv[2], options=weft.Options(partitions=2))
session.stream("a", weft.files("json", sys.argv[1] + "/in", schema="k long"))
session.query("SELECT k FROM a", name="q", sink=weft.to_parquet(sys.argv[1] + "/out"))
try:
    session.start(available_now=True)
except weft.WeftError as error:
    print(error)
    sys.exit(3)
"""


@pytest.mark.slow
def test_executors_without_credentials_are_refused(
    cluster: SparkCluster,
    front: Front,
    s3: str,
) -> None:
    """A run would fail in its first batch, by an error of eighty lines."""
    ObjectStorage(s3).put("in/0.json", b'{"k": 1}\n')
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    settings = [one for one in given_to_executors(front.url) if not any(key in one for key in keys)]
    settings += SHORT
    submit = " ".join([*(f"--conf {one}" for one in settings), "pyspark-shell"])
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": submit}
    command = [sys.executable, "-c", PROGRAM, s3, cluster.master]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 3, done.stdout + done.stderr[-3000:]
    assert os.uname().nodename in done.stdout
    assert "credentials" in done.stdout
    assert SECRET not in done.stdout + done.stderr
    assert ObjectStorage(f"{s3}/ck").entries() == []
