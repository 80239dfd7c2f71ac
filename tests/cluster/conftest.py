"""One standalone cluster for the tests of a process: a master and two workers of one core each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from tests.servers.spark_cluster import SparkCluster
from tests.storage.conftest import front, s3, s3_url  # noqa: F401

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """The cluster, whose executors import this Weft and the tests; tests ask for `cluster`.

    Its machines have no credentials of an object store: what executors need, a test has to give them.
    """
    places = [str(ROOT), str(Path(weft.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    cluster = SparkCluster(tmp_path_factory.mktemp("cluster"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, places)))
        with pytest.MonkeyPatch.context() as without:
            for name in [name for name in os.environ if name.startswith("AWS_")]:
                without.delenv(name)
            cluster.start()
        yield cluster
        cluster.stop()


@pytest.fixture
def cluster(shared_cluster: SparkCluster) -> SparkCluster:
    """The cluster with two workers, also after a test that killed some, or added others."""
    living = [worker for worker in shared_cluster.workers if worker.is_alive]
    for worker in living[2:]:
        worker.kill()
    for _ in range(2 - len(living)):
        shared_cluster.add_worker()
    return shared_cluster
