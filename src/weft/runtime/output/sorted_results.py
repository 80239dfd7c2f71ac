"""Results of queries with ORDER BY or LIMIT: they wait in the checkpoint until the input has ended.

Guarantees: until a query's clock says that its input has ended, its sink gets batches without rows; then it gets all
that is wanted, sorted, in one batch. What waits is in files that the manifest names, so that every result counts once,
also after a crash. Of a query with LIMIT no more rows wait than can be wanted. All of it passes through the driver,
which holds the rows of such a query in memory while it sorts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from weft.kernels.expr.arrow import arrow_type
from weft.kernels.order.sorting import first_rows, sorted_rows
from weft.logical.query.query import Query
from weft.logical.query.sorting import Sorting
from weft.runtime.log.values import KeptBatch
from weft.runtime.output.suspended import KeptResults, read_kept, write_kept
from weft.storage.storage import Storage

__all__ = ["SortedQuery", "UnsortedRows"]


@dataclass(frozen=True, slots=True)
class SortedQuery:
    """How the results of a query are sorted, and their columns: ``every`` one, and those that its sink gets."""

    sorting: Sorting
    every: pa.Schema
    shown: tuple[str, ...]

    @classmethod
    def of(cls, query: Query) -> SortedQuery | None:
        """The sorting of a query; None if its results leave as they are found."""
        if query.sorting is None:
            return None
        every = pa.schema([(output.name, arrow_type(output.expr.type)) for output in query.outputs])
        return cls(query.sorting, every, tuple(output.name for output in query.shown))

    @property
    def schema(self) -> pa.Schema:
        """The columns that the sink gets."""
        return pa.schema([self.every.field(name) for name in self.shown])

    def table(self, results: KeptResults) -> pa.Table:
        """Results as one table."""
        return pa.Table.from_batches(list(results.batches), self.every)


@dataclass
class UnsortedRows:
    """What waits to be sorted, by query; it is used as `Suspensions` is."""

    storage: Storage
    _waiting: dict[str, KeptBatch] = field(default_factory=dict)

    def resume(self, known: Mapping[str, KeptBatch]) -> None:
        """Begin with what a manifest says."""
        self._waiting = dict(known)

    def values(self) -> dict[str, KeptBatch]:
        """What waits, for the manifest."""
        return dict(self._waiting)

    def keep(self, name: str, query: SortedQuery, number: int, results: KeptResults) -> None:
        """Keep what a query gave in a batch; of a query with LIMIT, as much as can be wanted of all that waits."""
        if not results.rows:
            return
        before = self._waiting.get(name)
        if query.sorting.most is not None:
            first = first_rows(self._with_earlier(name, query, results), query.sorting)
            before, results = None, KeptResults(first.num_rows, first.to_batches())
            self._waiting.pop(name, None)
        if results.rows:
            self._waiting[name] = write_kept(self.storage, number, results, before)

    def sorted(self, name: str, query: SortedQuery, results: KeptResults) -> pa.Table:
        """All that a query gives, sorted, once its last ``results`` are there; `forget` it when its sink has them."""
        rows = sorted_rows(self._with_earlier(name, query, results), query.sorting)
        return rows.select(list(query.shown))

    def _with_earlier(self, name: str, query: SortedQuery, results: KeptResults) -> pa.Table:
        kept = self._waiting.get(name)
        earlier = [query.table(read_kept(self.storage, kept))] if kept is not None else []
        return pa.concat_tables([*earlier, query.table(results)])

    def forget(self, name: str) -> None:
        """Drop what waits of a query."""
        self._waiting.pop(name, None)
