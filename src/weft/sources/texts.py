"""Texts become values.

Guarantees: a text is read as Arrow reads it (ISO 8601 dates and times, at most one sign, no blanks around) or
marked bad; a time without an offset is in UTC, digits after the microsecond are dropped. A number is bad where its
type cannot hold it: too large, too small, or with more digits than a decimal's scale. Columns without bad values
take one pass; the bad ones of others are found by patterns and then by bisection.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.kernels.expr.arrow import TIMESTAMP, arrow_type
from weft.logical.schema import DataType
from weft.sources.base64_texts import from_base64
from weft.sources.columns import Column, Mask

__all__ = ["as_text", "cast_or_null", "doubles_to", "integers_to", "read_texts"]


def as_text(values: Any) -> Column:
    """Bytes as texts; what is no UTF-8 is bad."""
    texts, bad = cast_or_null(values, pa.string())
    return Column(texts, bad, values)


def read_texts(texts: Any, type_: DataType, *, base64: bool = False) -> Column:
    """A column of texts as values of the type; `base64` says that binary values are written so."""
    if type_.name == "string":
        return Column(texts)
    if type_.name == "binary":
        return Column(*from_base64(texts), texts) if base64 else Column(pc.cast(texts, pa.binary()))
    if type_.name == "timestamp":
        return Column(*_timestamps(texts), texts)
    values, bad = cast_or_null(texts, arrow_type(type_), _PATTERNS.get(type_.name))
    if type_.name in ("float", "double"):
        return Column(values, _either(bad, _overflown(texts, values)), texts)
    return Column(values, bad, texts)


# What a text must look like to be worth trying; it only has to refuse nothing that Arrow can read.
_PATTERNS = {
    **dict.fromkeys(("byte", "short", "int", "long"), r"^-?[0-9a-fA-FxX]+$"),
    **dict.fromkeys(("float", "double"), r"^[+-]?([0-9.]|(?i:nan|inf))"),
    "decimal": r"^[+-]?[0-9.]+([eE][+-]?\d+)?$",
    "boolean": r"^(?i:true|false|0|1)$",
    "date": r"^\d{4}-\d\d-\d\d$",
    "timestamp": r"^\d{4}-\d\d-\d\d([ T]\d\d|$)",
}
_ZONED = r":\d\d(\.\d*)?(Z|[+-]\d\d(:?\d\d)?)$|[ T]\d\d(Z|[+-]\d\d(:?\d\d)?)$"


def cast_or_null(values: Any, kind: pa.DataType, pattern: str | None = None) -> tuple[Any, Mask | None]:
    """The values as another type, NULL where they have none in it, and which those are."""
    try:
        return pc.cast(values, kind), None
    except pa.ArrowInvalid:
        pass
    wrong = np.zeros(len(values), np.bool_)
    if pattern is not None:
        plain = pc.match_substring_regex(values, pattern)
        wrong |= pc.fill_null(pc.invert(plain), False).to_numpy(False)
        values = pc.if_else(pc.fill_null(plain, False), values, pa.scalar(None, values.type))
    cast, failed = _bisect(values, kind)
    wrong[failed] = True
    return cast, wrong


def _bisect(values: Any, kind: pa.DataType) -> tuple[Any, list[int]]:
    pieces, failed, ranges = [], [], [(0, len(values))]
    while ranges:
        low, high = ranges.pop()
        try:
            pieces.append(pc.cast(values.slice(low, high - low), kind))
        except pa.ArrowInvalid:
            if high - low == 1:
                pieces.append(pa.nulls(1, kind))
                failed.append(low)
            else:
                middle = (low + high) // 2
                ranges += [(middle, high), (low, middle)]
    return pa.concat_arrays(pieces), failed


def _timestamps(texts: Any) -> tuple[Any, Mask | None]:
    """Times of which all, none or some have an offset from UTC."""
    local = pa.timestamp("us")
    first = pc.fill_null(pc.match_substring_regex(texts.slice(0, 100), _ZONED), False)
    try:
        return pc.cast(texts, TIMESTAMP if pc.any(first, min_count=0).as_py() else local).view(
            TIMESTAMP
        ), None
    except pa.ArrowInvalid:  # a failing cast is slow: Arrow describes every failure
        pass
    texts = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
    zoned = pc.fill_null(pc.match_substring_regex(texts, _ZONED), False)
    nothing, pattern = pa.scalar(None, pa.string()), _PATTERNS["timestamp"]
    here, wrong = cast_or_null(pc.if_else(zoned, nothing, texts), local, pattern)
    there, wrong_there = cast_or_null(pc.if_else(zoned, texts, nothing), TIMESTAMP, pattern)
    return pc.coalesce(here.view(TIMESTAMP), there), _either(wrong, wrong_there)


def _either(one: Mask | None, other: Mask | None) -> Mask | None:
    return other if one is None else one if other is None else one | other


def _overflown(texts: Any, values: Any) -> Mask | None:
    """Where a number was too large for its type: it became infinite, though its text does not say so."""
    infinite = pc.fill_null(pc.is_inf(values), False)
    if not pc.any(infinite, min_count=0).as_py():
        return None
    meant = pc.fill_null(pc.match_substring_regex(texts, r"^[+-]?(?i:inf)"), False)
    wrong: Mask = pc.and_not(infinite, meant).to_numpy(False)
    return wrong


def integers_to(values: Any, type_: DataType) -> Column:
    """Whole numbers of 64 bits as those of the type."""
    kind = arrow_type(type_)
    if values.type == kind:
        return Column(values)
    limits = np.iinfo(kind.to_pandas_dtype())
    inside = pc.and_(pc.greater_equal(values, int(limits.min)), pc.less_equal(values, int(limits.max)))
    if pc.all(inside, min_count=0).as_py():
        return Column(pc.cast(values, kind, safe=False))
    bad = pc.fill_null(pc.invert(inside), False).to_numpy(False)
    kept = pc.if_else(inside, values, pa.scalar(None, values.type))
    return Column(pc.cast(kept, kind, safe=False), bad, values)


def doubles_to(values: Any, type_: DataType) -> Column:
    """Doubles as numbers of the type, float or double; what only a double can hold is bad as a float."""
    if type_.name == "double":
        return Column(values)
    narrow = pc.cast(values, pa.float32(), safe=False)
    lost = pc.and_not(pc.fill_null(pc.is_inf(narrow), False), pc.fill_null(pc.is_inf(values), False))
    if not pc.any(lost, min_count=0).as_py():
        return Column(narrow)
    return Column(narrow, lost.to_numpy(False), values)
