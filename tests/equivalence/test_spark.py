"""On Spark, too, the answer is the definition's: a sample of the random joins, as files, through the Spark runner.

Starting a streaming query costs more than a batch, so a run takes many joins at once, each over streams of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.equivalence.files import Layout, random_layouts, write
from tests.equivalence.oracle import Oracle, differs
from tests.equivalence.streams import WINDOWS, Join, random_join
from tests.equivalence.test_plans import random_options
from weft.optimizer.optimizer import STRATEGIES, optimise
from weft.plan.graph import PhysicalGraph
from weft.plan.lower import lower
from weft.runtime.checkpoint import Checkpoint
from weft.runtime.driver import POLICIES
from weft.runtime.metrics import BatchMetrics
from weft.runtime.spark import SparkRunner, Target
from weft.sinks import to_memory
from weft.stats.statistics import Statistics

pytestmark = pytest.mark.xdist_group("spark")  # one JVM, in one worker

RUNS = 5
ROWS_RUN_ON_SPARK = False
LATE_ONES_CAN_JOIN = False

USED = WINDOWS if ROWS_RUN_ON_SPARK else [window for window in WINDOWS if "ROWS" not in window]


@dataclass(frozen=True)
class Case:
    """A join, how it is planned, and what reads and keeps it."""

    name: str
    join: Join
    graph: PhysicalGraph
    sources: dict[str, Any]
    sink: Any


def draw(number: int) -> tuple[Join, dict[str, Layout]]:
    """A random join that has results, and how its streams are written.

    Its streams all have event times, or none has: the clock is far from the event times.
    """
    for attempt in count():
        seed = 1_000_000 + 1_000 * number + attempt
        drawn = random_join(seed, prefix=f"c{number}_", windows=USED, batches=(1, 2, 3, 4), mixed=False)
        late = drawn.late if LATE_ONES_CAN_JOIN else "drop"
        join, layouts = random_layouts(replace(drawn, late=late, idle_after=None), seed)
        if Oracle.of(join).found.num_rows:
            return join, layouts
    raise AssertionError


def make_case(number: int, partitions: int, root: Path) -> Case:
    """A random join and its files."""
    join, layouts = draw(number)
    names = [name for name in STRATEGIES if name != "exhaustive" or len(join.query.inputs) < 4]
    options = replace(random_options(number, names[number % len(names)]), partitions=partitions)
    graph = lower(optimise(join.query, Statistics({}), options))
    return Case(f"q{number}", join, graph, write(join, layouts, root / "in", number), to_memory())


def run(spark: Any, cases: Sequence[Case], root: Path, partitions: int, policy: str) -> SparkRunner:
    """All cases in one streaming query, until all files are read."""
    streams = {stream.name: stream for case in cases for stream in case.join.catalog.streams}
    sources = {name: source for case in cases for name, source in case.sources.items()}
    targets = {case.name: Target(case.graph, case.sink) for case in cases}
    runner = SparkRunner(spark, Checkpoint(root / "ck"), streams, sources, targets, partitions, policy)
    query = runner.start({"availableNow": True})
    try:
        query.awaitTermination(300)
    finally:
        query.stop()
        runner.checkpoint.close()
    return runner


def wrong(case: Case, metrics: Sequence[BatchMetrics]) -> str:
    """What is wrong with the results of a case; nothing if nothing is."""
    orders = [batch.order for batch in metrics[: len(case.join.batches)]]
    oracle = Oracle.of(case.join, list(_arrivals(case.join, metrics)))
    found = differs(oracle, case.sink.results(), orders)
    return found and f"{case.name}: {found}: {case.join.query}"


def _arrivals(join: Join, metrics: Sequence[BatchMetrics]) -> Iterator[int]:
    """When the batches came: a stream without event time is always where the clock is."""
    clocks = [stream.name for stream in join.catalog.streams if stream.event_time is None]
    for number in range(len(join.batches)):
        yield metrics[number].watermarks[clocks[0]] if clocks else number


@pytest.mark.parametrize("block", range(RUNS))
def test_random_joins_answer_like_the_definition(
    spark: Any, tmp_path: Path, block: int, spark_cases: int
) -> None:
    """Files of all formats, several to a batch; late tuples; every strategy and driver policy."""
    partitions, policy = 1 + block % 3, list(POLICIES)[block % len(POLICIES)]
    numbers = range(block, spark_cases, RUNS)
    cases = [make_case(number, partitions, tmp_path) for number in numbers]
    runner = run(spark, cases, tmp_path, partitions, policy)
    assert all(len(runner.metrics[case.name]) >= len(case.join.batches) for case in cases)
    assert not [text for case in cases if (text := wrong(case, runner.metrics[case.name]))]
    assert sum(case.sink.results().num_rows > 0 for case in cases) > len(cases) // 2
