"""Matches counted for many queries at once, from ranges and query-sets: no match is made (design, D7 and D9).

Guarantees: `QueryCounts.add` counts, for each query, the pairs of a tuple and an entry of its range that are for the
query and inside its windows. Sets are ANDed where the entries are, in one pass over the ranges, so nothing is written
but the counts, and memory does not depend on how many pairs there are. Only the words of query-sets that have a query
in question are read. With classes of ages (`weft.kernels.ages`), counts are by class, too.

Windows are those of each query, where they differ: a pair is inside the windows of a query if each of its tuples is at
most the width of its window older than the newest one. The newest one is most often the tuple that probed, and for
these the check of its own inputs is made once per tuple (`TupleSets.inside`) and not once per pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.bucket.compiled import Longs, compiled, frozen, inner
from weft.kernels.ages import Classes, class_of_age
from weft.kernels.probe.ranges import NO_INTS, Ranges
from weft.kernels.query_sets.query_set import BITS, lowest_bit

__all__ = [
    "NO_AGES",
    "NO_CLASSES",
    "NO_WINDOWS",
    "AgeClasses",
    "PairWindows",
    "QueryCounts",
    "StoredSets",
    "TupleSets",
]

NO_CLASSES = frozen(np.empty(0, np.int16))
_NONE = frozen(np.empty((0, 0), np.int64))
_FAR = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class PairWindows:
    """The windows of queries that pairs are checked for: on the stored input first, then on those of the tuple.

    ``bounds`` has a row of ascending widths for each of them, and ``tables``, for every word of the query-sets, the
    queries whose window is at least so wide (`weft.kernels.query_sets.query_set.thresholds`). ``times`` are the times
    of the tuple's inputs, in the same order.
    """

    bounds: Longs
    tables: Longs
    times: Longs

    @classmethod
    def of(
        cls, stored: tuple[Longs, Longs], own: list[tuple[Longs, Longs]], times: list[Longs]
    ) -> PairWindows:
        """Windows given as `thresholds` makes them, with the times of the tuples' inputs."""
        every = [stored, *own]
        width = max(steps.size for steps, _ in every)
        bounds = np.full((len(every), width), _FAR, np.int64)
        tables = np.zeros((len(stored[1]), len(every), width + 1), np.int64)
        for place, (steps, table) in enumerate(every):
            bounds[place, : steps.size] = steps
            tables[:, place, : steps.size + 1] = table
        return cls(frozen(bounds), frozen(tables), frozen(np.stack(times)) if times else _NONE)


@dataclass(frozen=True, slots=True, eq=False)
class TupleSets:
    """The tuples that probe: their query-sets, and their newest times.

    ``inside`` are the queries whose windows a tuple of several inputs is inside by itself.
    """

    sets: Longs
    inside: Longs
    newest: Longs


@dataclass(frozen=True, slots=True, eq=False)
class StoredSets:
    """The query-sets and the times of the rows of a run; no times if neither windows nor ages depend on them."""

    sets: Longs
    times: Longs


@dataclass(frozen=True, slots=True, eq=False)
class AgeClasses:
    """The classes of the ages of tuples: in event time at ``now``, and, if they are not all of one age, of arrival.

    ``bits`` is the fineness of the classes, and ``first`` the smallest class that a match can have.
    """

    event: Classes
    arrival: Classes
    now: int
    bits: int
    first: int


NO_WINDOWS = PairWindows(_NONE, frozen(np.empty((0, 0, 0), np.int64)), _NONE)
NO_AGES = AgeClasses(NO_CLASSES, NO_CLASSES, 0, 0, 0)


class QueryCounts:
    """Counts of matches: by slot and class of age (one class, if there are no ages), and how many pairs there were."""

    def __init__(self, tuples: TupleSets, windows: PairWindows, ages: AgeClasses) -> None:
        self.tuples, self.windows, self.ages = tuples, windows, ages
        slots = len(tuples.sets) * BITS
        classes = int(ages.event.max()) - ages.first + 1 if ages.event.size else 1
        self.event: Longs = np.zeros((slots, classes), np.int64)
        self.arrival: Longs = np.zeros(
            (slots, int(ages.arrival.max()) + 1 if ages.arrival.size else 0), np.int64
        )
        self.pairs = 0  # that are for any query, inside the widest windows

    def add(self, ranges: Ranges, stored: StoredSets) -> None:
        """Count the pairs of tuples with the entries of their ranges in one run."""
        ages, tuples, windows = self.ages, self.tuples, self.windows
        permutation = NO_INTS if ranges.permutation is None else ranges.permutation
        self.pairs += _count_pairs(
            (frozen(ranges.probe), frozen(ranges.start), frozen(ranges.stop), frozen(permutation)),
            (frozen(tuples.sets), frozen(tuples.inside), frozen(tuples.newest)),
            (frozen(stored.sets), frozen(stored.times)),
            (windows.bounds, windows.tables, windows.times),
            (
                frozen(ages.event),
                frozen(ages.arrival),
                np.int64(ages.now),
                np.int64(ages.bits),
                np.int64(ages.first),
            ),
            (self.event, self.arrival),
        )


@inner
def _narrower(value: Any, bounds: Longs) -> Any:
    """How many of the ascending bounds are below a value."""
    place = 0
    while place < bounds.size and bounds[place] < value:
        place += 1
    return place


@inner
def _inside_windows(word: Any, row: Any, newest: Any, time: Any, windows: Any) -> Any:
    """The queries, in one word, whose windows a pair is inside; the tuple's own inputs only if the partner is newer."""
    bounds, tables, times = windows
    if time <= newest:
        return tables[word, 0, _narrower(newest - time, bounds[0])]
    passing = tables[word, 0, 0]
    for place in range(times.shape[0]):
        passing &= tables[word, place + 1, _narrower(time - times[place, row], bounds[place + 1])]
    return passing


@compiled
def _count_pairs(ranges: Any, tuples: Any, stored: Any, windows: Any, ages: Any, counts: Any) -> Any:
    probe, start, stop, permutation = ranges
    sets, inside, newest = tuples
    their_sets, times = stored
    event, arrival, now, bits, first = ages
    by_event, by_arrival = counts
    pairs = np.int64(0)
    for i in range(probe.size):
        row = np.int64(probe[i])
        for entry in range(start[i], stop[i]):
            partner = np.int64(permutation[entry]) if permutation.size else np.int64(entry)
            shared = False
            newer = times.size and times[partner] > newest[row]
            for word in range(sets.shape[0]):
                common = sets[word, row] & their_sets[word, partner]
                if common == 0:
                    continue
                shared = True
                if windows[0].size:
                    common &= _inside_windows(word, row, newest[row], times[partner], windows)
                    common &= np.int64(-1) if newer else inside[word, row]
                left = np.uint64(common)
                if left == 0:
                    continue
                place = np.int64(0)
                if event.size:
                    place = class_of_age(now - times[partner], bits) if newer else np.int64(event[row])
                    place -= first
                while left:
                    slot = np.int64(word * 64) + np.int64(lowest_bit(left))
                    by_event[slot, place] += 1
                    if arrival.size:
                        by_arrival[slot, arrival[row]] += 1
                    left &= left - np.uint64(1)
            pairs += np.int64(shared)
    return pairs
