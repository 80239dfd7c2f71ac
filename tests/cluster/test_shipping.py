"""Weft reaches the executors of a cluster: it is sent to them, and what they lack is named with the host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.spark_cluster import SparkCluster
from tests.spark.files import write

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
import weft
root, master, python = sys.argv[1:]
session = weft.Session(checkpoint=f"{root}/ck", master=master, ship=True, options=weft.Options(partitions=2))
for name in ("a", "b"):
    session.stream(name, weft.files("parquet", f"{root}/in/{name}", max_files_per_batch=1), event_time="ts")
session.query("SELECT a.n AS x, b.n AS y FROM a, b WHERE a.k = b.k", name="q", sink=weft.to_parquet(f"{root}/out"))
try:
    session.start(available_now=True)
except weft.WeftError as error:
    print(error)
    sys.exit(3)
assert session.await_termination(120)
print(sum(batch.results for batch in session.progress["q"]))
session.stop()
"""


def run(root: Path, cluster: SparkCluster, **environment: str) -> subprocess.CompletedProcess[str]:
    """A session that sends its Weft."""
    command = [sys.executable, "-c", PROGRAM, str(root), cluster.master, sys.executable]
    known = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "XDG_CACHE_HOME": str(root / "cache"),
        **environment,
    }
    return subprocess.run(command, env=known, capture_output=True, text=True, timeout=300, check=False)


def test_weft_is_sent_to_the_executors(cluster: SparkCluster, tmp_path: Path) -> None:
    """It would have to be installed on every machine first."""
    for number in range(2):
        for name in ("a", "b"):
            write(tmp_path, name, number)
    done = run(tmp_path, cluster)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert int(done.stdout.split()[-1]) > 0


def test_what_executors_lack_is_named(cluster: SparkCluster, tmp_path: Path) -> None:
    """The error would be one of Spark's, of eighty lines."""
    write(tmp_path, "a", 0)
    write(tmp_path, "b", 0)
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "numba.py").write_text("raise ModuleNotFoundError(\"No module named 'numba'\")\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{hidden}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = run(tmp_path, cluster, PYSPARK_PYTHON=str(python))
    assert done.returncode == 3, done.stdout + done.stderr[-3000:]
    assert "No module named 'numba'" in done.stdout
    assert os.uname().nodename in done.stdout
    assert not (tmp_path / "ck").exists()
