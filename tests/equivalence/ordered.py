"""Random joins whose results leave in an order, and when their tuples came: from batches and driver orders alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tests.equivalence.oracle import PERIOD, Oracle, batch_of
from tests.equivalence.streams import Join, random_join
from weft.logical.catalog import Catalog
from weft.logical.query.query import Output
from weft.runtime.observe.metrics import BatchMetrics

PRECISIONS = (1, 2, 3, 7, 64, 1 << 40)

Longs = NDArray[np.int64]


def shown_join(seed: int) -> Join:
    """A random join whose results say which tuples they are of."""
    join = random_join(seed)
    shown = tuple(Output(f"id_{i.alias}", i.column("id")) for i in join.query.inputs)
    return replace(join, query=replace(join.query, projection=(*shown, *join.query.projection)))


def dropping(join: Join) -> Join:
    """The join with late tuples dropped, as `order="event"` asks for."""
    streams = tuple(replace(stream, late="drop") for stream in join.catalog.streams)
    known = {stream.name: stream for stream in streams}
    inputs = tuple(replace(i, stream=known[i.stream.name]) for i in join.query.inputs)
    return replace(join, query=replace(join.query, inputs=inputs), catalog=Catalog(streams))


@dataclass(frozen=True)
class Truth:
    """When tuples came: by input and row, the place among all tuples of the query, among its stream's, and the time."""

    places: dict[str, Longs]
    numbers: dict[str, Longs]
    times: dict[str, Longs]

    @classmethod
    def of(cls, oracle: Oracle, metrics: Sequence[BatchMetrics]) -> Truth:
        """By the batches that tuples came in, and the order of the inputs in each."""
        join, orders = oracle.join, [one.order for one in metrics[: len(oracle.join.batches)]]
        streams = {input_.alias: input_.stream for input_ in join.query.inputs}
        came = {a: oracle.positions(a, s.name, orders) for a, s in streams.items()}
        every = np.sort(np.concatenate(list(came.values())))
        places, numbers, times = {}, {}, {}
        for alias, stream in streams.items():
            kept, size = oracle.kept[stream.name], join.tables[stream.name].num_rows
            places[alias] = _spread(kept, np.searchsorted(every, came[alias]), size)
            numbers[alias] = _spread(kept, np.arange(kept.size), size)
            arrival = batch_of(join, stream.name) * PERIOD
            stamps = join.tables[stream.name]["ts"].cast(pa.int64()).fill_null(-1).to_numpy()
            times[alias] = arrival if stream.event_time is None else stamps
        return cls(places, numbers, times)

    def of_results(self, results: pa.Table) -> Truth:
        """The same for the tuples of results."""
        ids = {alias: results[f"id_{alias}"].to_numpy() for alias in self.places}
        parts = ({a: one[a][ids[a]] for a in ids} for one in (self.places, self.numbers, self.times))
        return Truth(*parts)


def _spread(rows: Longs, values: Longs, size: int) -> Longs:
    """Values of some rows, among all."""
    found = np.full(size, -1)
    found[rows] = values
    return found
