"""Compiling what joins run, before the first tuple comes.

Guarantees: after `warm_up()`, the usual joins (keys that are integers or texts, with windows of event time, and their
merging and encoding) compile nothing more, nor do the query-sets of several queries; after `warm_up(needs=…)`, those of
the queries in question. The first time on a machine the code is compiled and cached beside the package, by two
processes if there are two cores; in every later process it takes a second or two, to load that code. A process that
does not call it compiles or loads each function when it first runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import build
from weft.bucket.codec import decode, encode
from weft.bucket.compiled import Longs, mix
from weft.bucket.index import by_hash, by_value
from weft.bucket.merge import merge
from weft.kernels.ages import ages_of_pairs, ages_of_times, count_by_query, count_classes
from weft.kernels.probe.band import Band, band
from weft.kernels.probe.equality import in_order, probe
from weft.kernels.probe.grid import grid, grid_ranges
from weft.kernels.probe.query_counts import NO_AGES, NO_WINDOWS, QueryCounts, StoredSets, TupleSets
from weft.kernels.probe.ranges import Ranges, Window, pairs
from weft.kernels.probe.theta import Sides, theta
from weft.kernels.query_sets.predicate_index import PredicateIndex
from weft.kernels.query_sets.query_set import by_thresholds, nonempty, rows_per_query, set_bit, thresholds
from weft.kernels.route.partition import by_hash as route_by_hash
from weft.kernels.route.sample import frequent, least_hashes
from weft.logical.expr.conversion import cast, literal
from weft.logical.expr.expression import Column, columns
from weft.logical.expr.functions import call
from weft.logical.query.query import Query
from weft.logical.schema import DataType

__all__ = ["Needs", "needs_of", "warm_up"]

Step = Callable[[], Any]
Report = Callable[[int, int], None]  # so many steps of so many are done

LONGS, INTS, TEXTS = "k", "u", "s"  # the columns of `_rows` that stand for the kinds of keys
_NARROW = ("byte", "short", "int", "date")  # types whose keys are narrower than a word
_PATIENCE = 300.0  # seconds until another process that compiles is given up


@dataclass(frozen=True, slots=True)
class Needs:
    """What some queries run: the kinds of their ``keys``, joins by ``order`` or any other predicate, query-``sets``."""

    keys: tuple[str, ...] = (LONGS, INTS, TEXTS)
    order: bool = True
    sets: bool = True


def needs_of(queries: Iterable[Query]) -> Needs:
    """What joins of these queries run, as far as can be told from their text; the rest is compiled when it runs."""
    keys, order, sets = {LONGS}, False, False
    for number, query in enumerate(queries):
        types = {column.type for key in query.keys for member in key.members for column in columns(member)}
        keys |= {_kind(type_) for type_ in types}
        order |= bool(query.predicates)
        sets |= bool(query.filters) or number > 0
    return Needs(tuple(sorted(keys)), order, sets)


def _kind(type_: DataType) -> str:
    if type_.name == "string":
        return TEXTS
    return INTS if type_.name in _NARROW else LONGS


def warm_up(report: Report | None = None, needs: Needs | None = None) -> None:
    """Build, merge, encode, route and probe a few tuples, in all the usual ways if it is not said which are needed."""
    lanes = _lanes(needs or Needs())
    total = sum(map(len, lanes))
    with _compile_elsewhere(needs or Needs()) as wait:
        for done, step in enumerate(chain(lanes[0], [wait], lanes[1])):
            step()
            if report is not None:
                report(min(done + (done < len(lanes[0])), total), total)


@contextmanager
def _compile_elsewhere(needs: Needs) -> Iterator[Step]:
    """Let another process compile the second lane, unless its code is in the cache or there is one core.

    It gives a function that waits for it. Should that process fail, this one compiles what it finds missing.
    """
    if (os.cpu_count() or 1) < 2 or not _is_cold():
        yield lambda: None
        return
    code = f"from weft.kernels.warm_up import Needs, _second_lane; _second_lane({needs!r})"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield lambda: process.wait(_PATIENCE)
    finally:
        process.kill()
        process.wait()


def _is_cold() -> bool:
    """Whether a function that all others need had to be compiled in this process."""
    mix(1)
    function: Any = mix
    return bool(function.stats.cache_misses)


def _second_lane(needs: Needs) -> None:
    for step in _lanes(needs)[1]:
        step()


def _lanes(needs: Needs) -> tuple[list[Step], list[Step]]:
    """The steps in two lists that have few functions in common and take equally long."""
    batch, keys = _rows(), needs.keys
    window = Window.around(batch.column("k").to_numpy(), 1, 1)
    first = [
        step
        for number, name in enumerate(keys)
        for step in _joins(batch, name, keys[(number + 1) % len(keys)], keys, window)
    ]
    second: list[Step] = [partial(_sample, batch, name) for name in keys]
    second += [lambda: _measure(batch.column("k").to_numpy())]
    second += [lambda: _share(batch)] if needs.sets else []
    if needs.order:
        second += [lambda: _order(batch, window), lambda: _near(batch, window)]
    return first, second


def _rows() -> pa.RecordBatch:
    numbers = pa.array([1, 2, 3, 4, 5, 5, 6])
    columns = {LONGS: numbers, INTS: numbers.cast(pa.int32()), TEXTS: numbers.cast(pa.string())}
    return pa.record_batch({**columns, "ts": numbers.view(pa.timestamp("us"))})


def _joins(
    batch: pa.RecordBatch, layout: str, other: str, keys: tuple[str, ...], window: Window
) -> Iterator[Step]:
    """Steps that store rows by a key and look them up by this one, by another and by time."""
    both = [by_hash(keys[0], keys[-1])] if len(keys) > 1 else []
    runs: list[Any] = []

    def store() -> None:
        orders = [by_hash(other), *both, by_value("ts")]
        runs.append(build(batch, layout=by_hash(layout), indexes=orders, event_time="ts"))

    def again() -> None:
        runs.append(decode(encode(merge([runs[0], runs[0]], since=2))))

    yield store
    yield again
    for name in dict.fromkeys((layout, other)):
        column = in_order([batch.column(name)])
        yield partial(_look_up, column, runs, name, window)
    times = batch.column("ts")
    yield lambda: band(Band(times, times), runs[1:], by_value("ts"), window=window)


def _look_up(column: Any, runs: list[Any], name: str, window: Window) -> None:
    probe(column, runs[1:], by_hash(name), window=window)


def _sample(batch: pa.RecordBatch, name: str) -> None:
    """Route rows by a key, and sample its values, with and without NULLs."""
    column = batch.column(name)
    route_by_hash(batch, [name], 2)
    for sampled in (column, pa.array([None, *column.to_pylist()])):
        least_hashes(sampled.cast(column.type), 2)
        frequent(sampled, 9, 2, 0)


def _order(batch: pa.RecordBatch, window: Window) -> None:
    """Join by a predicate that is no equality."""
    in_time = merge([build(batch, layout=by_value("ts"), event_time="ts")] * 2)
    less = call("<", Column("p", "k", DataType("long")), Column("s", "k", DataType("long")))
    theta(less, Sides({("p", "k"): "k"}, {("s", "k"): "k"}), batch, [in_time], window=window)


def _near(batch: pa.RecordBatch, window: Window) -> None:
    """Join by two bands at once."""
    numbers = batch.column("k")
    places = build(batch, layout=by_value("k"), event_time="ts")
    near = grid((numbers, numbers), 1.0, (numbers, numbers), 1.0)
    if near is not None:
        list(pairs(grid_ranges(near, places, by_value("k")), places, window=window))


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
    _count_shared(sets)
    by_thresholds(batch.column("k").to_numpy(), *thresholds({0: 1}, 1))


def _count_shared(sets: Longs) -> None:
    """Count the matches of rows with themselves by their query-sets."""
    times = np.arange(sets.shape[1])
    counts = QueryCounts(TupleSets(sets, sets, times), NO_WINDOWS, NO_AGES)
    rows = times.astype(np.int32)
    counts.add(Ranges(rows, rows, rows + np.int32(1), None), StoredSets(sets, times))
