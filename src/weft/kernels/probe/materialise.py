"""Columns from row numbers, at the end (design, D9).

Guarantees: `gather` copies exactly the columns asked for, once, in the order of the matches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import Bucket, column
from weft.bucket.columns import taken
from weft.bucket.memory import copy, fresh
from weft.bucket.words import from_words, is_plain, plain_words
from weft.errors import StateError
from weft.kernels.probe.ranges import Matches

__all__ = ["Names", "gather", "stored_column"]

Names = Mapping[str, str]  # the name of a column in the result ↦ its name in its batch


def gather(
    matches: Matches, probes: pa.RecordBatch, runs: Sequence[Bucket], probe_names: Names, stored_names: Names
) -> pa.RecordBatch:
    """The matches as tuples: columns of the probe tuples, then columns of the stored rows."""
    columns = {name: taken(column(probes, old), matches.probe) for name, old in probe_names.items()}
    for name, old in stored_names.items():
        if name in columns:
            raise StateError(f"two columns of a result cannot both be {name!r}")
        columns[name] = stored_column(matches, runs, old)
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(matches), pa.struct([])))
    return pa.RecordBatch.from_pydict(columns)


def stored_column(matches: Matches, runs: Sequence[Bucket], name: str) -> Any:
    """A column of the stored rows, for every match."""
    if not runs:
        raise StateError("without runs there are no columns to gather", hint="there is no match either")
    columns = [column(run.batch, name) for run in runs]
    if all(map(is_plain, columns)):
        out = fresh(len(matches), np.int64)
        for number, values in enumerate(columns):
            _, rows = matches.of(number)
            copy(plain_words(values), rows, out[matches.splits[number] : matches.splits[number + 1]])
        return from_words(out, columns[0].type)
    parts: list[Any] = []
    for number, values in enumerate(columns):
        _, rows = matches.of(number)
        if rows.size or not parts:
            parts.append(taken(values, rows))
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
