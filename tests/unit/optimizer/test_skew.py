"""Heavy values are scattered where that saves more than it costs, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pytest

import weft
from tests.local_runner import LocalRunner
from weft.optimizer.single.strategies import STRATEGIES
from weft.optimizer.space import Space
from weft.runtime.observe.batch_statistics import measured
from weft.stats.statistics import Statistics

PAIR = "SELECT a.x FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k"
TASKS = weft.Options(partitions=8, tasks=2)


def planned(
    options: weft.Options = TASKS,
    shares: Mapping[str, Mapping[int | str, float]] | None = None,
    sql: str = PAIR,
    key: str = "long",
    rate: float = 20_000.0,
) -> weft.PlannedQuery:
    """A query over two streams whose keys have these shares."""
    session = weft.Session(options=options)
    known = shares or {"a": {42: 0.2}, "b": {42: 0.2}}
    for name, heavy in known.items():
        session.stream(name, f"k {key}, y long, x long, ts timestamp", event_time="ts")
        found = weft.StreamStatistics(rate=rate, distinct={"k": 100_000}, heavy={"k": heavy})
        session.statistics = Statistics({**session.statistics.streams, name: found})
    return session.query(sql)


def both(shares: dict[int | str, float]) -> Mapping[str, Mapping[int | str, float]]:
    """Two streams with the same heavy keys."""
    return dict.fromkeys("ab", shares)


def heavy(query: weft.PlannedQuery) -> list[list[str]]:
    """What the stores scatter."""
    return [list(map(str, store.layout.heavy)) for store in query.graph.stores]


def test_a_key_that_is_heavy_on_both_sides_is_scattered() -> None:
    """One task would have most of the work."""
    assert heavy(planned()) == [["42"], ["42"]]
    assert heavy(planned(key="string", shares=both({"x": 0.2}))) == [["'x'"], ["'x'"]]


@pytest.mark.parametrize(
    "options",
    [
        replace(TASKS, scatter_heavy=False),
        replace(TASKS, partitions=1),
        replace(TASKS, tasks=1),
    ],
)
def test_nothing_is_scattered_where_it_may_not_or_nobody_waits(options: weft.Options) -> None:
    """The user says no; there is one partition; tasks come one after the other anyway."""
    assert heavy(planned(options)) == [[], []]


def test_a_key_that_is_heavy_on_one_side_only_is_not_scattered() -> None:
    """It has few partners, and its many tuples would have to look for them everywhere."""
    assert heavy(planned(shares={"a": {42: 0.2}, "b": {}})) == [[], []]


def test_light_streams_are_left_alone() -> None:
    """With few tuples a task has little to do, whatever their keys."""
    assert heavy(planned(rate=20.0)) == [[], []]


def test_values_that_a_column_cannot_have_are_not_scattered() -> None:
    """Statistics may be of another column's type."""
    shares = both({1 << 40: 0.2, "x": 0.1, 42: 0.2})
    assert heavy(planned(key="int", shares=shares)) == [["42"], ["42"]]


def test_at_most_sixteen_values_are_scattered() -> None:
    """Those that are heaviest."""
    shares: dict[int | str, float] = {key: 0.04 + key / 10_000 for key in range(20)}
    statistics = Statistics({name: weft.StreamStatistics(heavy={"k": shares}) for name in "ab"})
    (values,) = Space(planned().query, statistics, TASKS).skew.heavy(0, 1)
    assert set(values) == {str(key) for key in range(4, 20)}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_finds_it(strategy: str) -> None:
    """And the cost it tells is no more than without."""
    options = replace(TASKS, strategy=strategy)
    with_, without = planned(options), planned(replace(options, scatter_heavy=False))
    assert heavy(with_) == [["42"], ["42"]]
    assert with_.graph.cost is not None
    assert without.graph.cost is not None
    assert with_.graph.cost.total < without.graph.cost.total


def test_what_is_measured_does_not_depend_on_what_is_scattered() -> None:
    """A tuple that probes everywhere is one tuple: else filters would seem to let more through than came."""
    sql = f"{PAIR} AND a.y < 50"
    scattered, plain = planned(sql=sql), planned(replace(TASKS, scatter_heavy=False), sql=sql)
    found = []
    for query in (scattered, plain):
        runner = LocalRunner(query.graph)
        for second in range(3):
            runner.process({name: _batch(second) for name in "ab"})
        found.append(measured(Statistics(), query.graph, runner.metrics))
    assert heavy(scattered) == [["42"], ["42"]]
    assert found[0] == found[1]
    assert found[0].selectivities["a.y < 50"] == 0.5


def _batch(second: int) -> pa.Table:
    times = [second * 1_000_000 + i * 10_000 for i in range(100)]
    keys = [42 if i % 4 == 0 else i for i in range(100)]
    columns = {"k": keys, "y": list(range(100)), "x": list(range(100))}
    return pa.table({**columns, "ts": pa.array(times, pa.timestamp("us", "UTC"))})
