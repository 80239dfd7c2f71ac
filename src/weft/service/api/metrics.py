"""What `/metrics` says, in the format OpenMetrics 1.0: rows, results, backlog, state, batches, plans, requests.

Guarantees: counters never go down while the service runs. All figures are those of the hub; here, times of batches and
of requests are counted into buckets. A scrape works nothing out again that the hub has worked out lately. Every family
stands once, with its type, unit and help; a histogram's buckets are cumulative and end with +Inf; the text ends with
# EOF. Names of queries, streams and stores are labels whose number is bounded: the first ones keep their names, all
others together are `_other`.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import weft
from weft.service.figures import BatchFigures
from weft.service.hub.hub import SessionHub
from weft.stats.histogram import Histogram as ClassCounts
from weft.stats.histogram import micros_of
from weft.stats.input_figures import REASONS, InputFigures
from weft.storage.cache import CacheCounts

__all__ = ["FAMILIES", "MEDIA", "BoundedNames", "Family", "MetricHistogram", "Metrics", "exposition"]


MEDIA = "application/openmetrics-text; version=1.0.0; charset=utf-8"
OTHER = "_other"

Labels = Mapping[str, str]


class BoundedNames:
    """At most so many different values of a label."""

    def __init__(self, most: int = 200) -> None:
        self._most = most
        self._known: dict[str, None] = {}

    def label(self, name: str) -> str:
        """The name itself, or `_other` if there are too many before it."""
        if name not in self._known and len(self._known) < self._most:
            self._known[name] = None
        return name if name in self._known else OTHER


@dataclass
class MetricHistogram:
    """How many values fall into each bucket, given by its upper bound, and their sum."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float, times: int = 1) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def samples(self, labels: Labels) -> list[tuple[str, Labels, float]]:
        """The buckets, cumulative, with the count and the sum."""
        found: list[tuple[str, Labels, float]] = []
        total = 0
        for bound, count in zip((*self.bounds, math.inf), self.counts, strict=True):
            total += count
            found.append(("_bucket", {**labels, "le": _number(bound)}, total))
        return [*found, ("_count", labels, total), ("_sum", labels, self.sum)]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its samples: the end of each one's name, its labels and its value."""

    name: str
    kind: Literal["counter", "gauge", "histogram", "info"]
    help: str
    samples: Sequence[tuple[str, Labels, float]]
    unit: str = ""


def exposition(families: Iterable[Family]) -> str:
    """All metrics as one text."""
    lines = []
    for family in families:
        lines.append(f"# TYPE {family.name} {family.kind}")
        if family.unit:
            lines.append(f"# UNIT {family.name} {family.unit}")
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
        lines += [f"{family.name}{end}{_labels(labels)} {_number(v)}" for end, labels, v in family.samples]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _labels(labels: Labels) -> str:
    found = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{found}}}" if found else ""


def _escaped(text: str) -> str:
    clean = text.encode("utf-8", "replace").decode()
    return clean.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


LATENCY = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0)
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
STATES = ("starting", "running", "stopping", "stopped", "failed")
STATUSES = ("planned", "waiting", "running", "suspended", "stopped")

# Every family, with its help; the dashboard names these.
FAMILIES = {
    "weft_build": "The version of Weft.",
    "weft_session_state": "1 for the state that the session is in.",
    "weft_queries": "Queries by status.",
    "weft_batches": "Batches that were run.",
    "weft_batches_missed": "Batches whose figures were forgotten before they were counted.",
    "weft_batch_seconds": "How long batches took.",
    "weft_hop_seconds": "How long the slowest task of the last batch took: to read, then for each hop.",
    "weft_stream_rows": "Tuples that took part in batches.",
    "weft_stream_rows_set_aside": f"Tuples that were set aside: {', '.join(REASONS)}.",
    "weft_stream_backlog": "Parts of a stream that wait to be read.",
    "weft_stream_watermark_timestamp_seconds": "The watermark of a stream.",
    "weft_stream_behind_seconds": "How long the first part of a stream that waits has waited.",
    "weft_query_results": "Results of a query.",
    "weft_query_latency_seconds": "From the arrival of a result's last tuple to its commit.",
    "weft_query_event_latency_seconds": "From a result's event time to its commit.",
    "weft_state_bytes": "What all stores hold.",
    "weft_store_bytes": "What a store holds.",
    "weft_store_rows": "How many tuples a store holds.",
    "weft_cache_lookups": "Segments of state in an object store that tasks opened, by whether a host had them.",
    "weft_cache_fetched_bytes": "Bytes of segments that were fetched from the object store.",
    "weft_cache_kept_bytes": "Bytes of segments that were kept in the caches of hosts.",
    "weft_plan_changes": "Changes of the plan because the data changed, by way.",
    "weft_http_requests": "Requests that were answered, by method and status.",
    "weft_http_request_seconds": "How long answers took to begin and end.",
    "weft_live_readers": "Who follow results live.",
}


class Metrics:
    """Counts what batches and requests did; `text` may be called from any thread."""

    def __init__(self, hub: SessionHub, readers: Callable[[], int] = lambda: 0) -> None:
        self._hub, self._readers = hub, readers
        self._lock = threading.Lock()
        self._batch_seconds = MetricHistogram(SECONDS)
        self._request_seconds = MetricHistogram(SECONDS)
        self._requests: Counter[tuple[str, str]] = Counter()
        self._queries, self._streams, self._stores = BoundedNames(), BoundedNames(), BoundedNames()
        self._latency: dict[str, MetricHistogram] = {}
        self._event_latency: dict[str, MetricHistogram] = {}
        self._ways: Counter[str] = Counter()
        self._changes: set[tuple[int, str, str]] = set()
        hub.follow(lambda batch, _: self._batch(batch))

    def _batch(self, batch: BatchFigures) -> None:
        with self._lock:
            self._batch_seconds.add(batch.elapsed)
            for name, one in batch.latency.items():
                label = self._queries.label(name)
                _add(self._latency.setdefault(label, MetricHistogram(LATENCY)), one.processing)
                _add(self._event_latency.setdefault(label, MetricHistogram(LATENCY)), one.event)
            self._count_changes()

    def _count_changes(self) -> None:
        """Count changes of the plan that came since the last batch; the session remembers only the last ones."""
        changes = {(one.batch, one.way, one.reason) for one in self._hub.plan_history()}
        self._ways.update(way for _, way, _ in changes - self._changes)
        self._changes = changes

    def request(self, method: str, status: int, seconds: float) -> None:
        """Count an answer."""
        known = method if method in ("GET", "POST", "DELETE", "HEAD", "OPTIONS") else "other"
        with self._lock:
            self._requests[known, str(status) if 200 <= status < 600 else "none"] += 1
            self._request_seconds.add(seconds)

    def text(self) -> str:
        """All metrics, as OpenMetrics writes them."""
        return exposition(self.families())

    def families(self) -> list[Family]:
        """All metrics with their samples."""
        with self._lock:
            return [*self._of_session(), *self._of_streams(), *self._of_service()]

    def _of_session(self) -> list[Family]:
        seen, health = self._hub.seen(), self._hub.health()
        statuses = Counter(query.status for query in self._hub.queries())
        last = seen.recent[-1] if seen.recent else None
        hops = last.hops[:17] if last else ()
        stores: Counter[str] = Counter()
        rows: Counter[str] = Counter()
        for store in last.stores if last else ():
            label = self._stores.label(store.name)
            stores[label] += store.bytes
            rows[label] += store.rows
        results: Counter[str] = Counter()
        for name, count in seen.totals.results.items():
            results[self._queries.label(name)] += count
        return [
            Family("weft_build", "info", _help("build"), [("_info", {"version": weft.__version__}, 1)]),
            _gauge("session_state", [({"state": one}, float(health.state == one)) for one in STATES]),
            _gauge("queries", [({"status": one}, statuses.get(one, 0)) for one in STATUSES]),
            _counter("batches", [({}, seen.totals.batches)]),
            _counter("batches_missed", [({}, seen.missed)]),
            _histogram("batch_seconds", {"": self._batch_seconds}),
            _gauge(
                "hop_seconds", [({"hop": str(n) if n else "read"}, s) for n, s in enumerate(hops)], "seconds"
            ),
            _counter("query_results", [({"query": name}, count) for name, count in results.items()]),
            _histogram("query_latency_seconds", self._latency),
            _histogram("query_event_latency_seconds", self._event_latency),
            _gauge("state_bytes", [({}, sum(stores.values()))], "bytes"),
            _gauge("store_bytes", [({"store": name}, size) for name, size in stores.items()], "bytes"),
            _gauge("store_rows", [({"store": name}, count) for name, count in rows.items()]),
            *_of_cache(seen.totals.cache),
            _counter("plan_changes", [({"way": way}, count) for way, count in sorted(self._ways.items())]),
        ]

    def _of_streams(self) -> list[Family]:
        seen = self._hub.seen()
        counts: dict[str, InputFigures] = {}
        for name, one in seen.totals.streams.items():
            label = self._streams.label(name)
            counts[label] = counts.get(label, InputFigures()) + one
        last = seen.recent[-1] if seen.recent else None
        waiting: Counter[str] = Counter()
        for name, parts in last.backlog.items() if last else ():
            waiting[self._streams.label(name)] += parts
        behind: dict[str, float] = {}
        for name, seconds in last.behind.items() if last else ():
            label = self._streams.label(name)
            behind[label] = max(seconds, behind.get(label, 0.0))
        marks = {self._streams.label(name): mark for name, mark in (last.watermarks if last else {}).items()}
        aside = [
            ({"stream": name, "reason": reason}, count)
            for name, one in counts.items()
            for reason, count in one.set_aside.items()
        ]
        return [
            _counter("stream_rows", [({"stream": name}, one.rows) for name, one in counts.items()]),
            _counter("stream_rows_set_aside", aside),
            _gauge("stream_backlog", [({"stream": name}, parts) for name, parts in waiting.items()]),
            _gauge(
                "stream_behind_seconds", [({"stream": name}, one) for name, one in behind.items()], "seconds"
            ),
            _gauge(
                "stream_watermark_timestamp_seconds",
                [({"stream": name}, mark / 1e6) for name, mark in marks.items()],
                "seconds",
            ),
        ]

    def _of_service(self) -> list[Family]:
        requests = [
            ({"method": method, "status": status}, count)
            for (method, status), count in sorted(self._requests.items())
        ]
        return [
            _counter("http_requests", requests),
            _histogram("http_request_seconds", {"": self._request_seconds}),
            _gauge("live_readers", [({}, self._readers())]),
        ]


def _of_cache(counts: CacheCounts) -> list[Family]:
    return [
        _counter("cache_lookups", [({"result": "hit"}, counts.hits), ({"result": "miss"}, counts.misses)]),
        _counter("cache_fetched_bytes", [({}, counts.fetched)]),
        _counter("cache_kept_bytes", [({}, counts.kept)]),
    ]


def _help(name: str) -> str:
    return FAMILIES[f"weft_{name}"]


def _gauge(name: str, values: Sequence[tuple[dict[str, str], float]], unit: str = "") -> Family:
    return Family(
        f"weft_{name}", "gauge", _help(name), [("", labels, value) for labels, value in values], unit
    )


def _counter(name: str, values: Sequence[tuple[dict[str, str], float]]) -> Family:
    return Family(
        f"weft_{name}", "counter", _help(name), [("_total", labels, value) for labels, value in values]
    )


def _histogram(name: str, each: Mapping[str, MetricHistogram]) -> Family:
    """A histogram, or one for every query."""
    samples = [
        sample
        for query, one in sorted(each.items())
        for sample in one.samples({"query": query} if query else {})
    ]
    return Family(f"weft_{name}", "histogram", _help(name), samples, "seconds")


def _add(histogram: MetricHistogram, counted: ClassCounts) -> None:
    """Count durations that were counted in finer classes."""
    for number, count in counted.classes.items():
        histogram.add(micros_of(number) / 1e6, count)
