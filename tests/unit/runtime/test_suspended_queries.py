"""What users see of suspended queries: who waits is told, the others go on, and nothing is lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import weft
from weft.connectors.files.source import FilesSource
from weft.errors import SinkError, SourceError, SuspendedError, WeftError

SCHEMA = "id long, k long, ts timestamp"
PAIR = "SELECT a.id AS a, b.id AS b FROM a, b WHERE a.k = b.k"
ONE = "SELECT a.id AS a FROM a"


class Fragile:
    """A sink of a user's own that takes nothing while it is broken."""

    exactly_once = True

    def __init__(self) -> None:
        self.broken = False
        self.batches: dict[int, int] = {}

    def open(self, schema: pa.Schema, owner: str | None = None) -> None:
        """Take all."""

    def recover(self, last_committed: int) -> None:
        """There is nothing to clear away."""

    def begin(self, batch_id: int) -> None:
        """There is nothing to prepare."""

    def commit(self, batch_id: int, rows: Any) -> None:
        """Count the rows, unless it is broken."""
        if self.broken:
            raise ValueError("out of order")
        self.batches[batch_id] = sum(batch.num_rows for batch in rows)

    @property
    def rows(self) -> int:
        """How many rows came."""
        return sum(self.batches.values())


class Unopened(Fragile):
    """A sink on a disk that is full from the beginning."""

    def recover(self, last_committed: int) -> None:
        """Fail."""
        raise OSError(28, f"no room after {last_committed}", "/x")


class Pipeline:
    """A session without Spark over files that are written while it runs."""

    def __init__(self, root: Path) -> None:
        self.root, self.files = root, 0
        for name in ("a", "b"):
            (root / name).mkdir()
        self.session = self.new_session()

    def new_session(self) -> weft.Session:
        """A session that goes on with the checkpoint."""
        session = weft.Session(checkpoint=self.root / "ck", execution="local", adapt="off")
        for name in ("a", "b"):
            source = weft.files("json", str(self.root / name), schema=SCHEMA)
            session.stream(name, source, event_time="ts", lateness="1 day")
        self.session = session
        return session

    def write(self, rows: int = 10) -> None:
        """So many more rows of both streams, each with one partner."""
        for name in ("a", "b"):
            lines = [
                json.dumps(
                    {"id": self.files * rows + n, "k": self.files * rows + n, "ts": "2026-01-01 00:00:00"}
                )
                for n in range(rows)
            ]
            partial = self.root / f"{name}.tmp"
            partial.write_text("\n".join(lines) + "\n")
            partial.rename(self.root / name / f"{self.files}.json")
        self.files += 1

    def given(self, name: str) -> int:
        """How many rows of a query are in its Parquet files."""
        folders = sorted((self.root / name).glob("batch=*"))
        return sum(ds.dataset(folder).count_rows() for folder in folders)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A pipeline without queries."""
    return Pipeline(tmp_path)


def test_who_waits_is_told_and_others_go_on(pipeline: Pipeline) -> None:
    """A sink that fails is named by every method that waits, and all is given when it works again."""
    session, sink, count = pipeline.session, Fragile(), weft.to_count()
    broken = session.query(PAIR, name="broken", sink=sink)
    session.query(ONE, name="one", sink=count)
    session.start()
    try:
        pipeline.write()
        session.process_all_available()
        sink.broken = True
        for _ in range(3):
            pipeline.write()
            with pytest.raises(SuspendedError, match=r"query broken is suspended since batch .*out of order"):
                session.process_all_available()
        assert count.count() == 40
        assert sink.rows == 10
        assert not session.await_termination(0)
        assert broken.progress.status == "suspended"
        assert "30 results wait" in broken.progress.reason
        sink.broken = False
        session.process_all_available()
        assert sink.rows == 40
        assert broken.progress.status == "running"
    finally:
        session.stop()


def test_awaiting_the_end_is_told_when_no_query_goes_on(pipeline: Pipeline) -> None:
    """Else a program would wait for ever for results that do not come."""
    sink = Fragile()
    pipeline.session.query(PAIR, name="broken", sink=sink)
    sink.broken = True
    pipeline.session.start()
    try:
        pipeline.write()
        with pytest.raises(SuspendedError, match="broken"):
            pipeline.session.await_termination(60)
    finally:
        pipeline.session.stop()


def test_a_run_over_what_is_there_says_that_a_query_is_suspended(pipeline: Pipeline) -> None:
    """The answer would be empty else, as if there were none; the next run gives it."""
    sink = Fragile()
    sink.broken = True
    pipeline.write()
    pipeline.session.query(PAIR, name="broken", sink=sink)
    with pytest.raises(SuspendedError, match="10 results wait"):
        pipeline.session.run_available(end=False)
    sink.broken = False
    pipeline.new_session().query(PAIR, name="broken", sink=sink)
    pipeline.session.run_available(end=False)
    assert sink.rows == 10


def _delete(place: Path) -> None:
    shutil.rmtree(place)


def _replace_by_a_file(place: Path) -> None:
    shutil.rmtree(place)
    place.write_text("not a directory")


@pytest.mark.parametrize("strike", [_delete, _replace_by_a_file])
@pytest.mark.parametrize("restart", [False, True])
def test_a_directory_of_results_that_is_gone_is_not_made_again_in_silence(
    pipeline: Pipeline, strike: Callable[[Path], None], restart: bool
) -> None:
    """Who counts on what was there is told; with the directory put back, all is there."""
    session, out = pipeline.session, pipeline.root / "pair"
    session.query(PAIR, name="pair", sink=weft.to_parquet(out))
    session.start()
    pipeline.write()
    session.process_all_available()
    if restart:
        session.stop()
    shutil.copytree(out, pipeline.root / "copy")
    strike(out)
    pipeline.write()
    if restart:
        session = pipeline.new_session()
        session.query(PAIR, name="pair", sink=weft.to_parquet(out))
        with pytest.raises(WeftError, match=str(out)):
            session.start()
    else:
        with pytest.raises(SuspendedError, match=str(out)):
            session.process_all_available()
    assert not list(pipeline.root.glob("pair/batch=*"))
    if out.exists():
        out.unlink() if out.is_file() else shutil.rmtree(out)
    (pipeline.root / "copy").rename(out)
    if restart:
        session = pipeline.new_session()
        session.query(PAIR, name="pair", sink=weft.to_parquet(out))
        session.start()
    session.process_all_available()
    session.stop()
    assert pipeline.given("pair") == 20


def test_results_may_go_to_another_place_from_now_on(pipeline: Pipeline) -> None:
    """A sink that was never given anything has lost nothing."""
    pipeline.write()
    pipeline.session.query(PAIR, name="pair", sink=weft.to_parquet(pipeline.root / "first"))
    pipeline.session.run_available(end=False)
    pipeline.write()
    pipeline.new_session().query(PAIR, name="pair", sink=weft.to_parquet(pipeline.root / "second"))
    pipeline.session.run_available(end=False)
    assert (pipeline.given("first"), pipeline.given("second")) == (10, 10)


def test_a_stream_that_cannot_be_read_suspends_its_queries_alone(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file that vanishes must not end the others; with the file as it was, nothing is missing."""
    session, pairs, ones, gone, read = (
        pipeline.session,
        weft.to_count(),
        weft.to_count(),
        [False],
        FilesSource.read,
    )

    def may_fail(source: FilesSource, stream: str, *more: Any) -> Any:
        if gone[0] and stream == "b":
            raise SourceError("1.json is gone")
        return read(source, stream, *more)

    monkeypatch.setattr(FilesSource, "read", may_fail)
    session.query(PAIR, name="pair", sink=pairs)
    session.query(ONE, name="one", sink=ones)
    session.start()
    try:
        pipeline.write()
        session.process_all_available()
        gone[0] = True
        for _ in range(2):
            pipeline.write()
            with pytest.raises(SuspendedError, match=r"query pair .*stream b cannot be read: 1.json is gone"):
                session.process_all_available()
        assert (pairs.count(), ones.count()) == (10, 30)
        gone[0] = False
        session.process_all_available()
        assert (pairs.count(), ones.count()) == (30, 30)
    finally:
        session.stop()


def test_a_query_that_is_stopped_while_suspended_holds_nobody_up(pipeline: Pipeline) -> None:
    """What waited for its sink is dropped, as its user wished."""
    session, sink = pipeline.session, Fragile()
    query = session.query(PAIR, name="broken", sink=sink)
    session.query(ONE, name="one", sink=weft.to_count())
    sink.broken = True
    session.start()
    try:
        pipeline.write()
        with pytest.raises(SuspendedError):
            session.process_all_available()
        query.stop()
        pipeline.write()
        session.process_all_available()
        assert query.progress.status == "stopped"
    finally:
        session.stop()


def test_a_sink_that_can_never_take_more_stops_its_query(pipeline: Pipeline) -> None:
    """Results would fill the checkpoint for nothing."""
    session = pipeline.session
    small = session.query(PAIR, name="small", sink=weft.to_memory(limit=8))
    session.query(ONE, name="one", sink=weft.to_count())
    session.start()
    try:
        pipeline.write()
        session.process_all_available()
        pipeline.write()
        session.process_all_available()
        assert small.progress.status == "stopped"
        assert "the limit is 8" in small.progress.reason
    finally:
        session.stop()


def test_a_sink_that_cannot_be_opened_is_named(pipeline: Pipeline) -> None:
    """At the start the user is there, and is told at once."""
    sink = Unopened()
    pipeline.session.query(PAIR, name="pair", sink=sink)
    with pytest.raises(SinkError, match=r"query pair, a Unopened, failed: No space left on device \(/x\)"):
        pipeline.session.start()


def test_the_end_of_the_input_closes_rows_though_a_query_is_suspended(pipeline: Pipeline) -> None:
    """One sink that fails must not cost others the rows that only the end gives."""
    sink, left, text = (
        Fragile(),
        weft.to_count(),
        "SELECT a.id AS a FROM a LEFT JOIN b ON a.k = b.k AND b.id < 0",
    )
    sink.broken = True
    pipeline.write()
    pipeline.session.query(PAIR, name="broken", sink=sink)
    pipeline.session.query(text, name="left", sink=left)
    with pytest.raises(SuspendedError, match="query broken"):
        pipeline.session.run_available()
    assert left.count() == 10


def test_another_query_may_write_where_results_were_deleted(pipeline: Pipeline) -> None:
    """Who stops a query, deletes its results and gives its name to another has lost nothing."""
    out = pipeline.root / "pair"
    for text in (PAIR, f"{PAIR} AND a.id >= 0"):
        session = pipeline.new_session()
        session.query(ONE, name="one", sink=weft.to_count())
        query = session.query(text, name="pair", sink=weft.to_parquet(out))
        session.start()
        try:
            pipeline.write()
            session.process_all_available()
            given = pipeline.given("pair")
            query.stop()
            pipeline.write()
            session.process_all_available()
        finally:
            session.stop()
        shutil.rmtree(out)
    assert given == 10
