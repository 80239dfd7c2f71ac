"""Random queries over queries, and their answers from the definition: inner results first, as tables, then the outer.

A derived relation has the rows of its query, the latest of whose tuples' times is their time; a union has those of its
branches. Nothing here flattens anything.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weft.kernels.expr.arrow import arrow_type, result_schema
from weft.logical.expr.conversion import cast, literal
from weft.logical.expr.expression import Expr
from weft.logical.expr.functions import call
from weft.logical.nested.flatten import flatten
from weft.logical.nested.nested import derived_stream, union_stream
from weft.logical.query.join_tree import Join
from weft.logical.query.query import Input, Output, Query, make_query
from weft.logical.query.window import UNBOUNDED, Range, Rows, Window
from weft.logical.schema import Schema, Stream
from weft.testing.reference import POSITION, TIME, groups_of, inside_counts, join_within_times, row_column

BEGINNING = datetime(2024, 1, 1, tzinfo=timezone.utc)
SCHEMA = Schema.parse("c0 long, c1 long, ts timestamp")
LONG = SCHEMA.fields[0].type
Longs = NDArray[np.int64]


@dataclass(frozen=True)
class Shape:
    """What random queries may have."""

    untimed: bool = True
    counted: bool = True
    outer: bool = True
    unions: bool = True
    bounded: bool = False  # every window is a RANGE, so that rows without a partner leave


def base_streams(shape: Shape, lateness: timedelta = timedelta(0)) -> list[Stream]:
    timed = [Stream(f"s{place}", SCHEMA, "ts", lateness) for place in range(3)]
    return [*timed, Stream("s3", SCHEMA)] if shape.untimed else timed


def random_query(rng: random.Random, streams: Sequence[Stream], shape: Shape, depth: int) -> Query:
    """A query over streams and, where it has depth, over other queries; derived streams are not flattened."""
    tree = shape.outer and rng.random() < 0.3
    count = rng.choice((1, 2, 2, 3)) if not tree else rng.choice((2, 2, 3))
    inputs = [_input(rng, f"r{place}", streams, shape, depth, tree) for place in range(count)]
    on = [_links(rng, inputs[:place], inputs[place]) for place in range(1, count)]
    where = [_filter(rng, input_) for input_ in inputs if rng.random() < 0.3]
    if not tree:
        return make_query(
            inputs, [*where, *(t for some in on for t in some)], _outputs(rng, inputs), cross=True
        )
    joined: Join | str = inputs[0].alias
    seen = [inputs[0]]
    for input_, _ in zip(inputs[1:], on, strict=True):
        kind = rng.choice(("left", "full", "semi", "anti", "inner", "left"))
        joined = Join(kind, joined, input_.alias, tuple(_links(rng, seen, input_)))
        if kind not in ("semi", "anti"):
            seen.append(input_)
    above = [_filter(rng, input_) for input_ in seen if rng.random() < 0.15]
    assert isinstance(joined, Join)
    return make_query(inputs, above, _outputs(rng, seen), outer=joined, cross=True)


def _input(
    rng: random.Random, alias: str, streams: Sequence[Stream], shape: Shape, depth: int, tree: bool
) -> Input:
    stream = rng.choice(streams)
    if depth and rng.random() < 0.6:
        if shape.unions and rng.random() < 0.25:
            stream = _union(rng, streams, shape, depth - 1)
        else:
            stream = derived_stream(random_query(rng, streams, shape, depth - 1))
    several = any(len(query.inputs) > 1 for query in stream.definition)
    return Input(alias, stream, _window(rng, shape, counted=shape.counted and not tree and not several))


def _union(rng: random.Random, streams: Sequence[Stream], shape: Shape, depth: int) -> Stream:
    branches = []
    for _ in range(rng.choice((2, 2, 3))):
        query = random_query(rng, streams, shape, depth if rng.random() < 0.3 else 0)
        whole = [output for output in query.projection if output.expr.type.name == "long"][:1]
        times = [output for output in query.projection if output.expr.type.name == "timestamp"][:1]
        named = [Output(name, one.expr) for name, one in zip(("o0", "ts"), (*whole, *times), strict=True)]
        branches.append(replace(query, projection=tuple(named)))
    return union_stream(branches)


def _window(rng: random.Random, shape: Shape, *, counted: bool) -> Window:
    seconds = rng.randint(1, 30)
    if counted and rng.random() < 0.15:
        return Rows(rng.randint(1, 6))
    return Range(timedelta(seconds=seconds)) if shape.bounded or rng.random() < 0.6 else UNBOUNDED


def _whole(rng: random.Random, input_: Input) -> Expr:
    return rng.choice([column for column in input_.shown if column.type.name == "long"])


def _links(rng: random.Random, before: Sequence[Input], input_: Input) -> list[Expr]:
    """What joins an input with one before it: an equality, and perhaps a bound of their times."""
    other = rng.choice(before)
    terms = [call("=", _whole(rng, input_), _whole(rng, other))]
    one, two = input_.event_time, other.event_time
    if one is not None and two is not None and rng.random() < 0.25:
        shift = literal(timedelta(seconds=rng.randint(-5, 15)))
        terms.append(call("<=", one, call("+", two, shift)))
    return terms


def _filter(rng: random.Random, input_: Input) -> Expr:
    return call("<", _whole(rng, input_), literal(rng.randint(1, 4)))


def _outputs(rng: random.Random, inputs: Sequence[Input]) -> list[Output]:
    """A whole number or two, perhaps computed, and a time."""
    exprs = []
    for _ in range(rng.choice((1, 2, 2))):
        column = _whole(rng, rng.choice(inputs))
        more = (call("+", column, literal(1)), call("coalesce", column, literal(0)), literal(2))
        exprs.append(column if rng.random() < 0.7 else rng.choice(more))
    named = [Output(f"o{place}", cast(expr, LONG)) for place, expr in enumerate(exprs)]
    times = [c for input_ in inputs for c in input_.shown if c.type.name == "timestamp"]
    return [*named, Output("ts", rng.choice(times))]


def flattened(query: Query) -> Query:
    """The query with all that can be flattened flattened, from the innermost to the outermost, as SQL is bound."""
    inputs = []
    for input_ in query.inputs:
        stream = input_.stream
        if stream.is_derived:
            stream = derived_stream(flattened(stream.definition[0]))
        elif stream.is_union:
            stream = union_stream([flattened(branch) for branch in stream.definition])
        inputs.append(replace(input_, stream=stream))
    again = make_query(inputs, query.terms(), query.projection, outer=query.outer, cross=True)
    return flatten(again)[0]


def random_tables(rng: random.Random, streams: Sequence[Stream], rows: int) -> dict[str, pa.Table]:
    """Tables by stream, with the times of untimed tuples and a total order of all."""
    positions = list(range(rows * len(streams)))
    rng.shuffle(positions)
    tables = {}
    for place, stream in enumerate(streams):
        data = [
            {"c0": _value(rng), "c1": _value(rng), "ts": BEGINNING + timedelta(seconds=rng.randint(0, 40))}
            for _ in range(rows)
        ]
        table = pa.Table.from_pylist(data, schema=arrow_schema(stream.schema))
        mine = sorted(positions[place * rows : (place + 1) * rows])
        table = table.append_column(POSITION, pa.array(mine, pa.int64()))
        tables[stream.name] = table.append_column(TIME, pa.array(_arrivals(mine), pa.int64()))
    return tables


def arrow_schema(schema: Schema) -> pa.Schema:
    return pa.schema([(field.name, arrow_type(field.type)) for field in schema])


def _value(rng: random.Random) -> int | None:
    return None if rng.random() < 0.05 else rng.randint(0, 3)


def _arrivals(positions: Sequence[int]) -> list[int]:
    start = int(BEGINNING.timestamp()) * 1_000_000
    return [start + position * 500_000 for position in positions]


def answer(query: Query, tables: Mapping[str, pa.Table]) -> pa.Table:
    """The results of a query over tables by stream, with their times and positions."""
    given = {input_.alias: table_of(input_.stream, tables) for input_ in query.inputs}
    found = join_within_times(query, given)
    if any(isinstance(input_.window, Rows) for input_ in query.inputs):
        positions = {alias: given[alias][POSITION].to_numpy() for alias in query.aliases}
        found = found.filter(pa.array(inside_counts(query, found, positions, groups_of(query, given))))
    times, places = (_latest(query, given, found, one) for one in (_micros, _positions))
    shown = found.select([output.name for output in query.projection]).cast(result_schema(query))
    return shown.append_column(TIME, pa.array(times)).append_column(POSITION, pa.array(places))


def table_of(stream: Stream, tables: Mapping[str, pa.Table]) -> pa.Table:
    """The rows of a stream, be it derived, a union or a base stream."""
    if not stream.definition:
        return tables[stream.name]
    parts = [answer(query, tables) for query in stream.definition]
    names = [name for name in stream.schema.names if name != stream.hidden]
    whole = pa.concat_tables([part.rename_columns([*names, TIME, POSITION]) for part in parts])
    if stream.hidden:
        times = pa.array(whole[TIME].to_numpy(), pa.timestamp("us", "UTC"))
        whole = whole.append_column(stream.hidden, times)
    return whole


def _latest(
    query: Query, given: Mapping[str, pa.Table], found: pa.Table, values: Callable[[Input, pa.Table], Longs]
) -> Longs:
    least = np.full(found.num_rows, np.iinfo(np.int64).min)
    for input_ in (query.input(alias) for alias in query.visible):
        rows = found[row_column(input_.alias)]
        numbers = rows.combine_chunks().fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        every = np.append(values(input_, given[input_.alias]), np.iinfo(np.int64).min)
        least = np.maximum(least, every[numbers])
    return least


def _micros(input_: Input, table: pa.Table) -> Longs:
    name = input_.stream.event_time
    if name is None:
        return np.asarray(table[TIME].to_numpy())
    return np.asarray(table[name].cast(pa.int64()).to_numpy())


def _positions(_: Input, table: pa.Table) -> Longs:
    return np.asarray(table[POSITION].to_numpy())
