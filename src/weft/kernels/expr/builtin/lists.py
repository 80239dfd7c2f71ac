"""Functions of lists, computed on the flat column of all elements.

Guarantees: as in Spark, NaN is equal to NaN and greater than all other numbers, and 0.0 is equal to -0.0. No list is
looked at alone: an element is known by its row (`_Flat`), values are compared by codes that equal ones share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.compiled import Longs, Mask
from weft.kernels.expr.datum import (
    ColumnFunction,
    columns_of,
    constant_of,
    null_unless,
    numbers,
    valid_rows,
    with_nulls,
)
from weft.kernels.expr.texts import FUNCTIONS as TEXTS
from weft.logical.expr.builtin.patterns import translated

__all__ = ["FUNCTIONS"]


@dataclass(frozen=True, slots=True)
class _Flat:
    """The elements of a column of lists: their values, the rows that they are in, and how many each row has."""

    values: Any
    rows: Longs
    sizes: Longs

    @property
    def first(self) -> Longs:
        """Where the elements of each row begin."""
        begin: Longs = np.cumsum(self.sizes) - self.sizes
        return begin

    @property
    def places(self) -> Longs:
        """Where each element stands in its list, from 0."""
        found: Longs = np.arange(self.rows.size) - self.first[self.rows]
        return found

    def only(self, chosen: Any) -> _Flat:
        """Some elements, by their numbers, which must be sorted by row, or by a mask."""
        index = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        rows = self.rows[index]
        return _Flat(self.values.take(pa.array(index)), rows, np.bincount(rows, minlength=self.sizes.size))

    def built(self, kind: pa.DataType, valid: Mask | None) -> Any:
        """The lists again; NULL where not valid, where there must be no elements."""
        offsets = np.concatenate(([0], np.cumsum(self.sizes))).astype(np.int32)
        mask = None if valid is None else pa.array(~valid)
        return pa.ListArray.from_arrays(
            pa.array(offsets), self.values.cast(kind.value_type), type=kind, mask=mask
        )


def _flat(lists: Any, valid: Mask | None = None) -> _Flat:
    """The elements of lists that are not NULL, and of valid rows."""
    offsets = lists.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    there = numbers(lists.is_valid()) if valid is None else numbers(lists.is_valid()) & valid
    sizes = np.where(there, np.diff(offsets), 0)
    rows = np.repeat(np.arange(sizes.size), sizes)
    index = np.arange(rows.size) - (np.cumsum(sizes) - sizes)[rows] + offsets[:-1][rows]
    return _Flat(lists.values.take(pa.array(index)), rows, sizes)


def _chained(parts: Sequence[_Flat]) -> _Flat:
    """The elements of several columns of lists, row by row one after the other."""
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows, kind="stable")
    kind = parts[0].values.type
    values = pa.concat_arrays([part.values.cast(kind) for part in parts]).take(pa.array(order))
    return _Flat(values, rows[order], np.sum([part.sizes for part in parts], axis=0))


def _codes(*columns: Any) -> list[Longs]:
    """Numbers that equal values share, from 0; that of NULL is -1."""
    whole = pa.concat_arrays([column.cast(columns[0].type) for column in columns])
    if pa.types.is_floating(whole.type):
        whole = pc.add(whole, pa.scalar(0.0, whole.type))  # -0.0 becomes 0.0
    indices = whole.dictionary_encode().indices
    codes = pc.fill_null(indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.split(codes, np.cumsum([len(column) for column in columns])[:-1])


def _both_valid(args: Sequence[Any]) -> Mask:
    valid = valid_rows(args)
    return np.ones(len(args[0]), np.bool_) if valid is None else valid


def _size(args: Sequence[Any], kind: pa.DataType) -> Any:
    offsets = args[0].offsets.to_numpy(zero_copy_only=False)
    return with_nulls(np.diff(offsets), valid_rows(args), kind)


def _element_at(args: Sequence[Any], _kind: pa.DataType) -> Any:
    lists, wanted = columns_of(args)
    valid = _both_valid([lists, wanted])
    flat, place = _flat(lists, valid), numbers(wanted).astype(np.int64)
    size = flat.sizes
    place = np.where(place < 0, size + place, place - 1)
    there = valid & (place >= 0) & (place < size) & (numbers(wanted) != 0)
    return flat.values.take(pa.array(np.where(there, flat.first + place, 0), mask=~there))


def _matches(args: Sequence[Any]) -> tuple[_Flat, Mask, Mask]:
    """The elements, which of them are equal to the value of their row, and which rows have a list and a value."""
    lists, value = columns_of(args)
    valid = _both_valid([lists, value])
    flat = _flat(lists, valid)
    mine, other = _codes(flat.values, value)
    return flat, (mine == other[flat.rows]) & (mine >= 0), valid


def _any(flat: _Flat, chosen: Mask) -> Mask:
    """In which rows an element is chosen."""
    found: Mask = np.bincount(flat.rows[chosen], minlength=flat.sizes.size) > 0
    return found


def _contains(args: Sequence[Any], kind: pa.DataType) -> Any:
    flat, same, valid = _matches(args)
    found = _any(flat, same)
    return with_nulls(found, valid & (found | ~_any(flat, numbers(flat.values.is_null()))), kind)


def _position(args: Sequence[Any], kind: pa.DataType) -> Any:
    flat, same, valid = _matches(args)
    found = np.zeros(flat.sizes.size, np.int64)
    hits = np.flatnonzero(same)[::-1]  # the first one is written last
    found[flat.rows[hits]] = flat.places[hits] + 1
    return with_nulls(found, valid, kind)


def _remove(args: Sequence[Any], kind: pa.DataType) -> Any:
    flat, same, valid = _matches(args)
    return flat.only(~same).built(kind, valid)


def _with_value(last: bool) -> ColumnFunction:
    def rule(args: Sequence[Any], kind: pa.DataType) -> Any:
        lists, value = columns_of(args)
        valid = _both_valid([lists])
        rows = np.flatnonzero(valid)
        one = _Flat(value.take(pa.array(rows)), rows, valid.astype(np.int64))
        parts = [_flat(lists), one] if last else [one, _flat(lists)]
        return _chained(parts).built(kind, valid)

    return rule


def _compact(args: Sequence[Any], kind: pa.DataType) -> Any:
    flat = _flat(args[0])
    return flat.only(numbers(flat.values.is_valid())).built(kind, valid_rows(args))


def _once(flat: _Flat) -> _Flat:
    """Every value of a list once, where it first stands; NULL is a value."""
    (codes,) = _codes(flat.values)
    _, first = np.unique(flat.rows * (codes.size + 1) + codes + 1, return_index=True)
    return flat.only(np.sort(first))


def _distinct(args: Sequence[Any], kind: pa.DataType) -> Any:
    return _once(_flat(args[0])).built(kind, valid_rows(args))


def _sorted(flat: _Flat, nulls_first: bool) -> _Flat:
    """Lists in order; NaN is the greatest number."""
    keys = {"row": pa.array(flat.rows), "null": flat.values.is_null(), "value": flat.values}
    by = [
        ("row", "ascending"),
        ("null", "descending" if nulls_first else "ascending"),
        ("value", "ascending"),
    ]
    index = pc.sort_indices(pa.table(keys), sort_keys=by)
    return _Flat(flat.values.take(index), flat.rows, flat.sizes)


def _turned(flat: _Flat) -> _Flat:
    """Lists backwards."""
    index = flat.first[flat.rows] + flat.sizes[flat.rows] - 1 - flat.places
    return _Flat(flat.values.take(pa.array(index)), flat.rows, flat.sizes)


def _sort(args: Sequence[Any], kind: pa.DataType) -> Any:
    upwards = len(args) < 2 or constant_of(args[1])
    if upwards is None:
        return pa.nulls(len(args[0]), kind)
    found = _sorted(_flat(args[0]), nulls_first=True)
    return (found if upwards else _turned(found)).built(kind, valid_rows(args[:1]))


def _sort_nulls_last(args: Sequence[Any], kind: pa.DataType) -> Any:
    return _sorted(_flat(args[0]), nulls_first=False).built(kind, valid_rows(args))


def _extreme(greatest: bool) -> ColumnFunction:
    def rule(args: Sequence[Any], _kind: pa.DataType) -> Any:
        flat = _flat(args[0])
        known = _sorted(flat.only(numbers(flat.values.is_valid())), nulls_first=False)
        there = known.sizes > 0
        place = known.first + (known.sizes - 1 if greatest else 0)
        return known.values.take(pa.array(np.where(there, place, 0), mask=~there))

    return rule


def _slice(args: Sequence[Any], kind: pa.DataType) -> Any:
    """A part of each list; NULL where it would begin at no place, or have less than no elements."""
    lists, start, count = columns_of(args)
    first, size = numbers(start).astype(np.int64), numbers(count).astype(np.int64)
    valid = _both_valid([lists, start, count]) & (first != 0) & (size >= 0)
    flat = _flat(lists, valid)
    begin = np.where(first < 0, flat.sizes + first, first - 1)
    low, high = begin[flat.rows], (begin + np.minimum(size, 2**31))[flat.rows]
    chosen = (flat.places >= low) & (flat.places < high) & (low >= 0)
    return flat.only(chosen).built(kind, valid)


def _join(args: Sequence[Any], _kind: pa.DataType) -> Any:
    lists, between, *instead = columns_of(args)
    valid = _both_valid([lists, between, *instead])
    flat = _flat(lists, valid)
    if instead:
        flat = _Flat(pc.fill_null(flat.values, constant_of(instead[0]) or ""), flat.rows, flat.sizes)
    else:
        flat = flat.only(numbers(flat.values.is_valid()))
    texts = pc.binary_join(flat.built(pa.list_(pa.string()), None), pc.fill_null(between, ""))
    return null_unless(pa.array(valid), texts)


def _overlap(args: Sequence[Any], kind: pa.DataType) -> Any:
    """Whether lists share a value; NULL where they do not, both have elements and one of them has a NULL."""
    flats, valid, common = _shared(args)
    found = _any(flats[0], common)
    null = _any(flats[0], numbers(flats[0].values.is_null())) | _any(
        flats[1], numbers(flats[1].values.is_null())
    )
    unknown = null & (flats[0].sizes > 0) & (flats[1].sizes > 0)
    return with_nulls(found, valid & (found | ~unknown), kind)


def _shared(args: Sequence[Any], nulls: bool = False) -> tuple[list[_Flat], Mask, Mask]:
    """Two columns of lists, the valid rows, and which elements of the first are in the second, NULLs if asked for."""
    lists = columns_of(args)
    valid = _both_valid(lists)
    flats = [_flat(one, valid) for one in lists]
    codes = _codes(*(flat.values for flat in flats))
    width = sum(len(code) for code in codes) + 1
    keys = [flat.rows * width + code + 1 for flat, code in zip(flats, codes, strict=True)]
    return flats, valid, np.isin(keys[0], keys[1]) & ((codes[0] >= 0) | nulls)


def _union(args: Sequence[Any], kind: pa.DataType) -> Any:
    lists = columns_of(args)
    valid = _both_valid(lists)
    return _once(_chained([_flat(one, valid) for one in lists])).built(kind, valid)


def _chosen(common: bool) -> ColumnFunction:
    """What two lists share, or what only the first has."""

    def rule(args: Sequence[Any], kind: pa.DataType) -> Any:
        flats, valid, shared = _shared(args, nulls=True)
        return _once(flats[0].only(shared if common else ~shared)).built(kind, valid)

    return rule


def _flatten(args: Sequence[Any], kind: pa.DataType) -> Any:
    outer = _flat(args[0])
    valid = _both_valid(args) & ~_any(outer, numbers(outer.values.is_null()))
    outer = _flat(args[0], valid)
    inner = _flat(outer.values)
    rows = outer.rows[inner.rows]
    return _Flat(inner.values, rows, np.bincount(rows, minlength=valid.size)).built(kind, valid)


def _split(args: Sequence[Any], kind: pa.DataType) -> Any:
    pattern, limit = translated(constant_of(args[1])), constant_of(args[2])
    return pc.split_pattern_regex(args[0], pattern, max_splits=limit - 1 if limit > 0 else -1).cast(kind)


def _concat(args: Sequence[Any], kind: pa.DataType) -> Any:
    if not pa.types.is_list(kind):
        return TEXTS["concat"](args, kind)
    lists = columns_of(args)
    valid = _both_valid(lists)
    return _chained([_flat(one, valid) for one in lists]).built(kind, valid)


def _reverse(args: Sequence[Any], kind: pa.DataType) -> Any:
    if not pa.types.is_list(kind):
        return TEXTS["reverse"](args, kind)
    return _turned(_flat(args[0])).built(kind, valid_rows(args))


FUNCTIONS: Mapping[str, ColumnFunction] = {
    "split": _split,
    "size": _size,
    "element_at": _element_at,
    "array_contains": _contains,
    "array_position": _position,
    "array_remove": _remove,
    "array_append": _with_value(True),
    "array_prepend": _with_value(False),
    "array_compact": _compact,
    "array_distinct": _distinct,
    "array_max": _extreme(True),
    "array_min": _extreme(False),
    "sort_array": _sort,
    "array_sort": _sort_nulls_last,
    "slice": _slice,
    "array_join": _join,
    "arrays_overlap": _overlap,
    "array_union": _union,
    "array_intersect": _chosen(True),
    "array_except": _chosen(False),
    "flatten": _flatten,
    "concat": _concat,
    "reverse": _reverse,
}
