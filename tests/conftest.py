"""Options and marks of the test suite, its one Spark per process, and Hypothesis made repeatable.

A test that passed once at a seed passes again at that seed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.workermanage import WorkerController

from tests import executing, shares
from tests.lanes import LaneScheduling, write_lanes
from tests.shares import Share
from weft.runtime.spark.java import use_own_java

os.environ.setdefault("WEFT_CLASS_ARCHIVE", "0")  # tests leave nothing in the user's cache
use_own_java()  # also for the programs that tests start

# All tests of these folders are marked so.
_FOLDERS = {
    "spark": ("tests/spark/", "tests/service/", "tests/cluster/"),
    "bench": ("tests/unit/benchmarks/",),
    "ci": ("tests/cluster/", "tests/newcomer/", "tests/service/", "tests/unit/benchmarks/"),
}
# What a test that uses such a fixture needs; tests that need the same are run by one worker, which starts it once.
_SERVERS = {
    "shared_cluster": "cluster",
    "broker": "kafka",
    "registry": "kafka",
    "server": "postgres",
    "s3_url": "s3",
    "chromium": "browser",
}
_LANES = pytest.StashKey[tempfile.TemporaryDirectory[str]]()
_LONG = ("tests/recovery/", "tests/equivalence/", "tests/unit/service/")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--scale",
        type=float,
        default=1.0,
        metavar="FACTOR",
        help="how many random cases: so many times those of `make test`",
    )
    parser.addoption(
        "--seed",
        type=int,
        default=0,
        metavar="SEED",
        help="which random cases; a campaign takes others each time",
    )
    parser.addoption(
        "--master",
        default="local[2]",
        metavar="URL",
        help="the Spark master that tests on Spark run on; tests/cluster runs some of them on a cluster",
    )
    parser.addoption(
        "--execution",
        default="auto",
        metavar="NAME",
        help="how batches of random workloads on Spark run: resident, jobs, or as there is room for it",
    )
    parser.addoption(
        "--regenerate-golden", action="store_true", help="write the golden plans anew instead of comparing"
    )


@pytest.hookimpl(tryfirst=True)  # before Hypothesis looks for its seed
def pytest_configure(config: pytest.Config) -> None:
    share = Share(config.getoption("--scale"), config.getoption("--seed"))
    shares.use(share)
    executing.use(config.getoption("--execution"))
    settings.register_profile(
        "weft",
        derandomize=share.seed == 0,
        database=None,
        deadline=None,
        max_examples=share.of(30),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    settings.load_profile("weft")
    if share.seed and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(share.seed)


def pytest_report_header() -> str:
    """What repeats this run."""
    return f"random cases: --seed {shares.current().seed} --scale {shares.current().scale:g}"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tell workers where to note the lanes."""
    node.workerinput["lanes"] = str(_lanes_file(node.config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LaneScheduling | None:
    """Run each lane by one worker, where `--dist loadgroup` asks for that."""
    return LaneScheduling(config, log, _lanes_file(config)) if config.option.dist == "loadgroup" else None


def _lanes_file(config: pytest.Config) -> Path:
    """A file of this run for its lanes."""
    if _LANES not in config.stash:
        config.stash[_LANES] = tempfile.TemporaryDirectory(prefix="weft-lanes-")
    return Path(config.stash[_LANES].name) / "lanes.json"


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave no file behind."""
    if _LANES in config.stash:
        config.stash[_LANES].cleanup()


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses by the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs Spark or a server, and begin with what takes long, so that no worker is idle at the end.

    Tests with the shared Spark are one lane: one worker runs them, while the others run tests without, and it helps
    them when it is done.
    """
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        for mark, folders in _FOLDERS.items():
            if item.nodeid.startswith(folders):
                item.add_marker(mark)
        lanes = sorted({lane for fixture, lane in _SERVERS.items() if fixture in fixtures})
        if lanes:
            item.add_marker("ci")
        if "spark" in fixtures:
            item.add_marker("spark")
            lanes = ["spark"]
        if lanes and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(lanes[0]))
    items.sort(key=_rank)
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    if worker.get("workerid") == "gw0":
        write_lanes(Path(worker["lanes"]), items)


def _rank(item: pytest.Item) -> int:
    if item.get_closest_marker("spark"):
        return 0
    return 1 if item.nodeid.startswith(_LONG) else 2


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[Any]:
    """One Spark for all tests of a process, which must not stop it."""
    from weft.runtime.spark.session import create_spark  # most tests need no Spark

    session = create_spark(request.config.getoption("--master"))
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
