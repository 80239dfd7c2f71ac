"""The function CAST, and texts from values.

Guarantees: every cast that the expression language knows is done with Spark's results; a value that the other type
cannot represent becomes NULL. `parse_texts` says how texts are read. As texts, doubles print as in Java (`1.0`,
`1.0E10`, `NaN`), decimals plainly with all digits of their scale, times without trailing zeros; bytes that are no UTF-8
are NULL. Arrow prints the values for which its text is the same as Spark's; the others are printed here, each distinct
value once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.kernels.expr.arithmetic import narrow, round_half_up
from weft.kernels.expr.datum import as_type, limits_of, naive, null_unless, numbers, valid_rows, with_nulls
from weft.kernels.expr.decimals import fit, labelled, whole_part, wide
from weft.kernels.expr.parse_texts import parse

__all__ = ["cast", "render", "utf8_or_null"]


_LEAST_PLAIN, _FIRST_NOT_PLAIN = 1e-3, 1e7  # in this range, Java prints numbers without an exponent
_PIECE = 4096


def render(value: Any) -> Any:
    """The values of a column as texts."""
    kind = value.type
    if pa.types.is_floating(kind):
        return _floats(value)
    if pa.types.is_decimal(kind):
        texts = pc.cast(value, pa.string())
        return _rewritten(texts, pc.match_substring(texts, "E"), _plain)
    if pa.types.is_timestamp(kind):
        text = pc.cast(naive(value), pa.string())
        text = pc.replace_substring_regex(text, r"\.0+$", "")
        return pc.replace_substring_regex(text, r"(\.\d*[1-9])0+$", r"\1")
    if pa.types.is_binary(kind):
        return utf8_or_null(value)
    return pc.cast(value, pa.string())


def _floats(value: Any) -> Any:
    """Floats as texts: Arrow prints those of usual size as Java does, except that it omits the `.0` of whole ones."""
    texts = pc.cast(value, pa.string())
    size = pc.abs(value)
    usual = pc.and_(pc.greater_equal(size, _LEAST_PLAIN), pc.less(size, _FIRST_NOT_PLAIN))
    texts = pc.replace_substring_regex(texts, r"^(-?\d+)$", r"\1.0")
    return _rewritten(texts, pc.invert(usual), _as_java)


def _rewritten(texts: Any, chosen: Any, rewrite: Callable[[str], str]) -> Any:
    """The texts, with the chosen ones rewritten; the function is called once for each distinct chosen text."""
    chosen = pc.fill_null(chosen, False)
    coded = texts.filter(chosen).dictionary_encode()
    if not len(coded):
        return texts
    written = pa.array([rewrite(text) for text in coded.dictionary.to_pylist()], pa.string())
    return pc.replace_with_mask(texts, chosen, written.take(coded.indices))


def _plain(text: str) -> str:
    return f"{Decimal(text):f}"


def _as_java(text: str) -> str:
    """A number in the form of Java's Double.toString, from the shortest digits, which Arrow prints.

    >>> [_as_java(text) for text in ("100", "1e-4", "12345678", "-0", "nan", "-inf")]
    ['100.0', '1.0E-4', '1.2345678E7', '-0.0', 'NaN', '-Infinity']
    """
    if text.endswith("nan"):
        return "NaN"
    if text.endswith("inf"):
        return text.replace("inf", "Infinity")
    number = Decimal(text)
    exponent = number.adjusted() if number else 0
    if -3 <= exponent < 7:
        plain = f"{number:f}"
        return plain if "." in plain else f"{plain}.0"
    digits = f"{number.scaleb(-exponent).normalize():f}"
    return f"{digits if '.' in digits else f'{digits}.0'}E{exponent}"


def utf8_or_null(value: Any) -> Any:
    """Bytes as texts; NULL where they are no UTF-8."""
    try:
        return pc.cast(value, pa.string())
    except pa.ArrowInvalid:
        if len(value) > _PIECE:
            pieces = (value.slice(first, _PIECE) for first in range(0, len(value), _PIECE))
            return pa.concat_arrays([utf8_or_null(piece) for piece in pieces])
        good = [_is_utf8(one) for one in value.to_pylist()]
        return pc.cast(null_unless(pa.array(good), value), pa.string())


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def cast(args: Sequence[Any], kind: pa.DataType) -> Any:
    """The values of a column as another type."""
    (value,) = args
    old = value.type
    if old == kind or pa.types.is_null(old):
        return as_type(value, kind)
    if pa.types.is_string(kind):
        return render(value)
    if pa.types.is_string(old):
        return parse(value, kind)
    if pa.types.is_boolean(kind):
        return pc.not_equal(value, pa.scalar(0, old))
    if pa.types.is_boolean(old):
        return cast([pc.cast(value, pa.int8())], kind)
    if pa.types.is_timestamp(kind):
        return as_type(value, kind)
    if pa.types.is_date(kind):
        return pc.cast(naive(value), kind, safe=False)
    return _number(value, kind)


def _number(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return _decimal(value, kind)
    if pa.types.is_floating(kind):
        return as_type(value, kind)
    if pa.types.is_floating(value.type):
        return _from_float(value, kind)
    if pa.types.is_decimal(value.type):
        return narrow(whole_part(wide(value)), kind)
    return pc.cast(value, kind) if kind.bit_width >= value.type.bit_width else narrow(value, kind)


def _from_float(value: Any, kind: pa.DataType) -> Any:
    whole = np.trunc(numbers(value).astype(np.float64))
    limits = limits_of(kind)
    inside = (whole >= float(limits.min)) & (whole < float(limits.max) + 1.0)
    valid = valid_rows([value])
    good = inside if valid is None else inside & valid
    return with_nulls(np.where(inside, whole, 0.0).astype(np.int64), good, kind)


def _decimal(value: Any, kind: pa.DataType) -> Any:
    if not pa.types.is_floating(value.type):
        return fit(wide(value), kind)
    values, valid = numbers(value).astype(np.float64), valid_rows([value])
    with np.errstate(invalid="ignore"):
        inside = np.abs(values) < 10.0 ** (kind.precision - kind.scale)
    values = np.where(inside & (np.abs(values) > _LEAST), values, 0.0)
    good = inside if valid is None else inside & valid
    if kind.scale <= 15 and np.abs(values).max(initial=0.0) < _SURE / 10.0**kind.scale:
        digits = np.rint(round_half_up(values, kind.scale) * 10.0**kind.scale).astype(np.int64)
        whole = wide(with_nulls(digits, good, pa.int64()))
        return fit(labelled(whole, whole.type.precision, kind.scale), kind)
    return parse(pc.cast(with_nulls(values, good, pa.float64()), pa.string()), kind)


_LEAST = 1e-40  # doubles below it are 0 in every decimal
_SURE = 2.0**49  # up to here, a double has all digits of a decimal that is rounded to whole numbers
