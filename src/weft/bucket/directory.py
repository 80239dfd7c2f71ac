"""Directories, which lead from a key to the few neighbouring rows that may hold it, without a search.

Guarantees: slot s of a directory covers rows starts[s] to starts[s + 1] of its order, and a key's slot depends on
nothing but the key and the directory. A directory has one slot for one to two rows, so that a probe looks at one cache
line of it and one of the keys.

In a directory for equality, slots are equal ranges of hashes, from the one of the least hash on (`HashSlots`): so rows
whose hashes fill a small part of all have as fine a directory as others. In a directory by value, the slot is the
word's distance from the least word, linearly scaled; that is monotonous for every distribution of values, so skew makes
slots longer, never wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.bucket.compiled import Array, Bytes, Integer, Ints, compiled, inner
from weft.bucket.memory import fresh, zeros

__all__ = ["HashSlots", "hash_tags", "slot_bits", "value_scale", "value_slot", "value_starts"]

_LOWER = np.int64(2**63 - 1)
_LARGEST = np.finfo(np.float64).max


def slot_bits(rows: int) -> int:
    """How many bits number the slots of a directory of so many rows: one slot for one to two of them."""
    return min(30, max(1, (rows - 1).bit_length() - 1)) if rows > 0 else 1


@dataclass(frozen=True, slots=True)
class HashSlots:
    """The slots of a directory for equality: a hash shifted by ``shift`` is in a slot, the first of them ``first``.

    >>> HashSlots.between(8, 0, (1 << 64) - 1)
    HashSlots(shift=62, first=0, count=4)
    """

    shift: int
    first: int
    count: int

    @classmethod
    def between(cls, rows: int, least: int, greatest: int) -> HashSlots:
        """Slots for so many rows with hashes from the least to the greatest."""
        wanted = 3 << slot_bits(rows) >> 1
        shift = max(8, ((greatest - least) // wanted).bit_length())
        first = least >> shift
        return cls(shift, first, (greatest >> shift) - first + 1)

    @property
    def finer(self) -> HashSlots:
        """The same range in twice as many slots."""
        return HashSlots(self.shift - 1, 2 * self.first, 2 * self.count)


def hash_tags(hashes: NDArray[np.uint64], shift: int) -> Bytes:
    """The 8 bits of the hash below its slot, for every row of a permutation.

    They rule out most rows of a slot that have another key, without following the permutation to the key.
    """
    out = fresh(hashes.size, np.uint8)
    _tags(hashes, np.uint64(shift - 8), out)
    return out


@compiled
def _tags(hashes: NDArray[np.uint64], shift: np.uint64, out: Bytes) -> None:
    for i in range(hashes.size):
        out[i] = np.uint8(hashes[i] >> shift)


@inner
def _reveal(word: Any, floats: bool) -> Any:
    """A word as the number it stands for; rounded where that needs more than 53 bits, which keeps the order."""
    if not floats:
        return np.float64(word)
    bits = np.int64(word) ^ ((np.int64(word) >> 63) & _LOWER)
    return np.int64(bits).view(np.float64)


@inner
def value_slot(word: Any, origin: float, scale: float, slots: Integer, floats: bool) -> Any:
    """The slot of a word in a directory by value; infinities and NaN go to the ends."""
    place = (_reveal(word, floats) - origin) * scale
    place = place if place < slots - 1 else np.float64(slots - 1)  # NaN too, as it is not less
    return np.int64(place if place > 0 else np.float64(0))


@compiled
def value_scale(words: Array, order: Ints, slots: int, floats: bool) -> tuple[float, float]:
    """(origin, scale) for words in ascending order: those of the first and the last finite one.

    The scale is never 0: an infinity times 0 is NaN, and that would put the least value behind the greatest.
    """
    low, high = 0, order.size - 1
    while low < order.size and not np.isfinite(_reveal(words[order[low]], floats)):
        low += 1
    while high > low and not np.isfinite(_reveal(words[order[high]], floats)):
        high -= 1
    if high < low:
        return 0.0, 1.0
    origin = _reveal(words[order[low]], floats)
    span = _reveal(words[order[high]], floats) - origin
    if not span < np.inf:
        return 0.0, slots / _LARGEST
    return origin, (slots / span if span > 0 else 1.0)


def value_starts(words: Array, order: Ints, bits: int, origin: float, scale: float, floats: bool) -> Ints:
    """Where each slot starts, for words in ascending order."""
    starts = zeros((1 << bits) + 1, np.int32)
    _value_starts(words, order, origin, scale, floats, starts)
    return starts


@compiled
def _value_starts(words: Array, order: Ints, origin: float, scale: float, floats: bool, starts: Ints) -> None:
    slots = starts.size - 1
    for row in order:
        starts[value_slot(words[row], origin, scale, slots, floats) + 1] += 1
    for slot in range(slots):
        starts[slot + 1] += starts[slot]
