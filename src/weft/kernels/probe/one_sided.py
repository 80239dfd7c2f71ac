"""Users' functions of one side of a pair, computed once per row and not once per pair.

Guarantees: the rewritten condition is true for the same pairs as the one given. A function whose arguments all come
from the probe tuple, or all from the stored row, is computed once for each row that is in a pair, when it first is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.columns import taken
from weft.bucket.compiled import Ints
from weft.kernels.expr.select import ColumnKey, evaluate
from weft.logical.expr.expression import Call, Column, Expr, columns
from weft.logical.expr.user_functions import has_user_call, is_user_call

__all__ = ["OneSided", "one_sided"]


@dataclass(slots=True, eq=False)
class OneSided:
    """A call over the columns of one side, and the values it has had so far."""

    call: Call
    probe: bool  # whether its side is the probe's
    columns: Mapping[ColumnKey, Any]
    place: Ints  # for each row of its side, where its value is among the values; -1 if not computed yet
    values: list[Any] = field(default_factory=list)

    def at(self, rows: Ints) -> Any:
        """Its values at those rows."""
        missing = np.unique(rows[self.place[rows] < 0])
        if missing.size:
            found = {key: taken(column, missing) for key, column in self.columns.items()}
            known = len(self.values[0]) if self.values else 0
            made = evaluate(self.call, found, missing.size)
            self.values = [pa.concat_arrays([*self.values, made])]
            self.place[missing] = np.arange(known, known + missing.size, dtype=np.int32)
        return taken(self.values[0], self.place[rows])


def one_sided(
    condition: Expr, ours: Mapping[ColumnKey, Any], theirs: Mapping[ColumnKey, Any]
) -> tuple[Expr, dict[ColumnKey, OneSided]]:
    """The condition with columns in place of such calls, and what these columns stand for."""
    found: dict[Call, Column] = {}

    def changed(expr: Expr) -> Expr:
        if not isinstance(expr, Call) or not has_user_call(expr):
            return expr
        named = _named(expr)
        if is_user_call(expr) and named and (named <= ours.keys() or named <= theirs.keys()):
            return found.setdefault(expr, Column("", str(len(found)), expr.type))
        return Call(expr.function, tuple(map(changed, expr.args)), expr.type)

    rest = changed(condition)
    return rest, {("", column.name): _side(call, ours, theirs) for call, column in found.items()}


def _named(expr: Expr) -> set[ColumnKey]:
    return {(part.alias, part.name) for part in columns(expr)}


def _side(call: Call, ours: Mapping[ColumnKey, Any], theirs: Mapping[ColumnKey, Any]) -> OneSided:
    named = _named(call)
    probe = named <= ours.keys()
    here = {key: column for key, column in (ours if probe else theirs).items() if key in named}
    rows = len(next(iter(here.values())))
    return OneSided(call, probe, here, np.full(rows, -1, np.int32))
