"""Random stories of tables, latest versions and queries over queries, for runs that are killed.

Everything follows from a seed. While a story is told, files of streams come, a table becomes another or is damaged for
a while, and queries that look it up come and go. Tuples come out of order, by less than the streams' lateness. What a
killed run has told is not told again: each event leaves a mark.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import weft

STREAMS = ("c", "o", "r")
SCHEMA = "id long, k long, v string, ts timestamp"
TABLE = pa.schema([("k", pa.int64()), ("x", pa.int64()), ("version", pa.int64())])
FIXED = pa.table(
    {"k": pa.array([0, 1, 2, 2, None], pa.int64()), "name": ["zero", "one", "two", "zwei", "none"]}
)
FILES, ROWS = 6, 10  # of each stream, and in each file
PERIOD, DISORDER = 2, 3  # seconds of event time in a file; seconds that tuples are early or late
BEGAN = datetime(2024, 1, 1, tzinfo=timezone.utc)
KEYS = (0, 1, 1, 2, 3, 4, 5, None)

# They look up the table of which there are versions; some come and go. s is a stream.
LOOKUPS = (
    "SELECT s.id AS id, t.x AS x, t.version AS version FROM {s} AS s JOIN t ON s.k = t.k",
    "SELECT s.id AS id, s.k AS k, t.version AS version FROM {s} AS s LEFT JOIN t ON s.k = t.k AND t.x > {w0}",
    "SELECT s.id AS id, s.k AS k FROM {s} AS s ANTI JOIN t ON s.k = t.k AND t.x > {w0}",
    "SELECT s.id AS id, s.k AS k FROM {s} AS s SEMI JOIN t ON s.k = t.k",
    """SELECT s.id AS id, t.x AS x, t.version AS version FROM {s} AS s, t
       WHERE s.k BETWEEN t.k - 1 AND t.k AND t.x < {w1}""",
    "SELECT s.id AS id, f.name AS name, t.version AS version FROM {s} AS s, t, f WHERE s.k = t.k AND f.k = t.x",
    """SELECT u.id AS id, u.v AS v, t.x AS x, t.version AS version
       FROM (SELECT id, k, v, ts FROM o UNION ALL SELECT id + 1000, k, 'more', ts FROM c WHERE k < {w0}) AS u
       JOIN t ON u.k = t.k""",
)
# These run from the beginning to the end.
PAIRS = (
    """SELECT o.id AS o, c.id AS c, t.version AS version FROM o [RANGE {w0} SECONDS], c [RANGE {w1} SECONDS], t
       WHERE o.k = c.k AND c.k = t.k""",
    """SELECT o.id AS o, u.id AS u, t.version AS version
       FROM o [RANGE {w0} SECONDS],
            (SELECT id, k FROM c UNION ALL SELECT id + 1000, k + 1 FROM r) [RANGE {w1} SECONDS] AS u, t
       WHERE o.k = u.k AND o.k = t.k""",
)
LATEST = (
    "SELECT o.id AS o, r.id AS r FROM o ASOF JOIN r ON o.k = r.k AND o.ts >= r.ts",
    "SELECT o.id AS o, r.id AS r, r.v AS v FROM o ASOF LEFT JOIN r [RANGE {w1} SECONDS] ON o.k = r.k AND o.ts >= r.ts",
    """SELECT o.id AS o, r.v AS v, f.name AS name FROM o JOIN r FOR SYSTEM_TIME AS OF o.ts ON o.k = r.k
       LEFT JOIN f ON o.k = f.k""",
    """SELECT o.id AS o, u.id AS u FROM o
       ASOF LEFT JOIN (SELECT id, k, ts FROM r UNION ALL SELECT id + 1000, k, ts FROM c WHERE k < {w1}) AS u
       ON o.k = u.k AND o.ts >= u.ts""",
)
DERIVED = (
    """SELECT d.o AS o, d.name AS name, c.id AS c
       FROM (SELECT o.id AS o, o.k, f.name FROM o LEFT JOIN f ON o.k = f.k) [RANGE {w0} SECONDS] AS d,
            c [RANGE {w1} SECONDS] WHERE d.k = c.k""",
    """SELECT d.o AS o, c.id AS c, d.v AS v
       FROM (SELECT o.id AS o, o.k, r.v FROM o ASOF LEFT JOIN r ON o.k = r.k AND o.ts > r.ts) [RANGE {w0} SECONDS] AS d,
            c [RANGE {w1} SECONDS] WHERE d.k = c.k""",
    """WITH lonely AS (SELECT o.id, o.k FROM o [RANGE {w0} SECONDS] ANTI JOIN r [RANGE 2 SECONDS] ON o.k = r.k)
       SELECT l.id AS o, c.id AS c, f.name AS name FROM lonely [RANGE {w1} SECONDS] AS l
       JOIN c [RANGE {w1} SECONDS] ON l.k = c.k JOIN f ON l.k = f.k""",
    """SELECT e.o AS o, e.r AS r, c.id AS c
       FROM (SELECT d.o, r.id AS r, d.k FROM
             (SELECT o.id AS o, o.k, c.id AS c FROM o [RANGE {w0} SECONDS] LEFT JOIN c [RANGE 1 SECOND] ON o.k = c.k)
             [RANGE {w1} SECONDS] AS d LEFT JOIN r [RANGE 2 SECONDS] ON d.k = r.k AND d.c IS NULL)
            [RANGE 4 SECONDS] AS e, c [RANGE {w0} SECONDS] WHERE e.k = c.k""",
)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens: "file", "version", "damage", "add" or "stop" of something.

    It happens so many seconds after the one before; if ``waits``, once there is another batch since.
    """

    kind: str
    name: str
    number: int = 0
    sql: str = ""
    pause: float = 0.0
    waits: bool = False


@dataclass(frozen=True)
class TableStory:
    """The queries of the beginning by name, the events, and all versions of the table."""

    seed: int
    first: dict[str, str] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    versions: list[pa.Table] = field(default_factory=list)

    @property
    def texts(self) -> dict[str, str]:
        """All queries there may ever be."""
        return {**self.first, **{event.name: event.sql for event in self.events if event.kind == "add"}}

    def session(self, root: Path, **more: Any) -> weft.Session:
        """A session with the streams, the tables and the queries of the beginning."""
        rng = random.Random(f"{self.seed} session")
        session = weft.Session(
            checkpoint=root / "ck",
            options=weft.Options(partitions=rng.choice((1, 2, 3))),
            adapt=rng.choice(("off", "off", "always")),
            **more,
        )
        for name in STREAMS:
            (root / "in" / name).mkdir(parents=True, exist_ok=True)
            files = str(root / "in" / name)
            source = weft.files(
                "json", files, schema=SCHEMA, max_files_per_batch=1, unfinished_after="0 seconds"
            )
            session.stream(name, source, event_time="ts", lateness=timedelta(seconds=2 * DISORDER))
        if not (root / "dim").exists():
            self.put_version(root, 0)
        session.table(
            "t",
            weft.files("parquet", str(root / "dim"), schema="k long, x long, version long"),
            refresh="20 ms",
        )
        session.table("f", FIXED)
        for name, text in self.first.items():
            self.ask(session, root, name, text)
        return session

    def ask(self, session: weft.Session, root: Path, name: str, text: str) -> None:
        """Have a session run a query."""
        session.query(text, name=name, sink=weft.to_parquet(root / "out" / name))

    def put_version(self, root: Path, number: int) -> None:
        """Let the table become another, as a good writer does."""
        (root / "dim").mkdir(parents=True, exist_ok=True)
        hidden = root / "dim" / ".t.parquet"
        pq.write_table(self.versions[number], hidden)
        os.replace(hidden, root / "dim" / "t.parquet")

    def write_file(self, root: Path, stream: str, number: int) -> None:
        """Put a file of a stream in place."""
        rng, file = (
            random.Random(f"{self.seed} {stream} {number}"),
            root / "in" / stream / f"{number:03}.json",
        )
        if file.exists():
            return
        hidden = file.with_name(f".{file.name}")
        hidden.write_text("".join(f"{json.dumps(row)}\n" for row in _tuples(rng, number)), encoding="utf-8")
        os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
        os.replace(hidden, file)

    def tuples(self, stream: str) -> list[tuple[int, dict[str, Any]]]:
        """All tuples of a stream, each with the number of its file."""
        return [
            (number, row)
            for number in range(FILES)
            for row in _tuples(random.Random(f"{self.seed} {stream} {number}"), number)
        ]


def _tuples(rng: random.Random, number: int) -> list[dict[str, Any]]:
    found = []
    for row in range(ROWS):
        seconds = (number + row / ROWS) * PERIOD + rng.uniform(-DISORDER, DISORDER)
        moment = BEGAN + timedelta(seconds=round(seconds, rng.choice((0, 2))))
        values = {"id": number * ROWS + row, "k": rng.choice(KEYS), "v": rng.choice(("a", "b", None))}
        found.append({**values, "ts": moment.strftime("%Y-%m-%d %H:%M:%S.%f")})
    return found


def random_table_story(seed: int) -> TableStory:
    """Queries of all these kinds, and what happens while they run."""
    rng = random.Random(f"{seed} story")
    count = rng.randint(2, 6)
    versions = [_version(rng, number) for number in range(count)]
    chosen = [rng.choice(LOOKUPS[:2]), rng.choice(PAIRS), rng.choice(LATEST), rng.choice(DERIVED)]
    first = {f"q{number}": _text(rng, text) for number, text in enumerate(chosen)}
    threads = [[Event("file", name, number, **_pause(rng)) for number in range(FILES)] for name in STREAMS]
    changes = [Event("version", "t", number, **_pause(rng)) for number in range(1, count)]
    if rng.random() < 0.5:
        changes.insert(rng.randrange(len(changes)), Event("damage", "t", **_pause(rng)))
    lives = []
    for number in range(rng.randint(1, 3)):
        text = _text(rng, rng.choice(LOOKUPS))
        lives.append(
            [Event("add", f"x{number}", sql=text, **_pause(rng)), Event("stop", f"x{number}", **_pause(rng))]
        )
    return TableStory(seed, first, _shuffled(rng, [*threads, changes, *lives]), versions)


def _pause(rng: random.Random) -> dict[str, Any]:
    return {"pause": rng.choice((0.0, 0.0, rng.uniform(0, 0.1))), "waits": rng.random() < 0.3}


def _shuffled(rng: random.Random, threads: list[list[Event]]) -> list[Event]:
    """The events of all threads, each in its order."""
    turns = [number for number, thread in enumerate(threads) for _ in thread]
    rng.shuffle(turns)
    rest = [iter(thread) for thread in threads]
    return [next(rest[number]) for number in turns]


def _version(rng: random.Random, number: int) -> pa.Table:
    rows = [
        {"k": rng.choice(KEYS), "x": rng.randrange(9), "version": number}
        for _ in range(rng.choice((0, 1, 4, 12)) if number else 8)
    ]
    return pa.Table.from_pylist(rows, schema=TABLE)


def _text(rng: random.Random, text: str) -> str:
    values: Mapping[str, Any] = {
        "s": rng.choice(("o", "c")),
        "w0": rng.randint(2, 5),
        "w1": rng.randint(2, 6),
    }
    return " ".join(text.format(**values).split())
