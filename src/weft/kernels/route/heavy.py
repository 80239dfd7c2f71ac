"""Which tuples have a heavy value of a key, and where these are stored.

Guarantees: a value is heavy if its word (`bucket/words.py`) is that of a heavy value, so senders and stores agree
whatever the width of their columns; a text with the same hash as a heavy one counts as heavy everywhere. NULL is never
heavy. Heavy tuples are dealt to partitions one by one, beginning with a partition that is given, so that dealing the
same batch again gives the same partitions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from weft.bucket.compiled import Ints, Longs, Mask
from weft.bucket.words import Column, key_words
from weft.kernels.expr.arrow import arrow_type
from weft.logical.expr.expression import Literal

__all__ = ["deal_rows", "heavy_rows", "heavy_words"]


def heavy_words(literals: Sequence[Literal]) -> Longs:
    """The words of heavy values, all of one type."""
    if not literals:
        return np.zeros(0, np.int64)
    values = pa.array([literal.value for literal in literals], arrow_type(literals[0].type))
    found: Longs = np.sort(key_words([values]).values.astype(np.int64))
    return found


def heavy_rows(column: Column, words: Longs) -> Mask:
    """Which rows have one of these values."""
    found = key_words([column])
    mask: Mask = np.isin(found.values, words)
    return mask if found.valid is None else mask & found.valid


def deal_rows(partition: Ints, rows: Mask, count: int, first: int) -> Ints:
    """The partition of every row, after those of the mask have been dealt to all partitions in turn."""
    places = partition.copy()
    places[rows] = (np.arange(np.count_nonzero(rows)) + first) % count
    return places
