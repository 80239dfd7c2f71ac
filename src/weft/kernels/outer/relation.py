"""Relations in memory, and rows that are made of their tuples.

Guarantees: a row is the numbers of its tuples, so no column is copied before somebody asks for its values. Where a row
has no tuple of an input (the number is -1), all columns of that input are NULL. `WindowSpan` has, for each row, the
largest time of its tuples (`newest`) and the time until which all of them are inside their windows (`until`); two rows
are inside each other's windows if either's `newest` is at most the other's `until`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.bucket import FARTHEST, column
from weft.bucket.columns import taken
from weft.bucket.compiled import Ints, Longs, frozen
from weft.bucket.memory import take
from weft.bucket.words import flatten, is_plain, plain_words
from weft.kernels.expr.select import ColumnKey, Columns, evaluate
from weft.logical.expr.expression import Expr, columns

__all__ = ["AT_ONCE", "FOREVER", "FURTHEST_APART", "JoinedRows", "Relation", "TreeRows", "WindowSpan", "leaf"]

# Far beyond every timestamp, and far enough from the end of 64 bits that windows can be added to it.
FOREVER = 1 << 62

# No two timestamps are further apart than this.
FURTHEST_APART = 2 * FARTHEST

# When a row is final that lacks something which, if it is not there, will not come: a row of a table.
AT_ONCE = 1 - FOREVER


@dataclass(frozen=True, slots=True, eq=False)
class Relation:
    """The tuples of an input: columns named alias.column, times, the batches they came in.

    ``reach`` is how long its window is, in microseconds; None means that it has no end.
    """

    batch: pa.RecordBatch
    times: Longs
    arrived: Longs
    reach: int | None


@dataclass(frozen=True, slots=True, eq=False)
class JoinedRows:
    """The rows of a join tree: for each visible input the number of the row's tuple, or -1 where it has none.

    ``arrived`` is the batch with which the last of the row's tuples, and of the partners that its semi joins need, had
    come. ``final`` is the time after which no tuple that the row lacks can come any more: -FOREVER if it lacks nothing,
    AT_ONCE if it lacks only what comes with nothing, FOREVER if one may come at any time.
    """

    numbers: Mapping[str, Longs]
    arrived: Longs
    final: Longs

    def __len__(self) -> int:
        return self.arrived.size


@dataclass(frozen=True, slots=True, eq=False)
class WindowSpan:
    """The largest time of every row's tuples, and the time until which all of them are inside their windows."""

    newest: Longs
    until: Longs

    def chosen(self, rows: Ints) -> WindowSpan:
        """The spans of some of the rows."""
        return WindowSpan(_chosen(self.newest, rows), _chosen(self.until, rows))


@dataclass(frozen=True, slots=True, eq=False)
class TreeRows:
    """The rows of a part of a join tree, and the relations with their columns; ``span`` is None if nothing needs it."""

    rows: JoinedRows
    span: WindowSpan | None
    relations: Mapping[str, Relation]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def aliases(self) -> frozenset[str]:
        """The inputs that are visible."""
        return frozenset(self.rows.numbers)

    def columns(self, exprs: Iterable[Expr], chosen: Ints | None = None) -> dict[ColumnKey, Any]:
        """The columns that the expressions name and this part has, of all rows or of those chosen."""
        named = dict.fromkeys((one.alias, one.name) for expr in exprs for one in columns(expr))
        mine = [key for key in named if key[0] in self.rows.numbers]
        numbers = {
            alias: _chosen(self.rows.numbers[alias], chosen) for alias in dict.fromkeys(k[0] for k in mine)
        }
        return {
            key: _gathered(column(self.relations[key[0]].batch, ".".join(key)), numbers[key[0]])
            for key in mine
        }

    def values(self, expr: Expr, chosen: Ints | None = None) -> Any:
        """The value of an expression for every row, or for those chosen."""
        found: Columns = self.columns([expr], chosen)
        return evaluate(expr, found, len(self) if chosen is None else chosen.size)

    def chosen(self, rows: Ints) -> TreeRows:
        """Some of the rows."""
        numbers = {alias: _chosen(values, rows) for alias, values in self.rows.numbers.items()}
        arrived, final = _chosen(self.rows.arrived, rows), _chosen(self.rows.final, rows)
        span = None if self.span is None else self.span.chosen(rows)
        return TreeRows(JoinedRows(numbers, arrived, final), span, self.relations)


def leaf(alias: str, relations: Mapping[str, Relation], *, spanned: bool) -> TreeRows:
    """Every tuple of an input as a row."""
    relation = relations[alias]
    times, size = frozen(relation.times), relation.times.size
    reach = FURTHEST_APART if relation.reach is None else min(relation.reach, FURTHEST_APART)
    numbers = np.arange(size, dtype=np.int64)
    rows = JoinedRows({alias: numbers}, frozen(relation.arrived), np.full(size, -FOREVER))
    return TreeRows(rows, WindowSpan(times, times + reach) if spanned else None, relations)


def _chosen(values: Longs, chosen: Ints | None) -> Longs:
    return values if chosen is None else take(frozen(values), chosen)


def _gathered(values: Any, numbers: Longs) -> Any:
    """The values at those row numbers; where the number is -1, NULL."""
    values = flatten(values)
    missing = numbers < 0
    if not missing.any():
        return taken(values, numbers.astype(np.int32))
    if not len(values):
        return pa.nulls(numbers.size, values.type)
    if not is_plain(values):
        return pc.take(values, pa.array(numbers, mask=missing), boundscheck=False)
    data = take(plain_words(values), np.maximum(numbers, 0).astype(np.int32))
    present = np.packbits(~missing, bitorder="little")
    return pa.Array.from_buffers(values.type, numbers.size, [pa.py_buffer(present), pa.py_buffer(data)])
