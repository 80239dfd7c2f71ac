"""A chain of four streams in files, a second of each a batch, whose selectivities can swap; and sessions over it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import weft
from tests.unit.adapting.snapshots import CHAIN, COLUMNS, WINDOW
from weft.testing import reference_join

ROWS = 120  # of a stream in a batch
SECOND = 1_000_000
WIDE = WINDOW * ROWS
OPTIONS = weft.Options(partitions=2, tasks=2, weights=weft.Weights(hop=0.0001))


def table(number: int, name: str, swapped: bool) -> pa.Table:
    """A batch of a stream; if selectivities are swapped, s and t have nothing in common, and all else has much."""
    rng = np.random.default_rng((number, ord(name), swapped))

    def keys(column: str) -> Any:
        if not swapped:
            return rng.integers(0, WIDE, ROWS)
        if column == "b":
            return rng.integers(0, WIDE, ROWS) + (0 if name == "s" else 10 * WIDE)
        return rng.integers(0, WIDE // 20, ROWS)

    times = np.sort(rng.integers(0, SECOND, ROWS)) + number * SECOND
    columns = {column: keys(column) for column in COLUMNS[name]}
    return pa.table({**columns, "ts": pa.array(times, pa.timestamp("us", "UTC"))})


def described(session: weft.Session) -> weft.Session:
    """The session, told what is true as long as nothing has swapped."""
    session.statistics = weft.Statistics({name: weft.StreamStatistics(rate=ROWS) for name in COLUMNS})
    for predicate in ("r.a = s.a", "s.b = t.b", "t.c = u.c"):
        session.selectivity(predicate, 1 / WIDE)
    return session


@dataclass
class World:
    """What has been written so far, below a directory."""

    root: Path
    tables: dict[str, list[pa.Table]] = field(default_factory=lambda: {name: [] for name in COLUMNS})

    def session(self, **settings: Any) -> weft.Session:
        """A session over the files of this world, with the chain as its query."""
        session = weft.Session(
            checkpoint=self.root / "checkpoint", execution="local", options=OPTIONS, **settings
        )
        for name, columns in COLUMNS.items():
            (self.root / name).mkdir(parents=True, exist_ok=True)
            schema = ", ".join([*(f"{column} long" for column in columns), "ts timestamp"])
            source = weft.files("parquet", str(self.root / name), schema=schema, max_files_per_batch=1)
            session.stream(name, source, event_time="ts")
        described(session)
        session.query(CHAIN, name="chain", sink=weft.to_parquet(self.root / "out"))
        return session

    def write(self, *, swapped: bool) -> None:
        """One more batch."""
        number = len(self.tables["r"])
        for name in COLUMNS:
            one = table(number, name, swapped)
            hidden = self.root / name / f".{number:05}.parquet"
            pq.write_table(one, hidden)
            hidden.rename(self.root / name / f"{number:05}.parquet")
            self.tables[name].append(one)

    def results(self) -> Counter[tuple[Any, ...]]:
        """What the session has given."""
        files = sorted((self.root / "out").glob("batch=*/*.parquet"))
        rows = (row for file in files for row in pq.ParquetFile(file).read().to_pylist())
        return Counter(tuple(row.values()) for row in rows)

    def expected(self, session: weft.Session) -> Counter[tuple[Any, ...]]:
        """What it should have given, by the definition."""
        whole = {name: pa.concat_tables(tables) for name, tables in self.tables.items()}
        found = reference_join(session.parse(CHAIN), whole).to_pylist()
        return Counter(tuple(row.values()) for row in found)
