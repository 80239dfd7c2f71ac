"""Arrow columns as the kernels take them: some of their rows, or their values as numbers.

Guarantees: for columns of 64-bit values without NULLs there are short cuts that neither check nor copy needlessly; all
other columns go through Arrow's own functions.
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
