"""Partial matches as Arrow batches: how their columns are called, and what time they are of.

Guarantees: a tuple of one input carries its time in one column; a match of several carries the largest of its times
(`MAX`) and, where one of its inputs has a `RANGE` window, the time until which all of its tuples are inside their
windows (`UNTIL`). So whether two matches fit into each other's windows is two comparisons, however many tuples they
are made of: s.MAX ≤ p.UNTIL and p.MAX ≤ s.UNTIL (design, section 3). Names of hidden columns can never be those of a
user's: what follows their last dot is no column name.
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
from weft.logical.expr import Column, Expr, columns
from weft.logical.query import Query
from weft.logical.schema import Stream
from weft.logical.window import UNBOUNDED, Range, Rows, Window

__all__ = [
    "BATCH",
    "FOREVER",
    "MAX",
    "UNTIL",
    "View",
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


def full_name(item: Column) -> str:
    """What a column is called in a batch."""
    return f"{item.alias}.{item.name}"


def key_name(expr: Expr) -> str:
    """What the value that rows are looked up by is called: a column's own name, or one for what is computed."""
    return full_name(expr) if isinstance(expr, Column) else f"{expr}.$key"


def seq_name(alias: str) -> str:
    """The column with the number of an input's tuple in its relation."""
    return f"{alias}.$seq"


@dataclass(frozen=True, slots=True)
class View:
    """Inputs as some queries see them together: through the widest of their windows, and by which column's time."""

    windows: Mapping[str, Window]
    times: Mapping[str, str]

    @classmethod
    def of(cls, queries: Sequence[Query]) -> View:
        """What the queries see; inputs of one name are of one stream."""
        inputs = [input_ for query in queries for input_ in query.inputs]
        windows: dict[str, Window] = {}
        for one in inputs:
            windows[one.alias] = wider(one.window, windows.get(one.alias, one.window))
        return cls(windows, {one.alias: time_name(one.alias, one.stream) for one in inputs})


def wider(one: Window, other: Window) -> Window:
    """The wider of two windows; counted and timed ones are never of one input."""
    if isinstance(one, Range) and isinstance(other, Range):
        return max(one, other, key=lambda window: window.duration)
    if isinstance(one, Rows) and isinstance(other, Rows):
        return max(one, other, key=lambda window: window.count)
    return UNBOUNDED


def time_name(alias: str, stream: Stream) -> str:
    """The column with the time of an input's tuple."""
    return f"{alias}.{stream.event_time or '$time'}"


def micros(duration: timedelta) -> int:
    """A span in microseconds."""
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
    """How many tuples an input's `ROWS` window holds, whatever their keys; None if it has none, or counts per key."""
    window = counts(view, alias)
    return None if window is None or window.per else window.count


def per_key(view: View, alias: str) -> tuple[int, tuple[str, ...]] | None:
    """How many tuples of every key an input's window holds, and the columns of the key; None if it counts otherwise."""
    window = counts(view, alias)
    if window is None or not window.per:
        return None
    return window.count, tuple(f"{alias}.{name}" for name in window.per)


def newest(view: View, batch: pa.RecordBatch, known: tuple[str, ...]) -> Longs:
    """The largest time in every match."""
    name = view.times[known[0]] if len(known) == 1 else MAX
    return longs(column(batch, name))


def until(view: View, batch: pa.RecordBatch, known: tuple[str, ...]) -> Longs | None:
    """The time until which every match is inside its windows; None: without end."""
    if len(known) > 1:
        return longs(column(batch, UNTIL)) if UNTIL in batch.schema.names else None
    shortest = shortest_range(view, known)
    return None if shortest is None else newest(view, batch, known) + shortest


def values_of(batch: pa.RecordBatch, expr: Expr) -> Any:
    """The value of an expression for every row of a batch."""
    found: Columns = {(item.alias, item.name): column(batch, full_name(item)) for item in columns(expr)}
    return evaluate(expr, found, batch.num_rows)


def concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The batches, which have the same columns, as one."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def full(size: int, value: int) -> Longs:
    """So many times the same number."""
    return np.full(size, value, np.int64)
