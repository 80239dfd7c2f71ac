"""Values from texts, as Spark casts them. CAST and the readers of files both use this parser.

Guarantees: a text that Spark's CAST does not read as a value of the type is NULL. What surrounds a value may only be
spaces and control characters of ASCII. Times without an offset are in UTC; digits after the microsecond are dropped.
With ``exact``, a value is NULL also where its type cannot hold it: a number that would become infinite, or a decimal
that would lose digits. What a text is read as does not depend on the texts around it.

Arrow's own casts are an order of magnitude faster than rules in regular expressions, and read fewer texts than Spark
does. So a column is given to Arrow first; where Arrow refuses it, it is cut into pieces, and only the pieces that Arrow
refuses again go through the rules. Columns that may hold a text which Arrow reads and Spark does not are never given to
Arrow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.words import text_buffers
from weft.kernels.expr.arithmetic import narrow
from weft.kernels.expr.arrow import TIMESTAMP
from weft.kernels.expr.datum import as_type, null_unless, numbers
from weft.kernels.expr.decimals import fit

__all__ = ["parse"]

_PIECE = 4096
_DIGITS = 38  # that the widest decimal has


def parse(text: Any, kind: pa.DataType, *, exact: bool = False) -> Any:
    """The values of a type that a column of texts stands for."""
    if pa.types.is_binary(kind):
        return pc.cast(text, kind)
    values = _parse(text, kind, exact)
    return _without_overflow(text, values) if exact and pa.types.is_floating(kind) else values


def _parse(text: Any, kind: pa.DataType, exact: bool) -> Any:
    values = _by_arrow(text, kind)
    if values is not None:
        return values
    if len(text) <= _PIECE:
        return _by_rules(text, kind, exact)
    pieces = [_parse(text.slice(first, _PIECE), kind, exact) for first in range(0, len(text), _PIECE)]
    return pa.concat_arrays(pieces)


def _by_arrow(text: Any, kind: pa.DataType) -> Any | None:
    """The values as Arrow reads them; None where it cannot read all of them, or might read one that Spark does not."""
    if pa.types.is_timestamp(kind):
        return _times_by_arrow(text, kind)
    if pa.types.is_integer(kind) and _has_letter(text, b"x"):  # Arrow reads hexadecimal numbers
        return None
    if pa.types.is_floating(kind) and _has_letter(text, b"n"):  # Arrow reads `-nan` and `nan(1)`
        return None
    if pa.types.is_decimal(kind) and (pc.max(pc.binary_length(text)).as_py() or 0) > _DIGITS:
        return None  # Arrow does not report that a decimal overflows
    return _cast_or_none(text, kind)


def _cast_or_none(text: Any, kind: pa.DataType) -> Any | None:
    try:
        return pc.cast(text, kind)
    except pa.ArrowInvalid:
        return None


def _has_letter(text: Any, lowercase: bytes) -> bool:
    """Whether a letter, small or capital, is in any of the texts."""
    starts, data = text_buffers(text)
    letters = data[starts[0] : starts[-1]].tobytes()
    return any(letter in letters for letter in (lowercase, lowercase.upper()))


_ZONED = r":\d\d(\.\d*)?(Z|[+-]\d\d(:?\d\d)?)$"
# With an offset, Arrow reads an hour without minutes, and offsets of up to a day; Spark wants minutes, and
# takes 18 hours at most.
_ZONED_OTHERWISE = r"[ T]\d\d(Z|[+-]\d\d(:?\d\d)?)$|[+-](1[89]|2\d)(:?\d\d)?$"
_SHORTEST_ZONED = len("2024-01-01 00:00Z")


def _times_by_arrow(text: Any, kind: pa.DataType) -> Any | None:
    zoned = _any(pc.match_substring_regex(text.slice(0, 100), _ZONED))
    if zoned and not _are_in_utc(text) and _any(pc.match_substring_regex(text, _ZONED_OTHERWISE)):
        return None
    between = TIMESTAMP if zoned else pa.timestamp("us")
    values = _cast_or_none(text, between)
    if values is None and _has_letter(text, b"."):
        values = _cast_or_none(pc.replace_substring_regex(text, r"(\.\d{6})\d+", r"\1"), between)
    return None if values is None else as_type(values.view(TIMESTAMP), kind)


def _are_in_utc(text: Any) -> bool:
    """Whether all texts end in Z and are long enough to have minutes; this check is faster than matching patterns."""
    shortest = pc.min(pc.binary_length(text)).as_py() or 0
    return shortest >= _SHORTEST_ZONED and not _any(pc.invert(pc.ends_with(text, "Z")))


def _any(truths: Any) -> bool:
    return bool(pc.any(truths, min_count=0).as_py())


def _without_overflow(text: Any, values: Any) -> Any:
    """The numbers, with NULL for those that became infinite though their texts name a finite number."""
    infinite = pc.is_inf(values)
    if not _any(infinite):
        return values
    meant = pc.match_substring_regex(text, r"(?i)inf")
    return null_unless(pc.or_(pc.invert(infinite), meant), values)


def _by_rules(text: Any, kind: pa.DataType, exact: bool) -> Any:
    """The values of any texts, by the rules for each type."""
    text = pc.ascii_trim(text, characters=_BLANKS)
    if pa.types.is_boolean(kind):
        return _boolean(text)
    if pa.types.is_integer(kind):
        return _integer(text, kind)
    if pa.types.is_floating(kind):
        return pc.cast(null_unless(pc.match_substring_regex(text, _FLOAT), text), kind)
    if pa.types.is_decimal(kind):
        return _decimal(text, kind, exact)
    return _time(text, kind)


_BLANKS = "".join(map(chr, (*range(33), 127)))
_FLOAT = r"(?i)^(nan|[+-]?(inf(inity)?|(\d+\.?\d*|\.\d+)(e[+-]?\d+)?))$"
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")


def _boolean(text: Any) -> Any:
    text = pc.utf8_lower(text)
    true, false = (pc.is_in(text, value_set=pa.array(words)) for words in (_TRUE, _FALSE))
    return null_unless(pc.or_(true, false), true)


def _integer(text: Any, kind: pa.DataType) -> Any:
    plain = null_unless(pc.match_substring_regex(text, r"^[+-]?\d+$"), text)
    short = pc.replace_substring_regex(plain, r"^([+-]?)0+(\d)", r"\1\2")
    short = null_unless(pc.less_equal(pc.utf8_length(short), 20), short)
    return narrow(pc.cast(short, pa.decimal128(38, 0)), kind)


def _decimal(text: Any, kind: pa.DataType, exact: bool) -> Any:
    pattern = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?0*\d{1,2})?$"
    given = null_unless(pc.match_substring_regex(text, pattern), text)
    given = pc.replace_substring_regex(given, r"^([+-]?)0+(\d)", r"\1\2")
    short = pc.replace_substring_regex(given, r"(\.\d{38})\d+", r"\1")
    short = null_unless(pc.match_substring_regex(short, r"^[+-]?\d{0,38}(\.|[eE]|$)"), short)
    number = pc.cast(short, pa.decimal256(76, 38))
    values = fit(number, kind)
    if not exact:
        return values
    whole = pc.and_(pc.equal(short, given), pc.equal(pc.cast(values, number.type), number))
    return null_unless(whole, values)


_DAY = r"(?P<year>\d{4})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})"
_ZONE = r"(?P<zone>Z|UTC|GMT|[+-]\d{1,2}(?::\d{1,2})?|[+-]\d{4})?"
_SECONDS = r"(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d*))?)?"
_CLOCK = rf"(?P<hour>\d{{1,2}})(?::(?P<minute>\d{{1,2}}){_SECONDS} ?{_ZONE})?"
_OFFSET = r"^(?P<sign>[+-])(?P<hours>\d{1,2}?)(?::?(?P<minutes>\d{2})|:(?P<minute>\d))?$"
_DATE_TEXT = f"^{_DAY}(?:[T ].*)?)?)?$"
_TIME_TEXT = f"^{_DAY}(?:[T ]{_CLOCK})?)?)?$"


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
    hours = _number(offset, "hours", 0)
    minutes = _number(offset, "minutes", 0) + _number(offset, "minute", 0)
    sign = np.where(numbers(pc.fill_null(pc.equal(pc.struct_field(offset, "sign"), "-"), False)), -1, 1)
    fits = (hour < 24) & (minute < 60) & (second < 60) & (hours * 60 + minutes <= 18 * 60) & (minutes < 60)
    seconds = hour * 3600 + minute * 60 + second - sign * (hours * 3600 + minutes * 60)
    return seconds * 1_000_000 + micros, fits
