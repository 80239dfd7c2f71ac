"""Tuples and partial matches as Arrow batches: the names of their columns, their times and their windows.

Guarantees: a tuple of one input carries its time in one column; a match of several carries the largest of its times
(`MAX`) and, where one of its inputs has a `RANGE` window, the time until which all of its tuples are inside their
windows (`UNTIL`). So two comparisons say whether two matches p and s are inside each other's windows, however many
tuples they are made of: s.MAX ≤ p.UNTIL and p.MAX ≤ s.UNTIL (design, section 3). The name of a hidden column is never
that of a user's column, since a user's column name cannot contain its ``$``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import column
from weft.bucket.columns import longs
from weft.bucket.compiled import Longs
from weft.kernels.expr.select import Columns, evaluate
from weft.kernels.outer.relation import FOREVER
from weft.logical.expr.expression import Column, Expr, columns
from weft.logical.query.query import Query
from weft.logical.query.window import UNBOUNDED, Range, Rows, Window
from weft.logical.schema import Stream

__all__ = [
    "AGE",
    "BATCH",
    "FOREVER",
    "MAX",
    "UNTIL",
    "View",
    "along",
    "concat",
    "counts",
    "full",
    "full_name",
    "has_range",
    "key_name",
    "longest",
    "micros",
    "newest",
    "per_key",
    "seq_name",
    "shortest_range",
    "time_name",
    "until",
    "values_of",
    "wider",
]

MAX, UNTIL = "$max", "$until"

# The batch in which a stored tuple came.
BATCH = "$batch"

# How old a tuple of this batch, or the tuple that a match of it began with, was when the batch began: a class of
# `weft.stats.histogram`. Only batches on their way have it, and only if not all tuples of their input are of one age.
AGE = "$age"


def full_name(item: Column) -> str:
    """The name of a query's column in a batch."""
    return f"{item.alias}.{item.name}"


def key_name(expr: Expr) -> str:
    """The name of the column by whose values rows are looked up: a column's own, or one for a computed expression."""
    return full_name(expr) if isinstance(expr, Column) else f"{expr}.$key"


def seq_name(alias: str) -> str:
    """The name of the column with the numbers that an input's tuples got as they arrived."""
    return f"{alias}.$seq"


@dataclass(frozen=True, slots=True)
class View:
    """Inputs as some queries see them together, by alias.

    ``windows`` are the widest that any of the queries has of an input, ``times`` the columns with its tuples' times.
    """

    windows: Mapping[str, Window]
    times: Mapping[str, str]

    @classmethod
    def of_queries(cls, queries: Sequence[Query]) -> View:
        """The view of some queries, in which inputs of one alias are always of one stream."""
        inputs = [input_ for query in queries for input_ in query.inputs]
        windows: dict[str, Window] = {}
        for one in inputs:
            windows[one.alias] = wider(one.window, windows.get(one.alias, one.window))
        return cls(windows, {one.alias: time_name(one.alias, one.stream) for one in inputs})


def wider(one: Window, other: Window) -> Window:
    """The wider of two windows of one input; no input has both a `RANGE` and a `ROWS` window."""
    if isinstance(one, Range) and isinstance(other, Range):
        return max(one, other, key=lambda window: window.duration)
    if isinstance(one, Rows) and isinstance(other, Rows):
        return max(one, other, key=lambda window: window.count)
    return UNBOUNDED


def time_name(alias: str, stream: Stream) -> str:
    """The name of the column with the times of an input's tuples."""
    return f"{alias}.{stream.event_time or '$time'}"


def micros(duration: timedelta) -> int:
    """A duration in microseconds."""
    return duration // timedelta(microseconds=1)


def shortest_range(view: View, names: Iterable[str]) -> int | None:
    """The shortest `RANGE` window among inputs; None if none has one."""
    windows = (view.windows[alias] for alias in names)
    return min((micros(window.duration) for window in windows if isinstance(window, Range)), default=None)


def has_range(view: View, names: Iterable[str]) -> bool:
    """Whether an input among these has a `RANGE` window."""
    return shortest_range(view, names) is not None


def counts(view: View, alias: str) -> Rows | None:
    """The `ROWS` window of an input, if it has one."""
    window = view.windows[alias]
    return window if isinstance(window, Rows) else None


def longest(view: View, alias: str) -> int | None:
    """How many tuples an input's `ROWS` window holds; None if it has no such window, or one that counts per key."""
    window = counts(view, alias)
    return None if window is None or window.per else window.count


def per_key(view: View, alias: str) -> tuple[int, tuple[str, ...]] | None:
    """How many tuples per key an input's window holds, and the key's columns; None if it does not count per key."""
    window = counts(view, alias)
    if window is None or not window.per:
        return None
    return window.count, tuple(f"{alias}.{name}" for name in window.per)


def newest(view: View, batch: pa.RecordBatch, known: tuple[str, ...]) -> Longs:
    """The largest time in every match."""
    name = view.times[known[0]] if len(known) == 1 else MAX
    return longs(column(batch, name))


def until(view: View, batch: pa.RecordBatch, known: tuple[str, ...]) -> Longs | None:
    """The time until which every match is inside its windows; None if it is inside them for ever."""
    if len(known) > 1:
        return longs(column(batch, UNTIL)) if UNTIL in batch.schema.names else None
    shortest = shortest_range(view, known)
    return None if shortest is None else newest(view, batch, known) + shortest


def values_of(batch: pa.RecordBatch, expr: Expr) -> Any:
    """The value of an expression for every row of a batch."""
    found: Columns = {(item.alias, item.name): column(batch, full_name(item)) for item in columns(expr)}
    return evaluate(expr, found, batch.num_rows)


def along(batch: pa.RecordBatch) -> tuple[str, ...]:
    """The columns that a batch has beside those that its edge carries, and that go along wherever it goes."""
    return tuple(name for name in (BATCH, AGE) if name in batch.schema.names)


def concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The batches, which have the same columns, as one."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def full(size: int, value: int) -> Longs:
    """An array of ``size`` times the same number."""
    return np.full(size, value, np.int64)
