"""The most frequent values of a column, from a sample of it.

Guarantees: the result depends on the column and the seed alone, and no Python runs per row. Rows are drawn at random,
since rows at equal distances may all have one value, as from a generator that gives out its keys in turn. NULL is not
counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.words import Column, flatten

__all__ = ["frequent"]


def frequent(column: Column, sample: int, most: int, seed: int) -> tuple[int, list[tuple[Any, int]]]:
    """How many values were sampled, and the most frequent of them with their counts, the commonest first.

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
    if numbers.size > most:  # only the most frequent values need to be sorted
        first = np.argpartition(-numbers, most)[:most]
        values, numbers = values.take(pa.array(first)), numbers[first]
    pairs = zip(values.to_pylist(), numbers.tolist(), strict=True)
    return len(array), sorted(pairs, key=lambda pair: (-pair[1], str(pair[0])))
