"""Files that are late, unfinished or gone, sinks that fail and workers that die: nothing is lost in silence."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import weft
import weft.session.run
from tests.spark.sessions import running
from weft.errors import SourceError, SuspendedError
from weft.runtime.log.values import BatchPlan
from weft.runtime.loop.loop import Loop

DAY = 86_400


def lines(*ids: int) -> str:
    """Records as JSON lines."""
    return "".join(json.dumps({"id": i, "k": i % 3, "ts": f"2024-01-01 00:00:{i:02}"}) + "\n" for i in ids)


def put(file: Path, text: str | bytes, age: float = 0.0) -> None:
    """A file that is put there at once, changed so many seconds ago as far as it tells."""
    partial = file.with_name(f".{file.name}")
    partial.write_bytes(text if isinstance(text, bytes) else text.encode())
    now = time.time() - age
    os.utime(partial, (now, now))
    partial.rename(file)


def session_of(
    spark: Any, root: Path, formats: dict[str, str], execution: str = "auto", **options: Any
) -> weft.Session:
    """A session over folders of files, one for each stream."""
    session = weft.Session(
        checkpoint=root / "ck", spark=spark, options=weft.Options(partitions=2), execution=execution
    )
    for name, format_ in formats.items():
        session.stream(name, source_of(root, name, format_, **options), event_time="ts", lateness="1 day")
    return session


def source_of(root: Path, name: str, format_: str = "json", **options: Any) -> Any:
    """A folder of files."""
    (root / name).mkdir(exist_ok=True)
    return weft.files(format_, str(root / name), schema="id long, k long, ts timestamp", **options)


def ids(sink: Any) -> list[int]:
    """What a query has given."""
    return sorted(sink.results()["id"].to_pylist())


def wait_for(what: Callable[[], bool]) -> None:
    """Until something is so."""
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.01)


def test_when_a_file_was_changed_does_not_matter(spark: Any, tmp_path: Path) -> None:
    """One of next month made those after it never be read, and one of last week was ignored."""
    session = session_of(spark, tmp_path, {"s": "json"})
    sink = weft.to_memory()
    session.query("SELECT s.id FROM s", name="q", sink=sink)
    put(tmp_path / "s" / "ahead.json", lines(1), -30 * DAY)
    with running(session):
        session.process_all_available()
        assert ids(sink) == [1]
        put(tmp_path / "s" / "old.json", lines(2), 8 * DAY)
        put(tmp_path / "s" / "now.json", lines(3))
        session.process_all_available()
        assert ids(sink) == [1, 2, 3]


def test_files_are_waited_for_until_they_are_complete(spark: Any, tmp_path: Path) -> None:
    """One that was seen at 0 bytes, or half written, was skipped for ever."""
    session = session_of(spark, tmp_path, {"s": "json", "t": "parquet"})
    texts, tables = weft.to_memory(), weft.to_memory()
    session.query("SELECT s.id FROM s", name="texts", sink=texts)
    session.query("SELECT t.id FROM t", name="tables", sink=tables)
    out = pa.BufferOutputStream()
    times = pa.array([1, 2], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"id": [7, 8], "k": [0, 1], "ts": times}), out)
    table, text = out.getvalue().to_pybytes(), lines(3, 4).encode()
    with running(session):
        (tmp_path / "s" / "empty.json").touch()
        (tmp_path / "s" / "half.json").write_bytes(text[:-20])
        (tmp_path / "t" / "half.parquet").write_bytes(table[: len(table) // 2])
        put(tmp_path / "s" / "whole.json", lines(1))
        intake = session._run_under_way().loop.intake
        wait_for(lambda: ids(texts) == [1] and sum(map(len, intake.unfinished().values())) == 3)
        named = [Path(one.split(": ")[0]).name for names in intake.unfinished().values() for one in names]
        assert sorted(named) == ["empty.json", "half.json", "half.parquet"]
        (tmp_path / "s" / "empty.json").write_text(lines(2))
        (tmp_path / "s" / "half.json").write_bytes(text)
        (tmp_path / "t" / "half.parquet").write_bytes(table)
        session.process_all_available()
        assert (ids(texts), ids(tables)) == ([1, 2, 3, 4], [7, 8])


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Delete a file, once, between the plan that takes it and the tasks that read it."""

    def lose(file: Path) -> None:
        class Losing(Loop):
            def execute(self, plan: BatchPlan) -> Any:
                file.unlink(missing_ok=True)
                return super().execute(plan)

        monkeypatch.setattr(weft.session.run, "Loop", Losing)

    return lose


def test_a_file_that_is_gone_when_it_is_read_is_named(
    spark: Any, tmp_path: Path, losing: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was skipped in silence. When it is back, the run goes on."""
    sink = weft.to_parquet(tmp_path / "out")
    for name, number in (("a.json", 1), ("b.json", 2)):
        (tmp_path / "s").mkdir(exist_ok=True)
        put(tmp_path / "s" / name, lines(number), 60)
    losing(tmp_path / "s" / "a.json")
    session = session_of(spark, tmp_path, {"s": "json"})
    session.query("SELECT s.id FROM s", name="q", sink=sink)
    with running(session), pytest.raises(SourceError, match=r"s: file .*a\.json is missing"):
        session.process_all_available()
    monkeypatch.undo()
    put(tmp_path / "s" / "a.json", lines(1))
    put(tmp_path / "s" / "c.json", lines(3))
    session = session_of(spark, tmp_path, {"s": "json"})
    session.query("SELECT s.id FROM s", name="q", sink=sink)
    with running(session):
        session.process_all_available()
    assert sorted(pq.read_table(tmp_path / "out")["id"].to_pylist()) == [1, 2, 3]


def test_one_that_may_be_missing_is_counted(
    spark: Any, tmp_path: Path, losing: Callable[[Path], None]
) -> None:
    """`missing="skip"`: it is a dead letter."""
    (tmp_path / "s").mkdir()
    for name, number in (("a.json", 1), ("b.json", 2)):
        put(tmp_path / "s" / name, lines(number), 60)
    losing(tmp_path / "s" / "a.json")
    session, sink = session_of(spark, tmp_path, {"s": "json"}, missing="skip"), weft.to_memory()
    session.query("SELECT s.id FROM s", name="q", sink=sink)
    with running(session):
        session.process_all_available()
    assert ids(sink) == [2]
    (letter,) = (tmp_path / "ck" / "dead_letters").iterdir()
    (record,) = map(json.loads, letter.read_text().splitlines())
    assert (record["reason"], Path(record["file"]).name) == ("the file is missing", "a.json")
    assert sum(one.malformed for batch in session.progress["q"] for one in batch.inputs.values()) == 1


class Refusing:
    """A function for results that fails while it is told to."""

    def __init__(self) -> None:
        self.full, self.ids = False, list[int]()

    def __call__(self, rows: Any, batch: int) -> None:
        """Keep the ids, unless it is full."""
        if self.full:
            raise ValueError(f"no room for {rows.num_rows} rows of batch {batch}")
        self.ids += rows["id"].to_pylist()


def test_a_function_that_fails_suspends_its_query_and_no_other(spark: Any, tmp_path: Path) -> None:
    """Whatever it raises; also where there is no other query, who waits is told, and it is called again."""
    (tmp_path / "s").mkdir()
    put(tmp_path / "s" / "a.json", lines(1), 60)
    session, sink, taking = session_of(spark, tmp_path, {"s": "json"}), weft.to_memory(), Refusing()
    good = session.query("SELECT s.id FROM s", name="good", sink=sink)
    bad = session.query("SELECT s.id, s.k FROM s", name="bad", sink=weft.foreach_batch(taking, arrow=True))
    with running(session):
        session.process_all_available()
        taking.full = True
        for number in (2, 3):
            put(tmp_path / "s" / f"{number}.json", lines(number), 60)
            with pytest.raises(SuspendedError, match="ValueError: no room"):
                session.process_all_available()
        assert (bad.progress.status, good.progress.status) == ("suspended", "running")
        assert ids(sink) == [1, 2, 3]
        good.stop()
        with pytest.raises(SuspendedError, match="query bad"):
            session.process_all_available()
        taking.full = False
        session.process_all_available()
        assert taking.ids == [1, 2, 3]


def test_a_stream_may_come_while_the_session_runs(spark: Any, tmp_path: Path) -> None:
    """Queries over it begin at once, and it is there after a restart."""
    (tmp_path / "s").mkdir()
    put(tmp_path / "s" / "a.json", lines(1, 4), 60)
    sink = weft.to_parquet(tmp_path / "out")
    text = "SELECT s.id AS s, t.id AS t FROM s [RANGE 1 HOUR], t [RANGE 1 HOUR] WHERE s.k = t.k"
    session = session_of(spark, tmp_path, {"s": "json"})
    session.query("SELECT s.id, s.k FROM s", name="q", sink=weft.to_memory())
    with running(session):
        session.process_all_available()
        session.stream("t", source_of(tmp_path, "t"), event_time="ts", lateness="1 day")
        session.query(text, name="joined", sink=sink)
        session.process_all_available()
        put(tmp_path / "t" / "a.json", lines(7), 60)
        put(tmp_path / "s" / "b.json", lines(10), 60)
        session.process_all_available()
    session = session_of(spark, tmp_path, {"s": "json", "t": "json"})
    session.query("SELECT s.id, s.k FROM s", name="q", sink=weft.to_memory())
    session.query(text, name="joined", sink=sink)
    put(tmp_path / "t" / "b.json", lines(13), 60)
    with running(session):
        session.process_all_available()
    found = pq.read_table(tmp_path / "out")
    pairs = sorted(zip(found["s"].to_pylist(), found["t"].to_pylist(), strict=True))
    assert [pair for pair in pairs if pair[0] == 10] == [(10, 7), (10, 13)]
    assert len(pairs) == len(set(pairs))


@pytest.mark.parametrize("execution", ["resident", "jobs"])
def test_a_worker_that_dies_costs_an_attempt(
    spark: Any, tmp_path: Path, execution: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In the middle of a batch, on a machine of two cores: the batch is run again, and nothing comes twice."""
    marker = tmp_path / "died"

    def deadly(value: Any) -> Any:
        if pc.max(value).as_py() == 8 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return pc.greater_equal(value, 0)

    for name in "st":
        (tmp_path / name).mkdir()
        put(tmp_path / name / "a.json", lines(1, 2, 4), 60)
    session = session_of(spark, tmp_path, {"s": "json", "t": "json"}, execution)
    session.function("deadly", deadly, returns="boolean")
    text = (
        "SELECT s.id AS s, t.id AS t FROM s [RANGE 1 HOUR], t [RANGE 1 HOUR] WHERE s.k = t.k AND deadly(s.id)"
    )
    sink = weft.to_parquet(tmp_path / "out")
    session.query(text, name="q", sink=sink)
    with caplog.at_level(logging.WARNING, "weft"), running(session):
        session.process_all_available()
        put(tmp_path / "s" / "b.json", lines(7, 8), 60)
        session.process_all_available()
    assert marker.exists()
    assert any("batch 1 failed (attempt 1) and is run again" in line for line in caplog.messages)
    found = pq.read_table(tmp_path / "out")
    pairs = sorted(zip(found["s"].to_pylist(), found["t"].to_pylist(), strict=True))
    assert pairs == sorted((s, t) for s in (1, 2, 4, 7, 8) for t in (1, 2, 4) if s % 3 == t % 3)


@pytest.mark.parametrize("execution", ["resident", "jobs"])
def test_records_ahead_of_the_clock_are_dead_letters_of_all_executors(
    spark: Any, tmp_path: Path, execution: str
) -> None:
    """The limit reaches tasks in other processes, and later records are on time."""
    session = weft.Session(spark=spark, checkpoint=tmp_path / "ck", execution=execution)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        source = weft.files("json", str(tmp_path / name), schema="k long, ts timestamp")
        session.stream(name, source, event_time="ts")
    sql = "SELECT a.k FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k"
    query = session.query(sql, name="q", sink=weft.to_memory())
    with running(session):
        for number, times in enumerate(
            (["2024-01-01 00:00:00", "2999-01-01 00:00:00"], ["2024-01-01 00:01:00"])
        ):
            for name in ("a", "b"):
                rows = [{"k": 10 * number + n, "ts": time} for n, time in enumerate(times)]
                text = "".join(json.dumps(row) + "\n" for row in rows)
                (tmp_path / name / f"_{number}").write_text(text)
                (tmp_path / name / f"_{number}").rename(tmp_path / name / f"{number}.json")
            session.process_all_available()
        session.reset_watermark("a", to="2024-01-01")
        session.process_all_available()
    assert sorted(query.results()["k"].to_pylist()) == [0, 10]
    assert sum(one.malformed for batch in session.progress["q"] for one in batch.inputs.values()) == 2
