"""Results of one partition in the order that a query asks for, with the keys to merge them by.

Guarantees: the order is that of `weft.logical.ordering`. What a probe found for a query leaves as one run, sorted by
its keys, which are its first columns: the block of the result's last tuple; with `inner`, also the block of each
partner in the order of FROM; with `event`, the largest time. Only row numbers are sorted; columns are gathered once.

A last tuple's number is its place among all tuples of the query's inputs since the query's first batch. A read task
cannot know it, and gives the place among those it read; the driver adds what came before (`weft.runtime.gather`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.bucket.bucket import column
from weft.bucket.compiled import Ints, Longs
from weft.bucket.memory import fresh, take
from weft.bucket.words import from_words, is_plain, plain_words
from weft.kernels.materialise import stored_column, taken
from weft.kernels.order import place, sort_rows
from weft.kernels.ranges import Matches
from weft.logical.ordering import Ordering
from weft.plan.graph import Member
from weft.runtime.batch import MAX, View, full, longs, seq_name
from weft.runtime.step import Found
from weft.runtime.turn import Turn

__all__ = ["InOrder", "arranged", "in_place", "key_count", "tuples_before"]


def key_count(ordering: Ordering) -> int:
    """How many of a run's first columns are its keys."""
    return 1 + len(ordering.inputs) if ordering.is_inner else 1


@dataclass(frozen=True, slots=True, eq=False)
class InOrder:
    """Matches of a probe in an order, as results are made of them; ``order`` says which comes when."""

    found: Found
    matches: Matches
    order: Ints

    @property
    def num_rows(self) -> int:
        """How many there are."""
        return self.order.size

    def column(self, name: str, rows: Ints | None = None) -> Any:  # noqa: ARG002
        """A column of them."""
        batch, runs = self.found.batch, self.found.runs
        if name in batch.schema.names:
            return taken(column(batch, name), take(self.found.origins(self.matches), self.order))
        stored = [column(run.batch, name) for run in runs]
        if not all(map(is_plain, stored)):
            return taken(stored_column(self.matches, runs, name), self.order)
        places, out = in_place(self.order), fresh(self.num_rows, np.int64)
        for number, values in enumerate(stored):
            mine = slice(self.matches.splits[number], self.matches.splits[number + 1])
            place(plain_words(values), self.matches.stored[mine], places[mine], out)
        return from_words(out, stored[0].type)


def in_place(order: Ints) -> Ints:
    """Where each row comes in an order."""
    places = fresh(order.size, np.int32)
    places[order] = np.arange(order.size, dtype=np.int32)
    return places


def arranged(
    member: Member, view: View, start: str, found: Any, rows: Ints | None, turn: Turn
) -> tuple[list[Longs], Any, Ints | None]:
    """The keys of results in order; what gives their columns, in order too, and of which rows."""
    keys = _keys(member, view, start, found, rows, turn)
    order = sort_rows(keys)
    if order is None:
        return keys, found, rows
    keys = [take(key, order) for key in keys]
    if isinstance(found, Found):
        return keys, InOrder(found, found.only(rows), order), None
    return keys, found, order if rows is None else take(rows, order)


def _keys(member: Member, view: View, start: str, found: Any, rows: Ints | None, turn: Turn) -> list[Longs]:
    ordering = member.ordering
    if ordering is None or not ordering.by_arrival:
        time = MAX if isinstance(found, Found) else view.times[start]
        return [longs(found.column(time, rows))]
    last = _last(member, ordering.block, start, found, rows, turn)
    if not ordering.is_inner:
        return [last]
    return [last, *(_partner(ordering, alias, start, found, rows, last.size) for alias in ordering.inputs)]


def _last(member: Member, block: int, start: str, found: Any, rows: Ints | None, turn: Turn) -> Longs:
    """The blocks of the last tuples, worked out for the tuples and not for their results, which are more."""
    batch = found.batch
    numbers = longs(column(batch, seq_name(start)))
    before = turn.counts.get(start)
    if before is not None:
        numbers = numbers + (tuples_before(member, turn) + _ahead(member, start, turn) - before.before)
        numbers = _blocks(numbers, block)
    if isinstance(found, Found):
        return take(numbers, found.origins(found.only(rows)))
    return numbers if rows is None else take(numbers, rows)


def _partner(ordering: Ordering, alias: str, start: str, found: Any, rows: Ints | None, size: int) -> Longs:
    """The blocks of partners of one input; the last tuple is none of them."""
    if alias == start:
        return full(size, 0)
    return _blocks(longs(found.column(seq_name(alias), rows)), ordering.precision)


def _blocks(numbers: Longs, precision: int) -> Longs:
    return numbers if precision == 1 else numbers // precision


def tuples_before(member: Member, turn: Turn) -> int:
    """How many tuples of its inputs a query has had in earlier batches."""
    return sum(turn.counts[alias].before for alias in member.query.aliases) - member.began


def _ahead(member: Member, start: str, turn: Turn) -> int:
    """How many tuples of a query's inputs come before those of ``start`` in a batch."""
    others = [alias for alias in member.query.aliases if alias != start and turn.sees(start, alias)]
    return sum(turn.counts[alias].arrived for alias in others)
