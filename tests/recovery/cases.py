"""What a run that will be killed has to do: random joins over random files, and the answers they must give.

Everything follows from a seed, so that the run, its restarts and the test agree without talking to each other. Tuples
come out of order, by less than the streams' lateness; some lines are no records and must be dead letters. Where queries
change, which ones are asked for and stopped, and when, follows from the seed too; with which batch that takes effect
does not, and is read from what was recorded of every batch (`records.py`). Batch n has the n-th file of every stream.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import weft
from tests.recovery.orders import arrivals, in_order, passed, random_order, times
from tests.recovery.queries import CLOSED, ENDED, POOL, QUERIES, STRATEGIES, STREAMS
from tests.recovery.records import Life, batches_of, has_ended, is_last, lives, ranks, read_streams
from tests.restless import made_restless, restless
from weft.logical.query.query import Query
from weft.optimizer.joint.methods import METHODS
from weft.testing.reference import join_within_times, reference_join, row_column

SCHEMA = "id long, k long, g long, u long, x double, ts timestamp"
DISORDER = 3  # seconds, either way
PERIOD = 2  # seconds of event time in a file
ROWS = 60  # in a file
BROKEN = (
    '{{"id": {id}, "k": 1, "g"',
    '{{"id": {id}, "k": "one", "g": 1, "u": 1, "x": 0.5, "ts": "2024-01-01 00:00:00"}}',
    '{{"id": {id}, "k": 1, "g": 1, "u": 1, "x": 0.5, "ts": null}}',
)
BEGAN = datetime(2024, 1, 1, tzinfo=timezone.utc)

ACTIVE = 5  # queries at a time

Rows = Counter[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Ask:
    """A query as it will be asked for; ``strategy`` to ``precision`` as `Session.query` has them."""

    name: str
    sql: str
    strategy: str | None = None
    backfill: bool = False
    order: str = "none"
    precision: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What is done once a batch is complete: a query is asked for, or one is stopped."""

    batch: int
    add: Ask | None = None
    stop: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """Joins, their input in so many files of each stream, and how they run.

    Of a "fixed" kind there is one query. If they are "changing", inner joins come and go; if "outer", joins of all
    kinds do, and there are some outer, semi and anti joins from the beginning to the end of the input. With a
    ``place`` in an object store, its input, checkpoint and results are there, and not in a directory.
    """

    seed: int
    files: int
    kind: str = "fixed"
    place: str = ""

    @property
    def changing(self) -> bool:
        """Whether queries come and go."""
        return self.kind != "fixed"

    @property
    def outer(self) -> bool:
        """Whether rows are closed, and all of them at the end of the input."""
        return self.kind == "outer"

    @property
    def shape(self) -> str:
        """Which of the queries it is."""
        return self.kind if self.changing else tuple(QUERIES)[self.seed % len(QUERIES)]

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams there are."""
        return STREAMS.get(self.shape, ("a", "b", "c", "d"))

    def _random(self, what: str) -> random.Random:
        return random.Random(f"{self.seed} {what}")

    def session(self, root: Path, **arguments: Any) -> weft.Session:
        """The session over the files below a directory, the queries of its beginning in place."""
        session = self.empty_session(root, **arguments)
        for ask in self.first():
            run_query(session, self.at(root), ask)
        return session

    def at(self, root: Path) -> str:
        """Where its input, checkpoint and results are."""
        return self.place or str(root)

    def empty_session(self, root: Path, **arguments: Any) -> weft.Session:
        """The session over the files below a directory."""
        rng = self._random("session")
        rates = {n: weft.StreamStatistics(rate=10 ** rng.uniform(0, 4)) for n in self.streams}
        apart = self._random("restless")
        if apart.random() < 0.5:
            arguments |= restless(apart)
        session = weft.Session(
            checkpoint=f"{self.at(root)}/ck",
            statistics=weft.Statistics(rates),
            options=_options(rng),
            joint=self._random("joint").choice(METHODS),
            **arguments,
        )
        for name in self.streams:
            source = weft.files(
                "json",
                f"{self.at(root)}/in/{name}",
                schema=SCHEMA,
                max_files_per_batch=1,
                unfinished_after="0 seconds",
            )
            session.stream(name, source, event_time="ts", lateness=timedelta(seconds=2 * DISORDER))
        if "adapt" in arguments:
            made_restless(session, apart, dict.fromkeys(self.streams, ("k", "g")))
        return session

    def first(self) -> list[Ask]:
        """The queries of the beginning."""
        rng = self._random("queries")
        if not self.changing:
            return [self._ordered(Ask("q", QUERIES[self.shape].format(**_windows(rng))))]
        found = [
            self._ordered(Ask(f"q{i}", rng.choice(POOL).format(**_windows(rng))))
            for i in range(1 if self.outer else 2)
        ]
        return found + [
            Ask(f"o{i}", text.format(**_windows(rng))) for i, text in enumerate(self._closing(rng))
        ]

    def _ordered(self, ask: Ask) -> Ask:
        """A query whose results leave in some order, if they can."""
        order, precision = random_order(self._random(f"order of {ask.name}"), ask.backfill)
        is_outer = any(f" {kind} JOIN" in ask.sql for kind in ("LEFT", "FULL", "SEMI", "ANTI"))
        return ask if is_outer else replace(ask, order=order, precision=precision)

    def _closing(self, rng: random.Random) -> list[str]:
        """Queries that close rows: one or two that do so on their way, and one at the end."""
        return [*rng.sample(CLOSED, rng.randint(1, 2)), rng.choice(ENDED)] if self.outer else []

    def changes(self) -> list[Change]:
        """What is asked for later on, about once a batch; now and then everything is stopped."""
        if not self.changing:
            return []
        rng, active = self._random("changes"), [a.name for a in self.first() if not a.name.startswith("o")]
        found = []
        for batch in range(self.files - 1):
            kind = rng.choices(("add", "stop", "nothing", "clear"), (10, 5, 3, 1))[0]
            stopped = list(active) if kind == "clear" else []
            if kind == "stop" or len(active) >= ACTIVE:
                stopped = [rng.choice(active)] if active else []
            active = [name for name in active if name not in stopped]
            found += [Change(batch, stop=name) for name in stopped]
            if kind == "add" or not active:
                ask = Ask(
                    f"x{batch}",
                    rng.choice((*POOL, *CLOSED) if self.outer else POOL).format(**_windows(rng)),
                    rng.choice((None, None, *STRATEGIES)),
                    rng.random() < 0.4,
                )
                found.append(Change(batch, add=self._ordered(ask)))
                active.append(ask.name)
        return found

    def write(self, root: Path) -> None:
        """All input files, in the order of their modification times."""
        for name in self.streams:
            rng, folder = self._random(name), root / "in" / name
            folder.mkdir(parents=True)
            for number in range(self.files):
                file = folder / f"{number:03}.json"
                file.write_text(
                    "".join(f"{line}\n" for line in _lines(rng, number, self.files)), encoding="utf-8"
                )
                os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))

    def answers(self, root: Path) -> dict[str, Answer]:
        """What every query that ever ran has given, and what it had to give."""
        session = self.session(root)
        asks = {ask.name: ask for ask in [*self.first(), *(c.add for c in self.changes() if c.add)]}
        return {
            name: Answer.of(session.parse(asks[name].sql, cross=True), life, asks[name], root)
            for name, life in lives(root).items()
        }


def run_query(session: weft.Session, root: Path | str, ask: Ask) -> None:
    """Have a session run a query."""
    sink = weft.to_parquet(f"{root}/out/{ask.name}")
    session.query(
        ask.sql,
        name=ask.name,
        sink=sink,
        strategy=ask.strategy,
        backfill=ask.backfill,
        cross=True,
        order=ask.order,
        precision=ask.precision,
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query's sink holds, what it must hold, and what it may.

    Of the past, what is forgotten may be missing; so may rows without a partner if one may be forgotten, or if the
    query was stopped while they waited for one, and results that were held back when it was stopped, or the run ended.
    """

    life: Life
    found: Rows
    must: Rows
    may: Rows
    in_order: bool = True

    @classmethod
    def of(cls, query: Query, life: Life, ask: Ask, root: Path) -> Answer:
        """By the definition, over the tuples that the query was in time for or sees."""
        backfill = ask.backfill
        every_tuple = {i.alias: _table(root, i.stream.name, life.last) for i in query.inputs}
        tables = dict(every_tuple)
        for alias, table in tables.items():
            tables[alias] = table.filter(pa.array(life.sees(alias, table)))
        names = [output.name for output in query.projection]
        every = join_within_times(query, tables)
        rows = {a: every[row_column(a)].fill_null(-1).to_numpy() for a in query.visible}
        last = np.max([_at(tables[a]["batch"].to_numpy(), rows[a], -1) for a in query.visible], axis=0)
        live = last >= life.first
        kept = np.all([_at(life.is_kept(a, tables[a]), rows[a], True) for a in query.visible], axis=0)
        must, may = live | (backfill & kept), live | backfill
        if query.outer is not None:
            whole = np.all([found >= 0 for found in rows.values()], axis=0)
            hides = query.visible != query.aliases  # those that a semi join asks for may be what is new
            closed = is_last(root, life) and all(
                visibility.complete is None for visibility in life.member.visibilities
            )
            must, may = must & (closed | (whole & (not hides))), may | hides
        if ask.order == "event" and not has_ended(root, life):
            newest = np.max([_at(times(tables[a]), rows[a], 0) for a in query.visible], axis=0)
            must &= newest < passed(every_tuple, 2 * DISORDER * 1_000_000)
        shown, found = every.select(names), _found(root, life, names)
        least, most = (_rows(shown.filter(pa.array(mask))) for mask in (must, may))
        return cls(life, _rows(found), least, most, _is_in_order(root, life, ask, every_tuple, found))


def _at(values: NDArray[Any], rows: NDArray[np.int64], missing: Any) -> NDArray[Any]:
    """The values of rows; of those that are missing, another."""
    return np.append(values, missing)[rows]


def _is_in_order(root: Path, life: Life, ask: Ask, tables: dict[str, pa.Table], found: pa.Table) -> bool:
    """Whether what a sink holds, in the order of its files' names, is in the order that was asked for."""
    if ask.order == "none" or not found.num_rows:
        return True
    places = arrivals(tables, {alias: ranks(root, life.names[alias], life) for alias in tables}, life.first)
    return in_order(found, tables, places, ask.order, ask.precision or 1)


def _found(root: Path, life: Life, names: list[str]) -> pa.Table:
    """What is in a sink; batches that the query was not in are none of its."""
    folders = sorted((root / "out" / life.name).glob("batch=*"))
    strays = [f.name for f in folders if not life.first <= int(f.name.partition("=")[2]) <= life.last]
    assert not strays, f"{life}: results in {strays}"
    return _read(root, life.name, names)


def given(root: Path, name: str, names: list[str]) -> Rows:
    """What is in the sink of a query, these columns of it."""
    return _rows(_read(root, name, names))


def _read(root: Path, name: str, names: list[str]) -> pa.Table:
    """All files of a sink, in the order of their names."""
    folders = sorted((root / "out" / name).glob("batch=*"))
    tables = [pq.ParquetFile(file).read().select(names) for f in folders for file in sorted(f.iterdir())]
    return pa.concat_tables(tables) if tables else pa.table({one: [] for one in names})


def wanted(root: Path, query: Query) -> Rows:
    """What a query gives over all input that has come."""
    return _rows(reference_join(query, {i.alias: _table(root, i.stream.name) for i in query.inputs}))


def _windows(rng: random.Random) -> dict[str, int]:
    return {f"w{i}": rng.randint(1, 4) for i in range(3)}


def _options(rng: random.Random) -> weft.Options:
    """Weights far from the usual ones, so that replicated, scattered and deep plans are all met."""
    weights = weft.Weights(
        ship=10 ** rng.uniform(-8, -4),
        probe=10 ** rng.uniform(-8, -5),
        store=10 ** rng.uniform(-9, -5),
        keep=10 ** rng.uniform(-12, -8),
        hop=rng.choice((0.0, 1e-4)),
    )
    return weft.Options(strategy=rng.choice(STRATEGIES), partitions=rng.choice((2, 3)), weights=weights)


def _lines(rng: random.Random, number: int, files: int) -> list[str]:
    lines = []
    for row in range(ROWS):
        one = number * ROWS + row
        if rng.random() < 0.03:
            lines.append(rng.choice(BROKEN).format(id=one))
            continue
        seconds = (number + row / ROWS) * PERIOD + rng.uniform(-DISORDER, DISORDER)
        moment = BEGAN + timedelta(seconds=round(seconds, 3))
        key = None if rng.random() < 0.03 else rng.randrange(16)
        one_key = None if rng.random() < 0.03 else rng.randrange(files * ROWS // 2)
        values = {"id": one, "k": key, "g": rng.randrange(16), "u": one_key, "x": round(rng.random(), 3)}
        lines.append(json.dumps({**values, "ts": moment.strftime("%Y-%m-%d %H:%M:%S.%f")}))
    return lines


def _records(root: Path, stream: str) -> list[tuple[str, int, dict[str, Any] | None]]:
    """File, line and content of all lines of a stream; None if a line is broken."""
    broken = {line.split(": ", 2)[2] for line in BROKEN}
    found: list[tuple[str, int, dict[str, Any] | None]] = []
    for file in sorted((root / "in" / stream).iterdir()):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            bad = any(line.endswith(end.replace("}}", "}")) for end in broken)
            found.append((file.name, number, None if bad else json.loads(line)))
    return found


def _table(root: Path, stream: str, last: int | None = None) -> pa.Table:
    """The tuples of a stream until a batch, with the batch of each; or all of them, as if of one batch."""
    files = len(list((root / "in" / stream).iterdir()))
    came, last = ([0] * files, 0) if last is None else (batches_of(root, stream, files), last)
    records = [(int(file[:3]), one) for file, _, one in _records(root, stream)]
    good = [(file, one) for file, one in records if one and came[file] <= last]
    columns: dict[str, Any] = {
        name: [record[name] for _, record in good] for name in ("id", "k", "g", "u", "x")
    }
    moments = [datetime.fromisoformat(f"{record['ts']}+00:00") for _, record in good]
    columns |= {"ts": pa.array(moments, pa.timestamp("us", "UTC"))}
    columns |= {"batch": pa.array([came[file] for file, _ in good], pa.int64())}
    return pa.table({**columns, "file": pa.array([file for file, _ in good], pa.int64())})


def _rows(table: pa.Table) -> Rows:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def broken_lines(root: Path, files: int) -> Rows:
    """Stream, file and line of everything that is no record and was read; what no query wants is not."""
    wanted = read_streams(root)
    came = {folder.name: batches_of(root, folder.name, files) for folder in (root / "in").iterdir()}
    return Counter(
        (stream, file, line)
        for stream, batches in came.items()
        for file, line, record in _records(root, stream)
        if record is None and stream in wanted[batches[int(file[:3])]]
    )


def dead_letters(root: Path) -> Rows:
    """Stream, file and line of everything that was set aside."""
    letters = [
        json.loads(line)
        for file in sorted((root / "ck" / "dead_letters").glob("batch-*.jsonl"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    return Counter((one["source"], Path(one["file"]).name, one["line"]) for one in letters)
