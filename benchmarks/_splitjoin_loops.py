"""SplitJoin's join core as the paper has it: a new tuple is compared with every tuple of the window.

Guarantees: the inner loop is compiled and has no branch, so that the compiler vectorises it; new tuples are divided
among the cores. A window is given as its buckets, which are not copied.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit, prange

__all__ = ["count_pairs"]

Whole = npt.NDArray[np.int32]
Float = npt.NDArray[np.float32]
Time = npt.NDArray[np.int64]
_MOST = numba.get_num_threads()  # before anybody changes it


@njit(parallel=True, cache=True)
def _pairs(x: Whole, y: Float, a: Whole, b: Float, whole: np.int32, broken: np.float32) -> int:
    total = 0
    for i in prange(x.size):
        low, high = np.int32(x[i] - whole), np.int32(x[i] + whole)
        under, over = y[i] - broken, y[i] + broken
        found = 0
        for j in range(a.size):
            found += (a[j] >= low) & (a[j] <= high) & (b[j] >= under) & (b[j] <= over)
        total += found
    return total


@njit(parallel=True, cache=True)
def _pairs_within(
    x: Whole, y: Float, t: Time, a: Whole, b: Float, u: Time, whole: np.int32, broken: np.float32, span: int
) -> int:
    total = 0
    for i in prange(x.size):
        low, high = np.int32(x[i] - whole), np.int32(x[i] + whole)
        under, over = y[i] - broken, y[i] + broken
        before, after = t[i] - span, t[i] + span
        found = 0
        for j in range(a.size):
            band = (a[j] >= low) & (a[j] <= high) & (b[j] >= under) & (b[j] <= over)
            found += band & (u[j] >= before) & (u[j] <= after)
        total += found
    return total


def count_pairs(new: pa.Table, window: pa.Table, band: int, span: int | None, cores: int) -> int:
    """How many pairs lie within the band and, if a span of microseconds is given, within that time."""
    numba.set_num_threads(min(cores, _MOST))
    whole, broken = np.int32(band), np.float32(band)
    x, y, t = _arrays(new.combine_chunks().to_batches()[0])
    total = 0
    for bucket in window.to_batches():
        a, b, u = _arrays(bucket)
        if span is None:
            total += int(_pairs(x, y, a, b, whole, broken))
        else:
            total += int(_pairs_within(x, y, t, a, b, u, whole, broken, span))
    return total


def _arrays(bucket: pa.RecordBatch) -> tuple[Any, Any, Any]:
    """The two attributes and the time, as they are in memory."""
    first, second, times = (column.to_numpy(zero_copy_only=True) for column in bucket.columns)
    return first, second, times
