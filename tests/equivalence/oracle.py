"""What a join must give, from the definitions of the design's section 3, and what it gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tests.equivalence.streams import Join
from weft.plan.graph import PhysicalGraph
from weft.runtime.local import LocalRunner
from weft.testing.reference import TIME, inside_counts, timely

PERIOD = 7_000_000  # between the arrivals of two batches, in microseconds

Rows = Counter[tuple[Any, ...]]


def rows_of(table: pa.Table) -> Rows:
    """The rows of a table as a multiset, NaN being equal to itself."""
    columns = [_comparable(column) for column in table.columns]
    return Counter(zip(*columns, strict=True)) if columns else Counter()


def _comparable(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_floating(column.type):
        return ["nan" if value is not None and value != value else value for value in column.to_pylist()]
    values: list[Any] = column.to_pylist()
    return values


@dataclass(frozen=True)
class Oracle:
    """The results of a join but for `ROWS` windows, which depend on the driver order; computed once."""

    join: Join
    kept: dict[str, NDArray[np.int64]]  # by stream: the rows that are not late
    found: pa.Table

    @classmethod
    def of(cls, join: Join, *, drop_late: bool = True) -> Oracle:
        """All results of tuples that take part."""
        kept = {
            stream.name: np.flatnonzero(_on_time(join, stream.name, stream.lateness if drop_late else None))
            for stream in join.catalog.streams
        }
        tables = {
            input_.alias: _timed(join, input_.stream.name).take(kept[input_.stream.name])
            for input_ in join.query.inputs
        }
        return cls(join, kept, timely(join.query, tables))

    def rows(self, orders: Sequence[Sequence[str]]) -> Rows:
        """The results, if the inputs of each batch come in that order."""
        query = self.join.query
        positions = {i.alias: self._positions(i.alias, i.stream.name, orders) for i in query.inputs}
        inside = inside_counts(query, self.found, positions)
        shown = [output.name for output in query.projection]
        return rows_of(self.found.filter(pa.array(inside)).select(shown))

    def _positions(self, alias: str, stream: str, orders: Sequence[Sequence[str]]) -> NDArray[np.int64]:
        rows = self.kept[stream]
        batch = _batch_of(self.join, stream)[rows]
        rank = np.array([list(order).index(alias) for order in orders])[batch]
        positions: NDArray[np.int64] = (batch * 100 + rank) * 10_000 + rows
        return positions


def _batch_of(join: Join, stream: str) -> NDArray[np.int64]:
    sizes = [batch[stream][1] - batch[stream][0] for batch in join.batches]
    return np.repeat(np.arange(len(sizes)), sizes)


def _timed(join: Join, stream: str) -> pa.Table:
    return join.tables[stream].append_column(TIME, pa.array(_batch_of(join, stream) * PERIOD))


def _on_time(join: Join, stream: str, lateness: timedelta | None) -> NDArray[np.bool_]:
    """A tuple is late if it is older than the newest of earlier batches by more than the lateness."""
    times = join.tables[stream]["ts"].cast(pa.int64()).to_numpy()
    kept = np.ones(times.size, np.bool_)
    if lateness is None or join.catalog.stream(stream).event_time is None:
        return kept
    for batch in join.batches:
        first, last = batch[stream]
        if first:
            kept[first:last] = times[first:last] >= times[:first].max() - lateness // timedelta(
                microseconds=1
            )
    return kept


def run(join: Join, graph: PhysicalGraph, **options: Any) -> LocalRunner:
    """A runner that has processed all batches of a join."""
    runner = LocalRunner(graph, **options)
    for number, batch in enumerate(join.batches):
        data = {name: join.tables[name].slice(first, last - first) for name, (first, last) in batch.items()}
        runner.process(data, now=number * PERIOD)
    return runner
