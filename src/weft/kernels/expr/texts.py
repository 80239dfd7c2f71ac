"""Functions of texts.

Guarantees: as in Spark SQL, texts are counted in characters, TRIM takes off spaces only, SUBSTRING counts from 1 (from
the end if negative), and REPLACE of the empty text changes nothing. A LIKE pattern that Spark would refuse (a backslash
before anything but %, _ and \\) gives NULL. UPPER and LOWER map as Unicode says in full: ß becomes SS, and Σ at the
end of a word ς. A call that would make or compare more than `text_limits` allows raises a `FunctionError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.compiled import Array, Bytes
from weft.bucket.memory import fresh, zeros
from weft.bucket.words import text_buffers
from weft.kernels.expr import text_kernels
from weft.kernels.expr.datum import (
    ColumnFunction,
    as_array,
    as_type,
    null_unless,
    numbers,
    valid_rows,
    with_nulls,
)
from weft.kernels.expr.text_limits import check_concat, check_distance, check_replace, check_sizes

__all__ = ["FUNCTIONS", "from_pieces"]

Text = tuple[Array, Bytes, int]  # offsets, bytes, step: see `text_kernels`

_PATTERN = r"(?s)^(?:[^\\]|\\[%_\\])*$"


def _text(value: Any) -> Text:
    if isinstance(value, pa.Scalar):
        return (*text_buffers(pa.array([value.as_py() or ""], pa.string())), 0)
    return (*text_buffers(value), 1)


def _texts(args: Sequence[Any]) -> list[Any]:
    return [as_type(arg, pa.string()) for arg in args]


def _rows(args: Sequence[Any]) -> int:
    return next(len(arg) for arg in args if isinstance(arg, pa.Array))


def _simple(function: Callable[..., Any]) -> ColumnFunction:
    def rule(args: Sequence[Any], _kind: pa.DataType) -> Any:
        return function(*_texts(args))

    return rule


def _upper(text: Any) -> Any:
    """Capitals; a letter whose capital is several letters becomes these first, since Arrow maps one to one."""
    return pc.utf8_upper(_mapped(text, _SEVERAL_CAPITALS, lambda one: one.translate(_CAPITALS)))


def _lower(text: Any) -> Any:
    """Small letters; what is special about İ and Σ is done first, since Arrow maps one to one."""
    return pc.utf8_lower(_mapped(text, "İΣ", _small_specials))


def _mapped(text: Any, special: str, rewrite: Callable[[str], str]) -> Any:
    """The texts, with those that have one of the special characters rewritten, each distinct one once."""
    if isinstance(text, pa.Scalar):
        return pa.scalar(rewrite(text.as_py()), text.type) if text.is_valid else text
    starts, content = text_buffers(text)
    letters = content[
        starts[0] : starts[-1]
    ].tobytes()  # to look for two bytes is faster than to match a pattern
    if not any(begin in letters for begin in {one.encode()[:2] for one in special}):
        return text
    chosen = pc.fill_null(pc.match_substring_regex(text, f"[{special}]"), False)
    coded = text.filter(chosen).dictionary_encode()
    written = pa.array([rewrite(one) for one in coded.dictionary.to_pylist()], text.type)
    return pc.replace_with_mask(text, chosen, written.take(coded.indices))


def _small_specials(text: str) -> str:
    """The text with İ in two characters, and with ς for every Σ that ends a word."""
    text = text.replace("İ", "i\u0307")  # now every letter has as many small ones as capitals
    return "".join(small if small == "ς" else one for one, small in zip(text, text.lower(), strict=True))


# Letters whose capitals are several letters, as in Unicode's SpecialCasing: among these, there are all of them.
_RANGES = ((0xDF, 0xE0), (0x149, 0x1F1), (0x390, 0x3B1), (0x587, 0x588), (0x1E96, 0x1FFD), (0xFB00, 0xFB18))
_CAPITALS = {
    code: chr(code).upper()
    for start, end in _RANGES
    for code in range(start, end)
    if len(chr(code).upper()) > 1
}
_SEVERAL_CAPITALS = "".join(map(chr, _CAPITALS))


def _spaces(trim: Callable[..., Any]) -> Callable[..., Any]:
    return lambda text: trim(text, characters=" ")


def _concat(*texts: Any) -> Any:
    check_concat(texts)
    return pc.binary_join_element_wise(*texts, "") if len(texts) > 1 else texts[0]


def _relation(how: int, constant: Callable[..., Any]) -> ColumnFunction:
    def rule(args: Sequence[Any], kind: pa.DataType) -> Any:
        text, part = _texts(args)
        if isinstance(part, pa.Scalar) and part.is_valid:
            return constant(text, part.as_py())
        out = fresh(_rows(args), np.bool_)
        text_kernels.relate(*_text(text), *_text(part), how, out)
        return with_nulls(out, valid_rows([text, part]), kind)

    return rule


def _like(args: Sequence[Any], kind: pa.DataType) -> Any:
    text, pattern = _texts(args)
    if isinstance(pattern, pa.Scalar) and pattern.is_valid and isinstance(text, pa.Array):
        if not re.match(_PATTERN, pattern.as_py()):
            return pa.nulls(len(text), kind)
        return pc.match_like(text, pattern.as_py())
    out = fresh(_rows(args), np.bool_)
    text_kernels.like(*_text(text), *_text(pattern), out)
    matched = with_nulls(out, valid_rows([text, pattern]), kind)
    return null_unless(as_array(pc.match_substring_regex(pattern, _PATTERN), len(matched)), matched)


def _levenshtein(args: Sequence[Any], kind: pa.DataType) -> Any:
    one, other = _texts(args)
    check_distance(one, other)
    out = fresh(_rows(args), np.int32)
    text_kernels.distances(*_text(one), *_text(other), out)
    return with_nulls(out, valid_rows([one, other]), kind)


def _substring(args: Sequence[Any], kind: pa.DataType) -> Any:
    rows = _rows(args)
    text = as_array(as_type(args[0], pa.string()), rows)
    first, *size = (as_array(as_type(arg, pa.int64()), rows) for arg in args[1:])
    count = numbers(size[0]) if size else np.full(rows, 2**31)
    low, high = fresh(rows, np.int64), fresh(rows, np.int64)
    text_kernels.pieces(*_text(text), numbers(first).astype(np.int64), count.astype(np.int64), low, high)
    cut = from_pieces(text, low, high)
    valid = valid_rows([text, first, *size])
    return cut if valid is None else null_unless(pa.array(valid), as_type(cut, kind))


def from_pieces(text: Any, low: Array, high: Array) -> Any:
    """A column of texts, each the bytes low to high of the text column's data."""
    offsets = zeros(low.size + 1, np.int64)
    np.cumsum(high - low, out=offsets[1:])
    out = fresh(int(offsets[-1]), np.uint8)
    _, content, _ = _text(text)
    text_kernels.copy_pieces(content, low, high, offsets, out)
    return _built(offsets, out)


def _built(offsets: Array, content: Bytes) -> Any:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.large_string(), offsets.size - 1, buffers).cast(pa.string())


def _replace(args: Sequence[Any], _kind: pa.DataType) -> Any:
    rows = _rows(args)
    text, old, new = _texts(args)
    if isinstance(old, pa.Scalar) and isinstance(new, pa.Scalar) and old.as_py() and new.is_valid:
        check_replace(text, old.as_py(), new.as_py())
        return pc.replace_substring(text, old.as_py(), new.as_py())
    parts = (*_text(text), *_text(old), *_text(new))
    offsets = zeros(rows + 1, np.int64)
    text_kernels.replace(*parts, offsets, np.empty(0, np.uint8))
    check_sizes("replace", np.diff(offsets))
    out = fresh(int(offsets[-1]), np.uint8)
    text_kernels.replace(*parts, offsets, out)
    valid = valid_rows([text, old, new])
    return _built(offsets, out) if valid is None else null_unless(pa.array(valid), _built(offsets, out))


FUNCTIONS: dict[str, ColumnFunction] = {
    "lower": _simple(_lower),
    "upper": _simple(_upper),
    "trim": _simple(_spaces(pc.utf8_trim)),
    "ltrim": _simple(_spaces(pc.utf8_ltrim)),
    "rtrim": _simple(_spaces(pc.utf8_rtrim)),
    "reverse": _simple(pc.utf8_reverse),
    "length": _simple(pc.utf8_length),
    "concat": _simple(_concat),
    "startswith": _relation(0, pc.starts_with),
    "endswith": _relation(1, pc.ends_with),
    "contains": _relation(2, pc.match_substring),
    "like": _like,
    "levenshtein": _levenshtein,
    "substring": _substring,
    "replace": _replace,
}
