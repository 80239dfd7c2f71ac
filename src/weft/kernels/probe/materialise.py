"""Columns gathered by row numbers, once all matches are known (design, D9).

Guarantees: `stored_column` copies exactly the column asked for, once, in the order of the matches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import Bucket, column
from weft.bucket.columns import taken
from weft.bucket.memory import copy, fresh
from weft.bucket.words import from_words, is_plain, plain_words
from weft.errors import StateError
from weft.kernels.probe.ranges import Matches

__all__ = ["stored_column"]


def stored_column(matches: Matches, runs: Sequence[Bucket], name: str) -> Any:
    """A column of the stored rows, for every match."""
    if not runs:
        raise StateError("without runs there are no columns to gather", hint="there is no match either")
    columns = [column(run.batch, name) for run in runs]
    if all(map(is_plain, columns)):
        out = fresh(len(matches), np.int64)
        for number, values in enumerate(columns):
            _, rows = matches.of_run(number)
            copy(plain_words(values), rows, out[matches.splits[number] : matches.splits[number + 1]])
        return from_words(out, columns[0].type)
    parts: list[Any] = []
    for number, values in enumerate(columns):
        _, rows = matches.of_run(number)
        if rows.size or not parts:
            parts.append(taken(values, rows))
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
