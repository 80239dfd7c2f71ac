"""What a task holds does not grow with what it finds, and what it finds does not depend on what it holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from tests.local_runner import LocalRunner
from tests.shares import share_of
from tests.unit.runtime import hotkey
from tests.unit.runtime.held_state import HeldState
from weft.connectors.files.parquet_sink import ParquetSink
from weft.errors import QueryError, SinkError
from weft.runtime.hop.admission import admit, route_input
from weft.runtime.hop.interpret import run_hop
from weft.runtime.hop.outcome import HopOptions, Outcome, Outlet, too_many_results
from weft.runtime.log.values import BatchPlan, Manifest
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.model.limits import PORTION_BYTES, TaskLimits
from weft.runtime.output.batch_files import read_file, write_file
from weft.runtime.output.outlet import TaskOutlet
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.wire.exchange import Exchange, Sender
from weft.runtime.wire.messages import Message
from weft.runtime.wire.reports import Failure, HopReport, ResultsReport
from weft.runtime.wire.task_input import Job, Setup
from weft.storage.storage import LocalDisk

FEW = 300  # bytes: about seven matches
MEGABYTE = 1 << 20
KEYS = 6_000  # tuples of one key in either stream
ROWS = min(40, 20 * share_of(1))  # in a batch; the time that their matches take grows with their square


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize(
    ("kind", "most", "results", "given"),
    [
        ("count", 8, KEYS**2, 0),
        pytest.param("parquet", 96, KEYS**2, 0, marks=pytest.mark.ci),
        pytest.param("memory", 64, KEYS**2, KEYS**2, marks=pytest.mark.ci),
        pytest.param("local", 64, KEYS, KEYS, marks=pytest.mark.ci),
        pytest.param("chain", 64, KEYS, KEYS**2 + KEYS, marks=pytest.mark.ci),
    ],
)
def test_a_hot_key_fits_into_little_memory(
    kind: str, most: int, results: int, given: int, tmp_path: Path
) -> None:
    """All matches at once, as they were held, are 288 MB of row numbers alone, before any column is made."""
    command = [sys.executable, "-m", hotkey.__name__, kind, str(KEYS), str(4 * MEGABYTE), str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=dict(os.environ))
    found = json.loads(done.stdout)
    assert found["bytes"] < most * MEGABYTE
    assert found["counts"] == [{"q": results}]
    assert found["given"] == given
    if kind == "parquet":
        parts = [pq.ParquetFile(path).metadata for path in (tmp_path / "out").rglob("*.parquet")]
        assert max(one.num_rows for one in parts) == KEYS**2
        assert max(one.num_row_groups for one in parts) > 10


CONDITIONS = {
    "keys": "a.k = b.k",
    "two keys": "a.k = b.k AND a.j = b.j",
    "texts": "a.s = b.s",
    "a band": "b.j BETWEEN a.j - 1 AND a.j + 1",
    "any": "a.k + b.k > 4 AND a.j <> b.j",
    "keys and more": "a.k = b.k AND a.j < b.j",
    "times": "b.ts BETWEEN a.ts - INTERVAL '2' SECOND AND a.ts",
}
WINDOWS = {"unbounded": "", "range": "[RANGE 3 SECONDS]", "rows": "[ROWS 9]", "rows per": "[ROWS 3 PER k]"}


def sorted_rows(table: pa.Table) -> list[str]:
    """The rows, NULLs and all."""
    return sorted(map(str, table.to_pylist()))


def planned(condition: str, window: str = "") -> weft.Session:
    """A session with a query over two streams."""
    session = weft.Session()
    for name in "ab":
        session.stream(name, "k long, j long, s string, ts timestamp", event_time="ts")
    text = f"SELECT a.k AS k, a.s AS s, b.j AS j FROM a {window}, b {window} WHERE {condition}"
    session.query(text, name="q", cross=True)
    return session


def batch(seed: int, second: int = 0, rows: int = 40) -> pa.Table:
    """Tuples with few keys, some of them NULL."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(0, 2_000_000, rows)) + second * 2_000_000
    columns = {name: pa.array(rng.integers(0, 5, rows), mask=rng.random(rows) < 0.1) for name in "kj"}
    texts = pa.array([f"{'long' * (n % 4)}{n % 5}" for n in rng.integers(0, 20, rows)])
    return pa.table({**columns, "s": texts, "ts": pa.array(times, pa.timestamp("us"))})


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("window", WINDOWS)
def test_the_size_of_portions_changes_no_answer(condition: str, window: str) -> None:
    """A match on the border of a portion would be lost, or given twice; figures would be those of the last portion."""
    (query,) = planned(CONDITIONS[condition], WINDOWS[window]).queries
    runners = [LocalRunner(query.graph, partitions=2, portion_bytes=size) for size in (1, FEW, PORTION_BYTES)]
    for runner in runners:
        for seed in range(3):
            taken = {"a": batch(seed, seed, ROWS), "b": batch(seed + 10, seed, ROWS)}
            runner.process(taken, now=seed)
    *others, whole = runners
    assert whole.results().num_rows > 10
    for other in others:
        assert sorted_rows(other.results()) == sorted_rows(whole.results())
        for ours, theirs in zip(other.metrics, whole.metrics, strict=True):
            assert (ours.steps, ours.answers) == (theirs.steps, theirs.answers)


def hop_of(
    session: weft.Session,
    counting: tuple[str, ...] = (),
    portion_bytes: int = PORTION_BYTES,
    result_limit: int | None = None,
    outlet: Outlet | None = None,
) -> Outcome:
    """One hop over one batch of both streams."""
    program = ExecutableGraph(session.queries[0].graph)
    batch_order, arrived = BatchOrder(0, ("a", "b"), 1), dict[str, list[pa.RecordBatch]]()
    for number, alias in enumerate("ab"):
        source = admit(program, alias, batch(number)).batch
        for parcel in route_input(program, alias, source, batch_order).sent:
            arrived.setdefault(parcel.edge, []).append(parcel.batch)
    limits = TaskLimits(portion_bytes=portion_bytes, query_results=result_limit)
    options = HopOptions(counting, outlet, limits)
    return run_hop(program, 1, arrived, HeldState(), batch_order, options)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("window", ["", "[RANGE 3 SECONDS]"])
def test_a_count_is_the_number_of_results(condition: str, window: str) -> None:
    """What is counted by ranges must be what would be made of them."""
    session = planned(CONDITIONS[condition], window)
    made = hop_of(session)
    counted = hop_of(session, ("q",), portion_bytes=FEW)
    assert counted.counts == {"q": sum(one.num_rows for one in made.results["q"])}
    assert (counted.results, counted.steps) == ({}, made.steps)


@pytest.mark.parametrize("counting", [(), ("q",)])
def test_a_query_with_too_many_results_is_stopped_and_its_key_named(counting: tuple[str, ...]) -> None:
    """Whose fault it is that nothing comes any more must be said; a number alone helps nobody."""
    session = planned("a.k = b.k")
    rows = batch(1)["k"].to_pylist()
    partners = {key: rows.count(key) for key in set(batch(0)["k"].to_pylist()) if key is not None}
    outcome = hop_of(session, counting, portion_bytes=FEW, result_limit=20)
    error = outcome.failed["q"]
    assert isinstance(error, QueryError)
    most = max(partners.values())
    assert any(f"key {key}, of which one tuple has {most} partners" in error.message for key in partners)
    assert "more than 20 results" in error.message
    assert max(partners, key=lambda key: partners[key]) == int(error.message.split("key ")[1].split(",")[0])


def test_a_limit_that_is_kept_changes_nothing() -> None:
    """Nor does one that is met exactly."""
    session = planned("a.k = b.k")
    whole = hop_of(session)
    outcome = hop_of(session, result_limit=whole.counts["q"])
    assert (outcome.failed, outcome.counts) == ({}, whole.counts)


def test_the_drivers_error_for_too_many_results_names_the_remedy() -> None:
    """No task may have too many, and all of them together may."""
    error = too_many_results("q", 1_000)
    assert "query q gives more than 1,000 results in one batch" in str(error)
    assert "result_limit" in str(error)


def job_of(folder: Path, sinks: dict[str, Any], exchange: Exchange | None = None) -> Job:
    """What a task is told."""
    setup, plan = Setup(LocalDisk(folder), "", {}, {}), BatchPlan(0, 0, "")
    limits = TaskLimits(portion_bytes=FEW)
    return Job(setup, plan, Manifest(), sinks, exchange=exchange or Exchange(str(folder)), limits=limits)


def told(job: Job, session: weft.Session, **options: Any) -> list[Message]:
    """What a task says of a hop."""
    with TaskOutlet(job, Sender(1, 0)) as outlet:
        outcome = hop_of(session, outlet=outlet, portion_bytes=job.limits.portion_bytes, **options)
        return list(hotkey.said_of(outlet, outcome))


def failures(messages: list[Message]) -> list[Failure]:
    """The errors among them."""
    return [Failure.from_message(message) for message in messages if Failure.is_in(message)]


def parts(messages: list[Message]) -> list[Mapping[str, str]]:
    """The parts of sinks that were written, as a task reports them."""
    return [HopReport.from_message(message).parts for message in messages if HopReport.is_in(message)]


def opened_sink(path: Path) -> ParquetSink:
    """A sink that has been opened, as the loop does it first of all."""
    sink = ParquetSink(path)
    sink.open(pa.schema([("x", pa.int64())]))
    return sink


def test_results_of_a_failed_query_leave_no_file(tmp_path: Path) -> None:
    """A part that nobody commits would stay; a result that was taken back would be seen."""
    sink = opened_sink(tmp_path / "out")
    messages = told(job_of(tmp_path, {"q": sink}), planned("a.k = b.k"), result_limit=30)
    assert [one.query for one in failures(messages)] == ["q"]
    assert parts(messages) == [{}]
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_hop_that_breaks_leaves_no_file(tmp_path: Path) -> None:
    """As when a task runs out of memory: it is run again, and would write once more."""
    job = job_of(tmp_path, {"q": opened_sink(tmp_path / "out")})
    rows = pa.RecordBatch.from_pydict({"x": list(range(10_000))})
    with TaskOutlet(job, Sender(1, 0)) as outlet:
        outlet.give("q", pa.RecordBatch.from_pydict({"x": np.arange(1 << 22)}))
        outlet.give("other", rows)
        assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@dataclass
class Whole:
    """A user's sink that takes all results of a task at once."""

    taken: list[pa.Table] = field(default_factory=list)
    broken: bool = False

    def write_part(self, batch_id: int, partition: int, rows: list[pa.RecordBatch]) -> str:
        if self.broken:
            raise OSError("no space left on device")
        self.taken.append(pa.Table.from_batches(rows).combine_chunks())
        return f"{batch_id}-{partition}"


def test_a_users_sink_is_given_all_results_at_once(tmp_path: Path) -> None:
    """`write_part` was all there was, and users' sinks have no more."""
    session, sink = planned("a.k = b.k"), Whole()
    messages = told(job_of(tmp_path, {"q": sink}), session)
    assert parts(messages) == [{"q": "0-0"}]
    expected = pa.Table.from_batches(hop_of(session).results["q"])
    assert sorted_rows(sink.taken[0]) == sorted_rows(expected)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_sink_that_raises_anything_is_named(tmp_path: Path) -> None:
    """Not only errors of Weft's own: a full disk is the operating system's."""
    messages = told(job_of(tmp_path, {"q": Whole(broken=True)}), planned("a.k = b.k"))
    (failed,) = failures(messages)
    assert failed.query == "q"
    assert failed.refused is not None
    assert failed.message == "the sink of query q, a Whole, failed: OSError: no space left on device"


@pytest.mark.parametrize("shared", [True, False], ids=["files", "bytes"])
def test_results_for_the_driver_come_in_the_order_they_were_found(shared: bool, tmp_path: Path) -> None:
    """Sorted runs stay runs, whether machines share a folder or not."""
    session = planned("a.k = b.k")
    exchange = Exchange(str(tmp_path)) if shared else Exchange()
    messages = told(job_of(tmp_path, {}, exchange), session)
    (sent,) = (ResultsReport.from_message(message) for message in messages if ResultsReport.is_in(message))
    assert len(sent.files) > 1  # each of them has about a portion
    found = [batch for name in sent.files for batch in read_file(LocalDisk(tmp_path), name)]
    assert sent.packed.batches() == []
    assert found == hop_of(session, portion_bytes=FEW).results["q"]


def test_large_results_stay_readable_when_their_file_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exchange is cleared after every batch, and a memory sink keeps what was in it."""
    monkeypatch.setattr("weft.runtime.output.batch_files.LARGE", 1)
    rows, storage = pa.RecordBatch.from_pydict({"x": np.arange(100_000)}), LocalDisk(tmp_path)
    name = write_file(storage, 7, [rows])
    before = pa.total_allocated_bytes()
    (kept,) = read_file(storage, name, keep=True)
    storage.delete(name)
    assert kept == rows
    assert pa.total_allocated_bytes() == before


def test_a_parquet_part_is_written_as_it_comes_and_goes_when_aborted(tmp_path: Path) -> None:
    """A reader of one row group needs no more memory than its writer had."""
    sink = opened_sink(tmp_path)
    rows = pa.RecordBatch.from_pydict({"x": np.arange(1 << 20), "s": ["text"] * (1 << 20)})
    part = sink.open_part(0, 3)
    for _ in range(9):
        part.write(rows)
    (path,) = (tmp_path / "_weft" / "pending" / "0").iterdir()
    assert path.stat().st_size > 0
    assert part.close() == path.name
    assert pq.read_metadata(path).num_rows == 9 << 20
    assert 3 < pq.read_metadata(path).num_row_groups <= 9
    other = sink.open_part(0, 3)
    for _ in range(5):
        other.write(rows)
    other.abort()
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    sink.commit_parts(0, [path.name])
    (file,) = (tmp_path / "batch=0").iterdir()
    assert pq.read_table(file).num_rows == 9 << 20


def test_a_sink_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """The others go on."""

    class Closed(ParquetSink):
        def open_part(self, batch_id: int, partition: int) -> Any:
            raise SinkError(f"batch {batch_id} of task {partition} has no room")

    messages = told(job_of(tmp_path, {"q": Closed(tmp_path)}), planned("a.k = b.k"))
    assert "no room" in failures(messages)[0].message
