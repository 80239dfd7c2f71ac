"""The ages of matches, in the logarithmic classes of `weft.stats.histogram`.

Guarantees: a class is what that module's `class_of` says of the same microseconds; ``bits`` is its fineness. The age of
a match is that of the newer of its two sides. No Python runs per row, and no array is made but the one given back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.bucket.compiled import Ints, Longs, compiled, frozen, inner

__all__ = ["Classes", "ages_of_pairs", "ages_of_times", "class_of_age", "count_by_query", "count_classes"]

Classes = NDArray[np.int16]


def ages_of_times(times: Longs, now: int, bits: int) -> Classes:
    """The class of the age that each time has at ``now``, both in microseconds."""
    found = np.empty(times.size, np.int16)
    _of_times(frozen(times), np.int64(now), np.int64(bits), found)
    return found


def ages_of_pairs(
    mine: Longs, probes: Ints, theirs: Longs, rows: Ints, now: int, bits: int, out: Classes
) -> None:
    """Write the class of the age of every pair (probe tuple, stored row) at ``now``, given the times of both sides."""
    _of_pairs(frozen(mine), frozen(probes), frozen(theirs), frozen(rows), np.int64(now), np.int64(bits), out)


def count_classes(classes: Classes, counts: Longs) -> None:
    """Add how often each class occurs."""
    _count(frozen(classes), counts)


def count_by_query(sets: Longs, wanted: Longs, classes: Classes, counts: Longs) -> None:
    """Add how often each class occurs among the rows of every slot's query; ``counts`` are by slot and class.

    ``sets`` are query-sets (`weft.kernels.query_sets.query_set`), and ``wanted`` those of all queries that count.
    """
    _by_query(frozen(sets), frozen(wanted), frozen(classes), counts)


_52, _1023 = np.int64(52), np.int64(1023)


@inner
def class_of_age(age: Any, bits: Any) -> Any:
    """The class of an age: the exponent of the number as a double, and the first bits of its fraction."""
    if age < 1:
        return np.int64(0) if age < 0 else np.int64(1)
    found = (np.float64(age).view(np.int64) >> (_52 - bits)) - (_1023 << bits) + np.int64(2)
    return min(found, np.int64(1) + (np.int64(62) << bits))


@compiled
def _of_times(times: Longs, now: np.int64, bits: np.int64, out: Classes) -> None:
    for i in range(times.size):
        out[i] = class_of_age(now - times[i], bits)


@compiled
def _of_pairs(
    mine: Longs, probes: Ints, theirs: Longs, rows: Ints, now: np.int64, bits: np.int64, out: Classes
) -> None:
    for i in range(probes.size):
        out[i] = class_of_age(now - max(mine[probes[i]], theirs[rows[i]]), bits)


@compiled
def _count(classes: Classes, counts: Longs) -> None:
    for i in range(classes.size):
        counts[classes[i]] += 1


@compiled
def _by_query(sets: Longs, wanted: Longs, classes: Classes, counts: Longs) -> None:
    for word in range(sets.shape[0]):
        for row in range(sets.shape[1]):
            bits = np.uint64(sets[word, row] & wanted[word])
            slot = word * 64
            while bits:
                if bits & np.uint64(1):
                    counts[slot, classes[row]] += 1
                bits >>= np.uint64(1)
                slot += 1
