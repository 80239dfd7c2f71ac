"""Sums that do not depend on the order in which values are added, nor on how they were split before.

Guarantees: whole numbers and decimals are summed exactly, as limbs of 32 bits with room for carries. Floats are summed
as digits of a fixed place value: a float of 53 bits is cut at multiples of `WIDTH` bits, counted from one origin for
all floats, and what stands at one place is added up as whole numbers. Of the places, the highest of a group and the
three below it are kept; they follow from the largest value of the group alone. So the digits that are kept in the end
are the same sums of the same parts in whatever order values came, and more exact than any order of additions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.bucket.compiled import Floats, Longs

__all__ = [
    "DIGITS",
    "LIMBS",
    "MOST_FLOATS",
    "FloatSums",
    "carried",
    "float_digits",
    "limbs_of",
    "merged_digits",
    "summed",
]

WIDTH = 28  # bits of a digit
MOST_FLOATS = 1 << 34  # how many values can be added before a digit overflows
DIGITS = 4
LIMBS = {"whole": 2, "decimal": 4}  # how many limbs of 32 bits there are
_ORIGIN = 1120  # added to exponents, so that places are positive
_LOW = np.int64((1 << 32) - 1)
_DIGIT = np.int64((1 << WIDTH) - 1)
_32 = np.int64(32)

NAN, PLUS, MINUS = 1, 2, 4  # what a group may have beside finite values


def summed(values: Longs, ids: Longs, groups: int) -> Longs:
    """The sum of each group's whole numbers."""
    found = np.zeros(groups, np.int64)
    np.add.at(found, ids, values)
    return found


def limbs_of(halves: NDArray[np.int64]) -> list[Longs]:
    """Whole numbers of 64 or 128 bits, their low half first, as limbs; only the last limb has a sign."""
    found: list[Longs] = []
    last = halves.shape[1] - 1
    for place in range(halves.shape[1]):
        half = halves[:, place]
        low, high = half & _LOW, half >> _32
        found += [low, high if place == last else high & _LOW]
    return found


def carried(limbs: list[Longs]) -> list[Longs]:
    """The same numbers with every limb but the last between 0 and 2**32."""
    found, carry = [], np.zeros_like(limbs[0])
    for limb in limbs[:-1]:
        total = limb + carry
        found.append(total & _LOW)
        carry = total >> _32
    return [*found, limbs[-1] + carry]


class FloatSums(NamedTuple):
    """Sums of floats: the highest place, the digits from there downwards, and what is not finite (``odd``)."""

    top: Longs
    digits: tuple[Longs, ...]
    odd: Longs

    def values(self) -> Floats:
        """The sums as floats, rounded."""
        digits, carry = list(self.digits), np.zeros_like(self.top)
        for place in range(DIGITS - 1, 0, -1):
            total = digits[place] + carry
            digits[place] = total & _DIGIT
            carry = total >> np.int64(WIDTH)
        digits[0] = digits[0] + carry
        found: Floats = np.zeros(self.top.size)
        for place in range(DIGITS - 1, -1, -1):
            exponent = (self.top - place) * WIDTH - _ORIGIN
            found += _scaled(digits[place], exponent)
        return self._with_odd(found)

    def _with_odd(self, found: Floats) -> Floats:
        found = np.where(self.odd & PLUS, np.inf, found)
        found = np.where(self.odd & MINUS, -np.inf, found)
        neither = (self.odd & NAN) | ((self.odd & PLUS) & ((self.odd & MINUS) >> 1))
        return np.where(neither, np.nan, found)


def _scaled(digits: Longs, exponents: Longs) -> Floats:
    """Digits times powers of two, which may be too small for a float in one step."""
    with np.errstate(over="ignore", under="ignore"):
        found: Floats = np.ldexp(digits.astype(np.float64), exponents.astype(np.int32))
    return found


def float_digits(values: Floats) -> FloatSums:
    """Every float as a sum of its own."""
    odd = np.where(np.isnan(values), NAN, np.where(np.isinf(values), np.where(values > 0, PLUS, MINUS), 0))
    mantissas, exponents = np.frexp(np.where(odd != 0, 0.0, values))
    whole = (np.abs(mantissas) * 2.0**53).astype(np.int64)
    sign = np.where(mantissas < 0, np.int64(-1), np.int64(1))
    place = exponents.astype(np.int64) - 53 + _ORIGIN
    low, shift = place // WIDTH, place % WIDTH
    below = whole & ((np.int64(1) << (WIDTH - shift)) - 1)
    rest = whole >> (WIDTH - shift)
    parts = [sign * (below << shift), sign * (rest & _DIGIT), sign * (rest >> np.int64(WIDTH))]
    top = np.where(whole == 0, np.int64(0), (place + 52) // WIDTH)
    ahead = top - low  # 1 or 2: how many places the highest part is above the lowest
    digits = tuple(
        np.where(ahead == 2, _part(parts, 2 - j), np.where(ahead == 1, _part(parts, 1 - j), np.int64(0)))
        for j in range(DIGITS)
    )
    return FloatSums(top, digits, odd.astype(np.int64))


def _part(parts: list[Longs], place: int) -> Any:
    return parts[place] if 0 <= place < len(parts) else np.int64(0)


def merged_digits(sums: FloatSums, ids: Longs, groups: int) -> FloatSums:
    """The sum of each group's sums."""
    top = np.zeros(groups, np.int64)
    np.maximum.at(top, ids, sums.top)
    odd = np.zeros(groups, np.int64)
    np.bitwise_or.at(odd, ids, sums.odd)
    below = top[ids] - sums.top  # how many places a sum is below that of its group
    digits = []
    for place in range(DIGITS):
        own = np.zeros_like(below)
        for source in range(place + 1):
            own = np.where(below == place - source, sums.digits[source], own)
        digits.append(summed(own, ids, groups))
    return FloatSums(top, tuple(digits), odd)
