"""What a join must give, from the definitions of the design's section 3, and what it gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tests.equivalence.lateness import admitted
from tests.equivalence.portions import random_portion
from tests.equivalence.streams import Join
from tests.local_runner import LocalRunner
from weft.plan.physical.graph import PhysicalGraph
from weft.runtime.observe.metrics import BatchMetrics
from weft.testing.reference import TIME, groups_of, inside_counts, join_within_times, row_column

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
    """The results of a join but for `ROWS` windows, which depend on the driver order; computed once.

    Where late tuples are joined, the definition leaves open which of their results are found: those of tuples on time
    must be, and no others than those of all tuples can be. Where late tuples are dropped, the two are the same.
    """

    join: Join
    kept: dict[str, NDArray[np.int64]]  # by stream: the rows that take part
    on_time: dict[str, NDArray[np.bool_]]  # and which of them are on time
    found: pa.Table
    groups: dict[str, NDArray[np.int64]]  # by alias: which of them are counted together

    @classmethod
    def of(cls, join: Join, arrivals: Sequence[int] | None = None) -> Oracle:
        """All results of tuples that take part; the batches arrive at these times, or one each `PERIOD`."""
        regular = range(0, PERIOD * len(join.batches), PERIOD)
        times = np.array(regular if arrivals is None else arrivals, np.int64)
        part, on_time = admitted(join, times)
        kept = {name: np.flatnonzero(mask) for name, mask in part.items()}
        tables = {
            input_.alias: timed(join, input_.stream.name, times).take(kept[input_.stream.name])
            for input_ in join.query.inputs
        }
        timely_ = {name: on_time[name][rows] for name, rows in kept.items()}
        found = join_within_times(join.query, tables, join.functions)
        return cls(join, kept, timely_, found, groups_of(join.query, tables))

    def bounds(self, orders: Sequence[Sequence[str]]) -> tuple[Rows, Rows]:
        """The results that must and those that may be found, if the inputs of each batch come in that order."""
        query = self.join.query
        positions = {i.alias: self.positions(i.alias, i.stream.name, orders) for i in query.inputs}
        inside = inside_counts(query, self.found, positions, self.groups)
        most = self._shown(inside)
        sure = inside & self._all_on_time()
        return (most if sure.sum() == inside.sum() else self._shown(sure)), most

    def _all_on_time(self) -> NDArray[np.bool_]:
        query = self.join.query
        sure = np.ones(self.found.num_rows, np.bool_)
        for alias in query.visible:
            rows, there = rows_there(self.found, alias)
            sure[there] &= self.on_time[query.input(alias).stream.name][rows]
        return sure

    def _shown(self, rows: NDArray[np.bool_]) -> Rows:
        shown = [output.name for output in self.join.query.projection]
        return rows_of(self.found.filter(pa.array(rows)).select(shown))

    def positions(self, alias: str, stream: str, orders: Sequence[Sequence[str]]) -> NDArray[np.int64]:
        rows = self.kept[stream]
        batch = batch_of(self.join, stream)[rows]
        rank = np.array([list(order).index(alias) for order in orders])[batch]
        positions: NDArray[np.int64] = (batch * 100 + rank) * 10_000 + rows
        return positions


def rows_there(found: pa.Table, alias: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The numbers of an input's rows in results, and which results have one."""
    rows = found[row_column(alias)]
    return rows.drop_null().to_numpy(), rows.is_valid().to_numpy()


def batch_of(join: Join, stream: str) -> NDArray[np.int64]:
    sizes = [batch[stream][1] - batch[stream][0] for batch in join.batches]
    return np.repeat(np.arange(len(sizes)), sizes)


def timed(join: Join, stream: str, arrivals: NDArray[np.int64]) -> pa.Table:
    """The tuples of a stream with the times of their arrival."""
    return join.tables[stream].append_column(TIME, pa.array(arrivals[batch_of(join, stream)]))


def differs(oracle: Oracle, found: pa.Table, metrics: Sequence[BatchMetrics]) -> str:
    """What is wrong with results, or with which tuples took part; nothing if nothing is."""
    for input_ in oracle.join.query.inputs:
        taken = sum(batch.inputs[input_.alias].rows for batch in metrics if batch.inputs)
        expected = oracle.kept[input_.stream.name].size
        if taken != expected:
            return f"{taken} tuples of {input_.alias} took part, not {expected}"
    least, most = oracle.bounds([batch.order for batch in metrics[: len(oracle.join.batches)]])
    rows = rows_of(found)
    lost, wrong = least - rows, rows - most
    return f"lost {lost.most_common(3)}, not to be had {wrong.most_common(3)}" if lost or wrong else ""


def run(join: Join, graph: PhysicalGraph, **options: Any) -> LocalRunner:
    """A runner that has processed all batches of a join, in portions of a size that the case decides."""
    portion = random_portion((str(join.query), sorted(options.items())))
    runner = LocalRunner(graph, functions=join.functions, portion_bytes=portion, **options)
    for number, batch in enumerate(join.batches):
        data = {name: join.tables[name].slice(first, last - first) for name, (first, last) in batch.items()}
        runner.process(data, now=number * PERIOD)
    return runner
