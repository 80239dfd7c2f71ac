"""What to merge after a batch, so that runs stay few and no batch merges much (design, D13).

Guarantees: `plan_merges` is a pure function of where runs lie, how large they are and how much may be merged. A merge
takes the rows of a range of places from runs that follow each other in age wherever they overlap in that range; so rows
of equal hash and time stay in the order of their arrival. What it takes has about `piece` bytes at most, unless one
value has more. Of all that should be merged, what fits into the budget is, and one merge at least if that is asked for;
the rest is the debt. Merges of few bytes are free.

The rule is that of tiers, place by place. A run's *level* is the logarithm of its bytes per place; a run that is older
than a larger one counts as of that one's level. Where `fanout` runs of one level lie over each other, and none has more
bytes than all the others together, they are merged: so whenever a row is rewritten, what it lies in at least doubles, a
row is rewritten O(log) times, and O(log) runs lie over any place. Merges of a level that has many bytes are cut at
multiples of a power of two, each into its own run, and are done one by one. So large levels are sequences of runs that
do not overlap, and are never merged as a whole.

Merges of low levels go first, since they are cheap and leave fewer runs at every place. The debt stays bounded because
each batch merges a part of it, `DRAIN`, however small its budget is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from weft.bucket.bounds import PLACES, Bounds

__all__ = ["DRAIN", "PIECE", "Extent", "MergePlan", "RangeMerge", "plan_merges"]

PIECE = 1 << 26  # a merge takes about so many bytes at most: some million rows, 50 ms
DRAIN = 16  # a batch merges at least this part of the debt


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a run lies: the range of its places, which does not include ``high``, and what is known of its rows."""

    low: int
    high: int
    bounds: Bounds

    def bytes_between(self, low: int, high: int) -> int:
        """About how many bytes its rows in a range have, which lies inside its own."""
        return self.bounds.bytes * (high - low) // (self.high - self.low)

    @property
    def density(self) -> int:
        """How many bytes it would have if it had as many at all places."""
        return self.bounds.bytes * PLACES // (self.high - self.low) + 1


@dataclass(frozen=True, slots=True)
class RangeMerge:
    """Some runs, by their place among all, oldest first, of which the rows in a range are to be merged."""

    low: int
    high: int
    runs: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The merges to do now, and how many bytes should be merged beside that."""

    merges: tuple[RangeMerge, ...] = ()
    debt: int = 0


def plan_merges(
    runs: Sequence[Extent],
    budget: int,
    *,
    piece: int = PIECE,
    fanout: int = 4,
    reach: int | None = None,
    at_least_one: bool = True,
    free: int = 0,
) -> MergePlan:
    """What to merge of the runs of a store, oldest first, with a budget in bytes.

    Runs that cover ``reach`` of event time are closed: they are merged no more, nor is what is older at their places.
    Merges of fewer than ``free`` bytes are always done.

    >>> whole = [Extent(0, PLACES, Bounds(0, size)) for size in (900, 9, 9, 9, 9)]
    >>> [merge.runs for merge in plan_merges(whole, 100).merges], plan_merges(whole[1:4], 100).merges
    ([(1, 2, 3, 4)], ())
    """
    due = sorted(_due(runs, piece, fanout, reach), key=lambda pair: (pair[0], pair[1].low))
    small = [merge for _, merge in due if merge.bytes < free]
    large = [merge for _, merge in due if merge.bytes >= free]
    debt = sum(merge.bytes for merge in large)
    budget, spent, count = max(budget, debt // DRAIN), 0, 0
    for merge in large:
        if spent + merge.bytes > budget and (count or not at_least_one):
            break
        count += 1
        spent += merge.bytes
    return MergePlan((*small, *large[:count]), debt - spent)


def _due(
    runs: Sequence[Extent], piece: int, fanout: int, reach: int | None
) -> Iterator[tuple[int, RangeMerge]]:
    """All merges that should be done, each with its level."""
    for level, low, high, group in _joined(_groups(runs, fanout, reach)):
        for begin, end in _cuts(low, high, sum(runs[run].density for run in group), piece):
            size = sum(runs[run].bytes_between(begin, end) for run in group)
            yield level, RangeMerge(begin, end, group, size)


_Group = tuple[int, int, int, tuple[int, ...]]  # level, range of places, runs


def _groups(runs: Sequence[Extent], fanout: int, reach: int | None) -> Iterator[_Group]:
    """The runs to merge in every range in which the same runs lie over each other."""
    cuts = sorted({run.low for run in runs} | {run.high for run in runs})
    levels = [_level(run.density, fanout) for run in runs]
    begins: dict[int, list[int]] = {}
    for number, run in enumerate(runs):
        begins.setdefault(run.low, []).append(number)
    here: list[int] = []
    for low, high in pairwise(cuts):
        here = sorted([number for number in here if runs[number].high > low] + begins.get(low, []))
        closed = [place for place, number in enumerate(here) if _closed(runs[number].bounds, reach)]
        for level, group in _tiers(here[closed[-1] + 1 if closed else 0 :], levels):
            sizes = [runs[number].density for number in group]
            if len(group) >= fanout and max(sizes) <= sum(sizes) / 2:
                yield level, low, high, group


def _tiers(here: Sequence[int], levels: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Runs that follow each other in age, by level; one that is older than a larger one counts as of its level."""
    group: list[int] = []
    level = -1
    for number in reversed(here):
        if levels[number] > level and group:
            yield level, tuple(reversed(group))
            group = []
        level = max(level, levels[number])
        group.append(number)
    if group:
        yield level, tuple(reversed(group))


def _joined(groups: Iterable[_Group]) -> list[_Group]:
    """Groups of the same runs in neighbouring ranges as one."""
    joined: dict[tuple[int, tuple[int, ...]], list[_Group]] = {}
    for level, low, high, group in groups:
        parts = joined.setdefault((level, group), [])
        if parts and parts[-1][2] == low:
            parts[-1] = level, parts[-1][1], high, group
        else:
            parts.append((level, low, high, group))
    return [part for parts in joined.values() for part in parts]


def _cuts(low: int, high: int, density: int, piece: int) -> Iterator[tuple[int, int]]:
    """A range, cut at multiples of a power of two such that no part of it has more than a piece's bytes."""
    width = 1 << min(64, max(16, (PLACES * piece // density).bit_length() - 1))
    while low < high:
        end = min(high, (low // width + 1) * width)
        yield low, end
        low = end


def _level(density: int, fanout: int) -> int:
    level = 0
    while density >= fanout:
        density //= fanout
        level += 1
    return level


def _closed(run: Bounds, reach: int | None) -> bool:
    if reach is None or run.min_time is None or run.max_time is None:
        return False
    return run.max_time - run.min_time >= reach
