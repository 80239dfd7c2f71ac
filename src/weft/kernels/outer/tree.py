"""Join trees with outer, semi and anti joins, over relations in memory.

Guarantees: the rows are those that SQL defines for the joins of the tree, done from the leaves up. A row of the left
side and one of the right side match if all terms of ON are true (not false, not NULL) and all of their tuples are
inside each other's windows. Every row says in which batch it appeared, and until when a tuple that it lacks may still
come and make it wrong (`JoinedRows`). Rows come in no particular order, and duplicates as often as SQL says.
Of the versions that a row of an ASOF join matches, one is kept: that of the largest time, or of the largest or smallest
value where a `VersionChoice` says so, and, of several such, the one whose row has the largest values, column by column
in the order of their names, NULL before all others. So it does not depend on the order of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.compiled import Ints, Longs, Mask, frozen
from weft.bucket.memory import copy, fresh, take
from weft.bucket.words import flatten
from weft.errors import PlanError
from weft.kernels.outer.pairs import Pairs, matching_pairs
from weft.kernels.outer.relation import (
    AT_ONCE,
    FOREVER,
    FURTHEST_APART,
    JoinedRows,
    Relation,
    TreeRows,
    WindowSpan,
    leaf,
)
from weft.kernels.probe.ranges import NO_INTS, join_matches
from weft.logical.outer.asof import VersionChoice
from weft.logical.outer.outer import joins
from weft.logical.query.join_tree import ASOF, LACKS_LEFT, LACKS_RIGHT, MARK, Join

__all__ = ["FOREVER", "JoinedRows", "Relation", "rows_of"]


Waits = Mapping[tuple[int, str], int | None]

# Joins whose rows may be withdrawn, because a partner that they lack comes later.
_LATE = ("left", "full", "anti", MARK, *ASOF)

# Whether rows of the left and of the right side without a match are kept.
_KEPT = {"inner": (False, False), "left": (True, False), "right": (False, True), "full": (True, True)}


def rows_of(
    tree: Join | str,
    relations: Mapping[str, Relation],
    waits: Waits,
    choices: Mapping[int, VersionChoice] | None = None,
) -> JoinedRows:
    """The rows of a tree; ``choices`` say by which values ASOF joins, by their numbers, choose versions if not by time.

    ``waits`` says, for a join by its number (`logical.outer.outer.joins`) and an input on a side of it, how long after
    the input's tuple a partner that the join lacks may come; None, or no entry, means at any time.
    """
    named = (tree,) if isinstance(tree, str) else tree.aliases
    windowed = any(relations[alias].reach is not None for alias in named)
    return _Tree(relations, waits, windowed, choices or {}).part(tree, count()).rows


@dataclass(frozen=True, slots=True)
class _Tree:
    relations: Mapping[str, Relation]
    waits: Waits
    windowed: bool
    choices: Mapping[int, VersionChoice]

    def part(self, tree: Join | str, numbers: Iterator[int]) -> TreeRows:
        """The rows of a part of the tree; ``numbers`` gives its joins their numbers."""
        if isinstance(tree, str):
            return leaf(tree, self.relations, spanned=self.windowed)
        number = next(numbers)
        left, right = self.part(tree.left, numbers), self.part(tree.right, numbers)
        found = matching_pairs(tree.on, left, right)
        if tree.kind == "semi":
            return self._semi(number, tree, left, right.rows, found)
        if tree.kind == "anti":
            return self._anti(number, left, found)
        if tree.kind == MARK:
            return self._marked(number, tree, left, right, found)
        if tree.kind in ASOF and isinstance(tree.right, str):
            return self._asof(number, tree, left, right, found)
        if tree.kind not in _KEPT:
            raise PlanError(f"unknown join {tree.kind!r}")
        return self._joined(number, left, right, _Places.of(found, len(left), len(right), *_KEPT[tree.kind]))

    def _joined(self, number: int, left: TreeRows, right: TreeRows, places: _Places) -> TreeRows:
        ours, theirs = left.rows, right.rows
        numbers = {alias: places.of_left(values, -1) for alias, values in ours.numbers.items()}
        numbers |= {alias: places.of_right(values, -1) for alias, values in theirs.numbers.items()}
        final = places.latest(ours.final, theirs.final)
        matches, end = places.left.size, places.left.size + places.left_alone.size
        for part, alone, out in (
            (left, places.left_alone, final[matches:end]),
            (right, places.right_alone, final[end:]),
        ):
            np.maximum(out, self._wait(number, part.rows, alone), out=out)
        rows = JoinedRows(numbers, places.latest(ours.arrived, theirs.arrived), final)
        return TreeRows(rows, _span(places, left.span, right.span) if number else None, self.relations)

    def _semi(
        self, number: int, tree: Join, left: TreeRows, right: JoinedRows, found: Iterable[Pairs]
    ) -> TreeRows:
        """The left rows that have a match.

        A row is final as soon as a match has come, unless rows of the right side may be withdrawn later: then it is
        final when no partner can come any more.
        """
        result, chosen = _matched(left, right, found)
        if not any(join.kind in _LATE for _, join in joins(tree.right)):
            return result
        rows = left.chosen(chosen).rows
        final = np.maximum(rows.final, self._wait(number, left.rows, chosen))
        return replace(result, rows=replace(rows, final=final))

    def _anti(self, number: int, left: TreeRows, found: Iterable[Pairs]) -> TreeRows:
        alone = _alone(len(left), (ours for ours, _ in found))
        result = left.chosen(alone)
        final = np.maximum(result.rows.final, self._wait(number, left.rows, alone))
        return replace(result, rows=replace(result.rows, final=final))

    def _marked(
        self, number: int, tree: Join, left: TreeRows, right: TreeRows, found: Iterable[Pairs]
    ) -> TreeRows:
        """Every left row once, with the first of its matches to arrive, if it has any, in whose windows it is not.

        A row with a match is final as that of a semi join, one without as that of an anti join.
        """
        pairs = join_matches([found])
        ours, theirs = _first_matches(pairs.probe, pairs.stored, right.rows.arrived)
        places = _Places(ours, theirs, _alone(len(left), [ours]), NO_INTS)
        result = self._joined(number, left, right, places)
        every = frozen(np.concatenate((places.left, places.left_alone)))
        if any(join.kind in _LATE for _, join in joins(tree.right)):
            np.maximum(result.rows.final, self._wait(number, left.rows, every), out=result.rows.final)
        return replace(result, span=left.chosen(every).span)

    def _asof(
        self, number: int, tree: Join, left: TreeRows, right: TreeRows, found: Iterable[Pairs]
    ) -> TreeRows:
        """The left rows with the version that each is joined with, and rows without one as the kind of join says.

        None of them is final before no better version can come any more.
        """
        pairs = join_matches([found])
        ranks, choice = self.relations[str(tree.right)].times, self.choices.get(number)
        if choice is not None:
            ranks = _codes(flatten(right.values(choice.value))) * (1 if choice.latest else -1)
        ours, theirs = _best_matches(pairs.probe, pairs.stored, self.relations[str(tree.right)], ranks)
        alone = _alone(len(left), [ours]) if tree.kind in LACKS_RIGHT else NO_INTS
        unused = _alone(len(right), [theirs]) if tree.kind in LACKS_LEFT else NO_INTS
        result = self._joined(number, left, right, _Places(ours, theirs, alone, unused))
        final = result.rows.final[: ours.size]
        np.maximum(final, self._wait(number, left.rows, ours), out=final)
        return result

    def _wait(self, number: int, rows: JoinedRows, chosen: Ints) -> Longs:
        """Until when a partner of each chosen row may come: the earliest end of the waits of its tuples."""
        result = np.full(chosen.size, FOREVER)
        for alias, values in rows.numbers.items():
            wait, times = self.waits.get((number, alias)), self.relations[alias].times
            if wait is None or not times.size:
                continue
            if wait < -FURTHEST_APART:
                return np.full(chosen.size, AT_ONCE)
            shift = min(wait, FURTHEST_APART)
            tuples = take(frozen(values), chosen)
            until = take(frozen(times), np.maximum(tuples, 0).astype(np.int32)) + shift
            np.minimum(result, np.where(tuples < 0, FOREVER, until), out=result)
        return result


def _span(places: _Places, left: WindowSpan | None, right: WindowSpan | None) -> WindowSpan | None:
    if left is None or right is None:
        return None
    until = np.minimum(places.of_left(left.until, FOREVER), places.of_right(right.until, FOREVER))
    return WindowSpan(places.latest(left.newest, right.newest), until)


def _matched(left: TreeRows, right: JoinedRows, found: Iterable[Pairs]) -> tuple[TreeRows, Ints]:
    """The left rows with a match, and their numbers; each appears in the batch in which its first match does."""
    arrived = np.full(len(left), FOREVER)
    matched = np.zeros(len(left), np.bool_)
    for ours, theirs in found:
        first = np.flatnonzero(np.diff(ours, prepend=-1))  # pairs of one left row are together
        some = ours[first]
        matched[some] = True
        here = np.minimum.reduceat(take(frozen(right.arrived), theirs), first)
        arrived[some] = np.minimum(arrived[some], here)
    chosen = frozen(np.flatnonzero(matched).astype(np.int32))
    result = left.chosen(chosen)
    since = np.maximum(result.rows.arrived, arrived[chosen])
    return replace(result, rows=replace(result.rows, arrived=since)), chosen


def _alone(size: int, matched: Iterable[Ints]) -> Ints:
    """The numbers below ``size`` of the rows that are not among those that match."""
    alone = np.ones(size, np.bool_)
    for rows in matched:
        alone[rows] = False
    return frozen(np.flatnonzero(alone).astype(np.int32))


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """Where the rows of a join come from: pairs first, then left rows, then right rows without a match."""

    left: Ints
    right: Ints
    left_alone: Ints
    right_alone: Ints

    @classmethod
    def of(cls, found: Iterable[Pairs], left: int, right: int, keep_left: bool, keep_right: bool) -> _Places:
        pairs = join_matches([found])
        left_alone = _alone(left, [pairs.probe]) if keep_left else NO_INTS
        right_alone = _alone(right, [pairs.stored]) if keep_right else NO_INTS
        return cls(pairs.probe, pairs.stored, left_alone, right_alone)

    def of_left(self, values: Longs, missing: int) -> Longs:
        """The value of the left row that each row of the join is made of, or ``missing`` where it has none."""
        matches, end = self.left.size, self.left.size + self.left_alone.size
        out = fresh(end + self.right_alone.size, np.int64)
        copy(frozen(values), self.left, out[:matches])
        copy(frozen(values), self.left_alone, out[matches:end])
        out[end:] = missing
        return out

    def of_right(self, values: Longs, missing: int) -> Longs:
        """The value of the right row that each row of the join is made of, or ``missing`` where it has none."""
        matches, end = self.left.size, self.left.size + self.left_alone.size
        out = fresh(end + self.right_alone.size, np.int64)
        copy(frozen(values), self.right, out[:matches])
        out[matches:end] = missing
        copy(frozen(values), self.right_alone, out[end:])
        return out

    def latest(self, left: Longs, right: Longs) -> Longs:
        """The larger of the left and the right row's value, for every row of the join."""
        result = self.of_left(left, -FOREVER)
        return np.maximum(result, self.of_right(right, -FOREVER), out=result)


def _first_matches(left: Ints, right: Ints, arrived: Longs) -> tuple[Ints, Ints]:
    """The matches, given as row numbers of both sides, with only the first of each left row to arrive."""
    order = np.lexsort((arrived[right], left))
    left, right = left[order], right[order]
    first = np.diff(left, prepend=-1) > 0
    return frozen(left[first].astype(np.int32)), frozen(right[first].astype(np.int32))


def _best_matches(left: Ints, right: Ints, versions: Relation, ranks: Longs) -> tuple[Ints, Ints]:
    """The matches, given as row numbers of both sides, with only the version of the highest rank of each left row."""
    if not left.size:
        return left, right
    reached = ranks[right]
    highest = np.full(int(left.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(highest, left, reached)
    kept: Mask = reached == highest[left]
    left, right = left[kept], right[kept]
    counts = np.bincount(left)
    if counts.max() > 1:
        left, right = _largest(left, right, versions)
    return frozen(left.astype(np.int32)), frozen(right.astype(np.int32))


def _largest(left: Ints, right: Ints, versions: Relation) -> tuple[Ints, Ints]:
    """Of several matches of a left row, the one whose version has the largest values."""
    rows = np.unique(right)
    order = np.lexsort((_ranks(versions, rows)[np.searchsorted(rows, right)], left))
    left, right = left[order], right[order]
    last = np.append(left[1:] != left[:-1], True)
    return left[last], right[last]


def _ranks(versions: Relation, rows: Ints) -> Longs:
    """The places of some versions among each other by their values; NULL is before every value, and NaN after."""
    ranks: list[Longs] = [np.zeros(rows.size, np.int64)]
    for name in sorted(versions.batch.schema.names, reverse=True):
        values = flatten(versions.batch.column(name)).take(pa.array(rows))
        if not pa.types.is_null(values.type) and not pa.types.is_nested(values.type):
            ranks.append(_codes(values))
    places = np.empty(rows.size, np.int64)
    places[np.lexsort(ranks)] = np.arange(rows.size)
    return places


def _codes(values: Any) -> Longs:
    """For every value its place among the different ones; -1 for NULL."""
    encoded = values.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    places = np.empty(order.size + 1, np.int64)
    places[order], places[-1] = np.arange(order.size), -1
    found: Longs = places[encoded.indices.fill_null(order.size).to_numpy()]
    return found
