"""Results that are counted and never made (design, D9).

Guarantees: a function here returns whether it has counted all results of a probe; where it returns False, it has
counted nothing, and the matches have to be made. Counts, and the ages of results, are those of the matches that would
be made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import Bucket, column
from weft.bucket.columns import longs
from weft.bucket.compiled import Longs
from weft.bucket.memory import take
from weft.kernels.ages import ages_of_times
from weft.kernels.probe.factors import FactorisedMatches
from weft.kernels.probe.query_counts import (
    NO_AGES,
    NO_CLASSES,
    NO_WINDOWS,
    AgeClasses,
    PairWindows,
    QueryCounts,
    StoredSets,
    TupleSets,
)
from weft.kernels.probe.ranges import NO_LONGS, Ranges
from weft.kernels.query_sets.query_set import BITS as WORD
from weft.kernels.query_sets.query_set import all_of, bits_of, by_thresholds, sets_of
from weft.plan.physical.rules import ProbeRule, ResultRule
from weft.runtime.hop.latency import product_ages, tuple_ages
from weft.runtime.hop.outcome import Outcome, Why
from weft.runtime.hop.probe_step import Probe
from weft.runtime.hop.search import Search, factorise
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.store_plans import Step
from weft.runtime.program.window_limits import WindowBounds
from weft.stats.histogram import BITS

__all__ = ["count_for_queries", "count_in_chain", "count_matches"]

Seen = Callable[[Step], Sequence[Bucket]]  # the runs that a step sees


def count_matches(
    rule: ProbeRule, ends: Sequence[ResultRule], probe: Probe, outcome: Outcome, why: Why
) -> bool:
    """Count the results of a probe, where tuples carry no query-sets, if ranges of an index say how many they are."""
    counts = probe.counts()
    if counts is None:
        return False
    found, ages = int(counts.sum()), None
    outcome.tally(rule.edge, matches=found)
    if found and probe.search is not None and outcome.latency.ages is not None:
        ages = tuple_ages(outcome.latency.ages, rule.start, probe.batch, probe.search.newest)
    for end in ends:
        if outcome.count(end.users[0], found, why):
            outcome.latency.add_repeated(end.users[0], ages, counts)
    return True


def count_in_chain(
    rule: ProbeRule,
    ends: Sequence[ResultRule],
    probe: Probe,
    chain: Sequence[Step],
    seen: Seen,
    outcome: Outcome,
    why: Why,
) -> bool:
    """Count the results of a probe and of those that follow it in the task, if all their matches can stay ranges."""
    if probe.search is None:
        return False
    matches = factorise(probe.search, probe.runs, chain, seen)
    if matches is None:
        return False
    passed = int(matches.first(1).counts().sum())
    outcome.tally(rule.edge, matches=passed)
    for number, step in enumerate(chain[1:], 2):
        outcome.tally(step.rule.edge, probes=passed)
        passed = (
            _count_products(rule.start, ends, probe.batch, matches, outcome, why)
            if number == len(chain)
            else int(matches.first(number).counts().sum())
        )
        outcome.tally(step.rule.edge, matches=passed)
    return True


def _count_products(
    start: str,
    ends: Sequence[ResultRule],
    batch: pa.RecordBatch,
    matches: FactorisedMatches,
    outcome: Outcome,
    why: Why,
) -> int:
    """Count matches as results, with the ages of their newest tuples, and return how many they are."""
    ages, results = outcome.latency.ages, 0
    for product in matches.products():
        counts = product.multiplicities()
        total = int(counts.sum())
        results += total
        measured = product_ages(ages, start, batch, product) if total and ages is not None else None
        for end in ends:
            if outcome.count(end.users[0], total, why):
                outcome.latency.add_repeated(end.users[0], measured, counts)
    return results


def count_for_queries(
    program: ExecutableGraph, end: ResultRule, probe: Probe, outcome: Outcome, why: Why
) -> bool:
    """Count the results of a probe for every query, by query-sets, if ranges of an index say which pairs match."""
    limits, store = program.limits[end.edge], probe.step.store
    alone = len(store.node.aliases) == 1 and not store.counted and store.per_key is None
    if limits.rows or not (alone or not limits.ranges):
        return False
    if probe.search is None:
        return True
    found = [(run, probe.search.ranges(run)) for run in probe.runs]
    if any(ranges is None for _, ranges in found):
        return False
    _SharedCount(program, end, probe, probe.search, outcome).run(found, why)
    return True


class _SharedCount:
    """Counts the matches of one probe for all queries of a result."""

    def __init__(
        self, program: ExecutableGraph, end: ResultRule, probe: Probe, search: Search, outcome: Outcome
    ) -> None:
        self.program, self.end, self.probe, self.search, self.outcome = program, end, probe, search, outcome
        self.slots = program.slots(end.users)
        self.words = sorted({slot // WORD for slot in self.slots})
        self.names = [program.sets[word] for word in self.words]
        self.ranges = program.limits[end.edge].ranges

    def run(self, found: Sequence[tuple[Bucket, Ranges | None]], why: Why) -> None:
        """Count, and hand the counts over."""
        counts = QueryCounts(*self._tuples(), self._ages())
        timed = bool(self.ranges) or self.outcome.latency.ages is not None
        for run, ranges in found:
            if ranges is not None and ranges.probe.size:
                times = longs(column(run.batch, self.probe.step.store.time)) if timed else NO_LONGS
                sets = sets_of([column(run.batch, name) for name in self.names])
                counts.add(ranges, StoredSets(sets, times))
        self.outcome.tally(self.probe.step.rule.edge, matches=counts.pairs)
        self._hand_over(counts, why)

    def _tuples(self) -> tuple[TupleSets, PairWindows]:
        """The tuples that probe, with what their own inputs' windows say, and the windows of pairs."""
        sets = np.stack([self._column(name) for name in self.names])
        sets &= bits_of(self.slots, len(self.program.sets))[self.words][:, None]
        if not self.ranges:
            return TupleSets(sets, sets, self.search.newest), NO_WINDOWS
        view, (partner,) = self.program.view, self.probe.step.store.node.aliases
        own = [alias for alias in self.ranges if alias != partner]
        times = [self._column(view.times[alias]) for alias in own]
        inside = np.full_like(sets, -1)
        for alias, time in zip(own, times, strict=True):
            bounds = self._bounds(self.ranges[alias])
            inside = all_of(inside, by_thresholds(self.search.newest - time, *bounds))
        windows = [self._bounds(self.ranges[alias]) for alias in own]
        stored = self._bounds(self.ranges.get(partner))
        return TupleSets(sets, inside, self.search.newest), PairWindows.of(stored, windows, times)

    def _bounds(self, bounds: WindowBounds | None) -> tuple[Longs, Longs]:
        """The windows on one input, in the words that are read; without any, all queries pass."""
        if bounds is None:
            return NO_LONGS, np.full((len(self.words), 1), -1, np.int64)
        return bounds.values, np.ascontiguousarray(bounds.table[self.words])

    def _column(self, name: str) -> Longs:
        values, rows = longs(column(self.probe.batch, name)), self.probe.rows
        return values if rows is None else take(values, rows)

    def _ages(self) -> AgeClasses:
        ages, newest = self.outcome.latency.ages, self.search.newest
        if ages is None:
            return NO_AGES
        found = tuple_ages(ages, self.end.start, self.probe.batch, newest)
        latest = max(
            int(newest.max()), *(_latest(run, self.probe.step.store.time) for run in self.probe.runs)
        )
        first = int(ages_of_times(np.array([latest]), ages.now, BITS)[0])
        if isinstance(found.arrival, int):
            return AgeClasses(found.event, NO_CLASSES, ages.now, BITS, first)
        arrival = found.arrival if self.probe.rows is None else found.arrival[self.probe.rows]
        return AgeClasses(found.event, arrival, ages.now, BITS, first)

    def _hand_over(self, counts: QueryCounts, why: Why) -> None:
        """Add the counts to those of the queries that want them, with their ages."""
        ages, latency = self.outcome.latency.ages, self.outcome.latency
        arrival = None if ages is None else ages.inputs.get(self.end.start)
        totals = counts.event.sum(axis=1)
        for name, slot in zip(self.end.users, self.slots, strict=True):
            place = self.words.index(slot // WORD) * WORD + slot % WORD
            if self.outcome.count(name, int(totals[place]), why) and ages is not None:
                alike = counts.arrival[place] if arrival is None else None
                latency.add_counted(name, counts.event[place], counts.ages.first, alike, arrival)


def _latest(run: Bucket, time: str) -> int:
    known = run.bounds.max_time
    return int(longs(column(run.batch, time)).max()) if known is None else known
