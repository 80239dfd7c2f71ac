"""Compiling what joins run, before the first tuple comes.

Guarantees: after `warm_up()`, the usual joins (keys that are integers or texts, with windows of event time, and their
merging and encoding) compile nothing more, nor do the query-sets of several queries. The first time on a machine it
takes some 40 s, because the code is compiled and cached beside the package; in every later process it takes a second or
two, to load that code. A process that does not call it compiles or loads each function when it first runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import build
from weft.bucket.codec import decode, encode
from weft.bucket.compiled import Longs
from weft.bucket.index import by_hash, by_value
from weft.bucket.merge import merge
from weft.kernels.ages import ages_of_pairs, ages_of_times, count_by_query, count_classes
from weft.kernels.probe.band import Band, band
from weft.kernels.probe.equality import in_order, probe
from weft.kernels.probe.grid import grid, grid_ranges
from weft.kernels.probe.ranges import Window, pairs
from weft.kernels.probe.theta import Sides, theta
from weft.kernels.query_sets.predicate_index import PredicateIndex
from weft.kernels.query_sets.query_set import by_thresholds, nonempty, rows_per_query, set_bit, thresholds
from weft.kernels.route.partition import by_hash as route_by_hash
from weft.kernels.route.sample import frequent, least_hashes
from weft.logical.expr.conversion import cast, literal
from weft.logical.expr.expression import Column
from weft.logical.expr.functions import call
from weft.logical.schema import DataType

__all__ = ["STEPS", "warm_up"]

# How many steps there are; the first ones take longest.
STEPS = 25


def warm_up(report: Callable[[int], None] | None = None) -> None:
    """Build, merge, encode, route and probe a few tuples in all the usual ways; ``report`` gets the steps done."""
    for done, _ in enumerate(_steps(), 1):
        if report is not None:
            report(done)


def _steps() -> Iterator[None]:
    """Run the steps; each yield says that one more is done."""
    numbers = pa.array([1, 2, 3, 4, 5, 5, 6])
    columns = {"k": numbers, "u": numbers.cast(pa.int32()), "s": numbers.cast(pa.string())}
    batch = pa.record_batch({**columns, "ts": numbers.view(pa.timestamp("us"))})
    window = Window.around(numbers.to_numpy(), 1, 1)
    for layout, other in (("k", "u"), ("u", "s"), ("s", "k")):
        orders = [by_hash(other), by_hash("k", "s"), by_value("ts")]
        run = build(batch, layout=by_hash(layout), indexes=orders, event_time="ts")
        yield
        merged = merge([run, run], since=2)
        yield
        runs = [decode(encode(merged))]
        yield
        for name in (layout, other):
            probe(in_order([batch.column(name)]), runs, by_hash(name), window=window)
            yield
        band(Band(batch.column("ts"), batch.column("ts")), runs, by_value("ts"), window=window)
        yield
        route_by_hash(batch, [layout], 2)
        for sampled in (batch.column(layout), pa.array([None, *batch.column(layout).to_pylist()])):
            least_hashes(sampled.cast(batch.column(layout).type), 2)
            frequent(sampled, 9, 2, 0)
        yield
    in_time = merge([build(batch, layout=by_value("ts"), event_time="ts")] * 2)
    less = call("<", Column("p", "k", DataType("long")), Column("s", "k", DataType("long")))
    theta(less, Sides({("p", "k"): "k"}, {("s", "k"): "k"}), batch, [in_time], window=window)
    yield
    _share(batch)
    yield
    _measure(numbers.to_numpy())
    yield
    places = build(batch, layout=by_value("k"), event_time="ts")
    near = grid((numbers, numbers), 1.0, (numbers, numbers), 1.0)
    if near is not None:
        list(pairs(grid_ranges(near, places, by_value("k")), places, window=window))
    yield


def _measure(times: Longs) -> None:
    """Run everything by which ages of results are counted."""
    rows, counts, bits = np.arange(times.size, dtype=np.int32), np.zeros((64, 2048), np.int64), 5
    ages = ages_of_times(times, 9, bits)
    ages_of_pairs(times, rows, times, rows, 9, bits, ages)
    count_classes(ages, counts[0])
    count_by_query(times.reshape(1, -1), times[:1], ages, counts)


def _share(batch: pa.RecordBatch) -> None:
    """Run everything that is done with query-sets."""
    kinds = {"k": DataType("long"), "u": DataType("int"), "s": DataType("string")}
    columns = [Column("p", name, kind) for name, kind in kinds.items()]
    filters = [call("=", column, cast(literal("1"), column.type)) for column in columns]
    data = {("p", name): batch.column(name) for name in kinds}
    sets = PredicateIndex.from_filters({0: tuple(filters)}).query_sets(data, batch.num_rows)
    set_bit(sets, 1, nonempty(sets))
    rows_per_query(sets, [0, 1])
    by_thresholds(batch.column("k").to_numpy(), *thresholds({0: 1}, 1))
