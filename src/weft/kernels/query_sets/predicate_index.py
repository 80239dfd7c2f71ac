"""The filters of all queries on one stream, evaluated together.

Guarantees: a query is in a row's set exactly where `weft.kernels.expr.select.holds` says that all of its filters hold,
for every type. An expression that is compared with constants (an attribute, mostly a column) is evaluated once and
looked up once among the sorted constants of all queries, however many there are. The cell found there leads to a table,
which says which queries remain; a row's set is the AND over its attributes. A filter that does not compare a single
attribute with constants is evaluated by `holds`, once for all queries that have it. Where a user's function fails, the
queries that call it get no rows, and all others get theirs.

The constants of all predicates on an attribute cut its values into cells (`weft.kernels.query_sets.cells`), in each of
which every one of the predicates has one value: true, false or NULL, by SQL's three-valued logic and Spark's order of
floats. Predicates are comparisons with constants, IN lists and IS NULL, joined by AND, OR and NOT.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.compiled import Array, Bytes, Longs, Mask, compiled, frozen
from weft.bucket.words import text_buffers, validity, value_words
from weft.errors import FunctionError
from weft.kernels.expr.select import Columns, evaluate, holds
from weft.kernels.query_sets.cells import BLOCK, Cells, number_cells, text_cells
from weft.kernels.query_sets.query_set import bits_of, words_for
from weft.logical.expr.expression import Call, Expr, all_of, columns, conjuncts
from weft.logical.expr.user_functions import has_user_call

__all__ = ["PredicateIndex"]


Truth = tuple[Mask, Mask]  # the cells in which a predicate is true, and in which it is false

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
}
_WORDED = frozenset(
    {"byte", "short", "int", "long", "boolean", "float", "double", "date", "timestamp", "interval"}
)
_EXACT_DIGITS = 18  # decimals of so many digits fit a word


def _is_text(expr: Expr) -> bool:
    """Whether values are compared byte by byte."""
    return expr.type.name in ("string", "binary")


def _attribute_of(predicate: Expr) -> Expr | None:
    """The one expression that a whole predicate compares with constants; None if there is no such expression."""
    found = set(_compared(predicate))
    attribute = found.pop() if len(found) == 1 else None
    return attribute if attribute is not None and _has_order(attribute) else None


def _has_order(expr: Expr) -> bool:
    decimal = expr.type.name == "decimal" and expr.type.precision <= _EXACT_DIGITS
    return decimal or _is_text(expr) or expr.type.name in _WORDED


def _compared(predicate: Expr) -> Iterator[Expr | None]:
    """For every comparison the expression that it compares with a constant; None for any other term."""
    if not isinstance(predicate, Call):
        yield None
    elif predicate.function in ("and", "or", "not"):
        for arg in predicate.args:
            yield from _compared(arg)
    else:
        yield _operand(predicate)


def _operand(call: Call) -> Expr | None:
    if call.function not in _COMPARISONS and call.function not in ("in", "is null"):
        return None
    varying = [arg for arg in call.args if any(True for _ in columns(arg))]
    one = varying[0] if len(varying) == 1 else None
    listed = call.function != "in" or one is call.args[0]
    fixed = not any(has_user_call(arg) for arg in call.args if arg is not one)
    same = one is not None and all(arg.type == one.type for arg in call.args)
    return one if same and listed and fixed else None


@dataclass(frozen=True, slots=True, eq=False)
class _Cutting:
    """The constants an attribute is compared with, ascending, as words; for texts, also as bytes."""

    places: Mapping[Expr, int | None]  # constant ↦ its cell; None for NULL
    bounds: Longs
    offsets: Array
    data: Bytes

    @classmethod
    def from_predicates(cls, attribute: Expr, predicates: Iterable[Expr]) -> _Cutting:
        """The constants of predicates on the attribute."""
        constants = dict.fromkeys(c for predicate in predicates for c in _constants(predicate, attribute))
        keys = {constant: _key(constant) for constant in constants}
        order = sorted({key for key in keys.values() if key is not None})
        cells = {key: 2 * i + 1 for i, key in enumerate(order)}
        places = {constant: None if key is None else cells[key] for constant, key in keys.items()}
        if not _is_text(attribute):
            bounds = np.array(order, np.int64)
            return cls(places, frozen(bounds), frozen(np.zeros(1, np.int32)), frozen(np.empty(0, np.uint8)))
        texts = pa.array(order, pa.binary())
        return cls(places, value_words(texts).values, *text_buffers(texts))

    @property
    def texts(self) -> tuple[Longs, Array, Bytes]:
        """The bounds where they are texts, as `text_cells` takes them."""
        return self.bounds, self.offsets, self.data

    @property
    def cells(self) -> int:
        """How many cells there are; the last is that of NULL."""
        return 2 * self.bounds.size + 2


def _constants(predicate: Expr, attribute: Expr) -> Iterator[Expr]:
    for arg in predicate.args if isinstance(predicate, Call) else ():
        if isinstance(predicate, Call) and predicate.function in ("and", "or", "not"):
            yield from _constants(arg, attribute)
        elif arg != attribute:
            yield arg


def _key(constant: Expr) -> Any:
    """The value by which a constant is ordered among those of its type; None for NULL."""
    value = evaluate(constant, {}, 1)
    if value.null_count:
        return None
    if _is_text(constant):
        return value.cast(pa.binary())[0].as_py()
    return int(value_words(value).values[0])


def _truth(predicate: Expr, cutting: _Cutting) -> Truth:
    """In which cells a predicate on the attribute is true, and in which false."""
    if not isinstance(predicate, Call):
        raise TypeError(f"{predicate} compares nothing")
    if predicate.function not in ("and", "or", "not"):
        return _leaf(predicate, cutting)
    parts = [_truth(arg, cutting) for arg in predicate.args]
    trues, falses = ([part[side] for part in parts] for side in (0, 1))
    if predicate.function == "not":
        return falses[0], trues[0]
    if predicate.function == "and":
        return np.logical_and.reduce(trues), np.logical_or.reduce(falses)
    return np.logical_or.reduce(trues), np.logical_and.reduce(falses)


def _leaf(call: Call, cutting: _Cutting) -> Truth:
    known = np.arange(cutting.cells) < cutting.cells - 1
    if call.function == "is null":
        return ~known, known
    if call.function == "in":
        return _listed(call, cutting, known)
    sides = [cutting.places.get(arg, np.arange(cutting.cells)) for arg in call.args]
    if any(side is None for side in sides):
        return ~known & known, ~known & known
    true: Mask = _COMPARISONS[call.function](sides[0], sides[1])
    return true & known, ~true & known


def _listed(call: Call, cutting: _Cutting, known: Mask) -> Truth:
    places = [cutting.places[option] for option in call.args[1:]]
    true = np.zeros(cutting.cells, np.bool_)
    true[[place for place in places if place is not None]] = True
    return true, known & ~true & (None not in places)


_TOGETHER = 16  # attributes whose cells are held in memory at once
_NONE: Mask = frozen(np.empty(0, np.bool_))


@dataclass(frozen=True, slots=True, eq=False)
class _Attribute:
    """An expression to evaluate for every row; without a `cutting` it is a predicate, with the cells false and true."""

    expr: Expr
    cutting: _Cutting | None
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
        if _is_text(self.expr):
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
            cutting = _Cutting.from_predicates(expr, predicates) if compared else None
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
            attribute = _attribute_of(predicate)
            by = (predicate, False) if attribute is None else (attribute, True)
            found.setdefault(by, {}).setdefault(predicate, []).append(slot)
    return found


def _table(cutting: _Cutting | None, predicates: Holders, words: int) -> Longs:
    """The query-set of every cell, (words × cells); it lacks the queries with a predicate that is not true there."""
    table = np.full((words, 2 if cutting is None else cutting.cells), -1, np.int64)
    for predicate, slots in predicates.items():
        passes = np.array([False, True]) if cutting is None else _truth(predicate, cutting)[0]
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
