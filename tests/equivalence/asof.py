"""Random joins with the latest version: streams, tuples that come late, batches, and what must be given."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

import weft
from weft.optimizer.space import Options
from weft.runtime.loop.driver_order import POLICIES
from weft.sql.bind import parse_query
from weft.testing import LocalRun, reference_join

START = datetime(2026, 1, 1)
KEYS = (0, 1, 1, 2, None)
SCHEMA = "id long, k long, v string, ts timestamp"
_ARROW = pa.schema(
    [("id", pa.int64()), ("k", pa.int64()), ("v", pa.string()), ("ts", pa.timestamp("us", "UTC"))]
)
WINDOWS = ("", "", "[RANGE 4 SECONDS]", "[RANGE 30 SECONDS]")
ON = (
    *("{o}.k = {r}.k AND {o}.ts >= {r}.ts",) * 4,
    "{o}.k = {r}.k AND {o}.ts > {r}.ts",
    "{o}.k = {r}.k AND {o}.v = {r}.v AND {o}.ts >= {r}.ts",
    "{o}.k = {r}.k AND {o}.ts >= {r}.ts AND {r}.v <> 'b'",
    "{o}.k = {r}.k AND {o}.ts >= {r}.ts AND {o}.id < {r}.id",
    "{o}.ts >= {r}.ts",
    # the next version, and versions that are told by another value than the event time
    "{o}.k = {r}.k AND {o}.ts <= {r}.ts",
    "{o}.k = {r}.k AND {o}.ts < {r}.ts + INTERVAL '2' SECOND",
    "{o}.k = {r}.k AND {o}.id >= {r}.id",
    "{o}.k = {r}.k AND {o}.id < {r}.id AND {r}.v <> 'b'",
    "{o}.v > {r}.v",
    "{o}.k = {r}.k AND {o}.id + 1 >= {r}.id + coalesce({r}.k, 3)",
)
KINDS = ("ASOF JOIN", "ASOF JOIN", "ASOF LEFT JOIN", "ASOF LEFT JOIN", "ASOF RIGHT JOIN", "ASOF FULL JOIN")

Rows = Counter[tuple[Any, ...]]


@dataclass
class AsofStory:
    """Queries over streams o, r and c, how late their tuples may be, and the batches that they come in."""

    queries: dict[str, str]
    lateness: dict[str, int]
    batches: list[dict[str, list[dict[str, Any]]]]
    options: Options = field(default_factory=Options)
    driver: str = "initial_output_size"

    def session(self) -> weft.Session:
        """A session with the streams."""
        session = weft.Session(options=self.options, driver=self.driver)
        for name, seconds in self.lateness.items():
            session.stream(name, SCHEMA, event_time="ts", lateness=timedelta(seconds=seconds))
        return session

    def given(self) -> dict[str, Rows]:
        """What the queries give."""
        session = self.session()
        for name, text in self.queries.items():
            session.query(text, name=name, sink=weft.to_memory())
        run = LocalRun(session)
        found: dict[str, Rows] = {name: Counter() for name in self.queries}
        for batch in self.batches:
            for name, table in run.batch(batch).items():
                found[name] += rows_of(table)
        for name, table in run.end().items():
            found[name] += rows_of(table)
        return found

    def tables(self) -> dict[str, pa.Table]:
        """The tuples that are on time, by stream."""
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in self.lateness}
        newest: dict[str, datetime] = {}
        for batch in self.batches:
            marks = {name: newest[name] - timedelta(seconds=self.lateness[name]) for name in newest}
            for name, rows in batch.items():
                timed = [row for row in rows if row["ts"] is not None]
                kept = [row for row in timed if name not in marks or row["ts"] >= marks[name]]
                found[name] += kept
                times = [row["ts"] for row in kept]
                if times:
                    newest[name] = max([*times, newest.get(name, times[0])])
        return {name: pa.Table.from_pylist(rows, schema=_ARROW) for name, rows in found.items()}

    def expected(self) -> dict[str, Rows]:
        """What the queries must give, by the definition."""
        catalog, tables = self.session().catalog, self.tables()
        found = {}
        for name, text in self.queries.items():
            query = parse_query(text, catalog, cross=True)
            named = {input_.alias: tables[input_.stream.name] for input_ in query.inputs}
            found[name] = rows_of(reference_join(query, named))
        return found


def rows_of(table: pa.Table) -> Rows:
    """The rows of a table as a multiset."""
    return Counter(tuple(row.values()) for row in table.to_pylist())


def random_asof(seed: int, *, ties: bool = True) -> AsofStory:
    """Random queries with joins with the latest version; unless ``ties``, no two versions have the same time."""
    rng = random.Random(seed)
    lateness = {name: rng.choice((0, 2, 10, 100)) for name in ("c", "o", "r")}
    count, used = rng.choice((1, 3, 6, 12)), set[datetime]()
    batches = [
        {name: _tuples(rng, number, name, used if not ties and name == "r" else None) for name in lateness}
        for number in range(count)
    ]
    queries = {f"q{number}": _text(rng) for number in range(rng.choice((1, 1, 2, 3)))}
    options = Options(partitions=rng.choice((1, 2, 4)))
    return AsofStory(queries, lateness, batches, options, rng.choice(sorted(POLICIES)))


def _tuples(rng: random.Random, batch: int, name: str, used: set[datetime] | None) -> list[dict[str, Any]]:
    rows = []
    for _ in range(rng.choice((0, 2, 5, 12))):
        ts = START + timedelta(seconds=4 * batch + rng.randrange(-12, 8))
        while used is not None and ts in used:
            ts += timedelta(milliseconds=1)
        if used is not None:
            used.add(ts)
        missing = rng.random() < 0.05
        rows.append(
            {
                "id": rng.randrange(50),
                "k": rng.choice(KEYS),
                "v": rng.choice(("a", "b", "", None)),
                "ts": None if missing and name != "c" else ts,
            }
        )
    return rows


def _text(rng: random.Random) -> str:
    kind = rng.choice(KINDS)
    window = {name: rng.choice(WINDOWS) for name in ("o", "r", "c")}
    on = rng.choice(ON).format(o="o", r="r")
    shape = rng.choice(("pair", "pair", "pair", "system", "above", "below", "twice"))
    shown = "o.id AS o_id, o.k AS o_k, r.id AS r_id, r.v AS r_v"
    where = rng.choice(("", "", " WHERE r.v = 'a'", " WHERE o.id > 10"))
    origin = f"o {window['o']} {kind} r {window['r']} ON {on}"
    if shape == "system":
        left = "LEFT " if "LEFT" in kind else ""
        origin = f"o {window['o']} {left}JOIN r {window['r']} FOR SYSTEM_TIME AS OF o.ts ON o.k = r.k"
    if shape == "above":
        above = rng.choice(("JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN"))
        near = "c.ts BETWEEN o.ts - INTERVAL '5' SECOND AND o.ts + INTERVAL '5' SECOND"
        origin += f" {above} c ON o.k = c.k AND {near}"
        shown += ", c.id AS c_id" if above in ("JOIN", "LEFT JOIN") else ""
    if shape == "below":
        near = "c.ts BETWEEN o.ts - INTERVAL '5' SECOND AND o.ts + INTERVAL '5' SECOND"
        below = rng.choice(("JOIN", "LEFT JOIN"))
        origin = f"o {window['o']} {below} c ON o.k = c.k AND {near} {kind} r {window['r']} ON {on}"
        shown += ", c.id AS c_id"
    if shape == "twice":
        origin += f" ASOF LEFT JOIN c {window['c']} ON o.k = c.k AND o.ts >= c.ts"
        shown += ", c.id AS c_id"
    return f"SELECT {shown} FROM {origin}{where}"
