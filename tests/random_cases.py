"""Random queries with statistics to plan them by.

Guarantees: everything random takes a seed and gives the same in every run.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from weft.logical.catalog import Catalog
from weft.logical.expr.conversion import literal
from weft.logical.expr.expression import Column, Expr
from weft.logical.expr.functions import call
from weft.logical.query.query import Input, Output, Query, make_query
from weft.logical.query.window import UNBOUNDED, Range, Rows, Window
from weft.logical.schema import Schema, Stream
from weft.stats.statistics import Statistics, StreamStatistics

__all__ = ["SHAPES", "Case", "chain", "clique", "random_case", "star"]

Edge = tuple[int, int]


def chain(count: int) -> list[Edge]:
    """The join graph in which each input joins the next."""
    return [(i, i + 1) for i in range(count - 1)]


def star(count: int) -> list[Edge]:
    """The join graph in which the first input joins all others."""
    return [(0, i) for i in range(1, count)]


def clique(count: int) -> list[Edge]:
    """The join graph in which every two inputs join."""
    return [(i, j) for i in range(count) for j in range(i + 1, count)]


SHAPES = {"chain": chain, "star": star, "clique": clique}


@dataclass(frozen=True, slots=True)
class Case:
    """A query with statistics to plan it by."""

    query: Query
    statistics: Statistics
    catalog: Catalog


def random_case(seed: int, *, least: int = 3, most: int = 5, shape: str | None = None) -> Case:
    """A random query over ``least`` to ``most`` streams: any join graph, windows, predicates of all kinds."""
    rng = random.Random(seed)
    count = rng.randint(least, most)
    edges = _edges(rng, count, shape or rng.choice(("chain", "star", "clique", "tree", "cycle")))
    names = [f"{chr(ord('r') + i)}" if count <= 9 else f"r{i:02}" for i in range(count)]
    columns = [f"c{k}" for k in range(4)]
    schema = Schema.parse(", ".join(f"{name} long" for name in columns) + ", ts timestamp")
    streams = [Stream(name, schema, "ts") for name in names]
    inputs = [Input(stream.name, _itself_or_first(rng, streams, stream), _window(rng)) for stream in streams]
    where = [_predicate(rng, inputs[a], inputs[b]) for a, b in edges]
    if count > 2 and rng.random() < 0.15:
        where.append(_residual(rng, inputs))
    where += [band for a, b in edges if rng.random() < 0.2 for band in _band(rng, inputs[a], inputs[b])]
    where += [call("<", i.column("c1"), literal(rng.randint(1, 3))) for i in inputs if rng.random() < 0.15]
    query = make_query(inputs, where, [Output("k", Column(names[0], "c0", schema.fields[0].type))])
    return Case(query, _statistics(rng, names, columns), Catalog(tuple(streams)))


def _edges(rng: random.Random, count: int, shape: str) -> list[Edge]:
    if shape == "tree":
        return [(rng.randrange(i), i) for i in range(1, count)]
    if shape == "cycle":
        return [*chain(count), (0, count - 1)]
    return SHAPES[shape](count)


def _window(rng: random.Random) -> Window:
    seconds = round(10 ** rng.uniform(0, 2.5), 1)
    windows: Sequence[Window] = (Range(timedelta(seconds=seconds)), Rows(int(seconds * 100)), UNBOUNDED)
    return rng.choices(windows, weights=(8, 1, 1))[0]


def _predicate(rng: random.Random, left: Input, right: Input) -> Expr:
    operator = rng.choices(("=", "<"), weights=(9, 1))[0]
    return call(operator, left.column(f"c{rng.randrange(4)}"), right.column(f"c{rng.randrange(4)}"))


def _itself_or_first(rng: random.Random, streams: list[Stream], stream: Stream) -> Stream:
    """Now and then an input reads the first stream again: a self join."""
    return streams[0] if rng.random() < 0.1 else stream


def _band(rng: random.Random, left: Input, right: Input) -> list[Expr]:
    """Event times that differ by at most some seconds either way."""
    one, other = left.column("ts"), right.column("ts")
    behind, ahead = (literal(timedelta(seconds=rng.randint(1, 60))) for _ in range(2))
    return [call("<=", one, call("+", other, ahead)), call("<=", other, call("+", one, behind))]


def _residual(rng: random.Random, inputs: list[Input]) -> Expr:
    """A condition over three inputs, as in r.a + s.b = t.c."""
    a, b, c = (input_.column(f"c{rng.randrange(4)}") for input_ in rng.sample(inputs, 3))
    return call("=", call("+", a, b), c)


def _statistics(rng: random.Random, names: list[str], columns: list[str]) -> Statistics:
    streams = {}
    for name in names:
        distinct = {column: round(10 ** rng.uniform(1, 6)) for column in columns}
        streams[name] = StreamStatistics(rate=round(10 ** rng.uniform(1, 5), 1), distinct=distinct)
    return Statistics(streams, horizon=timedelta(minutes=10), origin="given")
