"""More functions of texts; `weft.kernels.expr.texts` has those that were there first, and the limits of all.

Guarantees: as there. Regular expressions are Java's as far as RE2 has them; a pattern that RE2 does not read was
refused when the query was bound (`weft.logical.expr.builtin.patterns`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.compiled import Array
from weft.bucket.memory import fresh, zeros
from weft.bucket.words import text_buffers
from weft.kernels.expr.datum import (
    ColumnFunction,
    as_type,
    columns_of,
    constant_of,
    null_unless,
    numbers,
    valid_rows,
    with_nulls,
)
from weft.kernels.expr.loops import text_loops
from weft.kernels.expr.texts import FUNCTIONS as TEXTS
from weft.kernels.expr.texts import built, check_sizes, from_pieces, text_parts
from weft.logical.expr.builtin.patterns import extracting, matching, replacement, translated

__all__ = ["FUNCTIONS"]


def _longs(column: Any) -> Any:
    return numbers(column).astype(np.int64)


def _made(columns: Sequence[Any], texts: Any) -> Any:
    """Texts that are NULL where one of the columns is."""
    valid = valid_rows(columns)
    return texts if valid is None else null_unless(pa.array(valid), texts)


def _pad(left: bool) -> ColumnFunction:
    def rule(args: Sequence[Any], _kind: pa.DataType) -> Any:
        text, size, *filling = columns_of(args)
        fill = filling[0] if filling else pa.scalar(" ")
        sizes = np.maximum(_longs(size), 0)
        widest = np.int64(pc.max(pc.binary_length(fill)).as_py() or 0) if filling else np.int64(1)
        check_sizes("lpad" if left else "rpad", np.minimum(sizes, 2**40) * max(widest, 1))
        starts = zeros(len(text) + 1, np.int64)
        parts = (*text_parts(text), *text_parts(fill), sizes, left, starts)
        text_loops.pad(*parts, np.empty(0, np.uint8))
        out = fresh(int(starts[-1]), np.uint8)
        text_loops.pad(*parts, out)
        return _made([text, size, *filling], built(starts, out))

    return rule


def _repeat(args: Sequence[Any], _kind: pa.DataType) -> Any:
    text, count = columns_of(args)
    times = np.maximum(_longs(count), 0)
    lengths = numbers(pc.fill_null(pc.binary_length(text), 0)).astype(np.int64)
    check_sizes("repeat", np.minimum(times, 2**40) * lengths)
    return _made([text, count], pc.binary_repeat(text, pa.array(np.where(lengths > 0, times, 0))))


def _space(args: Sequence[Any], kind: pa.DataType) -> Any:
    (count,) = columns_of(args)
    return _repeat([pa.repeat(pa.scalar(" "), len(count)), count], kind)


def _locate(args: Sequence[Any], kind: pa.DataType) -> Any:
    """Where a part first stands; NULL where a text is, but 0 where the place is."""
    part, text, *first = columns_of(args)
    places = _longs(first[0]) if first else np.ones(len(text), np.int64)
    out = fresh(len(text), np.int32)
    text_loops.locate(*text_parts(text), *text_parts(part), places, out)
    found = with_nulls(out, valid_rows([part, text]), kind)
    return pc.if_else(pc.is_null(first[0]), pa.scalar(0, kind), found) if first else found


def _right(args: Sequence[Any], kind: pa.DataType) -> Any:
    text, count = columns_of(args)
    last = TEXTS["substring"]([text, pa.array(-np.maximum(_longs(count), 1))], kind)
    return _made([text, count], pc.if_else(pa.array(_longs(count) > 0), last, ""))


def _overlay(args: Sequence[Any], kind: pa.DataType) -> Any:
    """A part of a text replaced by another text, of the same length unless another is given."""
    text, new, place, *size = columns_of(args)
    first = _longs(place)
    count = numbers(pc.utf8_length(new)).astype(np.int64) if not size else _longs(size[0])
    if size:
        count = np.where(count < 0, numbers(pc.utf8_length(new)), count)
    before = TEXTS["substring"]([text, pa.scalar(1, pa.int64()), pa.array(first - 1)], kind)
    after = TEXTS["substring"]([text, pa.array(first + count)], kind)
    return _made([text, new, place, *size], TEXTS["concat"]([before, new, after], kind))


def _first_code(args: Sequence[Any], kind: pa.DataType) -> Any:
    out = fresh(len(args[0]), np.int32)
    text_loops.first_codes(*text_buffers(args[0]), out)
    return with_nulls(out, valid_rows(args), kind)


_CHARACTERS = ("", *map(chr, range(256)))  # no column yet: making one imports pandas


def _character(args: Sequence[Any], _kind: pa.DataType) -> Any:
    code = _longs(args[0])
    return _made(args, pa.array(_CHARACTERS).take(pa.array(np.where(code < 0, 0, (code & 0xFF) + 1))))


def _initial_capitals(args: Sequence[Any], kind: pa.DataType) -> Any:
    words = pc.split_pattern(args[0], " ")
    first = pc.utf8_capitalize(TEXTS["upper"]([pc.utf8_slice_codeunits(words.values, 0, 1)], kind))
    rest = TEXTS["lower"]([pc.utf8_slice_codeunits(words.values, 1)], kind)
    capitals = pc.binary_join_element_wise(first, rest, "")
    return _made(args, pc.binary_join(pa.ListArray.from_arrays(words.offsets, capitals), " "))


def _concat_with(args: Sequence[Any], _kind: pa.DataType) -> Any:
    """All texts that are not NULL, with another between them."""
    between, *texts = columns_of(args)
    if not texts:
        return _made([between], pa.repeat(pa.scalar(""), len(between)))
    sizes = sum(
        numbers(pc.fill_null(pc.binary_length(text), 0)).astype(np.int64) for text in (*texts, between)
    )
    check_sizes("concat_ws", np.atleast_1d(np.asarray(sizes)))
    # Arrow's own way to skip NULLs loses rows in which all texts are NULL.
    joined, *rest = texts
    for text in rest:
        longer = pc.coalesce(pc.binary_join_element_wise(joined, text, between), text)
        joined = pc.if_else(pc.is_null(text), joined, longer)
    return _made([between], pc.fill_null(joined, ""))


def _translate(args: Sequence[Any], _kind: pa.DataType) -> Any:
    text, old, new = args[0], constant_of(args[1]), constant_of(args[2])
    if old is None or new is None:
        return pa.nulls(len(text), pa.string())
    table = {ord(one): new[place] if place < len(new) else "" for place, one in reversed([*enumerate(old)])}
    codes = np.array(sorted(table), np.int64)
    pieces = [table[code].encode() for code in sorted(table)]
    starts = np.cumsum([0, *map(len, pieces)]).astype(np.int64)
    data = np.frombuffer(b"".join(pieces), np.uint8)
    ends = zeros(len(text) + 1, np.int64)
    parts = (*text_buffers(text), codes, starts, data, ends)
    text_loops.translate(*parts, np.empty(0, np.uint8))
    out = fresh(int(ends[-1]), np.uint8)
    text_loops.translate(*parts, out)
    return _made([text], built(ends, out))


def _part_of(part: bool) -> ColumnFunction:
    """What is before or after a mark, or between two of them."""

    def rule(args: Sequence[Any], _kind: pa.DataType) -> Any:
        text, mark, count = columns_of(args)
        low, high = fresh(len(text), np.int64), fresh(len(text), np.int64)
        text_loops.index_parts(*text_parts(text), *text_parts(mark), _longs(count), part, low, high)
        found = _made([text, mark, count], from_pieces(text, low, high))
        return null_unless(pa.array(_longs(count) != 0), found) if part else found

    return rule


def _place_in_list(args: Sequence[Any], kind: pa.DataType) -> Any:
    text, lists = columns_of(args)
    out = fresh(len(text), np.int32)
    text_loops.places_in_lists(*text_parts(text), *text_parts(lists), out)
    return with_nulls(out, valid_rows([text, lists]), kind)


def _chosen(args: Sequence[Any], _kind: pa.DataType) -> Any:
    """The n-th of some texts; NULL where there is none."""
    place, *texts = columns_of(args)
    found = pa.nulls(len(place), pa.string())
    for number, text in enumerate(texts, 1):
        found = pc.if_else(pc.fill_null(pc.equal(place, number), False), text, found)
    return found


def _trim(trim: Callable[..., Any]) -> ColumnFunction:
    """Without spaces, or other characters, at one or both ends."""

    def rule(args: Sequence[Any], _kind: pa.DataType) -> Any:
        text, *characters = args
        found = " " if not characters else constant_of(characters[0])
        if found is None:
            return pa.nulls(len(columns_of(args)[0]), pa.string())
        return trim(as_type(text, pa.string()), characters=found) if found else text

    return rule


def _hex(args: Sequence[Any], _kind: pa.DataType) -> Any:
    starts, content = text_buffers(args[0])
    inside = content[int(starts[0]) : int(starts[-1])]
    out = fresh(2 * inside.size, np.uint8)
    text_loops.encode_hex(inside, out)
    ends: Array = 2 * (starts.astype(np.int64) - int(starts[0]))
    return _made(args, built(ends, out))


def _from_hex(args: Sequence[Any], kind: pa.DataType) -> Any:
    text = args[0]
    starts, content = text_buffers(text)
    size = starts.astype(np.int64)
    ends, good = zeros(len(text) + 1, np.int64), fresh(len(text), np.bool_)
    out = fresh(int(((np.diff(size) + 1) // 2).sum()), np.uint8)
    text_loops.decode_hex(starts, content, ends, out, good)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(out)]
    found = pa.Array.from_buffers(pa.large_binary(), len(text), buffers).cast(kind)
    valid = valid_rows(args)
    return null_unless(pa.array(good if valid is None else good & valid), found)


def _like_ignoring_case(args: Sequence[Any], kind: pa.DataType) -> Any:
    text, pattern = columns_of(args)
    return TEXTS["like"]([TEXTS["lower"]([text], pa.string()), TEXTS["lower"]([pattern], pa.string())], kind)


def _matches(args: Sequence[Any], kind: pa.DataType) -> Any:
    pattern = constant_of(args[1])
    if pattern is None:
        return pa.nulls(len(args[0]), kind)
    return pc.match_substring_regex(args[0], matching(pattern))


def _count_matches(args: Sequence[Any], kind: pa.DataType) -> Any:
    return pc.cast(pc.count_substring_regex(args[0], translated(constant_of(args[1]))), kind)


def _replace_matches(args: Sequence[Any], _kind: pa.DataType) -> Any:
    pattern, new = constant_of(args[1]), constant_of(args[2])
    return pc.replace_substring_regex(args[0], translated(pattern), replacement(pattern, new))


def _extract(args: Sequence[Any], _kind: pa.DataType) -> Any:
    """A group of the first match; an empty text where there is no match or the group took no part in it."""
    groups = pc.extract_regex(args[0], extracting(constant_of(args[1]), constant_of(args[2])))
    found = pc.fill_null(pc.struct_field(groups, "found"), "")
    return _made(args[:1], found)


def _bytes_in(args: Sequence[Any], kind: pa.DataType) -> Any:
    return pc.cast(pc.binary_length(args[0]), kind)


FUNCTIONS: dict[str, ColumnFunction] = {
    "trim": _trim(pc.utf8_trim),
    "ltrim": _trim(pc.utf8_ltrim),
    "rtrim": _trim(pc.utf8_rtrim),
    "lpad": _pad(True),
    "rpad": _pad(False),
    "repeat": _repeat,
    "space": _space,
    "locate": _locate,
    "right": _right,
    "overlay": _overlay,
    "ascii": _first_code,
    "char": _character,
    "initcap": _initial_capitals,
    "concat_ws": _concat_with,
    "translate": _translate,
    "substring_index": _part_of(False),
    "split_part": _part_of(True),
    "find_in_set": _place_in_list,
    "elt": _chosen,
    "octet_length": _bytes_in,
    "bit_length": lambda args, kind: pc.multiply(_bytes_in(args, kind), pa.scalar(8, kind)),
    "hex": _hex,
    "unhex": _from_hex,
    "ilike": _like_ignoring_case,
    "rlike": _matches,
    "regexp_count": _count_matches,
    "regexp_replace": _replace_matches,
    "regexp_extract": _extract,
}
