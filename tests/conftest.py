"""Options of the test suite, and Hypothesis made repeatable: a test that passed once passes again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from weft.java import use_own_java

os.environ.setdefault("WEFT_CLASS_ARCHIVE", "0")  # tests leave nothing in the user's cache
use_own_java()  # also for the programs that tests start

settings.register_profile(
    "weft",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("weft")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz-inputs", type=int, default=2_000, metavar="N", help="how many texts the SQL fuzzer tries"
    )
    parser.addoption(
        "--equivalence-cases",
        type=int,
        default=2_000,
        metavar="N",
        help="how many random joins (query, plan, driver policy, batches) are compared with the reference",
    )
    parser.addoption(
        "--outer-cases",
        type=int,
        default=1_000,
        metavar="N",
        help="how many random outer, semi and anti joins (query, plan, batches) are compared with the reference",
    )
    parser.addoption(
        "--order-cases",
        type=int,
        default=200,
        metavar="N",
        help="how many random joins with ordered results (query, plan, order, batches) are compared with the reference",
    )
    parser.addoption(
        "--spark-cases",
        type=int,
        default=40,
        metavar="N",
        help="how many random joins are run on Spark and compared with the reference",
    )
    parser.addoption(
        "--spark-outer-cases",
        type=int,
        default=20,
        metavar="N",
        help="how many random outer, semi and anti joins are run on Spark and compared with the reference",
    )
    parser.addoption(
        "--theta-cases",
        type=int,
        default=1_000,
        metavar="N",
        help="how many random joins by order (query, plan, driver policy, batches) are compared with the reference",
    )
    parser.addoption(
        "--spark-theta-cases",
        type=int,
        default=20,
        metavar="N",
        help="how many random joins by order are run on Spark and compared with the reference",
    )
    parser.addoption(
        "--workload-cases",
        type=int,
        default=500,
        metavar="N",
        help="how many random workloads (queries that come and go, method, plan) are compared with the reference",
    )
    parser.addoption(
        "--spark-workload-cases",
        type=int,
        default=15,
        metavar="N",
        help="how many random workloads are run on Spark by each method and compared with the reference",
    )
    parser.addoption(
        "--planner-cases",
        type=int,
        default=340,
        metavar="N",
        help="how many random workloads (queries that come and go, statistics, method) are planned",
    )
    parser.addoption(
        "--planner-seed", type=int, default=0, metavar="SEED", help="the first of these workloads"
    )
    parser.addoption(
        "--kills", type=int, default=6, metavar="N", help="how many processes of running sessions are killed"
    )
    parser.addoption(
        "--faults", type=int, default=48, metavar="N", help="how many files are lost or damaged, about"
    )
    parser.addoption(
        "--recovery-seed",
        type=int,
        default=0,
        metavar="SEED",
        help="what is run, when it is killed, and what happens to its files",
    )
    parser.addoption(
        "--regenerate-golden", action="store_true", help="write the golden plans anew instead of comparing"
    )


@pytest.fixture(scope="session")
def fuzz_inputs(request: pytest.FixtureRequest) -> int:
    """How many texts to fuzz with."""
    return int(request.config.getoption("--fuzz-inputs"))


@pytest.fixture(scope="session")
def equivalence_cases(request: pytest.FixtureRequest) -> int:
    """How many random joins to compare with the reference."""
    return int(request.config.getoption("--equivalence-cases"))


@pytest.fixture(scope="session")
def order_cases(request: pytest.FixtureRequest) -> int:
    """How many random joins with ordered results to check."""
    return int(request.config.getoption("--order-cases"))


@pytest.fixture(scope="session")
def outer_cases(request: pytest.FixtureRequest) -> int:
    """How many random outer, semi and anti joins to compare with the reference."""
    return int(request.config.getoption("--outer-cases"))


@pytest.fixture(scope="session")
def spark_cases(request: pytest.FixtureRequest) -> int:
    """How many random joins to run on Spark."""
    return int(request.config.getoption("--spark-cases"))


@pytest.fixture(scope="session")
def spark_outer_cases(request: pytest.FixtureRequest) -> int:
    """How many random outer, semi and anti joins to run on Spark."""
    return int(request.config.getoption("--spark-outer-cases"))


@pytest.fixture(scope="session")
def theta_cases(request: pytest.FixtureRequest) -> int:
    """How many random joins by order to compare with the reference."""
    return int(request.config.getoption("--theta-cases"))


@pytest.fixture(scope="session")
def spark_theta_cases(request: pytest.FixtureRequest) -> int:
    """How many random joins by order to run on Spark."""
    return int(request.config.getoption("--spark-theta-cases"))


@pytest.fixture(scope="session")
def workload_cases(request: pytest.FixtureRequest) -> int:
    """How many random workloads to compare with the reference."""
    return int(request.config.getoption("--workload-cases"))


@pytest.fixture(scope="session")
def spark_workload_cases(request: pytest.FixtureRequest) -> int:
    """How many random workloads to run on Spark by each method."""
    return int(request.config.getoption("--spark-workload-cases"))


@pytest.fixture(scope="session")
def planner_cases(request: pytest.FixtureRequest) -> int:
    """How many random workloads to plan."""
    return int(request.config.getoption("--planner-cases"))


@pytest.fixture(scope="session")
def planner_seed(request: pytest.FixtureRequest) -> int:
    """The seed of the first workload that is planned."""
    return int(request.config.getoption("--planner-seed"))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark for all tests of a worker: those that use it are in the group "spark", and must not stop it."""
    from weft.runtime.spark.session import create_spark  # most tests need no Spark

    session = create_spark("local[2]")
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kills(request: pytest.FixtureRequest) -> int:
    """How many processes to kill."""
    return int(request.config.getoption("--kills"))


@pytest.fixture(scope="session")
def recovery_seed(request: pytest.FixtureRequest) -> int:
    """The seed of the first run that is killed."""
    return int(request.config.getoption("--recovery-seed"))


@pytest.fixture(scope="session")
def faults(request: pytest.FixtureRequest) -> int:
    """How many files are lost or damaged."""
    return int(request.config.getoption("--faults"))
