"""Rows sorted by columns of any type that has an order, as Spark sorts them.

Guarantees: the sort is stable. NULLs stand where each key says. NaN is larger than all other numbers. Texts are
compared by their bytes.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from weft.logical.query.sorting import Sorting, SortKey

__all__ = ["first_rows", "sorted_rows"]


def sorted_rows(rows: pa.Table, sorting: Sorting) -> pa.Table:
    """The rows that are wanted, in order."""
    return first_rows(rows, sorting).slice(sorting.offset)


def first_rows(rows: pa.Table, sorting: Sorting) -> pa.Table:
    """The rows in order, as many of the first ones as decide what is wanted."""
    if sorting.keys:
        rows = rows.take(pc.sort_indices(*_by(rows, sorting)))
    return rows if sorting.most is None else rows.slice(0, sorting.most)


def _by(rows: pa.Table, sorting: Sorting) -> tuple[pa.Table, list[tuple[str, str]]]:
    """A table with two columns for each key, the kind of a value and the value, and how each is sorted."""
    columns, orders = dict[str, pa.ChunkedArray](), list[tuple[str, str]]()
    for place, key in enumerate(sorting.keys):
        values = rows.column(key.column)
        columns |= {f"kind{place}": _kinds(values, key), f"value{place}": values}
        direction = "descending" if key.descending else "ascending"
        orders += ((f"kind{place}", "ascending"), (f"value{place}", direction))
    return pa.table(columns), orders


def _kinds(values: pa.ChunkedArray, key: SortKey) -> pa.ChunkedArray:
    """A number for each value by which NULLs and NaNs stand where they should: 0 to 3."""
    usual, not_a_number = (2, 1) if key.descending else (1, 2)
    kinds = pa.scalar(usual, pa.int8())
    if pa.types.is_floating(values.type):
        kinds = pc.if_else(pc.is_nan(values), pa.scalar(not_a_number, pa.int8()), kinds)
    null = pa.scalar(0 if key.nulls_first else 3, pa.int8())
    return pc.if_else(pc.is_null(values), null, kinds)
