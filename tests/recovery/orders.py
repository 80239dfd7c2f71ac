"""Whether the results of runs that were killed are in order: by the batches that tuples came in, as they were recorded.

Batch n has the n-th file of every stream, and its lines are in order. Where Spark put two files of a stream into one
batch, nothing says which came first, and arrival is not checked.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weft.testing import is_ordered

ORDERS = ("none", "outer", "inner", "event")

Longs = NDArray[np.int64]


def random_order(rng: random.Random, backfill: bool) -> tuple[str, int | None]:
    """An order, and a precision; numbers in streams begin where nobody recorded it, so "inner" is strict."""
    order = rng.choice(("none", "event") if backfill else ORDERS)
    return order, rng.choice((None, 7, 64)) if order == "outer" else None


def arrivals(
    tables: Mapping[str, pa.Table], ranks: Mapping[str, Longs], first: int
) -> dict[str, Longs] | None:
    """By input and row, the place among all tuples since a batch; None if that is not known.

    ``ranks`` says, for each input, its rank in every batch.
    """
    found = {}
    for alias, table in tables.items():
        batch, file = table["batch"].to_numpy(), table["file"].to_numpy()
        if np.unique(np.stack([batch, file]), axis=1).shape[1] > np.unique(batch).size:
            return None
        found[alias] = (batch * 100 + ranks[alias][batch]) * 1_000_000 + np.arange(table.num_rows)
    every = np.sort(np.concatenate(list(found.values())))
    every = every[every >= first * 100_000_000]
    return {alias: np.searchsorted(every, places) for alias, places in found.items()}


def in_order(
    results: pa.Table,
    tables: Mapping[str, pa.Table],
    places: Mapping[str, Longs] | None,
    order: str,
    precision: int,
) -> bool:
    """Whether results, which have the ids of their tuples under the names of the inputs, are in an order."""
    rows = {alias: _rows(table, results[alias]) for alias, table in tables.items()}
    if order == "event":
        return is_ordered({alias: times(tables[alias])[rows[alias]] for alias in tables}, order)
    if places is None or order == "none":
        return True
    return is_ordered({alias: places[alias][rows[alias]] for alias in tables}, order, precision)


def _rows(table: pa.Table, ids: pa.ChunkedArray) -> Longs:
    """The rows of tuples, which are in the order of their ids."""
    found: Longs = np.searchsorted(table["id"].to_numpy(), ids.to_numpy())
    return found


def times(table: pa.Table) -> Longs:
    """The times of tuples."""
    found: Longs = table["ts"].cast(pa.int64()).to_numpy()
    return found


def passed(tables: Mapping[str, pa.Table], lateness: int) -> int:
    """The time that the watermarks of all streams have passed, after these tuples; in microseconds."""
    return min(int(times(table).max(initial=-(1 << 60))) for table in tables.values()) - lateness
