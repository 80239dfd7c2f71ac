"""The most frequent values of a column, from a sample of it.

Guarantees: whole columns, no loop over rows; a function of the column and the seed. Rows are drawn at random, since
those at equal distances may all have one value (a generator that deals its keys out in turn). NULL is not counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.words import Column, flatten

__all__ = ["frequent"]


def frequent(column: Column, sample: int, most: int, seed: int) -> tuple[int, list[tuple[Any, int]]]:
    """How many values were looked at, and those of them that came most often, the commonest first.

    >>> frequent(pa.array([7, 8, 7, None, 7]), 10, 1, 0)
    (4, [(7, 3)])
    """
    array = flatten(column)
    if len(array) > sample:
        array = array.take(pa.array(np.random.default_rng(seed).integers(0, len(array), sample)))
    array = array.drop_null()
    counted = pc.value_counts(array)
    values, counts = counted.field("values"), counted.field("counts")
    numbers = counts.to_numpy()
    if numbers.size > most:  # only these need to be put in order
        first = np.argpartition(-numbers, most)[:most]
        values, numbers = values.take(pa.array(first)), numbers[first]
    pairs = zip(values.to_pylist(), numbers.tolist(), strict=True)
    return len(array), sorted(pairs, key=lambda pair: (-pair[1], str(pair[0])))
