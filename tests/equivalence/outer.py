"""Random trees of joins of all kinds over random streams, with what they were made of.

A tree keeps the texts of its conditions, so that the definition can be computed from what was written, before anything
is bound, turned or reduced (`tests.equivalence.nested`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tests.equivalence.lateness import sources_after
from tests.equivalence.oracle import PERIOD
from tests.equivalence.streams import Join, random_batches, random_streams, random_table, random_tables
from weft.logical.catalog import Catalog
from weft.logical.schema import Stream
from weft.sql.bind import parse_query

KINDS = {"inner": 2, "left": 4, "right": 2, "full": 4, "semi": 2, "anti": 2}
RANGES = ("[RANGE 5 SECONDS]", "[RANGE 20 SECONDS]", "[RANGE 1 MINUTE]")

# A condition with one input on either side; equalities come from `_equality`.
THETAS = (
    *("{a}.k < {b}.k", "{a}.k <> {b}.n", "{a}.s < {b}.s", "{a}.k = {b}.k OR {a}.s = {b}.s"),
    *("{a}.k BETWEEN {b}.n - 1 AND {b}.n", "{a}.ts <= {b}.ts", "COALESCE({a}.n, 0) = {b}.n OR {b}.b"),
)
BANDS = (
    "{a}.ts BETWEEN {b}.ts - INTERVAL '5' SECOND AND {b}.ts + INTERVAL '10' SECOND",
    "{a}.ts BETWEEN {b}.ts AND {b}.ts + INTERVAL '7' SECOND",
    "{a}.ts - INTERVAL '3' SECOND < {b}.ts AND {b}.ts <= {a}.ts + INTERVAL '8' SECOND",
)
SINGLES = (
    "{a}.n < 2",
    "{a}.s IS NULL",
    "{a}.b",
    "{a}.id <> 1",
    "{a}.s IN ('a', 'b')",
    "COALESCE({a}.k, 1) = 1",
)
KEPT = (
    *("{a}.k IS NULL", "COALESCE({a}.k, {b}.k) = 1", "{a}.n < 2", "{a}.id IS NOT NULL", "NOT {a}.b"),
    *("{a}.n = 1 OR {b}.n = 1", "{a}.k = {b}.k", "{a}.k IS NULL OR {b}.k IS NULL", "COALESCE({a}.n, 0) < 2"),
    *(
        "CASE WHEN {a}.id IS NULL THEN {b}.b ELSE TRUE END",
        "{a}.ts <= {b}.ts",
        "{a}.s = 'a' OR {b}.id IS NULL",
    ),
)
SHOWN = (
    "{a}.k + {b}.n",
    "COALESCE({a}.s, 'none')",
    "{a}.ts",
    "COALESCE({a}.k, {b}.k)",
    "{a}.id IS NULL",
    "1",
)


@dataclass(frozen=True)
class Branch:
    """A join as written; ``key`` is what the column that USING merges is equal to."""

    kind: str
    left: Branch | str
    right: Branch | str
    on: tuple[str, ...]
    key: str = ""

    @property
    def visible(self) -> tuple[str, ...]:
        """The inputs whose columns may be named above."""
        return (*seen(self.left), *(() if self.kind in ("semi", "anti") else seen(self.right)))

    @property
    def kinds(self) -> Iterator[str]:
        """The kinds of this join and those below."""
        yield self.kind
        for side in (self.left, self.right):
            if isinstance(side, Branch):
                yield from side.kinds


def seen(side: Branch | str) -> tuple[str, ...]:
    """The inputs whose columns a side of a join gives."""
    return side.visible if isinstance(side, Branch) else (side,)


@dataclass(frozen=True)
class OuterJoin:
    """A random join, the text of its query and what that was made of.

    ``shown`` are the columns of the result as they are written where nothing is merged, by their names.
    """

    join: Join
    text: str
    tree: Branch
    where: tuple[str, ...]
    shown: dict[str, str]


def random_outer(
    seed: int,
    *,
    prefix: str = "s",
    batches: Sequence[int] = (1, 2, 3, 3, 6, 12),
    late: Sequence[str] = ("join", "drop"),
    mixed: bool = True,
    bare: float = 0.0,
) -> OuterJoin:
    """A random tree of joins, at least one of them not an inner join, over random streams.

    Unless mixed, all of them or none have event times. Such a part of the joins, ``bare``, is ON TRUE.
    """
    rng = random.Random(seed)
    streams = random_streams(rng, prefix, late, mixed)
    catalog = Catalog(tuple(dict.fromkeys(streams)))
    using = rng.random() < 0.2
    writer = _Writer(rng, using and not bare, rng.choice((0.0, 0.0, 0.3)), _kinds(rng), bare)
    names = [f"r{i}" for i, _ in enumerate(streams)]
    tree = writer.tree(names, bushy=rng.random() < 0.4)
    while set(tree.kinds) == {"inner"}:
        tree = writer.tree(names, bushy=rng.random() < 0.4)
    where, shown = writer.where(tree), writer.shown(tree)
    text = _text(tree, where, shown, _sources(rng, names, streams))
    tables = random_tables(rng, catalog, (8, 15, 25) if len(streams) < 4 else (5, 8, 12))
    join = Join(
        parse_query(text, catalog, cross=True),
        catalog,
        tables,
        random_batches(rng, tables, rng.choice(batches)),
    )
    return OuterJoin(join, text, tree, where, shown)


def at_the_last_moment(join: Join, seed: int) -> Join:
    """A join with one batch more, of tuples that are just on time.

    Rows that were left without a partner too early find one there.
    """
    rng = random.Random(seed)
    count = rng.randint(1, len(join.batches))
    sources = sources_after(join, np.arange(count, dtype=np.int64) * PERIOD, count)
    tables, ranges = {}, {}
    for name, table in join.tables.items():
        mark, place = sources[name].mark, join.batches[count - 1][name][1]
        times = [(mark or 0) + rng.choice((0, 0, 0, 250_000, 1_000_000, 5_000_000)) for _ in range(6)]
        more = random_table(rng, len(times), 0)
        number = table.schema.get_field_index("ts")
        more = more.set_column(number, "ts", pa.array(times).cast(pa.timestamp("us", "UTC")))
        tables[name] = pa.concat_tables([table.slice(0, place), more, table.slice(place)])
        ranges[name] = (place, place + len(times))
    after = tuple({n: (a + 6, b + 6) for n, (a, b) in batch.items()} for batch in join.batches[count:])
    return replace(join, tables=tables, batches=(*join.batches[:count], ranges, *after))


def _kinds(rng: random.Random) -> list[str]:
    """What kinds of joins there are, as often as they are; now and then only one and inner joins."""
    if rng.random() < 0.3:
        return ["inner", rng.choice(list(KINDS)[1:])]
    return [kind for kind, weight in KINDS.items() for _ in range(weight)]


def _sources(rng: random.Random, names: Sequence[str], streams: Sequence[Stream]) -> dict[str, str]:
    windows = rng.choice((("",), RANGES, ("", *RANGES)))
    return {
        name: f"{stream.name} {rng.choice(windows)} AS {name}"
        for name, stream in zip(names, streams, strict=True)
    }


@dataclass(frozen=True)
class _Writer:
    """Writes the parts of one query."""

    rng: random.Random
    using: bool
    theta: float
    kinds: list[str]
    bare: float = 0.0

    def tree(self, names: Sequence[str], bushy: bool) -> Branch:
        """A tree over these inputs, in their order."""
        cut = self.rng.randint(1, len(names) - 1) if bushy else len(names) - 1
        left, right = (
            self.tree(part, bushy) if len(part) > 1 else part[0] for part in (names[:cut], names[cut:])
        )
        kind = self.rng.choice(self.kinds)
        if self.using:
            one, other = (side.key if isinstance(side, Branch) else f"{side}.k" for side in (left, right))
            key = {"full": f"COALESCE({one}, {other})", "right": other}.get(kind, one)
            return Branch(kind, left, right, (f"{one} = {other}",), key)
        return Branch(kind, left, right, tuple(self._on(kind, seen(left), seen(right))))

    def _on(self, kind: str, left: Sequence[str], right: Sequence[str]) -> Iterator[str]:
        rng = self.rng
        if (kind == "inner" and rng.random() < 0.05) or (self.bare and rng.random() < self.bare):
            return
        a, b = rng.choice(left), rng.choice(right)
        if rng.random() < self.theta:
            yield rng.choice((*THETAS, *BANDS)).format(a=a, b=b)
        else:
            yield f"{self._key(left)} = {self._key(right)}"
        if rng.random() < 0.2:
            yield rng.choice(THETAS if rng.random() < 0.4 else BANDS).format(a=a, b=b)
        if rng.random() < 0.15:
            yield f"{rng.choice(left)}.s = {rng.choice(right)}.s"
        if rng.random() < 0.25:
            yield rng.choice(SINGLES).format(a=rng.choice((a, b)))

    def _key(self, side: Sequence[str]) -> str:
        """Most often the one column; of several inputs, whichever has it."""
        if len(side) > 1 and self.rng.random() < 0.4:
            one, other = self.rng.sample(side, 2)
            return f"COALESCE({one}.k, {other}.k)"
        name = self.rng.choice(side)
        return self.rng.choice((*(f"{name}.k",) * 8, f"{name}.n", f"{name}.k + 1"))

    def where(self, tree: Branch) -> tuple[str, ...]:
        """What the results must fulfil; often nothing."""
        rng, names = self.rng, tree.visible
        count = rng.choice((0, 0, 1, 2))
        terms = [rng.choice(KEPT).format(a=rng.choice(names), b=rng.choice(names)) for _ in range(count)]
        if pads(tree) and rng.random() < 0.1:
            terms.append(f"provenance <> '{rng.choice(names)}'")
        return tuple(terms)

    def shown(self, tree: Branch) -> dict[str, str]:
        """The columns of the result."""
        rng, names = self.rng, tree.visible
        columns = {name: f"{name}.id" for name in names} if rng.random() < 0.7 else {}
        for number in range(rng.randint(0 if columns else 1, 2)):
            columns[f"x{number}"] = rng.choice(SHOWN).format(a=rng.choice(names), b=rng.choice(names))
        if self.using:
            columns["k"] = tree.key
        if pads(tree) and rng.random() < 0.5:
            columns["provenance"] = "provenance"
        return columns


def pads(tree: Branch) -> bool:
    """Whether rows may lack tuples."""
    return bool({"left", "right", "full"} & set(tree.kinds))


def _text(tree: Branch, where: Sequence[str], shown: dict[str, str], sources: dict[str, str]) -> str:
    listed = ", ".join("k" if tree.key and n == "k" else f"{text} AS {n}" for n, text in shown.items())
    kept = " AND ".join(f"({term})" for term in where)
    return f"SELECT {listed} FROM {_from(tree, sources)}" + (f" WHERE {kept}" if kept else "")


def _from(node: Branch | str, sources: dict[str, str]) -> str:
    if isinstance(node, str):
        return sources[node]
    left, right = _from(node.left, sources), _from(node.right, sources)
    nested = f"({right})" if isinstance(node.right, Branch) else right
    kind = "CROSS" if node.kind == "inner" and not node.on else node.kind.upper()
    on = " ON " + (" AND ".join(f"({term})" for term in node.on) or "TRUE") if kind != "CROSS" else ""
    return f"{left} {kind} JOIN {nested}" + (" USING (k)" if node.key else on)
