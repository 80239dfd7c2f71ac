r"""Functions of texts.

Guarantees: as in Spark SQL, texts are counted in characters, TRIM takes off spaces only, SUBSTRING counts from 1 (from
the end if negative), and REPLACE of the empty text changes nothing. A LIKE pattern that Spark would refuse (a backslash
before anything but %, _ and \) gives NULL. UPPER and LOWER map as Unicode says in full: ß becomes SS, and Σ at the
end of a word ς.

A call beyond a limit (`LIMITS`) is noticed by the lengths of its arguments, before anything is made. It raises a
`FunctionError` that names the function, the limit and the variable that sets the limit, and stops the queries that call
it. Limits are read from the environment of the process that computes: where workers do not inherit the driver's, set
them by ``spark.executorEnv``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.compiled import Array, Bytes, Longs
from weft.bucket.memory import fresh, zeros
from weft.bucket.words import text_buffers
from weft.errors import FunctionError
from weft.kernels.expr.datum import (
    ColumnFunction,
    as_array,
    as_type,
    null_unless,
    numbers,
    valid_rows,
    with_nulls,
)
from weft.kernels.expr.loops import text_kernels

__all__ = ["FUNCTIONS", "LIMITS", "built", "check_sizes", "from_pieces", "text_parts"]


ROW_BYTES, CALL_BYTES = "WEFT_TEXT_BYTES_PER_ROW", "WEFT_TEXT_BYTES_PER_CALL"
ROW_CELLS, CALL_CELLS = "WEFT_LEVENSHTEIN_CELLS_PER_ROW", "WEFT_LEVENSHTEIN_CELLS_PER_CALL"

# The limits unless the environment sets others: about a quarter of a second for a row, half a minute for a call.
LIMITS = {ROW_BYTES: 1 << 26, CALL_BYTES: 1 << 30, ROW_CELLS: 10**8, CALL_CELLS: 10**10}

_WORD = 64  # a text of up to so many characters needs one machine word per column of the matrix


def check_sizes(function: str, sizes: Longs) -> None:
    """Refuse to make texts of these sizes, in bytes, if one or all of them are too large."""
    _check(function, sizes, ROW_BYTES, "a text of {:,} bytes")
    _check(function, sizes.sum(keepdims=True), CALL_BYTES, "{:,} bytes of text at once")


def _check_concat(texts: Sequence[Any]) -> None:
    """Refuse to concatenate texts if a result would be too large."""
    check_sizes("concat", np.atleast_1d(sum(map(_sizes, texts))))


def _check_replace(text: Any, old: str, new: str) -> None:
    """Refuse to replace a constant by a longer one if a result would be too large."""
    growth = len(new.encode()) - len(old.encode())
    if growth > 0:
        hits = _plain(pc.count_substring(text, old))
        check_sizes("replace", np.atleast_1d(_sizes(text) + growth * hits))


def _check_distance(one: Any, other: Any) -> None:
    """Refuse to compare texts whose matrix has too many cells; for a short text, a whole column counts as one cell."""
    sizes = _sizes(one), _sizes(other)
    short, long = np.minimum(*sizes), np.maximum(*sizes)
    cells = np.atleast_1d(np.where(short <= _WORD, long, short * long))
    _check("levenshtein", cells, ROW_CELLS, "a matrix of {:,} cells")
    _check("levenshtein", cells.sum(keepdims=True), CALL_CELLS, "matrices of {:,} cells at once")


def _check(function: str, amounts: Longs, variable: str, what: str) -> None:
    limit = _limit(variable)
    most = int(amounts.max(initial=0))
    if most > limit:
        raise FunctionError(
            f"{function} would make {what.format(most)}, and the limit is {limit:,}",
            hint=f"leave out or shorten long texts, or set {variable}",
        )


def _limit(variable: str) -> int:
    given = os.environ.get(variable)
    if given is None:
        return LIMITS[variable]
    if not (given.isascii() and given.isdigit()):
        raise FunctionError(
            f"{variable} is {given!r}, which is no number", hint="use a whole number, or unset it"
        )
    return int(given)


def _sizes(text: Any) -> Any:
    """How many bytes a text has, or each text of a column; 0 where it is NULL."""
    return _plain(pc.binary_length(text))


def _plain(counts: Any) -> Any:
    if isinstance(counts, pa.Scalar):
        return np.int64(counts.as_py() or 0)
    return pc.fill_null(counts, 0).to_numpy(zero_copy_only=False).astype(np.int64)


Text = tuple[Array, Bytes, int]  # offsets, bytes, step: see `text_kernels`

_PATTERN = r"(?s)^(?:[^\\]|\\[%_\\])*$"


def text_parts(value: Any) -> Text:
    """A text argument as compiled loops take it."""
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


def _concat(*texts: Any) -> Any:
    _check_concat(texts)
    return pc.binary_join_element_wise(*texts, "") if len(texts) > 1 else texts[0]


def _relation(how: int, constant: Callable[..., Any]) -> ColumnFunction:
    def rule(args: Sequence[Any], kind: pa.DataType) -> Any:
        text, part = _texts(args)
        if isinstance(part, pa.Scalar) and part.is_valid:
            return constant(text, part.as_py())
        out = fresh(_rows(args), np.bool_)
        text_kernels.relate(*text_parts(text), *text_parts(part), how, out)
        return with_nulls(out, valid_rows([text, part]), kind)

    return rule


def _like(args: Sequence[Any], kind: pa.DataType) -> Any:
    text, pattern = _texts(args)
    if isinstance(pattern, pa.Scalar) and pattern.is_valid and isinstance(text, pa.Array):
        if not re.match(_PATTERN, pattern.as_py()):
            return pa.nulls(len(text), kind)
        return pc.match_like(text, pattern.as_py())
    out = fresh(_rows(args), np.bool_)
    text_kernels.like(*text_parts(text), *text_parts(pattern), out)
    matched = with_nulls(out, valid_rows([text, pattern]), kind)
    return null_unless(as_array(pc.match_substring_regex(pattern, _PATTERN), len(matched)), matched)


def _levenshtein(args: Sequence[Any], kind: pa.DataType) -> Any:
    one, other = _texts(args)
    _check_distance(one, other)
    out = fresh(_rows(args), np.int32)
    text_kernels.distances(*text_parts(one), *text_parts(other), out)
    return with_nulls(out, valid_rows([one, other]), kind)


def _substring(args: Sequence[Any], kind: pa.DataType) -> Any:
    rows = _rows(args)
    text = as_array(as_type(args[0], pa.string()), rows)
    first, *size = (as_array(as_type(arg, pa.int64()), rows) for arg in args[1:])
    count = numbers(size[0]) if size else np.full(rows, 2**31 - 1)  # the greatest INT, as in Spark
    low, high = fresh(rows, np.int64), fresh(rows, np.int64)
    text_kernels.pieces(*text_parts(text), numbers(first).astype(np.int64), count.astype(np.int64), low, high)
    cut = from_pieces(text, low, high)
    valid = valid_rows([text, first, *size])
    return cut if valid is None else null_unless(pa.array(valid), as_type(cut, kind))


def from_pieces(text: Any, low: Array, high: Array) -> Any:
    """A column of texts, each the bytes low to high of the text column's data."""
    offsets = zeros(low.size + 1, np.int64)
    np.cumsum(high - low, out=offsets[1:])
    out = fresh(int(offsets[-1]), np.uint8)
    _, content, _ = text_parts(text)
    text_kernels.copy_pieces(content, low, high, offsets, out)
    return built(offsets, out)


def built(offsets: Array, content: Bytes) -> Any:
    """A column of texts from their offsets and their bytes."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.large_string(), offsets.size - 1, buffers).cast(pa.string())


def _replace(args: Sequence[Any], _kind: pa.DataType) -> Any:
    rows = _rows(args)
    text, old, new = _texts(args) if len(args) == 3 else (*_texts(args), pa.scalar(""))
    if isinstance(old, pa.Scalar) and isinstance(new, pa.Scalar) and old.as_py() and new.is_valid:
        _check_replace(text, old.as_py(), new.as_py())
        return pc.replace_substring(text, old.as_py(), new.as_py())
    parts = (*text_parts(text), *text_parts(old), *text_parts(new))
    offsets = zeros(rows + 1, np.int64)
    text_kernels.replace(*parts, offsets, np.empty(0, np.uint8))
    check_sizes("replace", np.diff(offsets))
    out = fresh(int(offsets[-1]), np.uint8)
    text_kernels.replace(*parts, offsets, out)
    valid = valid_rows([text, old, new])
    return built(offsets, out) if valid is None else null_unless(pa.array(valid), built(offsets, out))


FUNCTIONS: dict[str, ColumnFunction] = {
    "lower": _simple(_lower),
    "upper": _simple(_upper),
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
