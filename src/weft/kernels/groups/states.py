"""The partial states of aggregates: columns that are made of rows, merged, and turned into values.

Guarantees: a state is a function of the bag of values alone, whatever the order in which rows came and states were
merged; so results depend neither on batches nor on partitions. NULL counts for nothing, and an aggregate of no value is
NULL, or 0 for counts, as in Spark. A sum that its type cannot hold is NULL, as everywhere in Weft (`kernels.expr`). Of
floats, NaN is the largest value, and 0.0 and -0.0 are the same.

A state has a few columns, named by the aggregate's name and a suffix. `lift` makes one of every row, `merge` one of
every group's states, and `value` gives the results. No Python runs per row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.columns import longs
from weft.bucket.compiled import Floats, Longs
from weft.bucket.words import decimal_halves, flatten, key_words
from weft.errors import FunctionError, PlanError
from weft.kernels.groups.exact_sums import (
    DIGITS,
    LIMBS,
    MOST_FLOATS,
    FloatSums,
    carried,
    float_digits,
    limbs_of,
    merged_digits,
    summed,
)
from weft.kernels.groups.numbering import Groups, normal_key, number_groups

__all__ = [
    "AggregateState",
    "Columns",
    "Dispersion",
    "Distinct",
    "Extreme",
    "FloatSum",
    "ValueCount",
    "WholeSum",
    "state_of",
]

Columns = dict[str, Any]  # arrays by the suffixes of their names


class AggregateState(Protocol):
    """How an aggregate is computed from states that can be merged."""

    def lift(self, values: Any) -> Columns:
        """The state of every row by itself, given the values that are aggregated."""
        ...

    def merge(self, states: Mapping[str, Any], groups: Groups) -> Columns:
        """The state of every group."""
        ...

    def value(self, states: Mapping[str, Any]) -> Any:
        """The results of states."""
        ...


def _valid(values: Any) -> Longs:
    """1 for every value that is there, 0 for NULL."""
    if not values.null_count:
        return np.ones(len(values), np.int64)
    found: Longs = values.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
    return found


@dataclass(frozen=True, slots=True)
class ValueCount:
    """COUNT of the values that are not NULL."""

    def lift(self, values: Any) -> Columns:
        return {"n": pa.array(_valid(values))}

    def merge(self, states: Mapping[str, Any], groups: Groups) -> Columns:
        return {"n": pa.array(summed(longs(states["n"]), groups.ids, groups.count))}

    def value(self, states: Mapping[str, Any]) -> Any:
        return states["n"]


@dataclass(frozen=True, slots=True)
class WholeSum:
    """SUM of whole numbers or decimals, or the mean of whole numbers; ``type`` is that of the result.

    The mean of decimals is their sum divided by their count, as expressions say it.
    """

    mean: bool
    limbs: int
    type: pa.DataType

    def lift(self, values: Any) -> Columns:
        valid = _valid(values)
        if self.limbs == LIMBS["decimal"]:
            halves = decimal_halves(values).reshape(-1, 2)
        else:
            plain = pc.fill_null(values, 0) if values.null_count else values
            halves = plain.cast(pa.int64()).to_numpy(zero_copy_only=False).reshape(-1, 1)
        found = limbs_of(np.where(valid[:, None] > 0, halves, 0))
        return {"n": pa.array(valid), **self._named(found)}

    def _named(self, limbs: list[Longs]) -> Columns:
        return {f"s{place}": pa.array(limb) for place, limb in enumerate(limbs)}

    def _limbs(self, states: Mapping[str, Any]) -> list[Longs]:
        return [longs(states[f"s{place}"]) for place in range(self.limbs)]

    def merge(self, states: Mapping[str, Any], groups: Groups) -> Columns:
        added = [summed(limb, groups.ids, groups.count) for limb in self._limbs(states)]
        count = summed(longs(states["n"]), groups.ids, groups.count)
        return {"n": pa.array(count), **self._named(carried(added))}

    def value(self, states: Mapping[str, Any]) -> Any:
        limbs, count = self._limbs(states), longs(states["n"])
        if pa.types.is_decimal(self.type):
            return self._decimals(limbs, count)
        if self.mean:
            total = sum(limb.astype(np.float64) * 2.0 ** (32 * place) for place, limb in enumerate(limbs))
            return pa.array(total / np.maximum(count, 1), mask=count == 0)
        fits = limbs[-1] == limbs[-1].astype(np.int32)
        return pa.array((limbs[1] << np.int64(32)) | limbs[0], mask=(count == 0) | ~fits)

    def _decimals(self, limbs: list[Longs], count: Longs) -> Any:
        fits = (limbs[3] == limbs[3].astype(np.int32)) & (count > 0)
        halves = np.stack([limbs[1] << np.int64(32) | limbs[0], limbs[3] << np.int64(32) | limbs[2]], axis=1)
        buffer = pa.py_buffer(np.ascontiguousarray(np.where(fits[:, None], halves, 0)))
        sums = pa.Array.from_buffers(pa.decimal128(38, self.type.scale), count.size, [None, buffer])
        sums = pc.if_else(pa.array(fits), sums, None)
        return _narrowed(sums, self.type)


def _narrowed(values: Any, type_: pa.DataType) -> Any:
    """Decimals of another precision and the same scale; NULL where one has too many digits."""
    limit = pa.scalar(10 ** (type_.precision - type_.scale), pa.decimal256(76, 0))
    wide = values.cast(pa.decimal256(76, type_.scale))
    fits = pc.less(pc.abs(wide), limit.cast(pa.decimal256(76, type_.scale)))
    return pc.if_else(fits, wide, None).cast(type_)


def _floats(values: Any) -> Floats:
    filled = pc.fill_null(values, 0) if values.null_count else values
    found: Floats = filled.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return found


def _digits_named(sums: FloatSums, prefix: str) -> Columns:
    named = {f"{prefix}{place}": pa.array(digit) for place, digit in enumerate(sums.digits)}
    return {f"{prefix}t": pa.array(sums.top), f"{prefix}o": pa.array(sums.odd), **named}


def _digits_of(states: Mapping[str, Any], prefix: str) -> FloatSums:
    digits = tuple(longs(states[f"{prefix}{place}"]) for place in range(DIGITS))
    return FloatSums(longs(states[f"{prefix}t"]), digits, longs(states[f"{prefix}o"]))


@dataclass(frozen=True, slots=True)
class FloatSum:
    """SUM or AVG of floats."""

    mean: bool

    def lift(self, values: Any) -> Columns:
        return {"n": pa.array(_valid(values)), **_digits_named(float_digits(_floats(values)), "f")}

    def merge(self, states: Mapping[str, Any], groups: Groups) -> Columns:
        count = _count_of_floats(states, groups)
        sums = merged_digits(_digits_of(states, "f"), groups.ids, groups.count)
        return {"n": pa.array(count), **_digits_named(sums, "f")}

    def value(self, states: Mapping[str, Any]) -> Any:
        count, total = longs(states["n"]), _digits_of(states, "f").values()
        return pa.array(total / np.maximum(count, 1) if self.mean else total, mask=count == 0)


@dataclass(frozen=True, slots=True)
class Dispersion:
    """VARIANCE and STDDEV, of a sample or of all values, from the sums of values and of their squares.

    A square is kept as two floats that add up to it exactly, and the difference of the two sums is taken in twice the
    precision of a float; so the spread of values that are large beside it is not lost.
    """

    root: bool
    sample: bool

    def lift(self, values: Any) -> Columns:
        valid, floats = _valid(values), _floats(values)
        with np.errstate(over="ignore", invalid="ignore"):
            high, low = _squares(floats)
        named = {**_digits_named(float_digits(floats), "f"), **_digits_named(float_digits(high), "h")}
        return {"n": pa.array(valid), **named, **_digits_named(float_digits(low), "l")}

    def merge(self, states: Mapping[str, Any], groups: Groups) -> Columns:
        found: Columns = {"n": pa.array(_count_of_floats(states, groups))}
        for prefix in "fhl":
            sums = merged_digits(_digits_of(states, prefix), groups.ids, groups.count)
            found |= _digits_named(sums, prefix)
        return found

    def value(self, states: Mapping[str, Any]) -> Any:
        count = longs(states["n"])
        total, high, low = (_digits_of(states, prefix).values() for prefix in "fhl")
        n = np.maximum(count, 1).astype(np.float64)
        with np.errstate(all="ignore"):
            square, rest = _squares(total)
            mean = square / n
            product, error = _product(mean, n)
            left = ((square - product) - error + rest) / n
            found = np.maximum((high - mean) + (low - left), 0.0) + 0.0 * total
            found = found / (n - 1 if self.sample else n)
        found = np.sqrt(found) if self.root else found
        return pa.array(found, mask=(count == 0) | (self.sample & (count == 1)))


def _count_of_floats(states: Mapping[str, Any], groups: Groups) -> Longs:
    """How many values each group has; an error where their digits may have overflowed."""
    count = summed(longs(states["n"]), groups.ids, groups.count)
    if count.size and count.max() > MOST_FLOATS:
        raise FunctionError(
            f"a sum over {count.max():,} floats, of which a group may have {MOST_FLOATS:,}",
            hint="cast them to DECIMAL, or give the groups one more key",
        )
    return count


def _squares(values: Floats) -> tuple[Floats, Floats]:
    """The squares of floats as two floats each, which add up to them."""
    return _product(values, values)


def _product(one: Floats, other: Floats) -> tuple[Floats, Floats]:
    high = one * other
    a, b = _halves(one)
    c, d = _halves(other)
    low = ((a * c - high) + a * d + b * c) + b * d
    return high, np.where(np.isfinite(high) & np.isfinite(low), low, 0.0)


def _halves(values: Floats) -> tuple[Floats, Floats]:
    """Floats as sums of two with half of the digits each (Dekker)."""
    shifted = values * 134217729.0
    high = shifted - (shifted - values)
    return high, values - high


@dataclass(frozen=True, slots=True)
class Extreme:
    """MIN and MAX, and a value of which any is right."""

    largest: bool

    def lift(self, values: Any) -> Columns:
        return {"v": normal_key(values)}

    def merge(self, states: Mapping[str, Any], groups: Groups) -> Columns:
        values = states["v"]
        rows = np.flatnonzero(_valid(values))
        ids = groups.ids[rows]
        best = np.full(groups.count, -1, np.int64)
        best[ids] = self._best(values.take(pa.array(rows)), ids, groups.count)[ids]
        places = pa.array(np.where(best < 0, 0, rows[best] if rows.size else 0), mask=best < 0)
        return {"v": values.take(places)}

    def _best(self, values: Any, ids: Longs, groups: int) -> Longs:
        """The place of the best value of each group; of values that are not NULL."""
        order = "descending" if self.largest else "ascending"
        by = {"g": ids, "v": values}
        if pa.types.is_floating(values.type):  # Arrow has NaN last in both orders
            by = {"g": ids, "nan": values.is_nan(), "v": values}
        orders = [(name, "ascending" if name == "g" else order) for name in by]
        sorted_rows = pc.sort_indices(pa.table(by), orders).to_numpy()
        found = np.full(groups, -1, np.int64)
        if sorted_rows.size:
            by_group = ids[sorted_rows]
            first = np.flatnonzero(np.concatenate([[True], by_group[1:] != by_group[:-1]]))
            found[by_group[first]] = sorted_rows[first]
        return found

    def value(self, states: Mapping[str, Any]) -> Any:
        return states["v"]


@dataclass(frozen=True, slots=True)
class Distinct:
    """COUNT(DISTINCT …): the different values of each group; with ``most``, the least hashes, for estimates."""

    most: int | None = None

    def lift(self, values: Any) -> Columns:
        valid, keys = _valid(values), normal_key(values)
        if self.most is not None:
            hashed = key_words([keys]).values.astype(np.int64)
            keys = pa.array(_mixed(hashed))
        offsets = np.concatenate([[0], np.cumsum(valid)]).astype(np.int32)
        return {"v": pa.ListArray.from_arrays(pa.array(offsets), keys.filter(pa.array(valid > 0)))}

    def merge(self, states: Mapping[str, Any], groups: Groups) -> Columns:
        lists = states["v"]
        values = flatten(lists.flatten())
        ids = groups.ids[lists.value_parent_indices().to_numpy(zero_copy_only=False)]
        different = number_groups([pa.array(ids), values], len(values)).firsts
        kept = different[np.argsort(ids[different], kind="stable")]
        if self.most is not None:
            kept = _least(longs(values), ids, kept, self.most)
        counts = np.bincount(ids[kept], minlength=groups.count)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return {"v": pa.ListArray.from_arrays(pa.array(offsets), values.take(pa.array(kept)))}

    def value(self, states: Mapping[str, Any]) -> Any:
        lists = states["v"]
        counts = lists.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
        if self.most is None:
            return pa.array(counts)
        ends = lists.offsets.to_numpy()[1:] - 1
        hashes = longs(flatten(lists.values))
        largest = hashes[np.maximum(ends, 0)] if hashes.size else np.zeros(counts.size, np.int64)
        estimate = (self.most - 1) / ((largest.astype(np.float64) + 1) / 2.0**63)
        return pa.array(np.where(counts < self.most, counts, np.rint(estimate)).astype(np.int64))


def _mixed(words: Longs) -> Longs:
    """Words spread evenly over the numbers from 0 to 2**63 (the finaliser of MurmurHash3)."""
    found = words.view(np.uint64).copy()
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        found ^= found >> np.uint64(33)
        found *= np.uint64(factor)
    found ^= found >> np.uint64(33)
    spread: Longs = (found >> np.uint64(1)).view(np.int64)
    return spread


def _least(values: Longs, ids: Longs, rows: Longs, most: int) -> Longs:
    """Of some rows, the ``most`` of each group with the least values, in the order of group and value."""
    ordered = rows[np.lexsort((values[rows], ids[rows]))]
    groups = ids[ordered]
    begins = np.concatenate([[True], groups[1:] != groups[:-1]]) if groups.size else np.zeros(0, np.bool_)
    firsts = np.maximum.accumulate(np.where(begins, np.arange(groups.size), 0))
    kept: Longs = ordered[np.arange(groups.size) - firsts < most]
    return kept


_SPREADS = {
    "stddev_samp": Dispersion(root=True, sample=True),
    "stddev_pop": Dispersion(root=True, sample=False),
    "var_samp": Dispersion(root=False, sample=True),
    "var_pop": Dispersion(root=False, sample=False),
}


def state_of(
    function: str, argument: pa.DataType | None, result: pa.DataType, most: int = 0
) -> AggregateState:
    """How an aggregate over values of a type is computed; ``most`` is how many hashes an estimate is made of."""
    if function in _SPREADS:
        return _SPREADS[function]
    if function in ("sum", "avg") and argument is not None:
        if pa.types.is_floating(argument):
            return FloatSum(function == "avg")
        if pa.types.is_decimal(argument):
            return WholeSum(function == "avg", LIMBS["decimal"], result)
        return WholeSum(function == "avg", LIMBS["whole"], result)
    if function in ("min", "max", "any_value"):
        return Extreme(function == "max")
    if function in ("count_distinct", "approx_count_distinct"):
        return Distinct(most if function == "approx_count_distinct" else None)
    if function == "count":
        return ValueCount()
    raise PlanError(f"there is no aggregate {function}")
