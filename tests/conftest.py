"""Options and marks of the test suite, its one Spark per process, and Hypothesis made repeatable.

A test that passed once at a seed passes again at that seed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import executing, shares
from tests.shares import Share
from weft.runtime.spark.java import use_own_java

os.environ.setdefault("WEFT_CLASS_ARCHIVE", "0")  # tests leave nothing in the user's cache
use_own_java()  # also for the programs that tests start

_ON_SPARK = (
    "tests/spark/",
    "tests/service/",
    "tests/cluster/",
)  # all tests of these folders are marked spark
_OF_BENCHMARKS = ("tests/unit/benchmarks/",)  # and of these, bench


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


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses by the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs Spark, and begin with what takes long, so that no worker is idle at the end."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) or item.nodeid.startswith(_ON_SPARK):
            item.add_marker("spark")
        if item.nodeid.startswith(_OF_BENCHMARKS):
            item.add_marker("bench")
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    if item.get_closest_marker("spark"):
        return 0
    return 1 if item.nodeid.startswith(("tests/recovery/", "tests/equivalence/")) else 2


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[Any]:
    """One Spark for all tests of a process, which must not stop it."""
    from weft.runtime.spark.session import create_spark  # most tests need no Spark

    session = create_spark(request.config.getoption("--master"))
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
