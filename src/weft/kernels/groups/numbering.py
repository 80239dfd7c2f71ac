"""Which rows are of one group.

Guarantees: two rows are of one group iff their keys are equal as in Spark: NULL is a group of its own, NaN equals NaN
and 0.0 equals -0.0. Keys are compared themselves, so two groups whose hashes are equal stay two. A hash is the same in
every process, since it decides in which partition a group is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.compiled import Longs
from weft.bucket.words import flatten, key_words

__all__ = ["Groups", "group_hashes", "normal_key", "number_groups"]

_NULL = np.int64(0x5BD1E995)  # stands for NULL in a hash
_FACTOR = np.int64(0x2545F4914F6CDD1D)


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The number of every row's group, from 0 on, and of each group the first of its rows."""

    ids: Longs
    firsts: Longs

    @property
    def count(self) -> int:
        """How many groups there are."""
        return int(self.firsts.size)


def normal_key(values: Any) -> Any:
    """A column of keys in which equal values have equal bits."""
    values = flatten(values)
    if not pa.types.is_floating(values.type):
        return values
    zeros = pc.add(values, pa.scalar(0.0, values.type))  # -0.0 becomes 0.0
    return pc.if_else(pc.is_nan(zeros), pa.scalar(float("nan"), values.type), zeros)


def number_groups(keys: Sequence[Any], rows: int) -> Groups:
    """The groups of rows whose keys are in normal form; without keys, all rows are one group."""
    ids: Longs = np.zeros(rows, np.int64)
    if not rows:
        return Groups(ids, np.zeros(0, np.int64))
    for place, values in enumerate(keys):
        codes = _codes(values)
        ids = codes if not place else _codes(pa.array(ids * (codes.max() + 1) + codes))
    firsts = np.full(int(ids.max()) + 1, rows, np.int64)
    np.minimum.at(firsts, ids, np.arange(rows))
    return Groups(ids, firsts)


def _codes(values: Any) -> Longs:
    """A number for every value, from 0 on, which equal values have in common."""
    words = key_words([values])
    if words.exact:
        values = pa.array(words.values, mask=None if words.valid is None else ~words.valid)
    encoded = values.dictionary_encode(null_encoding="encode")
    found: Longs = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def group_hashes(keys: Sequence[Any], rows: int) -> Longs:
    """A hash of every row's keys, which are in normal form."""
    found: Longs = np.zeros(rows, np.int64)
    for values in keys:
        words = key_words([values])
        own = words.values if words.valid is None else np.where(words.valid, words.values, _NULL)
        with np.errstate(over="ignore"):
            found = (found ^ (found >> 29)) * _FACTOR + own.astype(np.int64)
    return found
