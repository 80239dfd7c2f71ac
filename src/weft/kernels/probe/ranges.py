"""What a probe finds: ranges first, pairs of row numbers at the end.

Guarantees: `Ranges` is the factorised form (design, D9): for one run, at most one range of its index per probe tuple (a
few, for a grid), so its size grows with the probe tuples, not with the pairs that the ranges stand for. `Matches` are
the pairs, run by run, in the order of the runs; a pair appears once. `pairs` makes them in bounded portions and drops
on the way those outside the window of event time; `match_portions` joins small portions and leaves large ones as they
are (design, D14), so that what a probe holds does not grow with what it finds. Which runs a probe tuple sees (design,
D5) is decided by the caller, who passes no others.

The compiled loops write pairs in the order of the ranges, and keep that order when they drop some. For speed (see
`equal`), none of them both reads what may not be in the cache and stores at a place that depends on it: one loop
computes flags, another moves the pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.bucket.bucket import FARTHEST, Bucket
from weft.bucket.compiled import Bytes, Ints, Longs, compiled, frozen, inner
from weft.bucket.memory import concatenate, fresh
from weft.errors import StateError

__all__ = [
    "NO_INTS",
    "NO_LONGS",
    "PORTION",
    "Matches",
    "Ranges",
    "Window",
    "compact",
    "expand",
    "fill",
    "join_matches",
    "match_portions",
    "pairs",
    "reachable",
    "time_check",
]


_BLOCK = 1024

Places = NDArray[np.uint32]


@compiled
def fill(
    range_probe: Ints,
    range_start: Ints,
    range_stop: Ints,
    permutation: Ints,
    at: Longs,
    probe: Ints,
    stored: Ints,
) -> None:
    """Write the next pairs, as many as there is room for; `at` is the range, and the place in it, that come next."""
    i, offset = np.uint64(at[0]), at[1]
    place = np.uint64(0)
    while place < probe.size:
        start = range_start[i] + offset
        count = min(np.int64(probe.size - place), range_stop[i] - start)
        for j in range(count):
            probe[place + np.uint64(j)] = range_probe[i]
        for j in range(count):
            stored[place + np.uint64(j)] = start + j
        place += np.uint64(count)
        offset += count
        if range_start[i] + offset == range_stop[i]:
            i, offset = i + np.uint64(1), np.int64(0)
    at[0], at[1] = i, offset
    if permutation.size:
        for j in range(stored.size):
            stored[j] = permutation[np.uint32(stored[j])]


@compiled
def _keep_passing(
    probe: Places,
    stored: Places,
    times: Longs,
    low: Longs,
    high: Longs,
    before: int,
    after: int,
) -> Any:
    """Move the pairs inside the window to the front, and say how many they are."""
    good = np.empty(_BLOCK, np.uint8)
    kept: Any = np.uint64(0)
    for first in range(0, probe.size, _BLOCK):
        size = min(_BLOCK, probe.size - first)
        ours, theirs = probe[first : first + size], stored[first : first + size]
        for i in range(size):
            time = times[theirs[i]]
            good[i] = np.uint8((time >= low[ours[i]] - before) & (time <= high[ours[i]] + after))
        kept = compact(good[:size], ours, theirs, kept, probe, stored)
    return kept


@inner
def compact(good: Bytes, probe: Any, stored: Any, kept: Any, out_probe: Any, out_stored: Any) -> Any:
    """Append the pairs that are good (1, not 0) to a result, which may be the front of the same arrays."""
    for i in range(good.size):
        out_probe[kept] = probe[i]
        out_stored[kept] = stored[i]
        kept += np.uint64(good[i])
    return kept


PORTION = 1 << 20

NO_INTS = frozen(np.empty(0, np.int32))
NO_LONGS = frozen(np.empty(0, np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Which event times a partner of each probe tuple may have: from low - before to high + after, both included.

    The shifts are kept beside the times, and not added to them, so that the usual window, around the tuple's own time,
    needs no new arrays.
    """

    low: Longs
    high: Longs
    before: int = 0
    after: int = 0

    def __post_init__(self) -> None:
        if self.low.shape != self.high.shape:
            raise StateError("a window has one earliest and one latest time for every tuple")
        low = frozen(_clipped(self.low))
        object.__setattr__(self, "high", low if self.high is self.low else frozen(_clipped(self.high)))
        object.__setattr__(self, "low", low)

    @classmethod
    def around(cls, times: Longs, before: int, after: int) -> Window:
        """Partners from `before` microseconds earlier to `after` microseconds later than each tuple."""
        return cls(times, times, min(before, FARTHEST), min(after, FARTHEST))

    @property
    def earliest(self) -> Longs:
        """The earliest time of each tuple's partners."""
        return np.subtract(self.low, self.before, out=fresh(self.low.size, np.int64))

    @property
    def latest(self) -> Longs:
        """The latest time of each tuple's partners."""
        return np.add(self.high, self.after, out=fresh(self.high.size, np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Entries `start` to `stop` of a run's index, for each probe tuple that has any."""

    probe: Ints
    start: Ints
    stop: Ints
    permutation: Ints | None  # of the index; None where entries are rows

    @property
    def total(self) -> int:
        """How many pairs they stand for."""
        return int(self.stop.sum(dtype=np.int64) - self.start.sum(dtype=np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Pairs of a probe tuple and a stored row; those of run r are at splits[r] to splits[r + 1]."""

    probe: Ints
    stored: Ints
    splits: tuple[int, ...]

    def __len__(self) -> int:
        return self.probe.size

    def of_run(self, run: int) -> tuple[Ints, Ints]:
        """The pairs of one run."""
        part = slice(self.splits[run], self.splits[run + 1])
        return self.probe[part], self.stored[part]


def _clipped(times: Longs) -> Longs:
    """The times, cut to limits beyond every event, so that they can be subtracted from each other without overflow."""
    if times.size and (times.min() < -FARTHEST or times.max() > FARTHEST):
        return np.clip(times, -FARTHEST, FARTHEST)
    return times


def match_portions(
    parts: Iterable[Iterable[tuple[Ints, Ints]]], runs: int, portion: int
) -> Iterator[Matches]:
    """The matches of ``runs`` runs, given the portions of each; small portions are joined up to ``portion`` pairs.

    If there are no more than ``portion`` pairs in all, they come as one `Matches`. A larger portion is not cut.
    """
    some: list[tuple[Ints, Ints]] = []
    splits, size = [0], 0
    for number, portions in enumerate(parts):
        for probe, stored in portions:
            if size and size + probe.size > portion:
                yield _joined(some, [*splits, *[size] * (runs - number)])
                some, splits, size = [], [0] * (number + 1), 0
            some.append((_trimmed(probe), _trimmed(stored)))
            size += probe.size
        splits.append(size)
    if size:
        yield _joined(some, splits)


def _trimmed(rows: Ints) -> Ints:
    """The rows, copied if they are a small part of a larger array, which would otherwise be kept alive."""
    whole = rows.base
    return rows.copy() if isinstance(whole, np.ndarray) and whole.size > 2 * rows.size else rows


def _joined(some: list[tuple[Ints, Ints]], splits: list[int]) -> Matches:
    if len(some) == 1:
        return Matches(*some[0], tuple(splits))
    probe, stored = (concatenate([pair[side] for pair in some]) for side in (0, 1))
    return Matches(probe, stored, tuple(splits))


def join_matches(parts: Iterable[Iterable[tuple[Ints, Ints]]]) -> Matches:
    """The matches of all runs, from the portions of each."""
    probe, stored, splits = [NO_INTS], [NO_INTS], [0]
    for portions in parts:
        size = splits[-1]
        for some_probe, some_stored in portions:
            probe.append(some_probe)
            stored.append(some_stored)
            size += some_probe.size
        splits.append(size)
    if len(probe) == 2:
        return Matches(probe[1], stored[1], tuple(splits))
    return Matches(concatenate(probe), concatenate(stored), tuple(splits))


def reachable(bucket: Bucket, window: Window | None) -> bool:
    """Whether any row of the bucket can be inside the window of any probe tuple."""
    bounds = bucket.bounds
    if not bounds.rows:
        return False
    if window is None or bounds.min_time is None or bounds.max_time is None:
        return True
    if not window.low.size:
        return False
    starts_before = window.low.min() - window.before <= bounds.max_time
    return bool(starts_before and window.high.max() + window.after >= bounds.min_time)


def pairs(
    ranges: Ranges,
    bucket: Bucket,
    *,
    window: Window | None = None,
    portion: int = PORTION,
) -> Iterator[tuple[Ints, Ints]]:
    """The pairs (probe tuple, stored row), at most `portion` at a time.

    The window is checked only if it is passed; an equality probe has checked it already.
    """
    in_time = time_check(bucket, window)
    for probe, stored in expand(ranges, portion):
        passing = probe.size
        if in_time[0].size:
            passing = _keep_passing(probe.view(np.uint32), stored.view(np.uint32), *in_time)
        if passing:
            yield probe[:passing], stored[:passing]


def expand(ranges: Ranges, portion: int = PORTION) -> Iterator[tuple[Ints, Ints]]:
    """The pairs (probe tuple, stored row) of all ranges, at most `portion` at a time."""
    permutation = NO_INTS if ranges.permutation is None else ranges.permutation
    at = np.zeros(2, np.int64)  # the range and the place in it that come next
    left = ranges.total
    while left:
        size = min(left, portion)
        left -= size
        probe, stored = fresh(size, np.int32), fresh(size, np.int32)
        fill(ranges.probe, ranges.start, ranges.stop, permutation, at, probe, stored)
        yield probe, stored


def time_check(bucket: Bucket, window: Window | None) -> tuple[Longs, Longs, Longs, int, int]:
    """The window as compiled functions take it, (times, low, high, before, after); empty arrays mean no window."""
    if window is None:
        return NO_LONGS, NO_LONGS, NO_LONGS, 0, 0
    times = bucket.times
    if times is None:
        raise StateError("the window of rows without an event time cannot be checked")
    return times, window.low, window.high, window.before, window.after
