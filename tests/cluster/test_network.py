"""The network between the driver and one executor is cut, for shorter and for longer than Spark's timeouts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from tests.cluster.conftest import ROOT
from tests.cluster.killing import SHORT, Struck
from tests.cluster.network import Network, network, why_missing
from tests.recovery.cases import Case
from tests.shares import numbers
from weft.testing.spark_cluster import SparkCluster

_MISSING = why_missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_MISSING), reason=_MISSING or "-")]

EXECUTIONS = ("jobs", "resident")
TIMEOUT = 8  # seconds, as in `SHORT`
CUTS = {"shorter": 3.0, "longer": 20.0}  # seconds


@pytest.fixture(scope="module")
def cable() -> Iterator[Network]:
    """This host, and one more."""
    with network() as found:
        yield found


@pytest.fixture
def apart(tmp_path: Path, cable: Network) -> Iterator[SparkCluster]:
    """A cluster with a worker here and one there."""
    places = [str(ROOT), str(Path(weft.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    cluster = SparkCluster(tmp_path / "cluster", cable.here)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, places)))
        cluster.start(workers=1)
        cluster.add_worker(host=cable.there, inside=cable.inside)
        yield cluster
        cluster.stop()


@pytest.mark.parametrize("cut", list(CUTS))
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_cut_network_loses_nothing(
    apart: SparkCluster, cable: Network, tmp_path: Path, execution: str, cut: str
) -> None:
    """A peer that is silent would be waited for without end, or what it did after all would count twice."""
    assert f"spark.network.timeout={TIMEOUT}s" in SHORT
    (seed,) = numbers(1)
    one = Struck(tmp_path / "run", Case(seed, 8, "fixed"), apart, execution)
    try:
        seconds = one.strike(f"cut the network for {CUTS[cut]:.0f} s", lambda: cable.cut(CUTS[cut]))
        one.finish(restarts=1)
    finally:
        one.run.end()
    assert seconds is not None
    assert seconds < CUTS[cut] + 60
