"""On Spark, too, the answer is the definition's: a sample of the random joins, as files, through the Spark runner.

Starting a run costs more than a batch, so a run takes several joins at once, each over streams of its own, in
one graph that carries query-sets; every fifth run takes a single one, without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests import executing
from tests.equivalence.files import Layout, random_layouts, write
from tests.equivalence.options import random_options
from tests.equivalence.oracle import Oracle, differs
from tests.equivalence.streams import Join, random_join
from tests.shares import numbers, quick, share_of
from weft.connectors.memory.sink import to_memory
from weft.connectors.sink_descriptions import make_sink, portable_description
from weft.logical.query.canonical import canonical
from weft.optimizer.single.strategies import STRATEGIES, optimise
from weft.optimizer.space import Options
from weft.plan.physical.lower import lower_workload
from weft.plan.physical.part import part_of
from weft.plan.workload import share
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.loop.config import RunConfig
from weft.runtime.loop.driver_order import POLICIES
from weft.runtime.loop.handle import launch
from weft.runtime.loop.loop import Loop
from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.observe.progress import own_metrics
from weft.runtime.queries.active import ActiveQueries, Decision, Samples
from weft.runtime.queries.migration import StateMigration
from weft.runtime.queries.request import QueryRequest
from weft.runtime.queries.visibility import StateFacts
from weft.session.run import executor_for
from weft.stats.statistics import Statistics

RUNS, CASES = 5, 5
LONE = 4  # the run of five that takes a single join


@dataclass(frozen=True)
class Case:
    """A join, how it is planned, and what reads and keeps it."""

    name: str
    join: Join
    options: Options
    sources: dict[str, Any]
    sink: Any

    @property
    def request(self) -> QueryRequest:
        """The join as it is asked for."""
        common = canonical(self.join.query)
        return QueryRequest(common.query, common.names)


def draw(number: int) -> tuple[Join, dict[str, Layout]]:
    """A random join that has results, and how its streams are written.

    Its streams all have event times, or none has: the clock is far from the event times.
    """
    for attempt in count():
        seed = 1_000_000 + 1_000 * number + attempt
        drawn = random_join(seed, prefix=f"c{number}_", batches=(1, 2, 3, 4), mixed=False)
        join, layouts = random_layouts(drawn, seed)
        if Oracle.of(join).found.num_rows:
            return join, layouts
    raise AssertionError


def make_case(number: int, partitions: int, root: Path) -> Case:
    """A random join and its files."""
    join, layouts = draw(number)
    names = [name for name in STRATEGIES if name != "exhaustive" or len(join.query.inputs) < 4]
    options = replace(random_options(number, names[number % len(names)]), partitions=partitions)
    return Case(f"q{number}", join, options, write(join, layouts, root / "in", number), to_memory())


@dataclass(frozen=True)
class SeparatePlans:
    """Plans every join by its own options, and puts all of them into one graph."""

    options: Mapping[str, Options]

    def __call__(
        self,
        _: ActiveQueries,
        requests: Mapping[str, QueryRequest],
        __: Statistics,
        ___: StateFacts,
        ____: Samples | None,
        _____: bool,
    ) -> Decision:
        plan = share(
            {
                name: optimise(one.query, Statistics({}), self.options[name])
                for name, one in sorted(requests.items())
            }
        )
        return Decision(plan, lower_workload(plan), StateMigration(), 0)


def run(
    spark: Any,
    cases: Sequence[Case],
    log: Checkpoint,
    partitions: int,
    policy: str,
    execution: str,
) -> Loop:
    """All cases in one run, until all files are read."""
    config = RunConfig(
        {stream.name: stream for case in cases for stream in case.join.catalog.streams},
        {name: source for case in cases for name, source in case.sources.items()},
        SeparatePlans({case.name: case.options for case in cases}),
        make_sink,
        portable_description,
        partitions,
        policy,
        spark=spark,
    )
    executor = executor_for(spark, execution, partitions, min(partitions, 2))
    loop = Loop(config, log, executor)
    running = launch(loop, {case.name: (case.request, case.sink) for case in cases}, available_now=True)
    try:
        running.await_termination(300)
    finally:
        running.stop()
    return loop


def metrics_of(case: Case, loop: Loop) -> list[BatchMetrics]:
    """What every batch did for a case, under the names its query has."""
    found = []
    for number, metrics in loop.history.batches:
        part = part_of(loop.history.graphs[number], case.name, dict(case.request.names))
        found.append(own_metrics(metrics, case.name, part))
    return found


def wrong(case: Case, metrics: Sequence[BatchMetrics]) -> str:
    """What is wrong with the results of a case; nothing if nothing is."""
    arrivals = [round(batch.started * 1e6) for batch in metrics[: len(case.join.batches)]]
    found = differs(Oracle.of(case.join, arrivals), case.sink.results(), metrics)
    return found and f"{case.name}: {found}: {case.join.query}"


@pytest.mark.parametrize("block", quick(range(share_of(RUNS)), 2))  # one by each executor
def test_random_joins_answer_like_the_definition(spark: Any, tmp_path: Path, block: int) -> None:
    """Files of all formats, several to a batch; late tuples; every strategy and driver policy."""
    partitions, policy = 1 + block % 3, list(POLICIES)[block % len(POLICIES)]
    taken = numbers(CASES, block)[: 1 if block % RUNS == LONE else CASES]
    cases = [make_case(number, partitions, tmp_path) for number in taken]
    execution = executing.current(("resident", "jobs")[block % 2])
    loop = run(spark, cases, Checkpoint.at(tmp_path / "ck"), partitions, policy, execution)
    for case in cases:
        metrics = metrics_of(case, loop)
        assert len(metrics) >= len(case.join.batches)
        assert not wrong(case, metrics)
    assert sum(case.sink.results().num_rows > 0 for case in cases) > len(cases) // 2
