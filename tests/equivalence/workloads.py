"""Random workloads: overlapping queries over few streams, that come and go between batches.

Queries are drawn as variants of a few patterns: a connected part of its inputs, what joins these, and filters, windows
and outputs of their own. So they have stores, first steps and intermediate results in common, and still differ.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from tests.equivalence.streams import FILTERS, PAIRS, SHOWN, THETAS, TRIPLES, Join, random_join
from weft.errors import WeftError
from weft.logical.catalog import Catalog
from weft.logical.outer.outer import core_and_closing
from weft.logical.query.canonical import canonical
from weft.logical.query.ordering import Ordering
from weft.logical.query.query import Query
from weft.logical.query.window import UNBOUNDED, Range, Rows
from weft.optimizer.single.strategies import STRATEGIES
from weft.sql.bind import parse_query

CONDITIONS = (
    *FILTERS,
    *("{a}.k < 2", "{a}.k < 1", "{a}.k <= 1", "{a}.k >= 1", "{a}.k > 0 AND {a}.k < 2", "{a}.k = 2"),
    *("{a}.k IN (0, 2)", "{a}.n IN (1, 2)", "{a}.n = 1", "{a}.n <> 1", "{a}.k IS NULL", "{a}.n < {a}.k"),
    *("{a}.s = 'a'", "{a}.s = 'b'", "{a}.s >= 'a'", "{a}.s LIKE 'a%'", "UPPER({a}.s) = 'A'"),
    *("{a}.d > 1", "{a}.d >= 1", "{a}.d < 2", "{a}.d = 1", "{a}.f <= 1", "{a}.m < 2", "{a}.m = 1"),
    *("{a}.b", "{a}.b IS NOT NULL", "{a}.k = 1 OR {a}.s = 'a'", "{a}.k + {a}.n > 1"),
)
RANGES = (
    *("", "[RANGE 3 SECONDS]", "[RANGE 8 SECONDS]", "[RANGE 20 SECONDS]", "[RANGE 40 SECONDS]"),
    "[RANGE 1 MINUTE]",
)
OUTER = ("LEFT", "LEFT", "FULL", "RIGHT", "SEMI", "ANTI", "INNER")
PER_KEY = (
    *("[ROWS 1 PER k]", "[ROWS 2 PER k]", "[ROWS 3 PER k]", "[ROWS 5 PER k]", "[ROWS 2 PER s]"),
    *("[ROWS 3 PER d]", "[ROWS 1 PER k, s]"),
)
# Equalities over three inputs, by which alone an input may be joined.
TERNARY = (
    *("{a}.k + {b}.k = {c}.k", "COALESCE({a}.k, {b}.k) = {c}.k", "{a}.k + {b}.n = {c}.k + {c}.n"),
    *("GREATEST({a}.k, {b}.k) = {c}.n", "COALESCE({a}.s, {b}.s) = {c}.s"),
)
COUNTS = ("[ROWS 1]", "[ROWS 4]", "[ROWS 9]", "[ROWS 30]")


@dataclass(frozen=True)
class Wish:
    """A query that somebody asks for: its text, the query under common names, and the author's wishes."""

    text: str
    query: Query
    backfill: bool = False
    strategy: str | None = None
    ordering: Ordering | None = None


@dataclass(frozen=True)
class Change:
    """What changes before a batch."""

    begin: Mapping[str, Wish] = field(default_factory=dict)
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Life:
    """A query from the first batch it is in to the one it is no longer in."""

    query: Query
    first: int
    last: int
    backfill: bool = False


@dataclass(frozen=True)
class Workload:
    """Streams with their tuples and batches, and the change of queries before each batch."""

    streams: Join
    changes: tuple[Change, ...]

    def lives(self) -> dict[str, Life]:
        """All queries that ever run."""
        found: dict[str, Life] = {}
        for number, change in enumerate(self.changes):
            for name in change.stop:
                found[name] = replace(found[name], last=number)
            for name, wish in change.begin.items():
                found[name] = Life(wish.query, number, len(self.changes), wish.backfill)
        return found


@dataclass(frozen=True)
class Pattern:
    """A join: the streams of its inputs, and the conditions between some of them."""

    streams: tuple[str, ...]
    pairs: tuple[tuple[int, int, str], ...]
    triples: tuple[tuple[tuple[int, int, int], str], ...] = ()

    def part(self, rng: random.Random, size: int) -> list[int]:
        """So many of its inputs, connected."""
        found = [rng.randrange(len(self.streams))]
        while len(found) < size:
            near = {b if a in found else a for a, b, _ in self.pairs if (a in found) != (b in found)}
            if near:
                found.append(rng.choice(sorted(near)))
            else:  # what is left is joined with these by an equality over three inputs
                three = next(three for three, _ in self.triples if 0 < len(set(three) - set(found)) < 3)
                found += sorted(set(three) - set(found))
        return sorted(found)

    def by_three(self, rng: random.Random, often: float) -> Pattern:
        """The pattern, often with its last input joined with two others by one equality, and by nothing else."""
        last = len(self.streams) - 1
        if last < 2 or rng.random() >= often:
            return self
        a, b = rng.sample(range(last), 2)
        text = rng.choice(TERNARY).format(a=f"r{a}", b=f"r{b}", c=f"r{last}")
        pairs = tuple(pair for pair in self.pairs if last not in pair[:2])
        others = tuple(triple for triple in self.triples if last not in triple[0])
        return replace(self, pairs=pairs, triples=(((a, b, last), text), *others))

    def where(self, part: Sequence[int]) -> list[str]:
        """What joins some of its inputs."""
        inside = [text for a, b, text in self.pairs if a in part and b in part]
        return inside + [text for three, text in self.triples if set(three) <= set(part)]


def random_workload(
    seed: int,
    *,
    prefix: str = "s",
    batches: Sequence[int] = (3, 4, 5, 6, 8),
    mixed: bool = True,
    outer: float = 0.0,
    windows: Sequence[str] = (),
    ternary: float = 0.0,
) -> Workload:
    """A random workload; unless mixed, all of its streams or none have event times.

    ``outer`` is what part of the queries have outer, semi or anti joins, if their streams allow it; some of the
    ``windows`` are among those of its inputs; ``ternary`` is what part of the inputs are joined with two others by one
    equality, and by nothing else.
    """
    rng = random.Random(seed)
    join = _few(rng, random_join(rng.randrange(1 << 40), prefix=prefix, batches=batches, mixed=mixed))
    draw = _Draw(rng, join.catalog, outer)
    if ternary:  # drawn apart, so that all else is as it is without
        apart = random.Random(f"{seed} by three")
        draw.patterns = [pattern.by_three(apart, ternary) for pattern in draw.patterns]
    if windows:
        draw.windows = [draw.windows[0], *rng.sample(windows, 3)]
    return Workload(join, tuple(_changes(rng, draw, len(join.batches))))


def _few(rng: random.Random, join: Join) -> Join:
    """The streams with no more tuples than make a test quick."""
    most = rng.choice((10, 16, 16, 24))
    tables = {name: table.slice(0, most) for name, table in join.tables.items()}
    batches = tuple(
        {name: (min(first, most), min(last, most)) for name, (first, last) in batch.items()}
        for batch in join.batches
    )
    return replace(join, tables=tables, batches=batches)


class _Draw:
    """Draws queries from patterns, filters and windows that are the workload's own."""

    def __init__(self, rng: random.Random, catalog: Catalog, outer: float) -> None:
        self.rng, self.catalog, self.outer = rng, catalog, outer
        self.names = [stream.name for stream in catalog.streams]
        self.patterns = [self._pattern() for _ in range(rng.choice((1, 1, 2, 3)))]
        self.filters = rng.sample(CONDITIONS, rng.randint(1, 4))
        self.filtered = rng.choice((0.0, 0.1, 0.3, 0.6))
        self.windows = rng.sample(RANGES, rng.randint(1, 3))
        if rng.random() < 0.3:
            self.windows += rng.sample(COUNTS, rng.randint(1, 2))
        self.wishes: list[Wish] = []

    def _pattern(self) -> Pattern:
        rng = self.rng
        count = rng.choices((2, 3, 4, 5), weights=(3, 8, 3, 1))[0]
        streams = rng.sample(self.names, min(count, len(self.names)))
        while len(streams) < count and rng.random() < 0.4:
            streams.append(rng.choice(self.names))
        theta = rng.choice((0.0, 0.0, 0.2, 0.6))
        edges = [(rng.randrange(i), i) for i in range(1, len(streams))]
        if len(streams) > 2 and rng.random() < 0.3:
            edges.append((0, len(streams) - 1))
        pairs = tuple((a, b, self._pair(a, b, theta)) for a, b in dict.fromkeys(edges))
        triples = tuple(self._triples(len(streams)))
        return Pattern(tuple(streams), pairs, triples)

    def _pair(self, a: int, b: int, theta: float) -> str:
        return self.rng.choice(THETAS if self.rng.random() < theta else PAIRS).format(a=f"r{a}", b=f"r{b}")

    def _triples(self, count: int) -> Iterator[tuple[tuple[int, int, int], str]]:
        if count > 2 and self.rng.random() < 0.25:
            a, b, c = self.rng.sample(range(count), 3)
            yield (a, b, c), self.rng.choice(TRIPLES).format(a=f"r{a}", b=f"r{b}", c=f"r{c}")

    def wish(self) -> Wish:
        """One more query: a variant of a pattern or, at times, the twin of one that was drawn before."""
        rng = self.rng
        known = rng.choice(self.wishes) if self.wishes and rng.random() < 0.25 else None
        found = _narrowed(rng, known) if known else self._variant()
        counted = any(isinstance(input_.window, Rows) for input_ in found.query.inputs)
        backfill = not counted and rng.random() < 0.5
        names = [name for name in STRATEGIES if name != "exhaustive"]
        strategy = rng.choice(names) if rng.random() < 0.1 else None
        self.wishes.append(replace(found, backfill=backfill, strategy=strategy))
        return self.wishes[-1]

    def _variant(self) -> Wish:
        while True:
            text = self._outer_text() if self.outer and self.rng.random() < self.outer else self._text()
            try:
                query = canonical(parse_query(text, self.catalog)).query
                core_and_closing(query)
            except WeftError:
                continue  # such as a filter that contradicts another, or a stream that joins late tuples
            return Wish(text, query)

    def _outer_text(self) -> str:
        """Inputs of a pattern joined one after the other, with conditions between them and those that are seen."""
        rng = self.rng
        pattern = rng.choice(self.patterns)
        first, *more = pattern.part(rng, rng.randint(min(2, len(pattern.streams)), len(pattern.streams)))
        seen, origin = [first], self._input(pattern, first)
        rng.shuffle(more)
        for place in more:
            on = [text for a, b, text in pattern.pairs if place in (a, b) and {a, b} <= {place, *seen}]
            if on:
                kind = rng.choice(OUTER)
                if rng.random() < self.filtered:
                    on.append(rng.choice(self.filters).format(a=f"r{place}"))
                joined = " AND ".join(f"({text})" for text in on)
                origin += f" {kind} JOIN {self._input(pattern, place)} ON {joined}"
                seen += [place] if kind not in ("SEMI", "ANTI") else []
        where = [rng.choice(self.filters).format(a=f"r{i}") for i in seen if rng.random() < self.filtered / 2]
        text = f"SELECT {self._shown([f'r{i}' for i in seen])} FROM {origin}"
        return text + (f" WHERE {' AND '.join(f'({w})' for w in where)}" if where else "")

    def _input(self, pattern: Pattern, place: int) -> str:
        return f"{pattern.streams[place]} {self.rng.choice(self.windows)} AS r{place}"

    def _text(self) -> str:
        rng = self.rng
        pattern = rng.choice(self.patterns)
        whole = len(pattern.streams)
        part = pattern.part(rng, rng.choices(range(1, whole + 1), weights=(1, *range(3, whole + 2)))[0])
        where = pattern.where(part)
        if len(part) > 1 and rng.random() < 0.1:
            a, b = rng.sample(part, 2)
            where.append(self._pair(a, b, 0.5))
        where += [rng.choice(self.filters).format(a=f"r{i}") for i in part if rng.random() < self.filtered]
        inputs = [f"{pattern.streams[i]} {rng.choice(self.windows)} AS r{i}" for i in part]
        shown = self._shown([f"r{i}" for i in part])
        text = f"SELECT {shown} FROM {', '.join(inputs)}"
        return text + (f" WHERE {' AND '.join(f'({w})' for w in where)}" if where else "")

    def _shown(self, names: list[str]) -> str:
        rng = self.rng
        shown = [f"{name}.id AS {name}" for name in names if rng.random() < 0.8]
        for number in range(rng.randint(0 if shown else 1, 2)):
            one = rng.choice(SHOWN).format(a=rng.choice(names), b=rng.choice(names))
            shown.append(f"{one} AS x{number}")
        return ", ".join(shown)


def _narrowed(rng: random.Random, wish: Wish) -> Wish:
    """The same query, at times through narrower windows, or with fewer outputs."""
    query = wish.query
    if rng.random() < 0.5:
        inputs = tuple(
            replace(i, window=rng.choice((i.window, Range(timedelta(seconds=3)))))
            if i.window == UNBOUNDED
            else i
            for i in query.inputs
        )
        query = replace(query, inputs=inputs)
    if rng.random() < 0.5:
        query = replace(query, projection=query.projection[:1])
    return Wish(str(query), canonical(query).query)


def _changes(rng: random.Random, draw: _Draw, count: int) -> Iterator[Change]:
    """The changes before each batch; names come in no order, so that neither do places in query-sets."""
    names = [f"q{number:02}" for number in range(60)]
    rng.shuffle(names)
    most = rng.choices((3, 4, 6, 9, 20), weights=(30, 30, 20, 10, 1))[0]
    restless = rng.choice((0.0, 0.5, 0.8, 0.8))
    running: list[str] = []
    for number in range(count):
        stop: list[str] = []
        if number and rng.random() < restless:
            all_ = rng.random() < 0.06
            stop = [name for name in running if all_ or rng.random() < 0.3]
        running = [name for name in running if name not in stop]
        room = most - len(running)
        fresh = 0
        if not number:
            fresh = rng.randint(1 if restless else 2, most)
        elif room > 0 and rng.random() < restless:
            fresh = rng.randint(0, min(3, room))
        begin = {names.pop(): draw.wish() for _ in range(min(fresh, len(names)))}
        running += begin
        yield Change(begin, tuple(stop))
