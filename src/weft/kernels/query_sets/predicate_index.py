"""The filters of all queries on one stream, evaluated together.

Guarantees: a query is in a row's set exactly where `weft.kernels.expr.select.holds` says that all of its filters hold,
for every type. An expression that is compared with constants (an attribute, mostly a column) is evaluated once and
looked up once among the sorted constants of all queries, however many there are. The cell found there leads to a table,
which says which queries remain; a row's set is the AND over its attributes. A filter that does not compare a single
attribute with constants is evaluated by `holds`, once for all queries that have it. Where a user's function fails, the
queries that call it get no rows, and all others get theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from weft.bucket.compiled import Longs, Mask, compiled, frozen
from weft.bucket.words import text_buffers, validity, value_words
from weft.errors import FunctionError
from weft.kernels.expr.select import Columns, evaluate, holds
from weft.kernels.query_sets.cells import BLOCK, Cells, number_cells, text_cells
from weft.kernels.query_sets.predicate_cells import Cutting, attribute_of, is_text, truth
from weft.kernels.query_sets.query_set import bits_of, words_for
from weft.logical.expr.expression import Expr, all_of, conjuncts

__all__ = ["PredicateIndex"]

_TOGETHER = 16  # attributes whose cells are held in memory at once
_NONE: Mask = frozen(np.empty(0, np.bool_))


@dataclass(frozen=True, slots=True, eq=False)
class _Attribute:
    """An expression to evaluate for every row; without a `cutting` it is a predicate, with the cells false and true."""

    expr: Expr
    cutting: Cutting | None
    first: int  # its first cell in the table
    slots: tuple[int, ...]  # the slots of the queries whose filters use it

    def find(self, columns: Columns, rows: int, out: Cells) -> None:
        """Write in which cell of the table every row is."""
        if self.cutting is None:
            np.add(holds(self.expr, columns, rows), np.uint32(self.first), out=out)
            return
        column = evaluate(self.expr, columns, rows)
        words, valid = value_words(column).values, validity(column)
        nulls = _NONE if valid is None else valid
        if is_text(self.expr):
            starts, data = text_buffers(column)
            text_cells(words, starts, data, nulls, *self.cutting.texts, self.first, out)
        else:
            number_cells(words, nulls, self.cutting.bounds, self.first, out)


@dataclass(frozen=True, slots=True, eq=False)
class PredicateIndex:
    """The filters of queries by slot, ready to be asked for the query-sets of rows."""

    attributes: tuple[_Attribute, ...]
    start: Longs  # the set of a row that passes every filter
    table: Longs  # (words, cells): all queries but those with a predicate that is not true in the cell
    used: Mask  # (attributes, words): whether the filters of any query in a word use the attribute

    @classmethod
    def from_filters(cls, filters: Mapping[int, tuple[Expr, ...]], words: int = 1) -> PredicateIndex:
        """The index of the filters of every slot, all of which must hold; its sets have at least so many words."""
        words = max(words, words_for(max(filters, default=-1) + 1))
        attributes, tables = [], [np.empty((words, 0), np.int64)]
        first = 0
        for (expr, compared), predicates in _by_attribute(filters).items():
            cutting = Cutting.from_predicates(expr, predicates) if compared else None
            slots = tuple(sorted({slot for found in predicates.values() for slot in found}))
            attributes.append(_Attribute(expr, cutting, first, slots))
            tables.append(_table(cutting, predicates, words))
            first += tables[-1].shape[1]
        used = np.array([(table != -1).any(axis=1) for table in tables[1:]], np.bool_).reshape(-1, words)
        start = bits_of(list(filters), words)
        return cls(tuple(attributes), frozen(start), frozen(np.hstack(tables)), frozen(used))

    def query_sets(
        self, columns: Columns, rows: int, failed: dict[int, FunctionError] | None = None
    ) -> Longs:
        """For every row the queries whose filters it passes; those that fail go to ``failed``, with the error."""
        sets = np.empty((len(self.start), rows), np.int64)
        cells = np.empty((min(_TOGETHER, len(self.attributes)), rows), np.uint32)
        for at in range(0, max(1, len(self.attributes)), _TOGETHER):
            some = self.attributes[at : at + _TOGETHER]
            for attribute, places in zip(some, cells, strict=False):
                try:
                    attribute.find(columns, rows, places)
                except FunctionError as error:
                    if failed is None:
                        raise
                    failed |= {slot: error for slot in attribute.slots if slot not in failed}
                    places[:] = attribute.first
            _intersect(self.start, at == 0, self.table, self.used[at:], cells[: len(some)], sets)
        if failed:
            sets &= ~bits_of(list(failed), len(self.start))[:, None]
        return sets


Holders = dict[Expr, list[int]]  # predicate ↦ the slots that have it


def _by_attribute(filters: Mapping[int, tuple[Expr, ...]]) -> dict[tuple[Expr, bool], Holders]:
    """Distinct predicates, grouped by the expression they compare with constants; any other is a group by itself."""
    found: dict[tuple[Expr, bool], Holders] = {}
    for slot, predicates in filters.items():
        for predicate in conjuncts(all_of(predicates)):
            attribute = attribute_of(predicate)
            by = (predicate, False) if attribute is None else (attribute, True)
            found.setdefault(by, {}).setdefault(predicate, []).append(slot)
    return found


def _table(cutting: Cutting | None, predicates: Holders, words: int) -> Longs:
    """The query-set of every cell, (words × cells); it lacks the queries with a predicate that is not true there."""
    table = np.full((words, 2 if cutting is None else cutting.cells), -1, np.int64)
    for predicate, slots in predicates.items():
        passes = np.array([False, True]) if cutting is None else truth(predicate, cutting)[0]
        table[:, ~passes] &= ~bits_of(slots, words)[:, None]
    return table


@compiled
def _intersect(start: Longs, fresh: bool, table: Longs, used: Mask, cells: Cells, sets: Longs) -> None:
    """AND the sets of the cells into `sets`, a block of rows at a time, so that memory is written only once."""
    words, rows = sets.shape
    for first in range(0, rows, BLOCK):
        last = min(first + BLOCK, rows)
        for word in range(words):
            part, queries = sets[word, first:last], table[word]
            if fresh:
                part[:] = start[word]
            for attribute in range(cells.shape[0]):
                if used[attribute, word]:
                    places = cells[attribute, first:last]
                    for i in range(part.size):
                        part[i] &= queries[places[i]]
