"""What some batches counted of streams, filters, functions and steps, where each batch has a weight.

Guarantees: pure; sums over batches, as `weft.stats.known` keeps them. What several queries share is counted once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from weft.runtime.observe.metrics import BatchMetrics, StoreMetrics
from weft.runtime.observe.watched_query import WatchedFilters, WatchedInput, WatchedQuery, WatchedStep
from weft.stats.input_figures import InputFigures
from weft.stats.known import CallSums, Checked, Known, PredicateSet, StreamSums, plus

__all__ = ["CountedStep", "SeenBatch", "WeightedBatches"]


@dataclass(frozen=True, slots=True)
class SeenBatch:
    """The metrics of a batch, and what the stores held ``before`` it; None if that is not known."""

    metrics: BatchMetrics
    before: Mapping[str, StoreMetrics] | None


@dataclass(frozen=True, slots=True)
class CountedStep:
    """What a step of a query did: how many pairs were there, how many tuples probed, and how many matches they had.

    Probes that find more pairs than those with earlier tuples, or fewer, count accordingly (`Reach`).
    """

    query: str
    step: WatchedStep
    there: float
    probes: float
    matched: float


@dataclass(frozen=True, slots=True)
class WeightedBatches:
    """Some batches with their weights, and when the batch before them began, if there was one."""

    batches: Sequence[tuple[SeenBatch, float]]
    moment: float | None

    @property
    def last(self) -> BatchMetrics:
        """The newest of them."""
        return self.batches[-1][0].metrics

    def checked(self, one: CountedStep, met: float | None) -> Checked:
        """What a step checked, if every probe met so many tuples within windows; None: as many as there were."""
        return self._checked(one.there, one.there if met is None else met * one.probes, one.matched)

    def _checked(self, there: float, inside: float, matched: float) -> Checked:
        return Checked(there, inside, matched, self.last.number, self.last.started)

    def add_exact(self, exact: Mapping[str, Checked], queries: Sequence[WatchedQuery]) -> dict[str, Checked]:
        """The conditions that call functions, with how often they were checked one by one, and fulfilled."""
        found = dict(exact)
        for name in sorted({name for query in queries for name in query.exact}):
            seen = [(b.metrics.conditions[name], w) for b, w in self.batches if name in b.metrics.conditions]
            rows = sum(weight * one.rows for one, weight in seen)
            if rows:
                passed = sum(weight * one.passed for one, weight in seen)
                found[name] = plus(found.get(name), self._checked(rows, rows, passed))
        return found

    def add_filters(
        self, first: Mapping[PredicateSet, Checked], queries: Sequence[WatchedQuery]
    ) -> dict[PredicateSet, Checked]:
        """The filters of inputs, with how many tuples there were, and how many passed."""
        found = dict(first)
        unique = {(f.alias, f.names, f.passed): (q.name, f) for q in queries for f in q.filters}
        for name, filters in unique.values():
            rows = passed = 0.0
            for batch, weight in self.batches:
                one = batch.metrics.inputs.get(filters.alias)
                if one is not None and one.rows:
                    rows += weight * one.rows
                    passed += weight * min(one.rows, _passed(filters, name, batch.metrics))
            if rows:
                found[filters.names] = plus(found.get(filters.names), self._checked(rows, rows, passed))
        return found

    def add_calls(self, calls: Mapping[str, CallSums]) -> dict[str, CallSums]:
        """The functions, with the rows that they computed and the seconds that this took."""
        found = dict(calls)
        for batch, weight in self.batches:
            one = batch.metrics
            for name, spent in one.functions.items():
                old = found.get(name, CallSums())
                sums = old.rows + weight * spent.rows, old.seconds + weight * spent.seconds
                found[name] = CallSums(*sums, one.number, one.started)
        return found

    def add_streams(
        self, known: Known, queries: Sequence[WatchedQuery], newest: Mapping[str, int]
    ) -> dict[str, StreamSums]:
        """The streams, with what came of them; ``newest`` are times that are known from still earlier batches."""
        clocks: dict[str, set[str]] = {}
        inputs: dict[str, WatchedInput] = {}
        for query in queries:
            timed = {one.stream for one in query.inputs if one.timed}
            for one in query.inputs:
                clocks.setdefault(one.stream, set()).update(timed)
                inputs.setdefault(one.stream, one)
        found = dict(known.streams)
        for name, one in inputs.items():
            old = found.get(name, StreamSums(newest=newest.get(name)))
            found[name] = self._stream(one, replace(old, clocks=tuple(sorted(clocks[name]))))
        return found

    def _stream(self, one: WatchedInput, old: StreamSums) -> StreamSums:
        rows, batches, advance, wall, size, held = (
            *(old.rows, old.batches, old.advance, old.wall),
            *(old.bytes, old.held),
        )
        newest, before = old.newest, self.moment
        for batch, weight in self.batches:
            metrics = batch.metrics
            seconds = metrics.started - before if before is not None else 0.0
            wall, before = wall + weight * max(metrics.elapsed, seconds), metrics.started
            batches += weight
            came = metrics.inputs.get(one.alias)
            if came is not None:
                rows += weight * came.rows
                step, newest = _advance(came, newest)
                advance += weight * step if one.timed else 0.0
            stored = metrics.stores.get(one.store) if one.store is not None else None
            if stored is not None:
                size, held = size + weight * stored.bytes, held + weight * stored.rows
        ends = (self.last.number, self.last.started)
        return StreamSums(rows, batches, advance, wall, newest, old.clocks, size, held, *ends)

    def steps(self, queries: Sequence[WatchedQuery]) -> list[CountedStep]:
        """What the steps did in the batches before which it is known what was stored."""
        usable = [
            (one.metrics, one.before, weight, {alias: rank for rank, alias in enumerate(one.metrics.order)})
            for one, weight in self.batches
            if one.before is not None
        ]
        found = []
        for name, step in _unique_steps(queries):
            there = probes = matched = 0.0
            for metrics, before, weight, ranks in usable:
                counted = metrics.steps.get(step.probes.edge)
                if counted is None:
                    continue
                tuples = weight * counted.tuples / step.probes.copies
                there += tuples * _visible(step, metrics, before, ranks)
                probes += tuples * _part(step, metrics, ranks)
                matched += weight * counted.matches
            if there > 0:
                found.append(CountedStep(name, step, there, probes, matched))
        return found


def _unique_steps(queries: Sequence[WatchedQuery]) -> Iterator[tuple[str, WatchedStep]]:
    seen = set()
    for query in queries:
        for step in query.steps:
            if step.identity not in seen:
                seen.add(step.identity)
                yield query.name, step


def _passed(filters: WatchedFilters, query: str, batch: BatchMetrics) -> float:
    """How many tuples passed; those of a query of one input are its results."""
    if filters.passed is not None:
        return filters.passed.count(batch)
    return float(batch.answers.get(query, batch.results))


def _advance(came: InputFigures, newest: int | None) -> tuple[float, int | None]:
    """By how many seconds the event time of an input advanced, and its newest time now."""
    if came.newest is None:
        return 0.0, newest
    since = came.oldest if newest is None else newest
    seconds = 0.0 if since is None else max(0, came.newest - since) / 1e6
    return seconds, came.newest if newest is None else max(newest, came.newest)


def _part(step: WatchedStep, batch: BatchMetrics, ranks: Mapping[str, int]) -> float:
    """How many pairs a probe of a step between two inputs finds, by those with earlier tuples."""
    if step.reach is None:
        return 1.0
    ends = [batch.inputs[alias] for alias in (step.start, step.reach.other) if alias in batch.inputs]
    spans = [one.newest - one.oldest for one in ends if one.newest is not None and one.oldest is not None]
    return step.reach.part(max(spans, default=0) / 1e6, ranks[step.reach.other] < ranks[step.start])


def _visible(
    step: WatchedStep, batch: BatchMetrics, before: Mapping[str, StoreMetrics], ranks: Mapping[str, int]
) -> float:
    """The stored tuples that a probe saw: of earlier batches, and of inputs that came first in this one."""
    held = before.get(step.store)
    visible = held.rows / step.store_copies if held else 0.0
    for other, counters in step.adds:
        if ranks[other] < ranks[step.start]:
            visible += sum(counter.count(batch) for counter in counters)
    return visible
