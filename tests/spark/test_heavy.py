"""Keys that turn out to be heavy while a session runs: the plan follows, and no result is lost or repeated."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from tests.spark.sessions import running
from weft.optimizer.adaptation import HeavyValueWatch
from weft.optimizer.cost import Weights
from weft.testing import reference_join

START = datetime(2024, 1, 1, tzinfo=timezone.utc)
ROWS = 60  # in a file, all of one second
PAIR = "SELECT a.n AS an, b.n AS bn FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k"
# Pairs are dear, so that tasks that wait for one key matter even here; so are copies of what is stored.
DEAR = Weights(ship=1e-9, probe=1e-9, store=1.0, keep=1.0, hop=0.0, match=0.01)


def table_of(stream: str, number: int) -> pa.Table:
    """The tuples of a file: half of them have the same key."""
    rng = np.random.default_rng([number, ord(stream)])
    keys = rng.integers(100, 200, ROWS)
    keys[::2] = 42
    times = [START + timedelta(seconds=number, milliseconds=i) for i in range(ROWS)]
    numbers = np.arange(number * ROWS, (number + 1) * ROWS)
    return pa.table({"k": keys, "n": numbers, "ts": pa.array(times, pa.timestamp("us", "UTC"))})


def session_of(spark: Any, root: Path) -> weft.Session:
    """A session of three partitions over files, one of each stream a batch."""
    options = weft.Options(partitions=3, weights=DEAR)
    seldom = weft.Adaptation(epoch_batches=1_000)  # so that only heavy keys are a reason to plan again
    session = weft.Session(
        checkpoint=root / "ck", spark=spark, options=options, adapt="always", adaptation=seldom
    )
    for name in "ab":
        (root / "in" / name).mkdir(parents=True, exist_ok=True)
        folder, schema = str(root / "in" / name), "k long, n long, ts timestamp"
        source = weft.files("parquet", folder, schema=schema, max_files_per_batch=1)
        session.stream(name, source, event_time="ts", lateness="1 hour")
    return session


def put(root: Path, number: int) -> None:
    """A file of each stream; while a session runs, they may come in one batch or in two."""
    for stream in "ab":
        pq.write_table(table_of(stream, number), root / "partial")
        (root / "partial").rename(root / "in" / stream / f"{number:03}.parquet")


def scattered(session: weft.Session) -> list[tuple[str, ...]]:
    """The heavy values of every store that runs."""
    run: Any = session._last_run
    return [tuple(map(str, store.layout.heavy)) for store in run.loop.active_queries.program.graph.stores]


def test_a_heavy_key_is_found_and_scattered_while_the_session_runs(spark: Any, tmp_path: Path) -> None:
    """What was stored before is laid out anew; a session that is started again goes on with that."""
    session = session_of(spark, tmp_path)
    planned = session.query(PAIR, name="pair", sink=weft.to_parquet(tmp_path / "out"))
    put(tmp_path, 0)  # before the start, so that both files are in the batch that is sampled
    with running(session):
        adapter: Any = session._run_under_way().loop.config.adapter
        adapter.heavy = HeavyValueWatch(pause=1)
        session.process_all_available()
        assert scattered(session) == [(), ()]
        put(tmp_path, 1)
        session.process_all_available()
        assert scattered(session) == [("42",), ("42",)]
        assert "heavy 42 scattered" in session.explain()
        assert session.measured().stream("a").heavy["k"][42] == pytest.approx(0.5)
    again = session_of(spark, tmp_path)
    again.query(PAIR, name="pair", sink=weft.to_parquet(tmp_path / "out"))
    with running(again):
        put(tmp_path, 2)
        again.process_all_available()
        assert scattered(again) == [("42",), ("42",)]
    tables = {s: pa.concat_tables([table_of(s, n) for n in range(3)]) for s in "ab"}
    assert stored(tmp_path / "out") == rows_of(reference_join(planned.query, tables))


def stored(path: Path) -> Counter[tuple[Any, ...]]:
    """What a Parquet sink has."""
    return rows_of(pq.read_table(path, columns=["an", "bn"]))


def rows_of(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """A table as a multiset."""
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))
