"""The total order of tuples: (batch, rank of their relation in it, position), as one integer (design, D5).

Guarantees: comparing two packed positions compares the triples. `start(batch, rank)` is the first position of that
relation's share: exactly the stored tuples below it are visible to the tuples of that relation in that batch.

A bucket needs the positions of its rows only where a `ROWS` window, an order by arrival or an intermediate result
asks for them; they are then its column `POSITION`. Everywhere else the first and last position of the whole bucket
say enough, and save 8 bytes a row.
"""

from __future__ import annotations

import numpy as np

from weft.bucket.compiled import Longs
from weft.errors import StateError

__all__ = ["POSITION", "assign", "start", "unpack"]

POSITION = "__position"

_ROW_BITS, _RANK_BITS, _BATCH_BITS = 28, 6, 29


def start(batch: int, rank: int = 0) -> int:
    """The position of the first tuple of the relation of that rank in that batch.

    >>> start(7, 0) < start(7, 1) < start(8, 0)
    True
    """
    _check("batch", batch, _BATCH_BITS)
    _check("rank of a relation", rank, _RANK_BITS)
    return batch << (_RANK_BITS + _ROW_BITS) | rank << _ROW_BITS


def assign(batch: int, rank: int, first: int, rows: int) -> Longs:
    """The positions of consecutive tuples of one relation in one batch.

    >>> unpack(int(assign(batch=3, rank=1, first=10, rows=2)[1]))
    (3, 1, 11)
    """
    _check("number of rows of a relation in a batch", first + rows, _ROW_BITS)
    return np.arange(first, first + rows, dtype=np.int64) + start(batch, rank)


def unpack(position: int) -> tuple[int, int, int]:
    """(batch, rank, position in the relation's share)."""
    rest, row = divmod(position, 1 << _ROW_BITS)
    return (*divmod(rest, 1 << _RANK_BITS), row)


def _check(what: str, value: int, bits: int) -> None:
    if not 0 <= value < 1 << bits:
        raise StateError(f"the {what} is {value}, and must be below {1 << bits}", hint="make batches smaller")
