"""One run of Weft over a data set under a driver policy, and when in each batch its results came.

Guarantees: batches run in this process, without Spark, by the loop and the tasks that users have; results are made and
handed to a sink as they are found. Times are processor time, as the paper's are times in which the processor works.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

import numpy as np
import pyarrow as pa
from benchmarks._calls import timing
from numpy.typing import NDArray
from tests.local_runner import LocalRunner

import weft
from weft.connectors.memory.source import TableSource
from weft.ports.sink import ResultRows
from weft.runtime.state.partition import PartitionState

STREAMS = ("s1", "s2", "s3")
SPAN = 10_000_000  # time units from the first tuple to the last: 10⁶ tuples, one every 10 units
_KEYS = 1_000  # in all three streams
_LEVELS = 10  # how often the b-model cuts a span in two

Times = NDArray[np.float64]
Arrivals = Callable[[int], Times]


def evenly(count: int) -> Times:
    """Times in [0, 1) at a uniform rate."""
    return np.arange(count) / count


def in_quarters(*gaps: int) -> Arrivals:
    """Times whose distance changes with every quarter of the tuples."""

    def times(count: int) -> Times:
        each = np.repeat(np.array(gaps, np.float64), -(-count // len(gaps)))[:count]
        ends = np.cumsum(each)
        found: Times = (ends - each[0]) / ends[-1]
        return found

    return times


def wave(count: int, periods: int = 2, depth: float = 0.9) -> Times:
    """Times whose rate is 1 + depth · sin: the paper does not say how many periods there are, or how deep."""
    grid = np.linspace(0.0, 1.0, 4096)
    turn = 2 * np.pi * periods
    passed = grid + depth * (1 - np.cos(turn * grid)) / turn
    found: Times = np.interp((np.arange(count) + 0.5) / count * passed[-1], passed, grid)
    return found


def bursts(first: float) -> Arrivals:
    """Times by the b-model: this part of the tuples in the first half of the time, and so on in either half."""

    def times(count: int) -> Times:
        shares = np.ones(1)
        for _ in range(_LEVELS):
            shares = np.outer(shares, (first, 1 - first)).ravel()
        ends = np.round(np.cumsum(shares) * count).astype(np.int64)
        cells = np.searchsorted(ends, np.arange(count), side="right")
        sizes = np.diff(ends, prepend=0)
        within = (np.arange(count) - (ends - sizes)[cells]) / np.maximum(1, sizes)[cells]
        return (cells + within) / len(shares)

    return times


@dataclass(frozen=True, slots=True)
class Dataset:
    """The sizes of the streams, how many tuples of each have one of the common keys, and how they arrive."""

    name: str
    sizes: tuple[int, int, int]
    partners: tuple[int, int, int]
    arrivals: tuple[Arrivals, Arrivals, Arrivals]


_EQUAL, _UNEQUAL = (10**6, 10**6, 10**6), (10**4, 10**5, 10**6)
_FEW, _MANY = (1, 5, 1_000), (1, 10, 100)
DATASETS = (
    Dataset("I", _EQUAL, _FEW, (evenly, evenly, in_quarters(5, 15, 5, 15))),
    Dataset("II", _EQUAL, _FEW, (evenly, in_quarters(15, 5, 15, 5), in_quarters(5, 15, 5, 15))),
    Dataset("III", _EQUAL, _FEW, (evenly, in_quarters(15, 5, 15, 5), wave)),
    Dataset("IV", _EQUAL, _FEW, (evenly, evenly, bursts(0.2))),
    Dataset("V", _UNEQUAL, _MANY, (evenly, evenly, bursts(0.8))),
    Dataset("VI", _UNEQUAL, _MANY, (evenly, evenly, bursts(0.2))),
)


def generate(dataset: Dataset, scale: float = 1.0, seed: int = 0) -> dict[str, pa.Table]:
    """The streams: a key, and the time in microseconds, which stand for the paper's time units."""
    random, keys = np.random.default_rng(seed), max(1, round(_KEYS * scale))
    found = {}
    for place, name in enumerate(STREAMS):
        common = np.repeat(np.arange(keys), dataset.partners[place])
        size = max(len(common), round(dataset.sizes[place] * scale))
        alone = keys + place + len(STREAMS) * np.arange(size - len(common))
        times = (dataset.arrivals[place](size) * SPAN).astype(np.int64)
        found[name] = pa.table(
            {
                "k": random.permutation(np.concatenate([common, alone])),
                "ts": pa.array(times, pa.timestamp("us")),
            }
        )
    return found


def batches(streams: dict[str, pa.Table], count: int) -> Iterator[dict[str, pa.Table]]:
    """The streams cut into so many batches, each of an equal time."""
    bounds = np.linspace(0, SPAN, count + 1)
    cuts = {
        name: np.searchsorted(table.column("ts").cast(pa.int64()).to_numpy(), bounds)
        for name, table in streams.items()
    }
    for number in range(count):
        first = {name: int(places[number]) for name, places in cuts.items()}
        yield {
            name: table.slice(first[name], int(cuts[name][number + 1]) - first[name])
            for name, table in streams.items()
        }


SQL = "SELECT s1.k, s1.ts AS t1, s2.ts AS t2, s3.ts AS t3 FROM s1, s2, s3 WHERE s1.k = s2.k AND s2.k = s3.k"
PORTION = 1 << 20  # bytes of matches that are made at a time, so that it is seen when results come


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch: how long it took, its tuples and driver order, and what happened in it.

    ``given`` are pairs of a time since its beginning and of how many results were handed over then. ``done`` says when
    each input had been processed: it has probed and is stored. ``peak`` is the most memory of Arrow's there was when
    results were handed over, beyond what was there at the beginning.
    """

    seconds: float
    rows: Mapping[str, int]
    order: tuple[str, ...] = ()
    given: tuple[tuple[float, int], ...] = ()
    done: Mapping[str, float] = field(default_factory=dict)
    peak: int = 0

    @property
    def results(self) -> int:
        """How many results it gave."""
        return sum(count for _, count in self.given)

    def results_by(self, deadline: float) -> int:
        """How many results it had given after so many seconds."""
        return sum(count for moment, count in self.given if moment <= deadline)

    def results_after(self, part: float) -> float:
        """How many results it had given when this part of its tuples was processed; no clock has a say in that.

        Within an input results are taken to come evenly.
        """
        left, found, before = part * sum(self.rows.values()), 0.0, 0.0
        for name, done in sorted(self.done.items(), key=lambda one: one[1]):
            mine = sum(count for moment, count in self.given if before < moment <= done)
            found += mine * min(1.0, left / max(1, self.rows[name]))
            left, before = max(0.0, left - self.rows[name]), done
        return found

    def waiting(self, span: float) -> float:
        """How many of its tuples were not processed yet, on average over so many seconds from its beginning."""
        return sum(rows * min(span, self.done.get(name, 0.0)) for name, rows in self.rows.items()) / span


@dataclass(frozen=True, slots=True)
class Run:
    """All batches of a run, and the bytes stored after the last."""

    batches: Sequence[Batch]
    state: int

    @classmethod
    def fastest(cls, runs: Sequence[Run]) -> Run:
        """Of several runs over the same batches, every batch as it was when it was fastest: others use the machine."""
        rounds = zip(*(one.batches for one in runs), strict=True)
        return cls([min(some, key=lambda batch: batch.seconds) for some in rounds], runs[-1].state)

    @property
    def results(self) -> int:
        """How many results there were."""
        return sum(batch.results for batch in self.batches)

    @property
    def measured(self) -> Sequence[Batch]:
        """The last 80 % of the batches, in which the stores are filled, as in the paper."""
        return self.batches[len(self.batches) // 5 :]


@dataclass
class _Clocked:
    """A sink that notes when results come, and keeps none."""

    exactly_once = True
    given: list[tuple[float, int]] = field(default_factory=list)
    peak: int = 0

    def open(self, schema: pa.Schema, owner: str | None = None) -> None: ...

    def recover(self, last_committed: int) -> None: ...

    def begin(self, batch_id: int) -> None: ...

    def commit(self, batch_id: int, rows: ResultRows) -> None: ...

    def commit_parts(self, batch_id: int, names: Sequence[str]) -> None: ...

    def write_part(self, batch_id: int, partition: int, rows: ResultRows) -> str:  # noqa: ARG002
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else rows:
            self.write(batch)
        return "part"

    def open_part(self, batch_id: int, partition: int) -> _Clocked:  # noqa: ARG002
        return self

    def write(self, rows: pa.RecordBatch) -> None:
        self.given.append((time.process_time(), rows.num_rows))
        self.peak = max(self.peak, pa.total_allocated_bytes())

    def close(self) -> str:
        return "part"

    def abort(self) -> None: ...


@contextmanager
def _watching(done: dict[str, float]) -> Iterator[None]:
    """A context in which it is noted when the tuples of each input have been stored, which comes after its probes."""

    def note(_: str, frame: FrameType) -> None:
        done[frame.f_locals["start"]] = time.process_time()

    with timing({"store": PartitionState.add}, note):
        yield


def run(batches: Sequence[Mapping[str, pa.Table]], policy: str, slices: int = 1) -> Run:
    """Run all batches; each is cut by time into so many ``slices``, which are run one after the other."""
    runner = _runner(policy)
    sink = _Clocked()
    runner.loop.sinks.add(runner.graph.members[0].name, sink)
    found = [_batch(runner, sink, batch, slices) for batch in batches]
    last = runner.metrics[-1]
    return Run(found, sum(store.bytes for store in last.stores.values()))


def _runner(policy: str) -> LocalRunner:
    session = weft.Session(options=weft.Options(partitions=1))
    for name in STREAMS:
        session.stream(name, "k long, ts timestamp", event_time="ts")
    return LocalRunner(
        session.query(SQL, strategy="flat").graph, partitions=1, driver=policy, portion_bytes=PORTION
    )


def _batch(runner: LocalRunner, sink: _Clocked, tables: Mapping[str, pa.Table], slices: int) -> Batch:
    """Run one batch."""
    sink.given, sink.peak = [], 0
    held, done = pa.total_allocated_bytes(), dict[str, float]()
    pieces = _sliced(tables, slices) if slices > 1 else [tables]
    began = time.process_time()
    with _watching(done):
        for piece in pieces:
            for name, table in piece.items():
                source = runner.loop.config.sources[name]
                assert isinstance(source, TableSource)
                if table.num_rows:
                    source.offer(table)
            runner.loop.run_next(also_empty=True)
    return Batch(
        time.process_time() - began,
        {name: table.num_rows for name, table in tables.items()},
        runner.metrics[-1].order,
        tuple((moment - began, count) for moment, count in sink.given),
        {name: moment - began for name, moment in done.items()},
        max(0, sink.peak - held),
    )


def _sliced(tables: Mapping[str, pa.Table], count: int) -> list[dict[str, pa.Table]]:
    """Tables cut by time into pieces that take an equal time."""
    times = {name: table.column("ts").cast(pa.int64()).to_numpy() for name, table in tables.items()}
    filled = [column for column in times.values() if len(column)]
    if not filled:
        return [dict(tables)]
    bounds = np.linspace(
        min(column[0] for column in filled), max(column[-1] for column in filled) + 1, count + 1
    )
    cuts = {name: np.searchsorted(column, bounds) for name, column in times.items()}
    return [
        {
            name: table.slice(int(cuts[name][at]), int(cuts[name][at + 1] - cuts[name][at]))
            for name, table in tables.items()
        }
        for at in range(count)
    ]
