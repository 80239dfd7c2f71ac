"""A session over files whose query needs derived streams and a union, for stories in which it ends at any moment."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import weft
from tests.equivalence.sub_selects import answer
from weft.testing import POSITION

QUERY = """
    WITH lonely AS (SELECT a.k, c.x FROM a [RANGE 4 SECONDS] LEFT JOIN c [RANGE 2 SECONDS] ON a.k = c.k)
    SELECT d.k, d.x, e.y, u.x AS z
    FROM (SELECT a.k, a.x FROM a [RANGE 6 SECONDS] ANTI JOIN b [RANGE 2 SECONDS] ON a.k = b.k) [RANGE 9 SECONDS] AS d,
         (SELECT f.k, b.x AS y FROM lonely [RANGE 8 SECONDS] AS f, b [RANGE 8 SECONDS]
          WHERE f.k = b.k AND f.x IS NULL) [RANGE 9 SECONDS] AS e,
         (SELECT k, x FROM c UNION ALL SELECT k, x + 100 FROM b) [RANGE 10 SECONDS] AS u
    WHERE d.k = e.k AND u.k = d.k
"""
SCHEMA = "k long, x long, ts timestamp"
ARROW = pa.schema([("k", pa.int64()), ("x", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
_START = datetime(2024, 1, 1, tzinfo=timezone.utc)


def write_files(folder: Path, seed: int, files: int = 4, rows: int = 10) -> None:
    """Files of three streams, whose times rise."""
    rng = random.Random(seed)
    for name in "abc":
        (folder / name).mkdir(parents=True, exist_ok=True)
        times = sorted(rng.uniform(0, 40) for _ in range(files * rows))
        data = [
            {"k": rng.randint(0, 5), "x": rng.randint(0, 2), "ts": _START + timedelta(seconds=round(t, 1))}
            for t in times
        ]
        for number in range(files):
            part = data[number * rows : (number + 1) * rows]
            pq.write_table(pa.Table.from_pylist(part, schema=ARROW), folder / name / f"{number:03d}.parquet")


def session_over(folder: Path, query: str = QUERY, name: str = "q", sink: str = "q") -> weft.Session:
    """A session in this process, with the query, that takes a file or two of every stream at a time."""
    session = weft.Session(
        checkpoint=folder / "ck", execution="local", options=weft.Options(partitions=2), adapt="off"
    )
    for stream in "abc":
        source = weft.files("parquet", str(folder / stream), schema=SCHEMA, max_files_per_batch=2)
        session.stream(stream, source, event_time="ts", lateness="1 second")
    session.query(query, name=name, sink=weft.to_parquet(folder / "out" / sink))
    return session


def results(folder: Path, name: str = "q") -> Counter[tuple[Any, ...]]:
    """What the sink shows."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for file in sorted((folder / "out" / name).glob("batch=*/*.parquet")):
        table = pq.ParquetFile(file).read()
        rows += Counter(tuple(row.values()) for row in table.to_pylist())
    return rows


def expected(folder: Path, query: str = QUERY) -> Counter[tuple[Any, ...]]:
    """What the definition gives over all files."""
    session = weft.Session()
    for stream in "abc":
        session.stream(stream, SCHEMA, event_time="ts", lateness="1 second")
    bound = session.parse(query)
    tables = {}
    for name in "abc":
        whole = pa.concat_tables([pq.read_table(one) for one in sorted((folder / name).glob("*.parquet"))])
        tables[name] = whole.append_column(POSITION, pa.array(range(whole.num_rows)))
    found = answer(bound, tables).select([output.name for output in bound.projection])
    return Counter(tuple(row.values()) for row in found.to_pylist())
