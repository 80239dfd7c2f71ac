"""Values from texts and texts from values.

Guarantees: doubles print as in Java (`1.0`, `1.0E10`, `NaN`), decimals plainly with all digits of their scale, times
without trailing zeros: as Spark casts them. A text that does not read as a value of the type is NULL.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.memory import fresh, zeros
from weft.bucket.words import text_buffers, validity
from weft.kernels.expr.arithmetic import narrow
from weft.kernels.expr.arrow import TIMESTAMP
from weft.kernels.expr.datum import as_type, naive, null_unless, numbers
from weft.kernels.expr.decimals import fit
from weft.kernels.expr.number_texts import java_doubles, plain_decimals
from weft.kernels.expr.text_kernels import well_formed

__all__ = ["parse", "render"]


def render(value: Any) -> Any:
    """The values as texts."""
    kind = value.type
    if pa.types.is_floating(kind):
        return _rewritten(pc.cast(value, pa.string()), java_doubles, 16)
    if pa.types.is_decimal(kind):
        return _rewritten(_unscaled(value), plain_decimals, 48, kind.scale)
    if pa.types.is_timestamp(kind):
        text = pc.cast(naive(value), pa.string())
        text = pc.replace_substring_regex(text, r"\.0+$", "")
        return pc.replace_substring_regex(text, r"(\.\d*[1-9])0+$", r"\1")
    if pa.types.is_binary(kind):
        return _utf8(value)
    return pc.cast(value, pa.string())


def _unscaled(value: Any) -> Any:
    """The digits of decimals without the point, as texts."""
    wide = pc.cast(value, pa.decimal128(38, value.type.scale))
    whole = pa.Array.from_buffers(pa.decimal128(38, 0), len(wide), wide.buffers(), offset=wide.offset)
    return pc.cast(whole, pa.string())


def _rewritten(texts: Any, rewrite: Any, room: int, *more: int) -> Any:
    """Every text rewritten by a compiled function into at most its length and `room` bytes."""
    starts, content = text_buffers(texts)
    offsets = zeros(len(texts) + 1, np.int64)
    out = fresh(int(starts[-1] - starts[0]) + room * len(texts), np.uint8)
    rewrite(starts, content, *more, offsets, out)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out)]
    built = pa.Array.from_buffers(pa.large_string(), len(texts), buffers).cast(pa.string())
    valid = validity(texts)
    return built if valid is None else null_unless(pa.array(valid), built)


def _utf8(value: Any) -> Any:
    try:
        return pc.cast(value, pa.string())
    except pa.ArrowInvalid:  # some are no UTF-8
        good = fresh(len(value), np.bool_)
        well_formed(*text_buffers(value), good)
        return pc.cast(null_unless(pa.array(good), value), pa.string())


def parse(text: Any, kind: pa.DataType) -> Any:
    """The values that texts stand for."""
    if pa.types.is_binary(kind):
        return pc.cast(text, kind)
    text = pc.utf8_trim_whitespace(text)
    if pa.types.is_boolean(kind):
        return _boolean(text)
    if pa.types.is_integer(kind):
        return _integer(text, kind)
    if pa.types.is_floating(kind):
        return _matching(text, _FLOAT, kind)
    if pa.types.is_decimal(kind):
        return _decimal(text, kind)
    return _time(text, kind)


_FLOAT = r"(?i)^[+-]?(nan|inf(inity)?|(\d+\.?\d*|\.\d+)(e[+-]?\d+)?)$"
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")


def _matching(text: Any, pattern: str, kind: pa.DataType) -> Any:
    return pc.cast(null_unless(pc.match_substring_regex(text, pattern), text), kind)


def _boolean(text: Any) -> Any:
    text = pc.utf8_lower(text)
    true, false = (pc.is_in(text, value_set=pa.array(words)) for words in (_TRUE, _FALSE))
    return null_unless(pc.or_(true, false), true)


def _integer(text: Any, kind: pa.DataType) -> Any:
    plain = null_unless(pc.match_substring_regex(text, r"^[+-]?\d+$"), text)
    short = pc.replace_substring_regex(plain, r"^([+-]?)0+(\d)", r"\1\2")
    short = null_unless(pc.less_equal(pc.utf8_length(short), 20), short)
    return narrow(pc.cast(short, pa.decimal128(38, 0)), kind)


def _decimal(text: Any, kind: pa.DataType) -> Any:
    number = null_unless(pc.match_substring_regex(text, r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?$"), text)
    number = pc.replace_substring_regex(number, r"^([+-]?)0+(\d)", r"\1\2")
    number = pc.replace_substring_regex(number, r"(\.\d{38})\d+", r"\1")
    number = null_unless(pc.match_substring_regex(number, r"^[+-]?\d{0,38}(\.|[eE]|$)"), number)
    return fit(pc.cast(number, pa.decimal256(76, 38)), kind)


_DAY = r"(?P<year>\d{4})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})"
_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d{0,9}))?)?"
_ZONE = r"(?P<zone>Z|UTC|GMT|[+-]\d{1,2}(?::\d{2})?)?"
_OFFSET = r"^(?P<sign>[+-])(?P<hours>\d{1,2})(?::(?P<minutes>\d{2}))?$"
_DATE_TEXT = f"^{_DAY}(?:[T ].*)?)?)?$"
_TIME_TEXT = f"^{_DAY}(?:[T ](?:{_CLOCK} ?{_ZONE})?)?)?)?$"


def _time(text: Any, kind: pa.DataType) -> Any:
    whole = pa.types.is_timestamp(kind)
    parts = pc.extract_regex(text, _TIME_TEXT if whole else _DATE_TEXT)
    year, month, day = (
        _number(parts, name, default) for name, default in (("year", 1), ("month", 1), ("day", 1))
    )
    first = (year - 1970).astype("M8[Y]").astype("M8[M]") + (month - 1).astype("m8[M]")
    days = first.astype("M8[D]") + (day - 1).astype("m8[D]")
    good = (month >= 1) & (month <= 12) & (day >= 1) & (days.astype("M8[M]") == first)
    good &= ~numbers(pc.is_null(parts)) & ~numbers(pc.is_null(text))
    number = days.astype(np.int64)
    if not whole:
        return null_unless(pa.array(good), pa.array(number.astype(np.int32)).view(kind))
    clock, fits = _clock(parts)
    micros = pa.array(number * 86_400_000_000 + clock).view(TIMESTAMP)
    return null_unless(pa.array(good & fits), as_type(micros, kind))


def _number(parts: Any, name: str, default: int) -> Any:
    digits = pc.struct_field(parts, name)
    filled = pc.if_else(pc.equal(pc.utf8_length(digits), 0), pa.scalar(str(default)), digits)
    return numbers(pc.cast(pc.fill_null(filled, str(default)), pa.int64()))


def _clock(parts: Any) -> tuple[Any, Any]:
    """Microseconds since midnight in UTC, and whether there is such a time."""
    hour, minute, second = (_number(parts, name, 0) for name in ("hour", "minute", "second"))
    fraction = pc.utf8_slice_codeunits(pc.fill_null(pc.struct_field(parts, "fraction"), ""), 0, 6)
    micros = numbers(pc.cast(pc.utf8_rpad(fraction, 6, "0"), pa.int64()))
    zone = pc.fill_null(pc.struct_field(parts, "zone"), "")
    offset = pc.extract_regex(zone, _OFFSET)
    hours, minutes = _number(offset, "hours", 0), _number(offset, "minutes", 0)
    sign = np.where(numbers(pc.fill_null(pc.equal(pc.struct_field(offset, "sign"), "-"), False)), -1, 1)
    fits = (hour < 24) & (minute < 60) & (second < 60) & (hours <= 18) & (minutes < 60)
    seconds = hour * 3600 + minute * 60 + second - sign * (hours * 3600 + minutes * 60)
    return seconds * 1_000_000 + micros, fits
