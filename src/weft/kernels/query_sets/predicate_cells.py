"""Where a predicate that compares one attribute with constants is true.

Guarantees: the constants of all predicates on an attribute cut its values into cells
(`weft.kernels.query_sets.cells`) in each of which every one of the predicates has one value: true, false or NULL, by
SQL's three-valued logic and Spark's order of floats. Predicates are comparisons with constants, IN lists and IS NULL,
joined by AND, OR and NOT.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.compiled import Array, Bytes, Longs, Mask, frozen
from weft.bucket.words import text_buffers, value_words
from weft.kernels.expr.select import evaluate
from weft.logical.expr.expression import Call, Expr, columns
from weft.logical.expr.user_functions import has_user_call

__all__ = ["Cutting", "attribute_of", "is_text", "truth"]

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


def is_text(expr: Expr) -> bool:
    """Whether values are compared byte by byte."""
    return expr.type.name in ("string", "binary")


def attribute_of(predicate: Expr) -> Expr | None:
    """The one expression that a whole predicate compares with constants; None if there is no such expression."""
    found = set(_compared(predicate))
    attribute = found.pop() if len(found) == 1 else None
    return attribute if attribute is not None and _has_order(attribute) else None


def _has_order(expr: Expr) -> bool:
    decimal = expr.type.name == "decimal" and expr.type.precision <= _EXACT_DIGITS
    return decimal or is_text(expr) or expr.type.name in _WORDED


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
class Cutting:
    """The constants an attribute is compared with, ascending, as words; for texts, also as bytes."""

    places: Mapping[Expr, int | None]  # constant ↦ its cell; None for NULL
    bounds: Longs
    offsets: Array
    data: Bytes

    @classmethod
    def from_predicates(cls, attribute: Expr, predicates: Iterable[Expr]) -> Cutting:
        """The constants of predicates on the attribute."""
        constants = dict.fromkeys(c for predicate in predicates for c in _constants(predicate, attribute))
        keys = {constant: _key(constant) for constant in constants}
        order = sorted({key for key in keys.values() if key is not None})
        cells = {key: 2 * i + 1 for i, key in enumerate(order)}
        places = {constant: None if key is None else cells[key] for constant, key in keys.items()}
        if not is_text(attribute):
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
    if is_text(constant):
        return value.cast(pa.binary())[0].as_py()
    return int(value_words(value).values[0])


def truth(predicate: Expr, cutting: Cutting) -> Truth:
    """In which cells a predicate on the attribute is true, and in which false."""
    if not isinstance(predicate, Call):
        raise TypeError(f"{predicate} compares nothing")
    if predicate.function not in ("and", "or", "not"):
        return _leaf(predicate, cutting)
    parts = [truth(arg, cutting) for arg in predicate.args]
    trues, falses = ([part[side] for part in parts] for side in (0, 1))
    if predicate.function == "not":
        return falses[0], trues[0]
    if predicate.function == "and":
        return np.logical_and.reduce(trues), np.logical_or.reduce(falses)
    return np.logical_or.reduce(trues), np.logical_and.reduce(falses)


def _leaf(call: Call, cutting: Cutting) -> Truth:
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


def _listed(call: Call, cutting: Cutting, known: Mask) -> Truth:
    places = [cutting.places[option] for option in call.args[1:]]
    true = np.zeros(cutting.cells, np.bool_)
    true[[place for place in places if place is not None]] = True
    return true, known & ~true & (None not in places)
