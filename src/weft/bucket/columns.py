"""Columns of Arrow as the kernels want them: some of their rows, or their numbers.

Guarantees: values of 64 bits without NULLs are neither copied nor checked on the way; everything else goes through
Arrow's own functions.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.compiled import Ints, Longs
from weft.bucket.memory import take
from weft.bucket.words import from_words, is_plain, key_words, plain_words

__all__ = ["longs", "taken"]


def taken(values: Any, rows: Ints) -> Any:
    """The values at those rows."""
    if is_plain(values):
        return from_words(take(plain_words(values), rows), values.type)
    return pc.take(values, pa.array(rows), boundscheck=False)


def longs(array: Any) -> Longs:
    """A column of times or whole numbers, none of them NULL, without a copy."""
    values: Longs = key_words([array]).values
    return values
