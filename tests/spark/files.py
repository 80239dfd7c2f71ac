"""Sessions over Parquet files of random tuples, and their answers by the definition."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import weft
import weft.session.run
from weft.testing import reference_join

START = datetime(2024, 1, 1, tzinfo=timezone.utc)


def session_of(spark: Any, root: Path, **options: Any) -> weft.Session:
    """A session of two partitions."""
    return weft.Session(checkpoint=root / "ck", spark=spark, options=weft.Options(partitions=2), **options)


def write(root: Path, stream: str, number: int, rows: int = 200, **columns: Any) -> None:
    """A file of tuples (k, n, ts), 100 a second."""
    rng = np.random.default_rng([number, ord(stream)])
    first = number * rows
    times = [START + timedelta(milliseconds=10 * at) for at in range(first, first + rows)]
    table = {"k": rng.integers(0, 40, rows), "n": np.arange(first, first + rows), "ts": times, **columns}
    folder = root / "in" / stream
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(table), root / "partial")
    (root / "partial").rename(folder / f"{number:03}.parquet")  # a reader sees all of it or nothing


def read_files(session: weft.Session, root: Path, *streams: str, **options: Any) -> None:
    """Register streams of files, one of each a batch."""
    for name in streams:
        source = weft.files("parquet", str(root / "in" / name), max_files_per_batch=1)
        session.stream(name, source, event_time="ts", **options)


def run(session: weft.Session) -> None:
    """All that is there, then stop."""
    try:
        session.start(available_now=True)
        session.await_termination(120)
    finally:
        session.stop()


def rows_of(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """A table as a multiset."""
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def definition(root: Path, planned: weft.PlannedQuery) -> Counter[tuple[Any, ...]]:
    """The answer by the definition."""
    tables = {i.alias: pq.read_table(root / "in" / i.stream.name) for i in planned.query.inputs}
    return rows_of(reference_join(planned.query, tables))
