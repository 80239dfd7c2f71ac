"""What comes of sorted runs: one output, its punctuations, and batches that let waiting results go."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.local_runner import LocalRunner
from weft.connectors.files.parquet_sink import ParquetPart, ParquetSink, to_parquet
from weft.connectors.memory.count import to_count
from weft.connectors.memory.sink import to_memory
from weft.connectors.memory.source import TableSource
from weft.kernels.expr.arrow import result_schema
from weft.logical.catalog import Catalog
from weft.logical.query.ordering import Ordering
from weft.logical.schema import Schema, Stream
from weft.optimizer.single.strategies import optimise
from weft.optimizer.space import Options
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.lower import lower
from weft.ports.punctuation import Punctuations
from weft.runtime.local import LocalExecutor
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import HeldRun, Manifest
from weft.runtime.loop.wake_ups import LONGEST, PAUSE, until_next
from weft.runtime.model.batch_order import BatchOrder, Clock
from weft.runtime.model.watermarks import Watermarks, clocks
from weft.runtime.observe.progress import state_of
from weft.runtime.output.batch_results import BatchResults
from weft.runtime.output.delivery import deliver
from weft.runtime.output.merge_task import Merge
from weft.runtime.output.ordered_results import OrderedResults, clock_of, gather
from weft.runtime.output.query_sinks import QueryOutput
from weft.runtime.output.suspended import read_kept
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.state.segment_file import BUCKETS
from weft.runtime.wire.messages import Message
from weft.runtime.wire.task_input import Job
from weft.sql.bind import parse_query
from weft.stats.statistics import Statistics
from weft.storage.storage import Memory

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


def table(*rows: tuple[int, int, int]) -> pa.Table:
    """Tuples (id, k, seconds)."""
    ids, keys, times = zip(*rows, strict=True)
    stamps = pa.array([1_000_000 * time for time in times], pa.timestamp("us", "UTC"))
    return pa.table({"id": list(ids), "k": list(keys), "ts": stamps})


def offer(runner: LocalRunner, tuples: pa.Table) -> None:
    """Let the stream a have one more part."""
    source = runner.loop.config.sources["a"]
    assert isinstance(source, TableSource)
    source.offer(tuples)


@pytest.mark.parametrize("few", [0, 1 << 22], ids=["tasks", "driver"])
def test_what_read_tasks_number_for_themselves_gets_its_place(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three tasks read ten tuples each; blocks of 4 go on where the batch before ended."""
    monkeypatch.setattr("weft.runtime.output.ordered_results.FEW", few)
    monkeypatch.setattr("weft.runtime.output.ordered_results.LEAST", 1)
    runner = LocalRunner(ALONE)
    runner.process({"a": table(*((id_, 1, 0) for id_ in range(6)))})
    runner.loop.executor = LocalExecutor(2, readers=3)
    runner.loop.tasks.executor = runner.loop.executor
    for first in (6, 16):
        offer(runner, table(*((id_, id_ % 3, 0) for id_ in range(first, first + 10))))
    found = runner.process({"a": table(*((id_, id_ % 3, 0) for id_ in range(26, 36)))})
    wanted = [id_ for id_ in range(6, 36) if id_ % 3]
    assert sorted(found["id"].to_pylist()) == wanted
    assert [id_ // 4 for id_ in found["id"].to_pylist()] == [id_ // 4 for id_ in wanted]
    marks = runner.punctuations["query"]
    assert marks.marks.tolist() == [4, 6, 8, 12, 16, 20, 24, 28, 32, 36][-len(marks) :]
    ids = [*range(6), *wanted]
    assert marks.rows.tolist() == [sum(id_ < mark for id_ in ids) for mark in marks.marks.tolist()]


def test_results_wait_for_all_watermarks_and_leave_at_the_end() -> None:
    """A tuple exactly at a watermark is on time, so results of that time wait."""
    runner = LocalRunner(graph_of(PAIR, EVENT, a="ts", b="ts"))
    first = runner.process({"a": table((1, 1, 10), (2, 2, 3)), "b": table((3, 1, 8), (4, 2, 5))})
    assert first["id"].to_pylist() == [2]  # at 5, and the watermarks are at 10 and 8
    assert sum(run.rows for run in runner.waiting["query"]) == 1
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
    assert state_of(program, Manifest(held=waiting), "query").part == 100


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
    clock = clock_of(graph.members[0], batch_order, Watermarks())
    found = gather(graph.members[0], (), (0, 0), clock, Memory(), in_parts=False)
    assert found.punctuations[0].rows == 0
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


@pytest.mark.parametrize("tasks", [1, 3])
def test_what_waits_is_in_few_runs(tasks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watermark that does not move must not make every batch slower than the one before, nor leave files behind."""
    monkeypatch.setattr("weft.runtime.output.ordered_results.FEW", 0)
    monkeypatch.setattr("weft.runtime.output.ordered_results.LEAST", 1)
    monkeypatch.setattr("weft.runtime.local.TASKS", tasks)
    graph = graph_of("SELECT a.id, b.id AS bid FROM a, b WHERE a.k = b.k", EVENT, a="ts", b="ts")
    runner = LocalRunner(graph, partitions=4)
    runner.process({"b": table((0, 1, 0), (1, 2, 0))})
    for batch in range(60):
        runner.process({"a": table((batch, 1, 1001 + batch), (batch, 2, 1000 + batch))})
    held = runner.waiting["query"]
    assert sum(run.rows for run in held) == 120
    assert len({run.group for run in held}) <= 8
    assert len(held) <= 8 * tasks
    names = runner.loop.log.storage.list(BUCKETS)
    assert {run.name for run in held} <= set(names)
    assert len([name for name in names if "held" in name]) <= 2 * len(held) + tasks
    assert not [name for name in runner.loop.log.storage.objects if "exchange" in name]  # type: ignore[attr-defined]
    found = runner.end()["query"]
    assert sorted(found["id"].to_pylist()) == sorted([*range(60), *range(60)])
    assert "query" not in runner.waiting


@pytest.mark.parametrize("kind", ["event", "outer", "inner"])
def test_tasks_write_ordered_parts_and_the_driver_sees_none_of_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files in the order of their names are in order, each with its punctuations; a repeated batch gives the same."""
    monkeypatch.setattr("weft.runtime.output.ordered_results.FEW", 0)
    monkeypatch.setattr("weft.runtime.output.ordered_results.LEAST", 1)
    monkeypatch.setattr("weft.runtime.local.TASKS", 3)
    names = ("a", "b") if kind == "inner" else ()
    runner = LocalRunner(graph_of(PAIR, Ordering(kind, 1, names), a="ts", b="ts"), partitions=4)
    sink = to_parquet(tmp_path / "out").in_order()
    sink.open(result_schema(runner.graph.query))
    runner.loop.sinks.add("query", sink)
    rows = [(id_, id_ % 5, id_ % 4) for id_ in range(40)]
    runner.process({"a": table(*rows), "b": table(*rows)})
    runner.end()
    assert runner.loop.last_batch is not None
    files = sorted((tmp_path / "out").glob("*/*.parquet"))
    assert len(files) >= 3
    found = pa.concat_tables([pq.ParquetFile(file).read() for file in files])
    last = [max(a % 4, b % 4) if kind == "event" else max(a, b + 40) for a, b in pairs_of(found)]
    order = runner.metrics[0].order
    if kind != "event" and order == ("b", "a"):
        last = [max(a + 40, b) for a, b in pairs_of(found)]
    assert last == sorted(last)
    assert len(last) == sum(a % 5 == b % 5 for a in range(40) for b in range(40))
    marks = [mark for file in files for mark in Punctuations.read(pq.read_schema(file))]
    assert [mark.rows for mark in marks] == sorted(mark.rows for mark in marks)
    assert marks[-1].rows == len(last)
    if kind != "event":
        assert all(sum(one < mark.tuples for one in last) == mark.rows for mark in marks if mark.tuples)


class Forgetful(LocalExecutor):
    """An executor whose tasks are lost the first times that they merge results."""

    lost = 2

    def collect(self, job: Job, merges: Sequence[Sequence[Merge]]) -> list[Message]:
        """Do the work, and lose what was said of it."""
        found = super().collect(job, merges)
        self.lost -= 1
        if self.lost >= 0:
            raise RuntimeError("a worker was killed")
        return found


@pytest.mark.parametrize("kind", ["event", "outer"])
def test_tasks_that_are_lost_while_they_merge_are_replaced(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they had written is not seen, and the batch is not run again."""
    monkeypatch.setattr("weft.runtime.output.ordered_results.FEW", 0)
    monkeypatch.setattr("weft.runtime.output.ordered_results.LEAST", 1)
    monkeypatch.setattr("weft.runtime.loop.batch.task_runner.PATIENCE", 0.0)
    runner = LocalRunner(graph_of(PAIR, Ordering(kind), a="ts", b="ts"), partitions=4)
    sink = to_parquet(tmp_path / "out").in_order()
    sink.open(result_schema(runner.graph.query))
    runner.loop.sinks.add("query", sink)
    runner.loop.executor = runner.loop.tasks.executor = Forgetful(4)
    rows = [(id_, id_ % 5, id_ % 4) for id_ in range(40)]
    runner.process({"a": table(*rows), "b": table(*rows)})
    runner.end()
    files = sorted((tmp_path / "out").glob("*/*.parquet"))
    found = pa.concat_tables([pq.ParquetFile(file).read() for file in files])
    assert sorted(pairs_of(found)) == [(a, b) for a in range(40) for b in range(40) if a % 5 == b % 5]
    assert not list((tmp_path / "out" / "_weft").glob("*/*"))


class Full(ParquetSink):
    """A sink on a disk that is full."""

    def open_part(self, batch_id: int, partition: int) -> ParquetPart:
        """Fail in a task."""
        raise OSError(f"no room for part {partition} of batch {batch_id}")

    def commit(self, batch_id: int, rows: Any) -> None:  # noqa: ARG002
        """Fail in the driver."""
        raise OSError(f"no room for batch {batch_id}")


@pytest.mark.parametrize("few", [0, 1 << 22], ids=["tasks", "driver"])
def test_a_sink_that_fails_in_a_task_suspends_its_query_alone(
    few: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says why."""
    monkeypatch.setattr("weft.runtime.output.ordered_results.FEW", few)
    runner = LocalRunner(graph_of(PAIR, Ordering("outer"), a="ts", b="ts"), partitions=2)
    runner.loop.sinks.add("query", Full(tmp_path, digits=10))
    rows = [(id_, id_ % 5, id_ % 4) for id_ in range(40)]
    runner.process({"a": table(*rows), "b": table(*rows)})
    (suspended,) = runner.loop.suspended().values()
    assert "no room for part 0 of batch 0" in suspended.reason
    plain = LocalRunner(graph_of(PAIR, Ordering("outer"), a="ts", b="ts"), partitions=2)
    found = plain.process({"a": table(*rows), "b": table(*rows)})
    (kept,) = suspended.kept
    results = read_kept(runner.loop.log.storage, kept)
    assert results.table().equals(found.replace_schema_metadata())
    assert results.punctuations is not None
    assert list(results.punctuations) == list(plain.punctuations["query"])


def pairs_of(found: pa.Table) -> list[tuple[int, int]]:
    """The ids of the tuples of results."""
    return list(zip(found["id"].to_pylist(), found["bid"].to_pylist(), strict=True))


def test_a_query_that_failed_has_no_results_and_one_that_counts_has_no_order() -> None:
    """Its sink is told of the batch all the same."""
    schema, storage = pa.schema([("id", pa.int64())]), Memory()
    rows = pa.RecordBatch.from_pydict({"id": [0, 1]}, schema)
    found = OrderedResults(schema, Punctuations(np.array([2]), np.array([2])), 2, batches=(rows,))
    kept: Any = to_memory()
    kept.open(schema)
    deliver(
        QueryOutput.to(kept),
        "q",
        0,
        BatchResults(failed={"q": "why"}),
        storage,
        OrderedResults(schema, Punctuations.none()),
    )
    assert (kept.results().num_rows, len(kept.punctuations())) == (0, 0)
    deliver(QueryOutput.to(kept), "q", 0, BatchResults(), storage, found)
    assert kept.results()["id"].to_pylist() == [0, 1]
    counted = to_count()
    deliver(QueryOutput.to(counted), "q", 0, BatchResults(counts={"q": 5}), storage)
    assert counted.count() == 5
