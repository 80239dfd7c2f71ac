"""Rows of a query with aggregates, on their way to being partial groups.

Guarantees: no more rows than a portion are held at once; what is left of them are partial groups, one for each group.
"""

from __future__ import annotations

import pyarrow as pa

from weft.kernels.groups.partials import PartialGroups
from weft.runtime.model.columns import concat

__all__ = ["GatheredRows"]

MOST = 8  # batches of partial groups that wait to be combined


class GatheredRows:
    """Rows of a query with aggregates, which become partial groups portion by portion."""

    def __init__(self, partials: PartialGroups, portion: int) -> None:
        self._partials, self._portion = partials, portion
        self._rows: list[pa.RecordBatch] = []
        self._groups: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows of the join."""
        self._rows.append(rows)
        self._bytes += rows.nbytes
        if self._bytes > self._portion:
            self._lift()

    def add_groups(self, groups: pa.RecordBatch) -> None:
        """Take partial groups."""
        self._groups.append(groups)
        if len(self._groups) > MOST:
            self._lift()

    def _lift(self) -> None:
        if self._rows:
            self._groups.append(self._partials.lift(concat(self._rows)))
            self._rows, self._bytes = [], 0
        if len(self._groups) > MOST:
            self._groups = [self._partials.combine(concat(self._groups))]

    def take(self) -> pa.RecordBatch | None:
        """The partial groups of all rows so far; None if there were none."""
        self._lift()
        groups, self._groups = self._groups, []
        if len(groups) < 2:
            return groups[0] if groups else None
        return self._partials.combine(concat(groups))
