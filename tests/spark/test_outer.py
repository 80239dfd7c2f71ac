"""Outer joins as a user meets them on a real Spark: input that ends, input that goes on, clocks that tell the time."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from tests.spark.sessions import running
from weft.errors import ConfigError, QueryError, StateError, WeftError

START = datetime(2024, 1, 1, tzinfo=timezone.utc)
FULL = """SELECT k, a.n AS an, b.n AS bn, c.n AS cn, provenance
          FROM a FULL JOIN b USING (k) FULL JOIN c USING (k)"""
LEFT = "SELECT a.k, a.n AS an, b.n AS bn FROM a [RANGE 5 SECONDS] LEFT JOIN b [RANGE 5 SECONDS] ON a.k = b.k"

Rows = Counter[tuple[Any, ...]]


def put(root: Path, stream: str, *rows: tuple[int | None, int, float]) -> None:
    """One more file of tuples (k, n, seconds); a reader sees all of it or nothing."""
    folder = root / "in" / stream
    folder.mkdir(parents=True, exist_ok=True)
    k, n, seconds = zip(*rows, strict=True)
    times = pa.array([START + timedelta(seconds=second) for second in seconds], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"k": pa.array(k, pa.int64()), "n": n, "ts": times}), root / "partial")
    number = len(list(folder.iterdir()))
    os.utime(root / "partial", (1_700_000_000 + number,) * 2)  # Spark reads the oldest first
    (root / "partial").rename(folder / f"{number:03}.parquet")


def session_of(spark: Any, root: Path, streams: str = "abc", **options: Any) -> weft.Session:
    """A session of two partitions over files, one of each stream a batch, with event times."""
    session = weft.Session(checkpoint=root / "ck", spark=spark, options=weft.Options(partitions=2), **options)
    for name in streams:
        register(session, root, name, event_time="ts")
    return session


def register(session: weft.Session, root: Path, name: str, **options: Any) -> None:
    """A stream of files."""
    (root / "in" / name).mkdir(parents=True, exist_ok=True)
    folder = str(root / "in" / name)
    source = weft.files("parquet", folder, schema="k long, n long, ts timestamp", max_files_per_batch=1)
    session.stream(name, source, **options)


def rows_of(planned: weft.PlannedQuery) -> Rows:
    """What is in a query's memory, as a multiset."""
    table = planned.results()
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for something that comes by itself."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.1)


def test_bounded_input_is_joined_to_its_end(spark: Any, tmp_path: Path) -> None:
    """All kinds over the same files, an inner join beside them: an integration would miss rows, or have them twice."""
    put(tmp_path, "a", (1, 10, 0), (2, 20, 1), (None, 30, 2), (5, 50, 3))
    put(tmp_path, "b", (1, 11, 0), (3, 31, 1))
    put(tmp_path, "b", (1, 12, 2), (5, 51, 3))
    put(tmp_path, "c", (1, 13, 0), (2, 23, 1), (4, 43, 2))
    session = session_of(spark, tmp_path)
    ask = {
        "full": FULL,
        "left": "SELECT a.n AS an, b.n AS bn FROM a LEFT JOIN b ON a.k = b.k",
        "inner": "SELECT a.n AS an, b.n AS bn FROM a, b WHERE a.k = b.k",
        "semi": "SELECT a.n FROM a SEMI JOIN b ON a.k = b.k",
        "anti": "SELECT a.n FROM a ANTI JOIN b ON a.k = b.k",
        "theta": "SELECT a.n AS an, c.n AS cn FROM a FULL JOIN c ON a.n > c.n",
    }
    planned = {name: session.query(sql, name=name, sink=weft.to_memory()) for name, sql in ask.items()}
    session.run_available()
    found = {name: sorted(rows_of(one).elements(), key=str) for name, one in planned.items()}
    assert found["full"] == [
        (1, 10, 11, 13, "a, b, c"),
        (1, 10, 12, 13, "a, b, c"),
        (2, 20, None, 23, "a, c"),
        (3, None, 31, None, "b"),
        (4, None, None, 43, "c"),
        (5, 50, 51, None, "a, b"),
        (None, 30, None, None, "a"),
    ]
    assert found["left"] == [(10, 11), (10, 12), (20, None), (30, None), (50, 51)]
    assert found["inner"] == [(10, 11), (10, 12), (50, 51)]
    assert found["semi"] == [(10,), (50,)]
    assert found["anti"] == [(20,), (30,)]
    assert found["theta"] == [(10, None), (20, 13), (30, 13), (30, 23), (50, 13), (50, 23), (50, 43)]
    program = session._last_run.loop.active_queries.program if session._last_run else None
    assert program is not None
    keyed = [store for store in program.graph.stores if store.layout.kind == "partitioned"]
    shared = {store.name.split()[0]: set(store.users) for store in keyed}
    assert {"left", "inner", "semi", "anti", "full"} <= shared["a"]
    assert {"left", "inner", "semi", "anti", "full"} <= shared["b"]
    progress = planned["full"].progress
    assert progress.keys is not None
    keys = progress.keys
    assert (progress.closed, keys.seen, keys.complete, keys.dangling, keys.open) == (5, 5, 1, 4, 0)
    assert (planned["inner"].progress.closed, planned["inner"].progress.keys) == (0, None)
    assert (planned["semi"].progress.closed, planned["anti"].progress.closed) == (2, 2)


def test_input_that_comes_another_day(spark: Any, tmp_path: Path) -> None:
    """Rows stay open until the end is said; what comes after it is refused, as rows have left that it may change."""
    put(tmp_path, "a", (1, 10, 0), (2, 20, 0))
    put(tmp_path, "b", (3, 31, 0))
    session = session_of(spark, tmp_path)
    planned = session.query(FULL, name="q", sink=weft.to_memory())
    session.run_available(end=False)
    assert not rows_of(planned)
    assert planned.progress.keys is not None
    assert planned.progress.keys.open == 3
    put(tmp_path, "b", (1, 11, 9))
    put(tmp_path, "c", (1, 13, 9))
    session.run_available()
    ended = Counter([(1, 10, 11, 13, "a, b, c"), (2, 20, None, None, "a"), (3, None, 31, None, "b")])
    assert rows_of(planned) == ended
    session.run_available()  # there is nothing new, and nothing happens
    assert rows_of(planned) == ended
    put(tmp_path, "c", (2, 23, 9))
    with pytest.raises(
        StateError, match=r"query q was told that it had ended(.|\n)*new checkpoint(.|\n)*end=False"
    ):
        session.run_available()
    assert rows_of(planned) == ended


def test_a_row_leaves_without_more_input(spark: Any, tmp_path: Path) -> None:
    """The last tuples of a stream end the wait of others: without a batch of their own these would stay for ever."""
    put(tmp_path, "a", (1, 10, 0), (2, 20, 1))
    put(tmp_path, "b", (1, 11, 2))
    session = session_of(spark, tmp_path, "ab")
    planned = session.query(LEFT, name="q", sink=weft.to_memory())
    with running(session):
        session.process_all_available()
        assert rows_of(planned) == Counter([(1, 10, 11)])
        put(tmp_path, "a", (9, 90, 30))
        put(tmp_path, "b", (8, 81, 30))
        session.process_all_available()
        until(lambda: bool(planned.progress.closed))
        time.sleep(1.5)  # no more batches follow
        assert rows_of(planned) == Counter([(1, 10, 11), (2, 20, None)])
        assert planned.progress.closed == 1
        batches = planned.progress.batches
        put(tmp_path, "b", (8, 82, 31))
        session.process_all_available()
        assert planned.progress.batches <= batches + 2
    assert rows_of(planned) == Counter([(1, 10, 11), (2, 20, None)])


def test_a_stream_that_never_delivers_does_not_hold_the_others_back(spark: Any, tmp_path: Path) -> None:
    """One dead source would keep all rows of all others in, for ever."""
    put(tmp_path, "a", (1, 10, 0), (2, 20, 30))
    session = session_of(spark, tmp_path, "a")
    register(session, tmp_path, "b", event_time="ts", idle_after="1 second")
    planned = session.query(LEFT, name="q", sink=weft.to_memory())
    with running(session):
        session.process_all_available()
        until(lambda: rows_of(planned) == Counter([(1, 10, None)]))


def test_what_would_never_leave_is_refused_unless_patience_ends(spark: Any, tmp_path: Path) -> None:
    """A session would run for ever and keep rows that the user waits for; the error says three ways out."""
    sql = "SELECT a.k, a.n AS an, b.n AS bn FROM a FULL JOIN b ON a.k = b.k"
    session = session_of(spark, tmp_path, "ab")
    session.query(sql, name="never", sink=weft.to_memory())
    with pytest.raises(QueryError, match=r"query never would never give the rows of a, b") as refused:
        session.start()
    for way in ("[RANGE 10 MINUTES]", 'emit_unmatched_after="10 minutes"', "run_available()"):
        assert way in str(refused.value)
    assert not (tmp_path / "ck").exists()
    put(tmp_path, "a", (1, 10, 0), (2, 20, 0), (3, 30, 60))
    put(tmp_path, "b", (2, 21, 10), (1, 11, 11), (4, 41, 60))
    session = session_of(spark, tmp_path, "ab")
    planned = session.query(sql, name="soon", sink=weft.to_memory(), emit_unmatched_after="10 seconds")
    with running(session):
        session.process_all_available()
        until(lambda: planned.progress.closed == 2)
        with pytest.raises(QueryError, match="would never give"):
            session.query(sql, name="never", sink=weft.to_memory())
        assert [one.name for one in session.queries] == ["soon"]
    assert rows_of(planned) == Counter([(None, None, 11), (1, 10, None), (2, 20, 21)])


def test_arrival_time_passes_by_itself(spark: Any, tmp_path: Path) -> None:
    """Streams without event time: only the clock tells that no partner comes, also after a restart."""
    sql = (
        "SELECT a.n AS an, b.n AS bn FROM a [RANGE {0} SECONDS] LEFT JOIN b [RANGE {0} SECONDS] ON a.k = b.k"
    )
    put(tmp_path, "a", (1, 10, 0), (2, 20, 0))
    put(tmp_path, "b", (1, 11, 0))

    def made(seconds: int) -> tuple[weft.Session, weft.PlannedQuery]:
        session = session_of(spark, tmp_path, "")
        for name in "ab":
            register(session, tmp_path, name)
        sink = weft.to_parquet(tmp_path / "out")
        return session, session.query(sql.format(seconds), name="q", sink=sink)

    session, planned = made(3)
    with running(session):
        session.process_all_available()
    assert planned.progress.closed == 0
    session, planned = made(3)
    with running(session):
        until(lambda: planned.progress.closed == 1)
        time.sleep(1.5)
        batches = planned.progress.batches
        time.sleep(2.5)
        assert planned.progress.batches == batches  # nothing waits any more, and Spark rests
    found = pq.read_table(tmp_path / "out", columns=["an", "bn"])
    assert Counter(zip(found["an"].to_pylist(), found["bn"].to_pylist(), strict=True)) == Counter(
        [(10, 11), (20, None)]
    )


def test_a_key_with_too_many_results_does_not_stop_the_query(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One value that stands for "unknown" would fill the disk; all other keys are right, and progress tells of it."""
    put(tmp_path, "a", *((7, n, 0) for n in range(4)), (1, 10, 0))
    put(tmp_path, "b", *((7, n, 0) for n in range(5)), (1, 11, 0))
    put(tmp_path, "c", (7, 1, 0), (1, 12, 0), (2, 22, 0))
    session = session_of(spark, tmp_path, key_limit=10)
    planned = session.query(FULL, name="q", sink=weft.to_memory())
    with caplog.at_level(logging.WARNING, "weft"):
        session.run_available()
    assert rows_of(planned) == Counter([(1, 10, 11, 12, "a, b, c"), (2, None, None, 22, "c")])
    told = [one for metrics in session.progress["q"] for one in metrics.keys["q"].too_many]
    assert told == [{"key": "7", "a": 4, "b": 5, "c": 1}]
    assert planned.progress.keys is not None
    assert (planned.progress.keys.aside, planned.progress.keys.complete) == (10, 1)
    assert "query q: key 7 would have more than 10 results (4 of a × 5 of b × 1 of c)" in caplog.text


def test_an_outer_query_comes_and_goes(spark: Any, tmp_path: Path) -> None:
    """Beside a query that runs on: it pads only what it can answer for, and leaves nothing behind when it stops."""
    inner = "SELECT a.n AS an, b.n AS bn FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS] WHERE a.k = b.k"
    put(tmp_path, "a", (1, 10, 0))
    put(tmp_path, "b", (9, 91, 0))
    session = session_of(spark, tmp_path, "ab")
    pairs = session.query(inner, name="pairs", sink=weft.to_memory())
    with running(session):
        session.process_all_available()
        left = session.query(LEFT, name="left", sink=weft.to_memory())
        session.process_all_available()
        put(tmp_path, "a", (1, 11, 2), (2, 20, 2))
        put(tmp_path, "b", (1, 12, 3))
        session.process_all_available()
        put(tmp_path, "a", (3, 30, 40))
        put(tmp_path, "b", (4, 41, 40))
        session.process_all_available()
        until(lambda: left.progress.closed == 1)
        # The tuple of second 0 was there before the query; with a tuple that came since, it is a pair.
        assert rows_of(left) == Counter([(1, 10, 12), (1, 11, 12), (2, 20, None)])
        left.stop()
        session.process_all_available()
        until(lambda: left.progress.status == "stopped")
        assert (left.progress.closed, left.progress.results) == (1, 3)
        put(tmp_path, "a", (5, 50, 80))
        put(tmp_path, "b", (3, 31, 80))
        session.process_all_available()
        assert pairs.progress.status == "running"
    assert rows_of(left).total() == 3
    assert rows_of(pairs) == Counter([(10, 12), (11, 12)])


def test_a_key_leaves_in_the_batch_that_completes_it(spark: Any, tmp_path: Path) -> None:
    """Who reads results as they come would else wait for the end of all input."""
    batches: list[tuple[str, list[tuple[int, int, float]]]] = [
        ("a", [(1, 10, 0)]),
        ("b", [(1, 11, 0), (2, 21, 0)]),
        ("c", [(1, 12, 0)]),
        ("c", [(1, 13, 0)]),
    ]
    taken: list[list[tuple[Any, ...]]] = []
    session = session_of(spark, tmp_path)
    sink = weft.foreach_batch(
        lambda table, _: taken.append([tuple(row.values()) for row in table.to_pylist()]), arrow=True
    )
    session.query(FULL, name="q", sink=sink)
    for stream, rows in batches:
        put(tmp_path, stream, *rows)
        session.run_available(end=False)
    assert [found for found in taken if found] == [
        [(1, 10, 11, 12, "a, b, c")],
        [(1, 10, 11, 13, "a, b, c")],
    ]
    session.run_available()
    assert taken[-1] == [(2, None, 21, None, "b")]


@pytest.mark.parametrize("value", ["many", 0, -1, True, 1.5])
def test_a_wrong_limit_is_refused_before_anything_starts(tmp_path: Path, value: Any) -> None:
    """Half an hour later, or never, would be too late; the error names the value."""
    with pytest.raises(ConfigError, match=str(value)) as caught:
        weft.Session(checkpoint=tmp_path / "ck", key_limit=value)
    assert caught.value.hint
    assert not (tmp_path / "ck").exists()


@pytest.mark.parametrize("value", ["soon", 5, "-1 seconds"])
def test_a_wrong_patience_is_refused_before_anything_starts(tmp_path: Path, value: Any) -> None:
    """And the session is as it was."""
    session = weft.Session(checkpoint=tmp_path / "ck")
    for name in "ab":
        session.stream(name, "k long, n long")
    with pytest.raises(WeftError, match=str(value)) as caught:
        session.query("SELECT a.n FROM a LEFT JOIN b ON a.k = b.k", emit_unmatched_after=value)
    assert caught.value.hint
    assert session.queries == ()
