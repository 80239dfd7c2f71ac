"""Random workloads for the planner: what users may ask for, and what may be known of their streams.

Queries of one to five inputs over five streams: self joins, windows of every kind, filters, equalities over three
inputs and outer joins. Statistics are drawn as they come in practice: streams that bring nothing, columns with one
value, heavy values; or nothing is known at all. Queries come and go, and what is known changes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tests.random_statistics import random_statistics
from weft.errors import WeftError
from weft.logical.catalog import Catalog
from weft.logical.outer.outer import core_and_closing
from weft.logical.query.canonical import canonical
from weft.logical.query.query import Query
from weft.logical.schema import Schema, Stream
from weft.optimizer.cost import Weights
from weft.optimizer.space import Options
from weft.sql.bind import parse_query
from weft.stats.statistics import Statistics

SCHEMA = Schema.parse("k long, j long, m long, v long, ts timestamp")
STREAMS = ("a", "b", "c", "d", "e")
KEYS = ("k", "j", "m")
CATALOG = Catalog(tuple(Stream(name, SCHEMA, "ts") for name in STREAMS))

WINDOWS = (
    *("", "", "[UNBOUNDED]", "[RANGE 10 SECONDS]", "[RANGE 10 SECONDS]", "[RANGE 1 MINUTE]"),
    *("[ROWS 1]", "[ROWS 100]", "[ROWS 10 PER k]"),
)
FILTERS = ("{a}.v > 25", "{a}.v > 25", "{a}.k = 3", "{a}.m IN (1, 2)", "{a}.j IS NOT NULL", "{a}.k < {a}.j")
PAIRS = ("{a}.{x} = {b}.{y}",) * 12 + ("{a}.v < {b}.v", "{a}.v <> {b}.v", "{a}.{x} + 1 = {b}.{y}")
BANDS = ("{a}.v BETWEEN {b}.v - 5 AND {b}.v + 5",)
TRIPLES = (
    *("{a}.{x} + {b}.{y} = {c}.{z}", "COALESCE({a}.{x}, {b}.{y}) = {c}.{z}"),
    *("{a}.k + {b}.k = {c}.k + {c}.j", "{a}.v + {b}.v < {c}.v", "GREATEST({a}.k, {b}.j) = {c}.m"),
)
JOINS = ("LEFT", "LEFT", "FULL", "SEMI", "ANTI", "INNER")


@dataclass(frozen=True)
class Case:
    """Queries by name, which of them run at each point in time, and what is known then."""

    queries: Mapping[str, Query]
    running: tuple[tuple[str, ...], ...]
    statistics: tuple[Statistics, ...]
    options: Options
    strategies: Mapping[str, str]


def random_case(seed: int) -> Case:
    """The case of a seed."""
    rng = random.Random(seed)
    count = rng.choice((1, 2, 2, 3, 3, 3, 4, 5, 6, 8))
    draw = _Draw(rng)
    queries = {f"q{i}": draw.query() for i in range(count)}
    running = tuple(_running(rng, tuple(queries)))
    known = [random_statistics(rng, dict.fromkeys(STREAMS, KEYS)) for _ in range(2)]
    steady = rng.random() < 0.5
    statistics = tuple(known[0] if steady else rng.choice(known) for _ in running)
    strategies = {name: rng.choice(("flat", "left_deep", "merge")) for name in queries if rng.random() < 0.05}
    return Case(queries, running, statistics, _options(rng), strategies)


def _running(rng: random.Random, names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """First some queries, then others: a few more or less, now and then most of them."""
    now = [name for name in names if rng.random() < 0.7] or [names[0]]
    yield tuple(now)
    for _ in range(rng.choice((1, 1, 1, 2))):
        change = rng.choice((0.2, 0.5))
        now = [name for name in names if (name in now) != (rng.random() < change)]
        if now:
            yield tuple(now)


def _options(rng: random.Random) -> Options:
    """Little time; mostly the usual weights, and any number of partitions."""
    seconds = rng.choice((0.0, 0.02, 0.05, 0.1))
    found = Options(partitions=rng.choice((1, 2, 4, 4, 16)), planning_seconds=seconds)
    if rng.random() < 0.3:
        keep, hop = rng.choice((0.0, 1e-12, 1e-6)), rng.choice((0.0, 1e-4, 0.1))
        found = replace(found, weights=Weights(store=10 ** rng.uniform(-9, -5), keep=keep, hop=hop))
    return found


class _Draw:
    """Draws queries that have joins in common."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.windows = rng.sample(WINDOWS, rng.randint(1, 4))
        self.keys = rng.sample(KEYS, rng.randint(1, 3))
        self.outer = rng.choice((0.0, 0.0, 0.3))
        self.triples = rng.choice((0.0, 0.2, 0.5))
        self.theta = rng.choice((0.0, 0.1, 0.3))

    def query(self) -> Query:
        """One query, canonical."""
        while True:
            try:
                text = self._outer_text() if self.rng.random() < self.outer else self._text()
                found = canonical(parse_query(text, CATALOG, cross=True)).query
                core_and_closing(found)
            except WeftError:
                continue  # such as outer joins that cannot be closed
            return found

    def _inputs(self) -> list[str]:
        rng = self.rng
        count = rng.choice((1, 2, 2, 3, 3, 3, 4, 4, 5))
        if rng.random() < 0.2:
            return [rng.choice(STREAMS) for _ in range(count)]
        return rng.sample(STREAMS, count)

    def _text(self) -> str:
        rng, streams = self.rng, self._inputs()
        where = list(self._joins(len(streams)))
        where += [rng.choice(FILTERS).format(a=f"x{i}") for i in range(len(streams)) if rng.random() < 0.15]
        tables = ", ".join(f"{s} {rng.choice(self.windows)} AS x{i}" for i, s in enumerate(streams))
        return f"SELECT x0.k FROM {tables}" + (f" WHERE {' AND '.join(where)}" if where else "")

    def _joins(self, count: int) -> Iterator[str]:
        """What joins each input with those before it: at times only with two of them together."""
        rng = self.rng
        for i in range(1, count):
            if i > 1 and rng.random() < self.triples:
                yield self._triple(
                    rng.sample(range(i + 1), 3) if rng.random() < 0.3 else [*rng.sample(range(i), 2), i]
                )
                if rng.random() < 0.7:
                    continue
            yield self._pair(rng.randrange(i), i)
        if count > 2 and rng.random() < 0.3:
            yield self._pair(0, count - 1)

    def _pair(self, a: int, b: int) -> str:
        rng = self.rng
        text = rng.choice((*PAIRS[-3:], *BANDS) if rng.random() < self.theta else PAIRS)
        return text.format(a=f"x{a}", b=f"x{b}", x=rng.choice(self.keys), y=rng.choice(self.keys))

    def _triple(self, inputs: Sequence[int]) -> str:
        rng = self.rng
        a, b, c = (f"x{i}" for i in inputs)
        x, y, z = rng.choices(self.keys, k=3)
        return rng.choice(TRIPLES).format(a=a, b=b, c=c, x=x, y=y, z=z)

    def _outer_text(self) -> str:
        rng, streams = self.rng, self._inputs()
        text = f"SELECT x0.k FROM {streams[0]} [RANGE 10 SECONDS] AS x0"
        for i, stream in enumerate(streams[1:], 1):
            key = self.keys[0] if rng.random() < 0.7 else rng.choice(self.keys)
            on = f"x{rng.randrange(i)}.{key} = x{i}.{key}"
            text += f" {rng.choice(JOINS)} JOIN {stream} [RANGE 10 SECONDS] AS x{i} ON {on}"
        return text
