"""Derived streams as they run: their watermarks, their latency, who shares them, and what ends them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import weft
from weft.connectors.derived.sink import DerivedSink
from weft.errors import CatalogError, QueryError
from weft.storage.storage import new_memory, storage_at
from weft.testing import LocalRun

START = datetime(2024, 1, 1)
INNER = "(SELECT a.k FROM a [ROWS 9], b [RANGE 10 SECONDS] WHERE a.k = b.k)"
SHARED = f"SELECT d.k, c.x FROM {INNER} [RANGE 20 SECONDS] AS d, c [RANGE 20 SECONDS] WHERE d.k = c.k"


def at(seconds: float, k: int = 1, x: int = 0) -> dict[str, Any]:
    return {"k": k, "x": x, "ts": START + timedelta(seconds=seconds)}


def session_with(*texts: str) -> weft.Session:
    session = weft.Session(adapt="off")
    for name in "abc":
        session.stream(name, "k long, x long, ts timestamp", event_time="ts")
    for number, text in enumerate(texts):
        session.query(text, name=f"q{number}", sink=weft.to_memory())
    return session


def marks_of(run: LocalRun) -> dict[str, float]:
    origin = datetime(2024, 1, 1).timestamp() - datetime(1970, 1, 1).timestamp()
    return {name: mark / 1e6 - origin for name, mark in run._loop.before.marks.items()}


def test_results_come_one_batch_later() -> None:
    """A level that is not flattened would cost more than one batch."""
    run = LocalRun(session_with(SHARED))
    run.batch({"c": [at(3)]})
    first = run._loop.before.number + 1
    found = run.batch({"a": [at(1)], "b": [at(2)]})["q0"]
    assert found.to_pylist() == [{"k": 1, "x": 0}]
    sink = run._sinks["q0"]
    assert [sink.results_of(number).num_rows for number in (first, first + 1)] == [0, 1]


def test_watermark_follows_without_tuples() -> None:
    """Rows that wait for a partner in a derived stream would wait for ever if it gives nothing."""
    text = f"SELECT c.k FROM c [RANGE 5 SECONDS] ANTI JOIN {INNER} [RANGE 5 SECONDS] AS d ON c.k = d.k"
    run = LocalRun(session_with(text))
    assert run.batch({"a": [at(1, k=7)], "b": [at(1, k=8)], "c": [at(1)]})["q0"].num_rows == 0
    assert run.batch({"a": [at(30, k=7)], "b": [at(30, k=8)], "c": [at(30, k=2)]})["q0"].to_pylist() == [
        {"k": 1}
    ]
    derived = next(mark for name, mark in marks_of(run).items() if name.startswith("derived_"))
    assert derived == marks_of(run)["a"]


def test_watermark_waits_for_rows_that_are_open() -> None:
    """Rows without a partner, which leave late, would be behind the watermark and be joined with nothing."""
    inner = "(SELECT a.k FROM a [RANGE 10 SECONDS] ANTI JOIN b [RANGE 1 SECOND] ON a.k = b.k)"
    run = LocalRun(
        session_with(
            f"SELECT d.k, c.x FROM {inner} [RANGE 9 SECONDS] AS d, c [RANGE 9 SECONDS] WHERE d.k = c.k"
        )
    )
    run.batch({"a": [at(1)], "b": [at(1, k=5)], "c": [at(2, x=4)]})
    found = run.batch({"a": [at(30, k=5)], "b": [at(30, k=6)], "c": [at(30, k=9)]})
    assert found["q0"].to_pylist() == [{"k": 1, "x": 4}]
    derived = next(mark for name, mark in marks_of(run).items() if name.startswith("derived_"))
    assert derived == 20


def test_shared_until_nobody_needs_it() -> None:
    """Equal sub-selects would run twice, or go on when the last query that needs them has stopped."""
    run = LocalRun(session_with(SHARED, SHARED.replace("d.k, c.x", "c.x")))
    run.batch({"a": [at(1)], "b": [at(2)], "c": [at(3)]})

    def inner() -> list[str]:
        return [name for name in run._loop.active_queries.requests if name.startswith("derived_")]

    assert len(inner()) == 1
    run.stop_query("q0")
    run.batch({"a": [at(4)]})
    assert len(inner()) == 1
    assert run.batch({"b": [at(5)]})["q1"].num_rows
    run.stop_query("q1")
    run.batch({"a": [at(6)]})
    assert inner() == []


def test_failed_inner_query_stops_those_that_need_it() -> None:
    """A query would go on without the rows of an inner one that has failed, and nobody would know."""
    session = session_with()

    def broken(x: pa.Array) -> pa.Array:
        if pa.compute.max(x).as_py() > 5:
            raise ValueError("too large")
        return x

    session.function("broken", broken, returns="long")
    session.query("SELECT a.k FROM a", name="other", sink=weft.to_memory())
    text = (
        "SELECT d.k FROM (SELECT broken(a.x) AS k FROM a [ROWS 3], b WHERE a.k = b.k) AS d, c WHERE d.k = c.k"
    )
    session.query(text, name="q0", sink=weft.to_memory())
    run = LocalRun(session)
    run.batch({"a": [at(1, x=1)], "b": [at(1)], "c": [at(1, k=1)]})
    with pytest.raises(weft.errors.WeftError, match="too large"):
        run.batch({"a": [at(2, x=9)]})
    with pytest.raises(weft.errors.WeftError, match="has stopped"):
        run.batch({"a": [at(3)]})
    run.batch({"a": [at(4)]})
    assert list(run._loop.active_queries.requests) == ["other"]
    assert "has stopped" in run._loop.active_queries.stopped["q0"]


def test_arrival_times() -> None:
    """The time of a row of streams without event time would be that of the batch that reads it, not of its tuples."""
    session = session_with()
    session.stream("u", "k long")
    text = "SELECT d._time AS t, c.x FROM (SELECT u.k FROM u [ROWS 5], b WHERE u.k = b.k) AS d, c WHERE d.k = c.k"
    session.query(text, name="q0", sink=weft.to_memory())
    run = LocalRun(session, now=START + timedelta(days=1))
    run.batch({"c": [at(3)], "b": [at(2)]})
    found = run.batch({"u": [{"k": 1}]}, now=START + timedelta(days=2))["q0"].to_pylist()
    assert [row["t"].replace(tzinfo=None) for row in found] == [START + timedelta(days=2)]


def test_names() -> None:
    """A name in FROM would mean a stream or a query, depending on which came first."""
    session = session_with("SELECT a.k FROM a, b WHERE a.k = b.k")
    with pytest.raises(CatalogError, match="already a query 'Q0'"):
        session.stream("Q0", "k long")
    with pytest.raises(QueryError, match="already a stream 'a'"):
        session.query("SELECT b.k FROM b", name="a")
    planned = session.query("SELECT q0.k, c.x FROM q0, c WHERE q0.k = c.k", name="on_top")
    assert "q0 is flattened into q0_a, q0_b" in planned.explain()


def test_repeated_batch_keeps_the_first_list() -> None:
    """A batch planned with the files of another would not find them when that one has been repeated."""
    place = new_memory()
    sink, storage = DerivedSink(place, "ts"), storage_at(place)
    rows = pa.record_batch({"ts": pa.array([1], pa.timestamp("us", "UTC"))})
    sink.commit(3, [rows])
    kept = sorted(storage.list(""))
    sink.commit(3, [rows])
    assert sorted(storage.list("")) == kept
    sink.write_part(4, 0, [rows])
    sink.commit(5, [rows])
    sink.recover(4)
    assert sorted(storage.list("")) == kept
