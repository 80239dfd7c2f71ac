"""Results of one partition in the order that a query asks for, with the keys to merge them by.

Guarantees: the order is that of `query/ordering.py`. A portion of a probe's matches leaves for a query as one run,
sorted by its keys, which are its first columns: the block of the result's last tuple; with `inner`, also the block of
each partner in the order of FROM; with `event`, the largest time. Only row numbers are sorted; columns are gathered
once.

The number of a result's last tuple is its place among all tuples of the query's inputs since the query's first batch. A
read task does not know how many came before those it read, and gives the place among these; the driver adds the rest
(`weft.runtime.output.ordered_results`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import column
from weft.bucket.columns import longs, taken
from weft.bucket.compiled import Array, Ints, Longs, frozen
from weft.bucket.memory import fresh, take
from weft.kernels.order.merging import bits_of
from weft.kernels.order.sort import counted_places, place, sort_rows
from weft.kernels.probe.materialise import stored_column
from weft.kernels.probe.ranges import Matches
from weft.logical.query.ordering import OUTER, Ordering
from weft.plan.physical.graph import Member
from weft.runtime.hop.probe_step import MatchPortion
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.model.columns import MAX, View, full, seq_name

__all__ = ["InOrder", "invert", "key_count", "sort_results", "tuples_before"]


def key_count(ordering: Ordering) -> int:
    """How many of a run's first columns are its keys."""
    return 1 + len(ordering.inputs) if ordering.is_inner else 1


@dataclass(frozen=True, eq=False)
class InOrder:
    """Matches of a probe in an order; ``places`` says for each match of ``matches`` which place it has in the order."""

    found: MatchPortion
    matches: Matches
    places: Ints

    @property
    def num_rows(self) -> int:
        """How many matches there are."""
        return self.places.size

    @cached_property
    def _order(self) -> Ints:
        """The numbers of the matches, in the order."""
        return invert(self.places)

    @cached_property
    def _origins(self) -> Ints:
        return self.found.origins(self.matches)

    def column(self, name: str, rows: Ints | None = None) -> Any:  # noqa: ARG002
        """A column of the matches, in the order; it is always asked for all of them."""
        runs = self.found.runs
        if name in self.found.batch.schema.names:
            values = column(self.found.batch, name)
            bits = bits_of(values)
            if bits is None:
                return taken(values, take(self._origins, self._order))
            return self._placed(values.type, [(bits, self._origins, self.places)])
        stored = [column(run.batch, name) for run in runs]
        known = [bits for values in stored if (bits := bits_of(values)) is not None]
        if len(known) < len(stored):
            return taken(stored_column(self.matches, runs, name), self._order)
        cuts = [slice(first, last) for first, last in pairwise(self.matches.splits)]
        parts = zip(known, cuts, strict=True)
        return self._placed(
            stored[0].type, [(bits, self.matches.stored[cut], self.places[cut]) for bits, cut in parts]
        )

    def _placed(self, kind: Any, parts: Sequence[tuple[Array, Ints, Ints]]) -> Any:
        """A column made of parts: the values of a run as bits, the rows wanted of them, and their places."""
        out = fresh(self.num_rows, parts[0][0].dtype)
        for bits, rows, places in parts:
            place(bits, rows, places, out)
        return pa.Array.from_buffers(kind, self.num_rows, [None, pa.py_buffer(out)])


def invert(order: Ints) -> Ints:
    """The inverse of a permutation: from the order of rows their places, or from their places the order."""
    places = fresh(order.size, np.int32)
    place(frozen(np.arange(order.size, dtype=np.int32)), np.arange(order.size, dtype=np.int32), order, places)
    return places


def sort_results(
    member: Member, view: View, start: str, found: Any, rows: Ints | None, batch_order: BatchOrder
) -> tuple[list[Longs], Any, Ints | None]:
    """Sort the results of a query.

    Returns their sort keys, in order; the matches that give their columns; and the rows of these to take, in order, or
    None for all.
    """
    ordering = member.ordering
    if ordering is not None and ordering.kind == OUTER and isinstance(found, MatchPortion):
        matches = found.only(rows)
        numbers = _numbers(member, ordering.block, start, found.batch, batch_order)
        counted = counted_places(numbers, found.origins(matches))
        if counted is not None:
            places, blocks, counts = counted
            return [np.repeat(blocks, counts)], InOrder(found, matches, places), None
    keys = _keys(member, view, start, found, rows, batch_order)
    order = sort_rows(keys)
    if order is None:
        return keys, found, rows
    keys = [take(key, order) for key in keys]
    if isinstance(found, MatchPortion):
        return keys, InOrder(found, found.only(rows), invert(order)), None
    return keys, found, order if rows is None else take(rows, order)


def _keys(
    member: Member, view: View, start: str, found: Any, rows: Ints | None, batch_order: BatchOrder
) -> list[Longs]:
    ordering = member.ordering
    if ordering is None or not ordering.by_arrival:
        time = MAX if isinstance(found, MatchPortion) else view.times[start]
        return [longs(found.column(time, rows))]
    last = _last(member, ordering.block, start, found, rows, batch_order)
    if not ordering.is_inner:
        return [last]
    return [last, *(_partner(ordering, alias, start, found, rows, last.size) for alias in ordering.inputs)]


def _last(
    member: Member, block: int, start: str, found: Any, rows: Ints | None, batch_order: BatchOrder
) -> Longs:
    """The blocks of the last tuples of results."""
    numbers = _numbers(member, block, start, found.batch, batch_order)
    if isinstance(found, MatchPortion):
        return take(numbers, found.origins(found.only(rows)))
    return numbers if rows is None else take(numbers, rows)


def _numbers(member: Member, block: int, start: str, batch: pa.RecordBatch, batch_order: BatchOrder) -> Longs:
    """The blocks of the tuples of a batch that ``start`` brought: its results have these as their last tuples."""
    numbers = longs(column(batch, seq_name(start)))
    before = batch_order.counts.get(start)
    if before is None:
        return numbers
    first = tuples_before(member, batch_order) + _ahead(member, start, batch_order) - before.before
    return _blocks(numbers + first, block)


def _partner(ordering: Ordering, alias: str, start: str, found: Any, rows: Ints | None, size: int) -> Longs:
    """The blocks of the partners of one input; 0 if the input is that of the last tuple, which is no partner."""
    if alias == start:
        return full(size, 0)
    return _blocks(longs(found.column(seq_name(alias), rows)), ordering.precision)


def _blocks(numbers: Longs, precision: int) -> Longs:
    return numbers if precision == 1 else numbers // precision


def tuples_before(member: Member, batch_order: BatchOrder) -> int:
    """How many tuples of a query's inputs came in earlier batches, since the query began."""
    return sum(batch_order.counts[alias].before for alias in member.query.driving) - member.began


def _ahead(member: Member, start: str, batch_order: BatchOrder) -> int:
    """How many tuples of a query's inputs come before those of ``start`` in a batch."""
    others = [alias for alias in member.query.driving if alias != start and batch_order.sees(start, alias)]
    return sum(batch_order.counts[alias].arrived for alias in others)
