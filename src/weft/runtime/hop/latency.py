"""How old the results of a hop are when their batch begins, counted by query (decision 41).

Guarantees: the arrival of a result is that of its last tuple, which is the tuple that its walk began with (design, D5),
so nothing of it is stored: it travels with tuples and matches in the column `AGE`, and not even there if all tuples of
the input came at once. The event time of a result is the largest of its tuples'. Where ranges of an index say how many
results there are and none is made, it is that of the match that probed. What is stored and run through a graph once
more is not measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import column
from weft.bucket.columns import longs
from weft.bucket.compiled import Floats, Ints, Longs
from weft.kernels.ages import Classes, ages_of_pairs, ages_of_times, count_by_query, count_classes
from weft.kernels.probe.factors import Product
from weft.kernels.query_sets.query_set import bits_of
from weft.runtime.hop.probe_step import MatchPortion
from weft.runtime.model.columns import AGE
from weft.stats.histogram import BITS, CLASSES, ZERO, Histogram, Latency

__all__ = ["BatchAges", "LatencyCounts", "MatchAges", "found_ages", "product_ages", "tuple_ages"]


@dataclass(frozen=True, slots=True)
class BatchAges:
    """When a batch began, in microseconds, and how old its input was by then, in classes of `weft.stats.histogram`.

    ``inputs`` are the inputs whose tuples are all of one age; tuples of all others have a column `AGE`. ``oldest`` is
    the age of what came first: rows that are closed are counted from then.
    """

    now: int
    inputs: Mapping[str, int] = field(default_factory=dict)
    oldest: int = ZERO


@dataclass(frozen=True, slots=True, eq=False)
class MatchAges:
    """The ages of some matches: since their last tuple arrived, one for all or each its own, and in event time."""

    arrival: int | Classes
    event: Classes

    def of(self, rows: Ints | None) -> MatchAges:
        """The ages of some of the matches; of all, if no rows are given."""
        if rows is None:
            return self
        arrival = self.arrival if isinstance(self.arrival, int) else self.arrival[rows]
        return MatchAges(arrival, self.event[rows])


def found_ages(ages: BatchAges, start: str, found: MatchPortion) -> MatchAges:
    """The ages of matches that a probe on behalf of the input ``start`` found."""
    matches, newest, time = found.matches, found.search.newest, found.search.step.store.time
    event = np.empty(len(matches), np.int16)
    for number, run in enumerate(found.runs):
        probes, rows = matches.of_run(number)
        if rows.size:
            stored, part = longs(column(run.batch, time)), matches.splits[number]
            ages_of_pairs(newest, probes, stored, rows, ages.now, BITS, event[part : part + rows.size])
    arrival = ages.inputs.get(start)
    if arrival is None:
        return MatchAges(_age_column(found.batch)[found.origins(matches)], event)
    return MatchAges(arrival, event)


def tuple_ages(ages: BatchAges, start: str, batch: pa.RecordBatch, times: Longs) -> MatchAges:
    """The ages of tuples of an input, or of matches that its tuples began, given their times."""
    arrival = ages.inputs.get(start)
    return MatchAges(_age_column(batch) if arrival is None else arrival, ages_of_times(times, ages.now, BITS))


def product_ages(ages: BatchAges, start: str, batch: pa.RecordBatch, product: Product) -> MatchAges:
    """The ages of the rows of a product of matches that tuples of an input began: those of their newest tuples."""
    if product.newest is None:
        raise TypeError("the ages of matches without times are not known")
    arrival: int | Classes | None = ages.inputs.get(start)
    if arrival is None:
        arrival = _age_column(batch) if product.probe is None else _age_column(batch)[product.probe]
    return MatchAges(arrival, ages_of_times(product.newest, ages.now, BITS))


def _age_column(batch: pa.RecordBatch) -> Classes:
    ages: Classes = column(batch, AGE).to_numpy()
    return ages


class LatencyCounts:
    """Counts results of queries by age, while a hop runs; without the ``ages`` of the batch, it counts nothing."""

    def __init__(self, ages: BatchAges | None) -> None:
        self.ages = ages
        self._arrival: dict[str, Longs] = {}
        self._event: dict[str, Longs] = {}

    def add(self, query: str, found: MatchAges | None) -> None:
        """Count results of a query."""
        if found is not None:
            count_classes(found.event, _of(self._event, query))
            self._add_arrival(query, found.arrival, found.event.size)

    def _add_arrival(self, query: str, arrival: int | Classes, count: int) -> None:
        counts = _of(self._arrival, query)
        if isinstance(arrival, int):
            counts[arrival] += count
        else:
            count_classes(arrival, counts)

    def add_repeated(self, query: str, found: MatchAges | None, times: Longs) -> None:
        """Count results of a query of which each kind occurs so many times."""
        if found is None:
            return
        weights = times.astype(np.float64)
        _add_weighted(_of(self._event, query), found.event, weights)
        if isinstance(found.arrival, int):
            _of(self._arrival, query)[found.arrival] += int(times.sum())
        else:
            _add_weighted(_of(self._arrival, query), found.arrival, weights)

    def add_counted(
        self, query: str, event: Longs, first: int, arrivals: Longs | None, arrival: int | None
    ) -> None:
        """Count results of a query, given how many there are of each class of event time, from ``first`` on.

        ``arrivals`` is how many there are of each class of arrival; None if all came at the one time ``arrival``.
        """
        _of(self._event, query)[first : first + event.size] += event
        if arrivals is not None:
            _of(self._arrival, query)[: arrivals.size] += arrivals
        elif arrival is not None:
            _of(self._arrival, query)[arrival] += int(event.sum())

    def add_closed(self, query: str, times: Longs) -> None:
        """Count rows of a query that are closed, by their event times; they count from the batch's oldest arrival."""
        if self.ages is not None:
            self.add(query, MatchAges(self.ages.oldest, ages_of_times(times, self.ages.now, BITS)))

    def add_shared(
        self, queries: Mapping[str, int], sets: Longs, found: MatchAges | None, counts: Mapping[str, int]
    ) -> None:
        """Count results of many queries, given by their slots, by the query-sets of the results.

        ``counts`` is how many results each query has; one that is not there has none that are wanted.
        """
        if found is None or not counts:
            return
        slots = [queries[name] for name in counts]
        for kind, ages in ((self._event, found.event), (self._arrival, found.arrival)):
            if isinstance(ages, int):
                for name, count in counts.items():
                    _of(kind, name)[ages] += count
                continue
            first = int(ages.min())
            table = np.zeros((64 * len(sets), int(ages.max()) - first + 1), np.int64)
            count_by_query(sets, bits_of(slots, len(sets)), ages - np.int16(first), table)
            for name, slot in zip(counts, slots, strict=True):
                _of(kind, name)[first : first + table.shape[1]] += table[slot]

    def latencies(self) -> dict[str, Latency]:
        """The ages of the results of every query that has any."""
        return {
            query: Latency(_histogram(counts), _histogram(self._event[query]))
            for query, counts in self._arrival.items()
        }


def _of(counts: dict[str, Longs], query: str) -> Longs:
    if query not in counts:
        counts[query] = np.zeros(CLASSES, np.int64)
    return counts[query]


def _add_weighted(counts: Longs, classes: Classes, weights: Floats) -> None:
    counts += np.bincount(classes, weights, CLASSES).astype(np.int64)


def _histogram(counts: Longs) -> Histogram:
    used = np.flatnonzero(counts)
    if not used.size:
        return Histogram()
    first, last = int(used[0]), int(used[-1])
    return Histogram(first, tuple(counts[first : last + 1].tolist()))
