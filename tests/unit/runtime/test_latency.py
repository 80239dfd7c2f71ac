"""Latencies come out as they are put in: arrivals, event times and commits are given here, and no clock is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

import weft
from tests.shares import seeds
from weft.runtime.observe.metrics import BatchMetrics
from weft.sources.tables import TableSource
from weft.stats.histogram import Histogram
from weft.stats.latency import Latency
from weft.testing.local import LocalRunner

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
            self.runner.loop.committer.clock = lambda when=now + later: when
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


@pytest.mark.parametrize("seed", seeds(4))
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
    for seed in range(4):
        pairs = zip(Story(names, seed).batches(), Story(names, seed, counted=True).batches(), strict=True)
        for (made, *_), (counted, *_) in pairs:
            for name in names:
                one, other = (each.latencies.get(name, Latency()) for each in (made, counted))
                assert one.processing == other.processing
                assert other.event.count == one.count
                assert other.event.max >= one.event.max
