"""Random Arrow columns of every type that can be a key, and what equality and order mean for their values.

Values come from small pools, so that keys repeat; columns are also slices of longer ones, and chunked.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

__all__ = ["KEY_TYPES", "VALUE_TYPES", "batches", "chunked", "columns", "less", "pool", "same"]

_TEXTS = ["", "a", "b", "ab", "abcdefgh", "abcdefghi", "abcdefgh\0", "ä", "äö", "日本語", "z" * 40, "Z" * 40]
_FLOATS = [0.0, -0.0, 1.5, -1.5, float("nan"), float("inf"), float("-inf"), 3.0]
_DAY = dt.date(2024, 2, 28)
_MOMENT = dt.datetime(2024, 2, 28, 23, 59, 59, 999_999, tzinfo=dt.timezone.utc)

POOLS: dict[Any, list[Any]] = {
    pa.int8(): [-128, -1, 0, 1, 127],
    pa.int16(): [-(2**15), -1, 0, 1, 2**15 - 1],
    pa.int32(): [-(2**31), -1, 0, 1, 2, 3, 2**31 - 1],
    pa.int64(): [-(2**63), -1, 0, 1, 2, 3, 4, 5, 2**63 - 1],
    pa.uint8(): [0, 1, 255],
    pa.uint32(): [0, 1, 2**32 - 1],
    pa.uint64(): [0, 1, 2**63, 2**64 - 1],
    pa.float32(): _FLOATS,
    pa.float64(): [*_FLOATS, 5e-324, 1.7976931348623157e308],
    pa.bool_(): [False, True],
    pa.string(): _TEXTS,
    pa.large_string(): _TEXTS,
    pa.binary(): [text.encode() for text in _TEXTS],
    pa.date32(): [_DAY + dt.timedelta(days=days) for days in range(4)],
    pa.timestamp("us", tz="UTC"): [_MOMENT + dt.timedelta(microseconds=micros) for micros in range(4)],
    pa.duration("us"): [dt.timedelta(0), dt.timedelta(microseconds=-1), dt.timedelta(days=1)],
    pa.decimal128(10, 2): [Decimal("0.00"), Decimal("-1.25"), Decimal("1.25"), Decimal("99999999.99")],
    pa.decimal128(38, 4): [
        Decimal(0),
        Decimal("1e30"),
        Decimal("-1e30"),
        Decimal("1e30") + 1,
        Decimal("0.5"),
    ],
}
KEY_TYPES = list(POOLS)
VALUE_TYPES = KEY_TYPES


def pool(kind: Any) -> st.SearchStrategy[Any]:
    """A value of the type, or NULL."""
    return st.sampled_from([*POOLS[kind], None])


@st.composite
def columns(draw: st.DrawFn, kind: Any, rows: int) -> Any:
    """A column of so many rows; sometimes a slice with other values before and after it."""
    before, after = draw(st.sampled_from([(0, 0), (3, 0), (1, 2)]))
    values = draw(st.lists(pool(kind), min_size=rows + before + after, max_size=rows + before + after))
    return pa.array(values, kind, from_pandas=False).slice(before, rows)


@st.composite
def batches(draw: st.DrawFn, kinds: dict[str, Any], most: int) -> Any:
    """A record batch of up to `most` rows with columns of those types."""
    rows = draw(st.integers(0, most))
    return pa.record_batch({name: draw(columns(kind, rows)) for name, kind in kinds.items()})


def chunked(column: Any, parts: int) -> Any:
    """The same column in several chunks."""
    size = -(-len(column) // parts) or 1
    chunks = [column.slice(at, size) for at in range(0, len(column), size)]
    return pa.chunked_array(chunks, column.type)


def same(one: Any, other: Any) -> bool:
    """Whether two values join."""
    if one is None or other is None:
        return False
    return bool(one == other or (one != one and other != other))


def less(one: Any, other: Any, *, or_equal: bool) -> bool:
    """Whether a value is before another; NaN is after all, texts compare by their bytes."""
    if one is None or other is None:
        return False
    if same(one, other):
        return or_equal
    if one != one or other != other:
        return bool(other != other)
    if isinstance(one, str):
        return bool(one.encode() < other.encode())
    return bool(one < other)
