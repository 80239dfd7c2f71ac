"""Limits to the size of what a function of texts makes, and to the time it takes.

Guarantees: a call beyond a limit is noticed by the lengths of its arguments, before anything is made. It raises a
`FunctionError` that names the function, the limit and the variable that sets the limit, and stops the queries that call
it. Limits are read from the environment of the process that computes: where workers do not inherit the driver's, set
them by ``spark.executorEnv``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.compiled import Longs
from weft.errors import FunctionError

__all__ = ["LIMITS", "check_concat", "check_distance", "check_replace", "check_sizes"]

ROW_BYTES, CALL_BYTES = "WEFT_TEXT_BYTES_PER_ROW", "WEFT_TEXT_BYTES_PER_CALL"
ROW_CELLS, CALL_CELLS = "WEFT_LEVENSHTEIN_CELLS_PER_ROW", "WEFT_LEVENSHTEIN_CELLS_PER_CALL"

# The limits unless the environment sets others: about a quarter of a second for a row, half a minute for a call.
LIMITS = {ROW_BYTES: 1 << 26, CALL_BYTES: 1 << 30, ROW_CELLS: 10**8, CALL_CELLS: 10**10}

_WORD = 64  # a text of up to so many characters needs one machine word per column of the matrix


def check_sizes(function: str, sizes: Longs) -> None:
    """Refuse to make texts of these sizes, in bytes, if one or all of them are too large."""
    _check(function, sizes, ROW_BYTES, "a text of {:,} bytes")
    _check(function, sizes.sum(keepdims=True), CALL_BYTES, "{:,} bytes of text at once")


def check_concat(texts: Sequence[Any]) -> None:
    """Refuse to concatenate texts if a result would be too large."""
    check_sizes("concat", np.atleast_1d(sum(map(_sizes, texts))))


def check_replace(text: Any, old: str, new: str) -> None:
    """Refuse to replace a constant by a longer one if a result would be too large."""
    growth = len(new.encode()) - len(old.encode())
    if growth > 0:
        hits = _plain(pc.count_substring(text, old))
        check_sizes("replace", np.atleast_1d(_sizes(text) + growth * hits))


def check_distance(one: Any, other: Any) -> None:
    """Refuse to compare texts whose matrix has too many cells; for a short text, a whole column counts as one cell."""
    sizes = _sizes(one), _sizes(other)
    short, long = np.minimum(*sizes), np.maximum(*sizes)
    cells = np.atleast_1d(np.where(short <= _WORD, long, short * long))
    _check("levenshtein", cells, ROW_CELLS, "a matrix of {:,} cells")
    _check("levenshtein", cells.sum(keepdims=True), CALL_CELLS, "matrices of {:,} cells at once")


def _check(function: str, amounts: Longs, variable: str, what: str) -> None:
    limit = _limit(variable)
    most = int(amounts.max(initial=0))
    if most > limit:
        raise FunctionError(
            f"{function} would make {what.format(most)}, and the limit is {limit:,}",
            hint=f"leave out or shorten long texts, or set {variable}",
        )


def _limit(variable: str) -> int:
    given = os.environ.get(variable)
    if given is None:
        return LIMITS[variable]
    if not (given.isascii() and given.isdigit()):
        raise FunctionError(
            f"{variable} is {given!r}, which is no number", hint="use a whole number, or unset it"
        )
    return int(given)


def _sizes(text: Any) -> Any:
    """How many bytes a text has, or each text of a column; 0 where it is NULL."""
    return _plain(pc.binary_length(text))


def _plain(counts: Any) -> Any:
    if isinstance(counts, pa.Scalar):
        return np.int64(counts.as_py() or 0)
    return pc.fill_null(counts, 0).to_numpy(zero_copy_only=False).astype(np.int64)
