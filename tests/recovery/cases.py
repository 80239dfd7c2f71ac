"""What a run that will be killed has to do: a random join over random files, and the answer it must give.

Everything follows from a seed, so that the run, its restarts and the test agree without talking to each other. Tuples
come out of order, by less than the streams' lateness; some lines are no records and must be dead letters.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import weft
from weft.logical.query import Query
from weft.testing import reference_join

SCHEMA = "id long, k long, g long, x double, ts timestamp"
DISORDER = 3  # seconds, either way
PERIOD = 2  # seconds of event time in a file
ROWS = 60  # in a file
BROKEN = (
    '{{"id": {id}, "k": 1, "g"',
    '{{"id": {id}, "k": "one", "g": 1, "x": 0.5, "ts": "2024-01-01 00:00:00"}}',
    '{{"id": {id}, "k": 1, "g": 1, "x": 0.5, "ts": null}}',
)
BEGAN = datetime(2024, 1, 1, tzinfo=timezone.utc)

QUERIES = {
    "chain": """SELECT a.id AS a, b.id AS b, c.id AS c, a.x + c.x AS x
                FROM a [RANGE {w0} SECONDS], b [RANGE {w1} SECONDS], c [RANGE {w2} SECONDS]
                WHERE a.k = b.k AND b.g = c.g""",
    "band": """SELECT a.id AS a, b.id AS b, b.x AS x FROM a [RANGE {w0} SECONDS], b
               WHERE a.x BETWEEN b.x - 0.05 AND b.x + 0.05
               AND b.ts BETWEEN a.ts - INTERVAL '{w1}' SECOND AND a.ts + INTERVAL '{w2}' SECOND""",
    "star": """SELECT a.id AS a, b.id AS b, c.id AS c, d.id AS d, d.x AS x
               FROM a [RANGE {w0} SECONDS], b [RANGE {w1} SECONDS], c [RANGE {w2} SECONDS], d [RANGE 1 SECOND]
               WHERE a.k = b.k AND a.g = c.g AND a.k = d.k AND a.x < c.x""",
}
STREAMS = {"chain": ("a", "b", "c"), "band": ("a", "b"), "star": ("a", "b", "c", "d")}
STRATEGIES = ("auto", "flat", "left_deep", "greedy_left_deep", "chain", "merge")

Rows = Counter[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Case:
    """A join, its input in so many files of each stream, and how it is run."""

    seed: int
    files: int

    @property
    def shape(self) -> str:
        """Which of the queries it is."""
        return tuple(QUERIES)[self.seed % len(QUERIES)]

    def _random(self, what: str) -> random.Random:
        return random.Random(f"{self.seed} {what}")

    def session(self, root: Path, **arguments: Any) -> weft.Session:
        """The session over the files below a directory, its query in place."""
        rng = self._random("session")
        rates = {n: weft.StreamStatistics(rate=10 ** rng.uniform(0, 4)) for n in STREAMS[self.shape]}
        session = weft.Session(
            checkpoint=root / "ck", statistics=weft.Statistics(rates), options=_options(rng), **arguments
        )
        for name in STREAMS[self.shape]:
            source = weft.files("json", str(root / "in" / name), schema=SCHEMA, max_files_per_batch=1)
            session.stream(name, source, event_time="ts", lateness=timedelta(seconds=2 * DISORDER))
        windows = {f"w{i}": rng.randint(1, 4) for i in range(3)}
        session.query(
            QUERIES[self.shape].format(**windows), name="q", sink=weft.to_parquet(root / "out"), cross=True
        )
        return session

    def write(self, root: Path) -> None:
        """All input files, in the order of their modification times."""
        for name in STREAMS[self.shape]:
            rng, folder = self._random(name), root / "in" / name
            folder.mkdir(parents=True)
            for number in range(self.files):
                file = folder / f"{number:03}.json"
                file.write_text("".join(f"{line}\n" for line in _lines(rng, number)), encoding="utf-8")
                os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))

    def expected(self, root: Path) -> Rows:
        """The definition's answer."""
        query = self._query(root)
        return _rows(reference_join(query, {i.alias: _table(root, i.stream.name) for i in query.inputs}))

    def found(self, root: Path) -> Rows:
        """What the sink holds."""
        names = [output.name for output in self._query(root).projection]
        files = sorted((root / "out").glob("batch=*/*.parquet"))
        tables = [pq.ParquetFile(file).read().select(names) for file in files]
        return _rows(pa.concat_tables(tables)) if tables else Counter()

    def _query(self, root: Path) -> Query:
        return self.session(root).queries[0].query


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


def _lines(rng: random.Random, number: int) -> list[str]:
    lines = []
    for row in range(ROWS):
        one = number * ROWS + row
        if rng.random() < 0.03:
            lines.append(rng.choice(BROKEN).format(id=one))
            continue
        seconds = (number + row / ROWS) * PERIOD + rng.uniform(-DISORDER, DISORDER)
        moment = BEGAN + timedelta(seconds=round(seconds, 3))
        key = None if rng.random() < 0.03 else rng.randrange(16)
        values = {"id": one, "k": key, "g": rng.randrange(16), "x": round(rng.random(), 3)}
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


def _table(root: Path, stream: str) -> pa.Table:
    good = [record for _, _, record in _records(root, stream) if record is not None]
    columns: dict[str, Any] = {name: [record[name] for record in good] for name in ("id", "k", "g", "x")}
    times = [datetime.fromisoformat(f"{record['ts']}+00:00") for record in good]
    return pa.table({**columns, "ts": pa.array(times, pa.timestamp("us", "UTC"))})


def _rows(table: pa.Table) -> Rows:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def broken_lines(root: Path) -> Rows:
    """Stream, file and line of everything that is no record."""
    return Counter(
        (folder.name, file, line)
        for folder in (root / "in").iterdir()
        for file, line, record in _records(root, folder.name)
        if record is None
    )


def dead_letters(root: Path) -> Rows:
    """Stream, file and line of everything that was set aside."""
    letters = [
        json.loads(line)
        for file in sorted((root / "ck" / "dead_letters").glob("batch-*.jsonl"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    return Counter((one["source"], Path(one["file"]).name, one["line"]) for one in letters)
