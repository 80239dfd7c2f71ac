"""AJoin's workload: its streams, its query template (Figure 14), and the similarity of queries (Equation 3).

Guarantees: the same seed gives the same rows and the same queries. A query of the template is a chain: the streams in
order, each joined with the one before it, all seen through one window, and each filtered by one selection.

AJoin draws with Java's random generator, this module with NumPy's and Python's. AJoin's ComSJA, the "common sources
with common join attributes", is understood as in its Step 2: a source counts once for every join attribute of it that
both queries use, twice at most. By that, a pattern whose inner streams join on two attributes would have a similarity
above 1 with itself, so similarities are limited to 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks._data import BEGIN, write_file

ATR_MAX = 500  # the values of attributes are below this
ATTRIBUTES = tuple(f"a{i}" for i in range(6))
SCHEMA = ", ".join(f"{name} long" for name in ATTRIBUTES) + ", ts timestamp"
WINDOWS = (1, 2, 3)  # seconds
OPERATORS = ("=", ">", "<", ">=", "<=")

Used = tuple[str, str]  # a stream and an attribute it is joined on


def stream_names(count: int) -> tuple[str, ...]:
    """The names of that many streams.

    >>> stream_names(3)
    ('s1', 's2', 's3')
    """
    return tuple(f"s{i + 1}" for i in range(count))


def write_streams(
    folder: Path, streams: Sequence[str], rows: int, rows_per_file: int, rate: int, seed: int = 7
) -> None:
    """Write the Parquet files of every stream, below a directory of its name; row n has the time n ÷ rate."""
    for place, name in enumerate(streams):
        (folder / name).mkdir(parents=True)
        random = np.random.default_rng([seed, place])
        for number, first in enumerate(range(0, rows, rows_per_file)):
            found = _rows(random, first, min(first + rows_per_file, rows), rate)
            write_file(found, folder / name / f"{number:05}.parquet", number)


def _rows(random: Any, first: int, last: int, rate: int) -> pa.Table:
    columns = {name: random.integers(0, ATR_MAX, last - first) for name in ATTRIBUTES}
    times = BEGIN * 1_000_000 + np.arange(first, last, dtype=np.int64) * 1_000_000 // rate
    return pa.table({**columns, "ts": pa.array(times).cast(pa.timestamp("us", "UTC"))})


@dataclass(frozen=True, slots=True)
class Selection:
    """A comparison of an attribute with a value."""

    attribute: str
    operator: str
    value: int

    @property
    def selectivity(self) -> float:
        """The part of a stream's tuples that it lets through."""
        passed = {
            "=": int(0 <= self.value < ATR_MAX),
            "<": self.value,
            "<=": self.value + 1,
            ">": ATR_MAX - 1 - self.value,
            ">=": ATR_MAX - self.value,
        }
        return min(max(passed[self.operator], 0), ATR_MAX) / ATR_MAX


@dataclass(frozen=True, slots=True)
class Selections:
    """How selections are drawn.

    Without a ``selectivity``, operator and value are uniform, as in the template. With one, the value is chosen so that
    the selectivity is within ``spread`` of it; equality, which cannot be chosen so, is not drawn then.
    """

    selectivity: float | None = None
    spread: float = 0.1

    def draw(self, rng: Random) -> Selection:
        """Draw a selection."""
        attribute = rng.choice(ATTRIBUTES)
        if self.selectivity is None:
            return Selection(attribute, rng.choice(OPERATORS), rng.randrange(ATR_MAX))
        operator = rng.choice(OPERATORS[1:])
        wanted = self.selectivity + rng.uniform(-self.spread, self.spread)
        passed = round(ATR_MAX * min(max(wanted, 0.0), 1.0))
        values = {"<": passed, "<=": passed - 1, ">": ATR_MAX - 1 - passed, ">=": ATR_MAX - passed}
        return Selection(attribute, operator, values[operator])


@dataclass(frozen=True, slots=True)
class Template:
    """A query of Figure 14.

    For each stream but the first, ``joins`` has the attribute of the stream before it and its own that are to be equal.
    """

    streams: tuple[str, ...]
    joins: tuple[tuple[str, str], ...]
    window: int  # seconds
    selections: tuple[Selection, ...] = ()  # one per stream, or none at all

    def __post_init__(self) -> None:
        if len(set(self.streams)) < len(self.streams) or len(self.streams) < 2:
            raise ValueError(f"a join of {self.streams}: two streams or more, each once")
        if len(self.joins) != len(self.streams) - 1:
            raise ValueError(f"{len(self.joins)} joins do not make a chain of {len(self.streams)} streams")
        if self.selections and len(self.selections) != len(self.streams):
            raise ValueError(f"{len(self.selections)} selections for {len(self.streams)} streams")

    @property
    def used(self) -> frozenset[Used]:
        """The streams with the attributes they are joined on."""
        chain = zip(pairwise(self.streams), self.joins, strict=True)
        return frozenset(
            used for (one, other), (left, right) in chain for used in ((one, left), (other, right))
        )

    def __str__(self) -> str:
        """The query as Weft reads it."""
        inputs = ", ".join(f"{name} [RANGE {self.window} SECONDS]" for name in self.streams)
        chain = zip(pairwise(self.streams), self.joins, strict=True)
        where = [f"{one}.{left} = {other}.{right}" for (one, other), (left, right) in chain]
        where += [
            f"{name}.{selection.attribute} {selection.operator} {selection.value}"
            for name, selection in zip(self.streams, self.selections, strict=False)
        ]
        return f"SELECT * FROM {inputs} WHERE {' AND '.join(where)}"


RANDOM = Selections()


def draw(
    rng: Random, n_way: int, *, streams: Sequence[str] = (), selections: Selections | None = RANDOM
) -> Template:
    """Draw a query: over S1 to Sn in order or, if more streams are given, over some of them in any order."""
    names = tuple(rng.sample(streams, n_way)) if streams else stream_names(n_way)
    joins = tuple((rng.choice(ATTRIBUTES), rng.choice(ATTRIBUTES)) for _ in names[1:])
    return _completed(rng, names, joins, selections)


def query(
    rng: Random, n_way: int, *, streams: Sequence[str] = (), selections: Selections | None = RANDOM
) -> str:
    """Draw a query as text; if ``selections`` is None it has none, as for AJoin's Figure 15."""
    return str(draw(rng, n_way, streams=streams, selections=selections))


def _completed(
    rng: Random, names: tuple[str, ...], joins: tuple[tuple[str, str], ...], selections: Selections | None
) -> Template:
    """The query with a random window and random selections, which do not matter for the similarity."""
    window = rng.choice(WINDOWS)
    return Template(names, joins, window, tuple(selections.draw(rng) for _ in names) if selections else ())


def similarity(one: Template, pattern: Template) -> float:
    """The similarity of a query and a pattern (Equation 3).

    >>> pattern = Template(("a", "b"), (("a0", "a1"),), 1)
    >>> similarity(Template(("a", "b"), (("a0", "a0"),), 1), pattern)
    0.5
    """
    common = len(set(one.streams) & set(pattern.streams))
    common_attributes = len(one.used & pattern.used)
    return min(1.0, common * common_attributes / len(pattern.streams) ** 2)


def similar_query(
    rng: Random,
    pattern: Template,
    percent: float,
    *,
    streams: Sequence[str] = (),
    selections: Selections | None = RANDOM,
) -> str:
    """A random query of that similarity with the pattern, as text; see `similar`."""
    return str(similar(rng, pattern, percent, streams=streams, selections=selections))


def similar(
    rng: Random,
    pattern: Template,
    percent: float,
    *,
    streams: Sequence[str] = (),
    selections: Selections | None = RANDOM,
) -> Template:
    """Draw a query with as many streams as the pattern and about that similarity to it (AJoin, Steps 1 to 3).

    Which streams of the pattern are replaced by others is drawn at random; where there are too few others, more of the
    pattern's streams stay.
    """
    if not 0 <= percent <= 100:
        raise ValueError(f"a similarity of {percent} % cannot be")
    others = [name for name in streams if name not in pattern.streams]
    total = len(pattern.streams)
    common = max(rng.randint(1, total), total - len(others))  # Step 1
    while True:  # Step 2
        wanted = round(percent / 100 * total**2 / common)
        layouts = [layout for layout in _layouts(pattern, common) if layout.room(pattern) >= wanted]
        if layouts:
            break
        common += 1
    layout = rng.choice(layouts)  # Step 3
    names = layout.streams(rng.sample(others, total - common))
    return _completed(
        rng, names, _joins(rng, names, pattern, layout.chosen(rng, pattern, wanted)), selections
    )


@dataclass(frozen=True, slots=True)
class _Layout:
    """Neighbouring streams of the pattern that are kept, and how many others are before and after them in the query."""

    kept: tuple[str, ...]
    before: int
    after: int

    def streams(self, others: Sequence[str]) -> tuple[str, ...]:
        """The query's streams: those kept, with others before and after them."""
        return (*others[: self.before], *self.kept, *others[self.before :])

    def places(self, place: int) -> int:
        """How many joins of the query a kept stream takes part in."""
        first, last = place + self.before, len(self.kept) - 1 - place + self.after
        return (first > 0) + (last > 0)

    def room(self, pattern: Template) -> int:
        """How many of the pattern's join attributes can stay."""
        return sum(min(self.places(i), len(_of(pattern, name))) for i, name in enumerate(self.kept))

    def chosen(self, rng: Random, pattern: Template, count: int) -> set[Used]:
        """Draw ``count`` of the pattern's join attributes, at most as many of a stream as it has joins."""
        free = {name: self.places(i) for i, name in enumerate(self.kept)}
        candidates = [(name, attribute) for name in self.kept for attribute in _of(pattern, name)]
        rng.shuffle(candidates)
        found: set[Used] = set()
        for name, attribute in candidates:
            if free[name] and len(found) < count:
                free[name] -= 1
                found.add((name, attribute))
        return found


def _layouts(pattern: Template, common: int) -> Iterator[_Layout]:
    """All ways to keep so many streams that the pattern joins with each other."""
    rest = len(pattern.streams) - common
    for first in range(rest + 1):
        for before in range(rest + 1):
            yield _Layout(pattern.streams[first : first + common], before, rest - before)


def _of(pattern: Template, stream: str) -> list[str]:
    """The attributes that a pattern joins a stream on."""
    return sorted(attribute for name, attribute in pattern.used if name == stream)


def _joins(
    rng: Random, names: tuple[str, ...], pattern: Template, chosen: set[Used]
) -> tuple[tuple[str, str], ...]:
    """Joins on all the chosen attributes; elsewhere, streams are joined on attributes that the pattern does not use."""
    waiting = {name: sorted(attribute for one, attribute in chosen if one == name) for name in names}
    places = {name: (i > 0) + (i < len(names) - 1) for i, name in enumerate(names)}
    attributes: dict[str, list[str]] = {}
    for name in names:
        foreign = [attribute for attribute in ATTRIBUTES if (name, attribute) not in pattern.used]
        free = places[name] - len(waiting[name])
        attributes[name] = [*waiting[name], *(rng.choice(foreign) for _ in range(free))]
        rng.shuffle(attributes[name])
    return tuple((attributes[one].pop(), attributes[other].pop()) for one, other in pairwise(names))
