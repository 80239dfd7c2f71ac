"""What the driver makes of sorted runs: one output, its punctuations, and batches that let waiting results go."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from weft.logical.catalog import Catalog
from weft.logical.ordering import Ordering
from weft.logical.schema import Schema, Stream
from weft.optimizer.single.strategies import optimise
from weft.optimizer.space import Options
from weft.plan.graph import PhysicalGraph
from weft.plan.lower import lower
from weft.runtime.log.checkpoint import BUCKETS, Checkpoint
from weft.runtime.log.values import HeldRun, Manifest
from weft.runtime.loop.deliver import deliver
from weft.runtime.loop.ordered_output import Gathered, gather_results, number_runs
from weft.runtime.loop.query_sinks import Output
from weft.runtime.loop.task_reports import Answered
from weft.runtime.loop.wake_ups import LONGEST, PAUSE, until_next
from weft.runtime.model.batch_order import BatchOrder, Clock, Count
from weft.runtime.model.watermarks import Watermarks, clocks
from weft.runtime.observe.progress import state_of
from weft.runtime.program.executable import ExecutableGraph
from weft.sinks import to_count, to_memory
from weft.sql.bind import parse_query
from weft.stats.statistics import Statistics
from weft.testing.local import LocalRunner

SCHEMA = Schema.parse("id long, k long, ts timestamp")


def graph_of(
    sql: str, ordering: Ordering, idle: timedelta | None = None, **streams: str | None
) -> PhysicalGraph:
    """A graph over streams, given with their event times."""
    found = tuple(
        Stream(name, SCHEMA, time, idle_after=idle if time else None) for name, time in streams.items()
    )
    query = parse_query(sql, Catalog(found))
    return lower(optimise(query, Statistics(), Options(partitions=2)), ordering=ordering)


ALONE = graph_of("SELECT id FROM a WHERE k > 0", Ordering("outer", 4), a="ts")
PAIR = "SELECT a.id, b.id AS bid FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS] WHERE a.k = b.k"
EVENT = Ordering("event")


def run_of(keys: list[int]) -> pa.RecordBatch:
    """A run of results whose id is their key."""
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.int64())] * 2, ["$key0", "id"])


def test_what_read_tasks_number_for_themselves_gets_its_place() -> None:
    """Task 0 read 10 tuples, and 6 came in earlier batches: blocks of 4 go on from there."""
    member = replace(ALONE.members[0], began=100)
    batch_order = BatchOrder(1, ("a",), 2, {"a": Count(106, 30)})
    runs = number_runs(member, batch_order, [(1, run_of([0, 1, 7])), (0, run_of([2, 9]))], {0: 10, 1: 20})
    assert [run.column(0).to_pylist() for run in runs] == [[4, 4, 5], [2, 3]]
    found = gather_results(member, runs, batch_order, 3, Watermarks())
    assert found.table["id"].to_pylist() == [2, 9, 0, 1, 7]
    assert found.punctuations.rows.tolist() == [3, 4, 5, 7, 8]
    assert found.punctuations.marks.tolist() == [8, 12, 16, 20, 36]


def table(*rows: tuple[int, int, int]) -> pa.Table:
    """Tuples (id, k, seconds)."""
    ids, keys, times = zip(*rows, strict=True)
    stamps = pa.array([1_000_000 * time for time in times], pa.timestamp("us", "UTC"))
    return pa.table({"id": list(ids), "k": list(keys), "ts": stamps})


def test_results_wait_for_all_watermarks_and_leave_at_the_end() -> None:
    """A tuple exactly at a watermark is on time, so results of that time wait."""
    runner = LocalRunner(graph_of(PAIR, EVENT, a="ts", b="ts"))
    first = runner.process({"a": table((1, 1, 10), (2, 2, 3)), "b": table((3, 1, 8), (4, 2, 5))})
    assert first["id"].to_pylist() == [2]  # at 5, and the watermarks are at 10 and 8
    assert sum(one.run.num_rows for one in runner.waiting["query"]) == 1
    second = runner.process({"b": table((5, 7, 10))})
    assert second.num_rows == 0
    assert runner.end()["query"]["id"].to_pylist() == [1]
    assert runner.punctuations["query"].rows.tolist() == [1, 1, 2]


@pytest.mark.parametrize(
    ("streams", "idle", "marks", "wanted"),
    [
        ({"a": None, "b": None}, None, {"a": 5, "b": 5}, PAUSE),
        ({"a": "ts", "b": None}, None, {"a": 1, "b": 5}, None),
        ({"a": "ts", "b": None}, None, {"a": 9, "b": 5}, PAUSE),
        ({"a": "ts", "b": None}, None, {"b": 5}, None),
        ({"a": "ts", "b": "ts"}, timedelta(seconds=7), {"a": 1, "b": 5}, 7 + PAUSE),
        ({"a": "ts", "b": "ts"}, None, {"a": 1, "b": 5}, None),
    ],
)
def test_a_batch_follows_when_time_alone_lets_results_leave(
    streams: dict[str, str | None], idle: timedelta | None, marks: dict[str, int], wanted: float | None
) -> None:
    """Otherwise they would wait for the next tuple, which may never come."""
    program = ExecutableGraph(graph_of(PAIR, EVENT, idle, **streams))
    waiting = {"query": (HeldRun("0-held-x", 0, 3, 5, 100),)}
    assert until_next(program, Manifest(marks=marks, held=waiting), 5) == wanted
    assert until_next(program, Manifest(marks=marks), 5) is None
    assert state_of(program, Manifest(held=waiting), "query") == 100


def test_results_of_a_distant_future_are_not_looked_for_every_second() -> None:
    """A stream whose clock is far ahead of ours."""
    program = ExecutableGraph(graph_of(PAIR, EVENT, a="ts", b=None))
    waiting = {"query": (HeldRun("0-held-x", 0, 3, 10**15, 100),)}
    assert until_next(program, Manifest(marks={"a": 10**15, "b": 5}, held=waiting), 5) == LONGEST


def test_clocks_say_when_everything_may_leave() -> None:
    """The end of the input is part of the plan of a batch, so a replay knows of it."""
    graph = graph_of(PAIR, EVENT, a="ts", b="ts")
    assert clocks(graph, Watermarks({"a": 7, "b": 9}), {}, ended=False)["query"].now == 7
    batch_order = BatchOrder(0, ("a", "b"), 1, clocks=clocks(graph, Watermarks(), {}, ended=True))
    assert gather_results(graph.members[0], [], batch_order, 0, Watermarks()).punctuations[0].rows == 0
    assert isinstance(batch_order.clocks["query"], Clock)


def test_a_manifest_keeps_what_is_held(tmp_path: Path) -> None:
    """And its files, which are nobody's otherwise, until no kept manifest names them."""
    checkpoint = Checkpoint.at(tmp_path)
    checkpoint.open({}, partitions=1)
    for name in ("0-held-x", "0-held-y"):
        checkpoint.storage.put(f"{BUCKETS}/{name}", b"")
    checkpoint.commit(left := Manifest(0, held={"q": (HeldRun("0-held-x", 1, 2, 3, 4),)}))
    checkpoint.tidy(left)
    assert checkpoint.manifest(0) == Manifest(0, held={"q": (HeldRun("0-held-x", 1, 2, 3, 4),)})
    checkpoint.clean()  # as at every start
    assert checkpoint.storage.list(BUCKETS) == ["0-held-x"]
    for number in (1, 2):
        checkpoint.commit(left := Manifest(number))
        checkpoint.tidy(left)
        assert checkpoint.storage.list(BUCKETS) == ["0-held-x"][: 2 - number]
    checkpoint.close()


def test_a_query_that_failed_has_no_results_and_one_that_counts_has_no_order() -> None:
    """Its sink is told of the batch all the same."""
    member = ALONE.members[0]
    batch_order = BatchOrder(0, ("a",), 1, {"a": Count(0, 3)})
    found: Gathered = gather_results(member, [run_of([0, 1])], batch_order, 0, Watermarks())
    kept: Any = to_memory()
    kept.open(found.table.schema)
    deliver(Output.to(kept), "q", 0, Answered(failed={"q": "why"}), found)
    assert (kept.results().num_rows, len(kept.punctuations())) == (0, 0)
    deliver(Output.to(kept), "q", 0, Answered(), found)
    assert kept.results()["id"].to_pylist() == [0, 1]
    counted = to_count()
    deliver(Output.to(counted), "q", 0, Answered(counts={"q": 5}), None)
    assert counted.count() == 5
