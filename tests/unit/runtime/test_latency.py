"""Latencies come out as they are put in: arrivals, event times and commits are given here, and no clock is read."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

import weft
from tests.local_runner import LocalRunner
from tests.shares import quick, seeds
from weft.connectors.formats.records import Decoded
from weft.connectors.memory.source import TableSource
from weft.logical.codec import decode, encode
from weft.ports.source import Offer, Part
from weft.runtime.log.values import BatchPlan
from weft.runtime.loop.intake.cursors import left_waiting
from weft.runtime.observe.log_lines import batch_fields
from weft.runtime.observe.metrics import Backlog, BatchMetrics
from weft.runtime.observe.progress import progress_of
from weft.runtime.task.tuple_ages import ages_of_inputs, ages_of_rows, oldest_age
from weft.stats.histogram import ZERO, Histogram, Latency, class_of

SCHEMA = "k long, j long, n long, ts timestamp"
NOW = 1_800_000_000_000_000
SECOND = 1_000_000
QUERIES = {
    "pair": "SELECT a.n AS a, b.n AS b FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS] WHERE a.k = b.k",
    "some": "SELECT a.n AS a, b.n AS b FROM a [RANGE 5 SECONDS], b [RANGE 9 SECONDS] WHERE a.k = b.k AND a.j = 1",
    "chain": "SELECT a.n AS a, b.n AS b, c.n AS c FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS], c [RANGE 9 SECONDS]"
    " WHERE a.k = b.k AND b.j = c.j",
    "theta": "SELECT a.n AS a, c.n AS c FROM a [RANGE 4 SECONDS], c [RANGE 4 SECONDS] WHERE a.k < c.k",
    "alone": "SELECT a.n AS a FROM a WHERE a.j < 2",
}


@dataclass
class Story:
    """Random batches of some queries; every tuple's batch, arrival and time are known by its number."""

    names: tuple[str, ...]
    seed: int
    counted: bool = False
    tuples: dict[str, dict[int, tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(dict))

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        session = weft.Session(options=weft.Options(partitions=2))
        for name in "abc":
            session.stream(
                name, weft.files("parquet", name, schema=SCHEMA), event_time="ts", lateness="1 hour"
            )
        for name in self.names:
            session.query(QUERIES[name], name=name, sink=weft.to_memory())
        graph = session.shared_graph
        assert graph is not None
        self.runner = LocalRunner(
            graph, partitions=2, portion_bytes=int(self.random.choice([1 << 8, 1 << 24]))
        )
        if self.counted:
            for name in self.names:
                self.runner.loop.sinks.add(name, weft.to_count())

    def batches(self, count: int = 6) -> Iterator[tuple[BatchMetrics, Mapping[str, pa.Table], int]]:
        """Run batches; gives their metrics, their results, and how much later they were committed."""
        for number in range(count):
            now, later = NOW + number * SECOND, int(self.random.integers(0, 3 * SECOND))
            self.runner.loop.delivery.clock = partial(int, now + later)
            for name in "abc":
                for _ in range(int(self.random.integers(0, 3))):
                    self._offer(name, number, now)
            results = self.runner.process_all({}, now=now)
            yield self.runner.metrics[-1], results, later

    def _offer(self, name: str, number: int, now: int) -> None:
        source, rows = self.runner.loop.config.sources.get(name), int(self.random.integers(0, 30))
        if not isinstance(source, TableSource):
            return
        arrived = now - int(self.random.integers(1_000, 100_000_000))
        first = len(self.tuples[name])
        times = now - self.random.integers(1_000, 3 * SECOND, rows)
        for place, time in enumerate(times.tolist()):
            self.tuples[name][first + place] = (number, arrived, time)
        keys = {key: self.random.integers(0, 6, rows) for key in "kj"}
        columns = {**keys, "n": np.arange(first, first + rows), "ts": times.astype("datetime64[us]")}
        source.offer(pa.table({column: pa.array(values) for column, values in columns.items()}), arrived)

    def expected(self, metrics: BatchMetrics, results: pa.Table, later: int) -> Latency:
        """The latencies of results, from the definition: by the last tuple of each, and its largest time."""
        now, ranks = NOW + metrics.number * SECOND, {name: at for at, name in enumerate(metrics.order)}
        arrival, event = [], []
        for row in results.to_pylist():
            found = {name: self.tuples[name][number] for name, number in row.items()}
            last = max(found, key=lambda name: (found[name][0], ranks[_rank(name, ranks)]))
            arrival.append(now - found[last][1])
            event.append(now - max(time for *_, time in found.values()))
        return Latency(Histogram.of(arrival), Histogram.of(event)).committed(later)


def _rank(name: str, ranks: Mapping[str, int]) -> str:
    """The alias that an input has in the shared graph, where it may have been given another."""
    return next(alias for alias in ranks if alias == name or alias.startswith(name))


@pytest.mark.parametrize("seed", quick(seeds(2)))
@pytest.mark.parametrize(
    "names", [("pair",), ("chain",), ("theta",), ("alone",), ("pair", "some"), tuple(QUERIES)], ids="+".join
)
def test_known_latencies_come_out(names: tuple[str, ...], seed: int) -> None:
    """By their last tuple, whatever stores, hops, portions and query-sets are between it and the result."""
    story, measured = Story(names, seed), 0
    for metrics, results, later in story.batches():
        for name in names:
            wanted = story.expected(metrics, results[name], later)
            assert metrics.latencies.get(name, Latency()) == wanted
            measured += wanted.count
    assert measured


@pytest.mark.parametrize("names", [("pair",), ("theta",), ("pair", "some")], ids="+".join)
def test_results_that_are_only_counted_have_the_same_latency(names: tuple[str, ...]) -> None:
    """Their last tuples are known without making them; their event time may be up to a window earlier."""
    for seed in range(2):
        pairs = zip(Story(names, seed).batches(), Story(names, seed, counted=True).batches(), strict=True)
        for (made, *_), (counted, *_) in pairs:
            for name in names:
                one, other = (each.latencies.get(name, Latency()) for each in (made, counted))
                assert one.processing == other.processing
                assert other.event.count == one.count
                assert other.event.max >= one.event.max


OUTER = "SELECT a.n AS a, b.n AS b FROM a [RANGE 2 SECONDS] LEFT JOIN b [RANGE 2 SECONDS] ON a.k = b.k"


def runner_of(sql: str, order: str = "none", lateness: str = "0 seconds") -> LocalRunner:
    """A runner of one query over streams a and b."""
    session = weft.Session(options=weft.Options(partitions=2))
    for name in "ab":
        session.stream(name, weft.files("parquet", name, schema=SCHEMA), event_time="ts", lateness=lateness)
    session.query(sql, name="q", sink=weft.to_memory(), order=order)
    graph = session.shared_graph
    assert graph is not None
    return LocalRunner(graph, partitions=2)


def offer(runner: LocalRunner, name: str, time: int, arrived: int | None, key: int = 1) -> None:
    """Give a stream one tuple."""
    source = runner.loop.config.sources[name]
    assert isinstance(source, TableSource)
    rows = {"k": [key], "j": [0], "n": [0], "ts": pa.array([time], pa.timestamp("us"))}
    source.offer(pa.table(rows), arrived)


def committed_after(runner: LocalRunner, now: int, later: int) -> Latency:
    """Run a batch that is committed so much later."""
    runner.loop.delivery.clock = lambda: now + later
    runner.process_all({}, now=now)
    return runner.metrics[-1].latencies.get("q", Latency())


def test_a_closed_row_counts_from_what_closes_it() -> None:
    """What it waited for is what the query asks; its event time is that of its tuple."""
    runner = runner_of(OUTER)
    offer(runner, "a", NOW, NOW)
    assert not committed_after(runner, NOW + SECOND, 0).count
    for name in "ab":
        offer(runner, name, NOW + 60 * SECOND, NOW + 59 * SECOND, key=2)
    found = committed_after(runner, NOW + 60 * SECOND, SECOND)
    found += committed_after(
        runner, NOW + 60 * SECOND, SECOND
    )  # rows are closed by the watermarks before a batch
    closed = Latency(Histogram.of([0]), Histogram.of([60 * SECOND])).committed(SECOND)
    joined = Latency(Histogram.of([SECOND]), Histogram.of([0])).committed(SECOND)
    assert found == closed + joined


def test_results_that_wait_for_their_order_count_when_they_leave() -> None:
    """From the batch that lets them go; the wait is in the latency of event time."""
    runner = runner_of(QUERIES["pair"], order="event")
    for name in "ab":
        offer(runner, name, NOW, NOW)
    assert not committed_after(runner, NOW + SECOND, 0).count
    for name in "ab":
        offer(runner, name, NOW + 30 * SECOND, NOW + 29 * SECOND, key=2)
    found = committed_after(runner, NOW + 31 * SECOND, SECOND)
    assert found == Latency(Histogram.of([2 * SECOND]), Histogram.of([31 * SECOND])).committed(SECOND)


def test_input_of_unknown_arrival_came_when_its_batch_began() -> None:
    """And so did what seems to come from the future."""
    for arrived in (None, NOW + 5 * SECOND):
        runner = runner_of("SELECT a.n FROM a")
        offer(runner, "a", NOW + 9 * SECOND, arrived)
        found = committed_after(runner, NOW, SECOND)
        assert found == Latency(Histogram.of([SECOND]), Histogram.of([SECOND]), ahead=1)


def test_a_query_reports_its_latency_over_its_last_batches() -> None:
    """So that one slow batch is not all that is seen; a manifest keeps it."""
    runner = runner_of("SELECT a.n FROM a")
    for number in range(3):
        offer(runner, "a", NOW, NOW - number * SECOND)
        committed_after(runner, NOW, SECOND)
    loop = runner.loop
    progress = progress_of("q", loop.active_queries, loop.history, loop.state_of, {})
    assert progress.latency.count == 3
    assert progress.latency.processing.max == pytest.approx(3, rel=0.05)
    manifest = loop.log.manifest(2)
    assert manifest is not None
    assert BatchMetrics.from_dict(manifest.metrics).latencies == runner.metrics[-1].latencies
    assert batch_fields("q", runner.metrics[-1])["latency_p95"] == pytest.approx(3, rel=0.05)


def test_ages_in_plans() -> None:
    """A stream whose parts came within one class carries nothing; one with stamped records always does."""
    near, far = (Part({}, arrived=(NOW - ago, NOW - ago)) for ago in (SECOND, 9 * SECOND))
    inputs = {"a": (near, near), "b": (near, far), "c": (Part({}, stamped=True),), "d": (Part({}),), "e": ()}
    ages = ages_of_inputs(inputs, NOW)
    assert ages == {"a": class_of(SECOND), "b": None, "c": None, "d": ZERO}
    assert oldest_age(inputs, NOW) == class_of(9 * SECOND)
    plan = BatchPlan(1, NOW, "", inputs=inputs, ages=ages, oldest_age=oldest_age(inputs, NOW))
    assert decode(BatchPlan, json.loads(json.dumps(encode(plan)))) == plan


def test_ages_of_rows() -> None:
    """Those of a part lie between its first and its last; records that say it know better."""
    rows = Decoded(pa.record_batch({"x": [1, 2, 3]}))
    part = Part({}, arrived=(NOW - 4 * SECOND, NOW - 2 * SECOND))
    assert ages_of_rows(part, rows, NOW).tolist() == [class_of(ago * SECOND) for ago in (4, 3, 2)]
    stamps = np.array([NOW - 9 * SECOND, -1, NOW + SECOND])
    found = ages_of_rows(part, Decoded(rows.batch, (), stamps), NOW)
    assert found.tolist() == [class_of(9 * SECOND), class_of(3 * SECOND), ZERO]
    assert ages_of_rows(Part({}), rows, NOW).tolist() == [ZERO] * 3


def test_backlog_is_what_is_left() -> None:
    """Rows that parts know count, others are estimated; nothing that waits is nothing to wait for."""
    parts = tuple(
        Part({}, 100, rows, arrived=(NOW - ago * SECOND,) * 2) for rows, ago in ((10, 9), (20, 7), (None, 5))
    )
    offer_ = Offer(parts, backlog=(5, 900))
    assert left_waiting(offer_, parts[:1], 0.5, NOW) == Backlog(4, 20 + 350, 800, 7.0)
    assert left_waiting(offer_, parts, 0.5, NOW) == Backlog(2, 300, 600, 5.0)
    assert left_waiting(Offer(parts, backlog=(3, 300)), parts, 0.5, NOW) == Backlog()
    unknown = (Part({}, 64),)
    assert left_waiting(Offer(unknown, backlog=(1, 64)), (), None, NOW, NOW / 1e6 - 3) == Backlog(
        1, 1, 64, 3.0
    )
