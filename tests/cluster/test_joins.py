"""On a cluster, too, the answer is the definition's: random joins of all kinds, as jobs and by tasks that stay.

The tests that compare Spark's answers with the definition run here on the master of a cluster, in a process of their
own, since a process has one Spark.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import shares
from tests.cluster.conftest import ROOT
from tests.servers.spark_cluster import SparkCluster

EXECUTIONS = ("jobs", "resident")
KINDS = (
    "tests/equivalence/test_spark.py",
    "tests/equivalence/test_spark_outer.py",
    "tests/equivalence/test_spark_theta.py",
    "tests/equivalence/test_spark_workloads.py",
    "tests/spark/test_ordered.py",
    "tests/spark/test_tables.py",
)


def run_on(
    cluster: SparkCluster, execution: str, tests: list[str], tmp_path: Path, scale: float = 1.0
) -> str:
    """Run tests on a cluster, and return what they said; an error if any of them failed."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "--basetemp",
        str(tmp_path / "t"),
    ]
    given = ["--master", cluster.master, "--execution", execution]
    share = ["--seed", str(shares.current().seed), "--scale", str(scale * shares.current().scale)]
    done = subprocess.run(
        [*command, *given, *share, *tests], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("execution", ["resident", pytest.param("jobs", marks=pytest.mark.slow)])
def test_random_joins_answer_like_the_definition(
    cluster: SparkCluster, tmp_path: Path, execution: str
) -> None:
    """Tasks of executors would find other files, or other code, than those of one machine."""
    said = run_on(cluster, execution, ["tests/equivalence/test_spark.py"], tmp_path, scale=0.2)
    assert "1 passed" in said or shares.current().scale > 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_joins_of_all_kinds_answer_like_the_definition(
    cluster: SparkCluster, tmp_path: Path, execution: str, kind: str
) -> None:
    """Outer joins, joins by order, queries that come and go, ordered results, tables."""
    run_on(cluster, execution, [kind], tmp_path, scale=1 / max(1.0, shares.current().scale))
