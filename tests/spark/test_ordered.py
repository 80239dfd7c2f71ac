"""Ordered results on a real Spark: every sink, restarts, and time that passes by itself."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from tests.spark.files import read_files, rows_of, run, session_of, write
from weft.errors import ConfigError, StateError
from weft.logical.schema import Schema, Stream
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import Manifest
from weft.runtime.loop.batch_planner import BatchPlanner
from weft.runtime.loop.config import RunConfig
from weft.runtime.observe.progress import History
from weft.testing import is_ordered, reference_join

FILES, ROWS = 3, 200
PAIR = """SELECT a.n AS an, b.n AS bn, a.ts AS at, b.ts AS bt
          FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k"""
ORDERS = {"outer": ("outer", None), "inner": ("inner", 3), "coarse": ("outer", 64), "event": ("event", None)}


def session_with(
    spark: Any, root: Path, seen: list[pa.Table], execution: str
) -> dict[str, weft.PlannedQuery]:
    """A query in every order, in memory and in files; one over one stream; one without an order beside them."""
    session = session_of(spark, root, execution=execution)
    read_files(session, root, "a", "b")
    found = {}
    for name, (order, precision) in ORDERS.items():
        for kind, sink in (("memory", weft.to_memory()), ("files", weft.to_parquet(root / "out" / name))):
            found[f"{name} {kind}"] = session.query(
                PAIR, name=f"{name} {kind}", sink=sink, order=order, precision=precision
            )
    told = weft.foreach_batch(lambda table, _: seen.append(table), arrow=True)
    found["told"] = session.query(PAIR, name="told", sink=told, order="outer")
    found["alone"] = session.query(
        "SELECT n, ts FROM a WHERE k < 20", name="alone", sink=weft.to_memory(), order="outer", precision=7
    )
    found["counted"] = session.query(PAIR, name="counted", sink=weft.to_count(), order="event")
    found["plain"] = session.query(PAIR, name="plain", sink=weft.to_memory())
    return found


def write_both(root: Path, number: int) -> None:
    """The files of a batch."""
    for name in ("a", "b"):
        write(root, name, number)


def places(query: weft.PlannedQuery, results: pa.Table, batches: list[Any]) -> dict[str, Any]:
    """When the tuples of results came, from the driver order of every batch; file N is of batch N."""
    found = {}
    for alias, column in (("a", "an"), ("b", "bn")):
        numbers = results[column].to_numpy()
        rank = np.array([batch.order.index(alias) for batch in batches[:FILES]])
        found[alias] = numbers // ROWS * 2 * ROWS + rank[numbers // ROWS] * ROWS + numbers % ROWS
    assert query.query.aliases == ("a", "b")
    return found


def in_files(folder: Path) -> pa.Table:
    """All files of a sink, in the order of their names."""
    return pa.concat_tables([pq.ParquetFile(file).read() for file in sorted(folder.glob("*/*.parquet"))])


@pytest.mark.parametrize("merged", ["driver", "resident", "jobs"])
def test_ordered_results_of_every_sink(
    merged: str, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sinks get what the query says, in order, also if the session is stopped in between and goes on.

    Tasks merge results that are many; so few as here the driver merges, unless it is told otherwise.
    """
    execution = "resident" if merged == "driver" else merged
    if merged != "driver":
        monkeypatch.setattr("weft.runtime.output.ordered_results.FEW", 0)
        monkeypatch.setattr("weft.runtime.output.ordered_results.LEAST", 1)
    seen: list[pa.Table] = []
    write_both(tmp_path, 0)
    first = session_with(spark, tmp_path, seen, execution)
    session: Any = first["plain"].session
    run(session)
    held = first["event files"].progress.held
    assert held > 0
    batches = list(session.progress["plain"])
    early = {name: query.results() for name, query in first.items() if "memory" in name or name == "alone"}
    for number in range(1, FILES):
        write_both(tmp_path, number)
    second = session_with(spark, tmp_path, seen, execution)
    session = second["plain"].session
    session.run_available()
    batches += [one for one in session.progress["plain"] if one.number >= 1]
    wanted = pairs_of(defined(tmp_path, second["plain"]))
    for name, (order, precision) in ORDERS.items():
        query = second[f"{name} memory"]
        kept = pa.concat_tables([early[f"{name} memory"], query.results()])
        for results in (kept, in_files(tmp_path / "out" / name)):
            assert pairs_of(results) == wanted, name
            check(query, results, batches, order, precision or 1)
    assert pairs_of(pa.concat_tables(seen)) == wanted
    check(second["told"], pa.concat_tables(seen), batches, "outer", 1)
    last = weft.Punctuations.read(seen[-1].schema)[-1]
    assert (last.rows, last.tuples) == (sum(wanted.values()), 2 * FILES * ROWS)
    assert second["told"].progress.punctuation == last
    check_alone(early["alone"], second["alone"])
    assert second["counted"].sink.count() + first["counted"].sink.count() == sum(wanted.values())  # type: ignore[union-attr]
    check_punctuations(tmp_path, second)
    parts = {len(list(batch.iterdir())) for batch in (tmp_path / "out" / "outer").glob("batch=*")}
    assert parts == ({1} if merged == "driver" else {2})  # one for a task


def pairs_of(results: pa.Table) -> Counter[tuple[Any, ...]]:
    """Which tuples results are of."""
    return rows_of(results.select(["an", "bn"]))


def defined(root: Path, query: weft.PlannedQuery) -> pa.Table:
    """The answer by the definition."""
    tables = {i.alias: pq.read_table(root / "in" / i.stream.name) for i in query.query.inputs}
    return reference_join(query.query, tables)


def check(
    query: weft.PlannedQuery, results: pa.Table, batches: list[Any], order: str, precision: int
) -> None:
    """Results are in order."""
    if order == "event":
        times = {name: results[name].cast(pa.int64()).to_numpy() for name in ("at", "bt")}
        assert is_ordered(times, "event")
        return
    numbers = {"a": results["an"].to_numpy(), "b": results["bn"].to_numpy()}
    assert is_ordered(places(query, results, batches), order, precision, numbers=numbers)


def check_alone(early: pa.Table, query: weft.PlannedQuery) -> None:
    """A query of one stream gives its tuples as they came, and says so."""
    numbers = pa.concat_tables([early, query.results()])["n"].to_numpy()
    assert numbers.size > FILES
    assert is_ordered({"a": numbers}, "outer", 7)
    marks = query.punctuations()
    assert (np.searchsorted(np.sort(numbers), marks.marks) == marks.rows).all()
    assert marks[-1] == weft.Punctuation(numbers.size, FILES * ROWS)


def check_punctuations(root: Path, queries: dict[str, weft.PlannedQuery]) -> None:
    """A file's punctuations are about the rows up to it; at the end, all is complete."""
    rows = 0
    for file in sorted((root / "out" / "outer").glob("*/*.parquet")):
        rows += pq.ParquetFile(file).metadata.num_rows
        assert weft.Punctuations.read(pq.read_schema(file))[-1].rows == rows
    event = queries["event memory"].punctuations()
    assert event[-1].rows == rows
    assert event[-1].time is not None
    assert event[-1].time.year == 9999
    assert queries["event files"].progress.held == 0


def test_results_leave_when_the_clock_has_passed_them(spark: Any, tmp_path: Path) -> None:
    """Streams without event time: their results would wait for ever if nothing else came."""
    session = session_of(spark, tmp_path)
    for name in ("a", "b"):
        write(tmp_path, name, 0)
        session.stream(name, weft.files("parquet", str(tmp_path / "in" / name)))
    query = session.query(
        "SELECT a.n, b.n AS m FROM a, b WHERE a.k = b.k", sink=weft.to_memory(), order="event"
    )
    session.start()
    try:
        session.process_all_available()
        until = time.monotonic() + 60
        while not query.results().num_rows and time.monotonic() < until:
            time.sleep(0.2)
    finally:
        session.stop()
    assert rows_of(query.results()) == definition_of_all(tmp_path)
    assert query.progress.held == 0


def test_time_does_not_go_back() -> None:
    """A clock that is set back would give tuples times that results have passed."""
    streams = {name: Stream(name, Schema.parse("k long"), None) for name in ("a", "b")}
    unused: Any = None
    batch_planner = BatchPlanner(
        RunConfig(streams, {}, unused, unused, unused, 1), Checkpoint.in_memory(), History()
    )
    before = time.time_ns() // 1000
    assert batch_planner.new(Manifest(marks={"a": 5}), {}).now >= before
    assert batch_planner.new(Manifest(marks={"a": 1 << 60, "b": 5}), {}).now == 1 << 60


def definition_of_all(root: Path) -> Any:
    """All pairs of one key."""
    a, b = (pq.read_table(root / "in" / name).to_pydict() for name in ("a", "b"))
    pairs = [
        (n, m)
        for n, k in zip(a["n"], a["k"], strict=True)
        for m, other in zip(b["n"], b["k"], strict=True)
        if k == other
    ]
    return rows_of(pa.table({"n": [n for n, _ in pairs], "m": [m for _, m in pairs]}))


def test_another_order_is_another_query(spark: Any, tmp_path: Path) -> None:
    """A restart that asked for another order would leave an output in neither."""
    write_both(tmp_path, 0)
    for order, refused in (("outer", False), ("inner", True)):
        session = session_of(spark, tmp_path)
        read_files(session, tmp_path, "a", "b")
        session.query(PAIR, name="q", sink=weft.to_memory(), order=order)
        if refused:
            with pytest.raises(StateError, match="the order of query q is outer"):
                run(session)
        else:
            run(session)
    with pytest.raises(ConfigError, match="no punctuations"):
        session.query(PAIR, name="plain").punctuations()
