"""Executors, workers and drivers of a cluster are killed, and nothing is lost or doubled.

The checkpoint, the input and the results are on a path that all of them share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.killing import DECOMMISSION, SETTINGS, Struck
from tests.recovery.cases import Case
from tests.servers.spark_cluster import SparkCluster
from tests.shares import numbers, share_of

EXECUTIONS = ("jobs", "resident")

KILLS: dict[str, Callable[[Struck], None]] = {
    "executor": Struck.kill_executor,
    "worker": Struck.replace_worker,
    "driver": Struck.restart_driver,
}

PREEMPTIONS: dict[str, Callable[[Struck], None]] = {
    "asked to end": Struck.preempt_executor,
    "decommissioned": Struck.decommission_executor,
}


@contextmanager
def struck(
    root: Path, case: Case, cluster: SparkCluster, execution: str, settings: Sequence[str] = SETTINGS
) -> Iterator[Struck]:
    """A case on a cluster, of which nothing is left in the end."""
    found = Struck(root, case, cluster, execution, settings)
    try:
        yield found
    finally:
        found.run.end()


@pytest.mark.parametrize("execution", ["jobs", pytest.param("resident", marks=pytest.mark.slow)])
def test_a_killed_executor_is_replaced(cluster: SparkCluster, tmp_path: Path, execution: str) -> None:
    """With an executor go its shuffle files, its cache and half of what a batch has found."""
    (seed,) = numbers(1)
    with struck(tmp_path, Case(seed, 6, "fixed"), cluster, execution) as one:
        one.strike("killed an executor", one.kill_executor)
        one.finish(restarts=1)


@pytest.mark.slow
@pytest.mark.parametrize("how", list(PREEMPTIONS))
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_preempted_executor_is_replaced(
    cluster: SparkCluster, tmp_path: Path, execution: str, how: str
) -> None:
    """Machines that are lent for a while are taken back with notice, also from tasks that never end by themselves."""
    (seed,) = numbers(1)
    with struck(tmp_path, Case(seed, 8, "fixed"), cluster, execution, DECOMMISSION) as one:
        one.strike(how, lambda: PREEMPTIONS[how](one))
        one.finish(restarts=1)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(share_of(1)))
@pytest.mark.parametrize("kind", ["changing", "outer", "fixed"])
@pytest.mark.parametrize("what", list(KILLS))
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_nothing_is_lost_whatever_is_killed(
    cluster: SparkCluster, tmp_path: Path, execution: str, what: str, kind: str, number: int
) -> None:
    """Executors, whole workers with another one added, and drivers, several times in a run."""
    (seed,) = numbers(1, number)
    with struck(tmp_path, Case(seed, 12, kind), cluster, execution) as one:
        for _ in range(2):
            one.strike(f"killed: {what}", lambda: KILLS[what](one))
        one.finish(restarts=2)
