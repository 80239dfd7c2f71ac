"""The network between the driver and one executor is cut, for shorter and for longer than Spark's timeouts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import weft
from tests.cluster.conftest import ROOT
from tests.cluster.killing import SETTINGS, SHORT, Struck
from tests.cluster.network import Network, network, why_missing
from tests.recovery.cases import Case
from tests.servers.spark_cluster import SparkCluster
from tests.shares import numbers

_MISSING = why_missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_MISSING), reason=_MISSING or "-")]

EXECUTIONS = ("jobs", "resident")
TIMEOUT = 8  # seconds, as in `SHORT`
CUTS = {"shorter": 3.0, "longer": 20.0}  # seconds

ENCRYPTION = (
    "spark.authenticate=true",
    "spark.authenticate.secret=for-this-test-alone",
    "spark.network.crypto.enabled=true",
)


@pytest.fixture(scope="module")
def cable() -> Iterator[Network]:
    """This host, and one more."""
    with network() as found:
        yield found


def cluster_apart(folder: Path, cable: Network, settings: Sequence[str] = ()) -> Iterator[SparkCluster]:
    """A cluster with a worker here and one there."""
    places = [str(ROOT), str(Path(weft.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    cluster = SparkCluster(folder, cable.here, settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, places)))
        cluster.start(workers=1)
        cluster.add_worker(host=cable.there, inside=cable.inside)
        yield cluster
        cluster.stop()


@pytest.fixture
def apart(tmp_path: Path, cable: Network) -> Iterator[SparkCluster]:
    """A cluster on two hosts."""
    yield from cluster_apart(tmp_path / "cluster", cable)


@pytest.mark.parametrize("cut", list(CUTS))
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_cut_network_loses_nothing(
    apart: SparkCluster, cable: Network, tmp_path: Path, execution: str, cut: str
) -> None:
    """A peer that is silent would be waited for without end, or what it did after all would count twice."""
    assert f"spark.network.timeout={TIMEOUT}s" in SHORT
    (seed,) = numbers(1)
    one = Struck(tmp_path / "run", Case(seed, 8, "fixed"), apart, execution, SHORT)
    try:
        seconds = one.strike(f"cut the network for {CUTS[cut]:.0f} s", lambda: cable.cut(CUTS[cut]))
        one.finish(restarts=1)
    finally:
        one.run.end()
    assert seconds is not None


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_driver_goes_on_at_another_host(
    apart: SparkCluster, cable: Network, tmp_path: Path, execution: str
) -> None:
    """A session would be bound to the machine that it was started on."""
    (seed,) = numbers(1)
    one = Struck(tmp_path / "run", Case(seed, 8, "fixed"), apart, execution)
    try:
        there = (cable.there, cable.inside_by_name)
        seconds = one.strike("started the driver at another host", lambda: one.restart_driver(*there))
        one.finish()
    finally:
        one.run.end()
    assert seconds is not None


@pytest.mark.parametrize("kind", ["plain", "encrypted"])
def test_resident_tasks_encrypt_what_they_send_where_spark_does(
    tmp_path: Path, cable: Network, kind: str
) -> None:
    """Spark would encrypt its own traffic, and Weft's would be read by who listens; an executor is lost on the way."""
    if kind == "encrypted":
        pytest.importorskip("cryptography", reason='needs "weft[tls]"')
    settings = ENCRYPTION if kind == "encrypted" else ()
    (seed,) = numbers(1)
    with contextmanager(cluster_apart)(tmp_path / "cluster", cable, settings) as cluster:
        with cable.overheard() as heard:
            one = Struck(
                tmp_path / "run", Case(seed, 6, "fixed"), cluster, "resident", (*SETTINGS, *settings)
            )
            try:
                one.strike("killed an executor", one.kill_executor)
                one.finish(restarts=1)
            finally:
                one.run.end()
        assert len(heard) > 100_000
        assert (b'"kind":"done"' in heard) == (kind == "plain")
