"""What a user may rely on when queries come and go while a session runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from tests.spark.sessions import jobs_of, running
from weft.connectors.files.parquet_sink import ParquetPart, ParquetSink
from weft.connectors.memory.sink import MemorySink
from weft.errors import PlanError, QueryError, SinkError, SourceError, StateError, SuspendedError, WeftError
from weft.runtime.observe.progress import QueryProgress
from weft.testing.reference import join_within_times, row_column

START = datetime(2024, 1, 1, tzinfo=timezone.utc)
ROWS = 40  # in a file, all of one second
PAIR = "SELECT a.n AS an, b.n AS bn FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k"
BRIEF = (
    "SELECT a.n AS an, b.n AS bn FROM a [RANGE 2 SECONDS], b [RANGE 2 SECONDS] WHERE a.k = b.k AND a.n > 30"
)
OTHER = (
    "SELECT a.n AS an, b.n AS bn FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.n = b.n + 40"  # other keys
)
UNKEPT = "SELECT a.n AS an, b.n AS bn FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k AND a.m < 9"
LONE = "SELECT a.n AS an FROM a WHERE a.n > 9"

Rows = Counter[tuple[Any, ...]]


def table_of(stream: str, number: int) -> pa.Table:
    """The tuples (k, m, n, ts) of a file."""
    rng = np.random.default_rng([number, ord(stream)])
    numbers = np.arange(number * ROWS, (number + 1) * ROWS)
    times = [START + timedelta(seconds=number, milliseconds=i) for i in range(ROWS)]
    keys = {"k": rng.integers(0, 12, ROWS), "m": rng.integers(0, 12, ROWS)}
    return pa.table({**keys, "n": numbers, "ts": pa.array(times, pa.timestamp("us", "UTC"))})


def feed(session: weft.Session, root: Path, *numbers: int, streams: str = "ab") -> None:
    """The next files of all streams, and wait until they are processed."""
    put(root, *numbers, streams=streams)
    session.process_all_available()


def put(root: Path, *numbers: int, streams: str = "ab") -> None:
    """Write files; a reader sees all of one or nothing."""
    for number in numbers:
        for stream in streams:
            (root / "in" / stream).mkdir(parents=True, exist_ok=True)
            pq.write_table(table_of(stream, number), root / f"{stream}.partial")
        for stream in streams:  # in one go, so that they are mostly of one batch; no test relies on that
            (root / f"{stream}.partial").rename(root / "in" / stream / f"{number:03}.parquet")


def session_of(spark: Any, root: Path, streams: str = "ab", **options: Any) -> weft.Session:
    """A session of two partitions over files, one of each stream a batch."""
    session = weft.Session(checkpoint=root / "ck", spark=spark, options=weft.Options(partitions=2), **options)
    for name in streams:
        register(session, root, name)
    return session


def register(session: weft.Session, root: Path, name: str) -> None:
    """A stream of files."""
    (root / "in" / name).mkdir(parents=True, exist_ok=True)
    folder, schema = str(root / "in" / name), "k long, m long, n long, ts timestamp"
    source = weft.files("parquet", folder, schema=schema, max_files_per_batch=1)
    session.stream(name, source, event_time="ts", lateness="1 hour")


def rows_of(table: pa.Table) -> Rows:
    """A table as a multiset."""
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def stored(path: Path) -> Rows:
    """What a Parquet sink has of pairs."""
    return rows_of(pq.read_table(path, columns=["an", "bn"]))


def answer(planned: weft.PlannedQuery, numbers: range, first: int = 0, **since: int) -> Rows:
    """By the definition, of files ``numbers``: results whose last file is ``first`` or later.

    ``since`` says from which file on an input's tuples are seen.
    """
    tables = {
        i.alias: pa.concat_tables([table_of(i.stream.name, n) for n in numbers if n >= since.get(i.alias, 0)])
        for i in planned.query.inputs
    }
    found = join_within_times(planned.query, tables)
    rows = [(a, found[row_column(a)].to_numpy()) for a in planned.query.aliases]
    last = np.max([tables[a]["n"].to_numpy()[places] // ROWS for a, places in rows], axis=0)
    names = [output.name for output in planned.query.projection]
    return rows_of(found.filter(pa.array(last >= first)).select(names))


def results(planned: weft.PlannedQuery) -> Rows:
    """What a query's memory sink holds."""
    return rows_of(planned.results())


def batches_of(session: weft.Session) -> int:
    """How many batches there have been."""
    assert session._current_run is not None
    return 1 + session._current_run.loop.log.last()


def test_a_query_sees_what_is_stored_and_answers_from_now_on(spark: Any, tmp_path: Path) -> None:
    """Whoever asks a running session would else wait for a window to fill, or get results twice."""
    session = session_of(spark, tmp_path)
    first = session.query(PAIR, name="first", sink=weft.to_memory())
    session.query(
        LONE, name="beside", sink=weft.to_memory()
    )  # where there is one query, nothing is kept for others
    assert first.progress == QueryProgress("first", "planned")
    with running(session):
        feed(session, tmp_path, 0, 1)
        began = batches_of(session)
        brief = session.query(BRIEF, name="brief", sink=weft.to_memory())
        past = session.query(PAIR, name="past", sink=weft.to_parquet(tmp_path / "past"), backfill=True)
        other = session.query(OTHER, name="other", sink=weft.to_memory(), backfill=True)
        unkept = session.query(UNKEPT, name="unkept", sink=weft.to_memory())
        lone = session.query(LONE, name="lone", sink=weft.to_memory(), backfill=True)
        counted = weft.to_count()
        session.query(BRIEF, name="counted", sink=counted, backfill=True)
        assert brief.progress.status in ("waiting", "running")
        feed(session, tmp_path, 2, 3)
        assert brief.progress.status == "running"
        assert brief.progress.created == began  # at once: it need not wait for input
        assert brief.progress.batches == batches_of(session) - began
        assert brief.progress.results == brief.results().num_rows
        incomplete = {planned.name for planned in session.queries if planned.progress.complete_from}
        assert incomplete == {"unkept"}
        assert unkept.progress.complete_from == START + timedelta(seconds=1, milliseconds=39, microseconds=1)
    four = range(4)
    assert results(first) == answer(first, four)
    assert results(brief) == answer(brief, four, 2) != answer(brief, range(2, 4))
    assert stored(tmp_path / "past") == answer(past, four)
    assert results(other) == answer(other, four)
    assert results(unkept) == answer(unkept, four, 2, a=2) != answer(unkept, four, 2)
    assert results(lone) == answer(lone, four)
    assert counted.count() == answer(brief, four).total()


def test_a_query_that_is_stopped_ends_with_the_next_batch(spark: Any, tmp_path: Path) -> None:
    """The others go on; when none is left, a new one can begin."""
    session = session_of(spark, tmp_path)
    first = session.query(PAIR, name="first", sink=weft.to_memory())
    second = session.query(OTHER, name="second", sink=weft.to_memory())
    with running(session):
        feed(session, tmp_path, 0, 1)
        second.stop()
        never = session.query(LONE, name="never", sink=weft.to_memory())
        never.stop()  # before any input comes
        feed(session, tmp_path, 2)
        assert (second.progress.status, second.progress.reason) == ("stopped", "stopped")
        assert (never.progress.status, never.progress.results) == ("stopped", 0)
        assert first.progress.status == "running"
        first.stop()
        feed(session, tmp_path, 3)
        assert first.progress.status == "stopped"
        feed(session, tmp_path, 4)
        late = session.query(PAIR, name="late", sink=weft.to_memory(), backfill=True)
        feed(session, tmp_path, 5, 6)
        assert late.progress.status == "running"
    assert results(second) == answer(second, range(2))
    assert results(first) == answer(first, range(3))
    assert results(late) == answer(late, range(5, 7))
    assert not never.results().num_rows


def test_what_is_refused_changes_nothing(spark: Any, tmp_path: Path) -> None:
    """A mistake in a new query must not cost those that run, nor others that come with it."""
    session = session_of(spark, tmp_path, query_limit=3)
    sink = weft.to_memory()
    first = session.query(PAIR, name="first", sink=sink)
    session.query(LONE, name="lone", sink=weft.to_parquet(tmp_path / "out"))
    with running(session):
        feed(session, tmp_path, 0)
        batch_planner = session._run_under_way().loop.batch_planner
        batch_planner.config = replace(batch_planner.config, decide=without_bad(batch_planner.config.decide))
        session.query(LONE, name="third", sink=weft.to_memory())
        with pytest.raises(QueryError, match="there are 3 queries already"):
            session.query(PAIR, name="more", sink=weft.to_memory())
        session.stop_query("third")
        session.stop_query("lone")
        feed(session, tmp_path, 1)
        register(session, tmp_path, "c")
        refused: list[tuple[type[WeftError], str, dict[str, Any]]] = [
            (QueryError, "already a query 'first'", {"name": "first"}),
            (WeftError, "no stream", {"text": "SELECT z.k FROM z"}),
            (QueryError, "first writes to this sink already", {"sink": sink}),
            (
                QueryError,
                "lone writes to this sink already",
                {"sink": weft.to_parquet(f"{tmp_path}/in/../out")},
            ),
            (
                SinkError,
                "batch",
                {"text": "SELECT a.n AS batch FROM a", "sink": weft.to_parquet(tmp_path / "x")},
            ),
            (
                QueryError,
                "backfill needs the past",
                {"text": PAIR.replace("RANGE 1 HOUR", "ROWS 5"), "backfill": True},
            ),
        ]
        for error, match, given in refused:
            arguments = {"name": "new", "sink": weft.to_memory(), **given}
            with pytest.raises(error, match=match):
                session.query(arguments.pop("text", PAIR), **arguments)
        assert [planned.name for planned in session.queries] == ["first", "lone", "third"]
        bad = session.query(PAIR, name="bad", sink=weft.to_memory())
        new = session.query(PAIR, name="new", sink=weft.to_memory())
        feed(session, tmp_path, 2)
        assert (first.progress.status, new.progress.status) == ("running", "running")
        assert (bad.progress.status, bad.progress.reason) == ("stopped", "refused: nobody can plan this")
    assert results(first) == answer(first, range(3))
    assert results(new) == answer(new, range(3), 2)


def without_bad(decide: Any) -> Any:
    """The planner, if it could not plan the query "bad"."""

    def refuse(active_queries: Any, requests: Any, *known: Any) -> Any:
        if "bad" in requests:
            raise PlanError("nobody can plan this")
        return decide(active_queries, requests, *known)

    return refuse


class Picky(MemorySink):
    """A sink that fails once it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False

    def commit(self, batch_id: int, rows: Any) -> None:
        """Keep the rows, unless it is full."""
        if self.full:
            raise SinkError("the disk is full")
        super().commit(batch_id, rows)


@pytest.mark.parametrize("execution", ["resident", "jobs"])
def test_a_query_whose_sink_fails_is_suspended_and_the_others_go_on(
    spark: Any, tmp_path: Path, execution: str
) -> None:
    """One user's full disk is not another's; with room again, here or after a restart, nothing is missing."""

    class SmallPart(ParquetPart):  # local ones, so that tasks need not import this file
        def write(self, rows: pa.RecordBatch) -> None:
            if max(rows["an"].to_pylist() + rows["bn"].to_pylist()) >= ROWS:
                raise SinkError("the task's disk is full")
            ParquetPart.write(self, rows)

    class Small(ParquetSink):
        def open_part(self, batch_id: int, partition: int) -> ParquetPart:
            return SmallPart(self._place, batch_id, partition, self.compression)

        def commit(self, batch_id: int, rows: Any) -> None:
            if batch_id > 0:
                raise SinkError("the driver's disk is full")
            ParquetSink.commit(self, batch_id, rows)

    def session_with(picky: MemorySink, good: MemorySink, small: ParquetSink) -> weft.Session:
        session = session_of(spark, tmp_path, execution=execution)
        session.query(PAIR, name="good", sink=good)
        session.query(PAIR, name="full", sink=picky)
        session.query(PAIR, name="small", sink=small)
        return session

    picky, sink = Picky(), weft.to_memory()
    with running(session_with(picky, sink, Small(tmp_path / "small"))) as session:
        feed(session, tmp_path, 0)
        picky.full = True
        with pytest.raises(
            SuspendedError, match=r"query full .*the disk is full; query small .*disk is full"
        ):
            feed(session, tmp_path, 1)
        picky.full = False
        with pytest.raises(SuspendedError, match="query small"):
            feed(session, tmp_path, 2)
        good, full = session.queries[:2]
        assert results(full) == results(good) == answer(good, range(3))
    with running(session_with(weft.to_memory(), sink, Small(tmp_path / "small"))) as session:
        with pytest.raises(SuspendedError, match="query small"):
            feed(session, tmp_path, 3)
        progress = session.query_progress("small")
        assert (progress.status, session.queries[0].progress.status) == ("suspended", "running")
        assert "disk is full" in progress.reason
    assert stored(tmp_path / "small") == answer(good, range(1))
    with running(session_with(weft.to_memory(), sink, ParquetSink(tmp_path / "small"))) as session:
        feed(session, tmp_path, 4)
    assert stored(tmp_path / "small") == rows_of(sink.results()) == answer(good, range(5))


def test_a_query_stopped_last_stays_so(spark: Any, tmp_path: Path) -> None:
    """No batch came after it was stopped, in that session."""
    for number in range(2):
        session = session_of(spark, tmp_path)
        kept, gone = (
            session.query(PAIR, name=name, sink=weft.to_parquet(tmp_path / name)) for name in ("kept", "gone")
        )
        with running(session):
            feed(session, tmp_path, number)
            if number == 0:
                gone.stop()
            else:
                assert gone.progress.status == "stopped"
    assert stored(tmp_path / "kept") == answer(kept, range(2))
    assert stored(tmp_path / "gone") == answer(gone, range(1))


def test_a_query_with_too_much_state_is_stopped(spark: Any, tmp_path: Path) -> None:
    """One query must not fill the disk of all."""
    session = session_of(spark, tmp_path, state_limit=2_000)
    put(tmp_path, 0, 1, 2)
    large = session.query(PAIR, name="large", sink=weft.to_memory())
    small = session.query(LONE, name="small", sink=weft.to_memory())
    with running(session):
        session.process_all_available()
        feed(session, tmp_path, 3)
        assert large.progress.status == "stopped"
        assert "bytes, more than the limit of 2,000" in large.progress.reason
        assert small.progress.status == "running"
        assert small.progress.state == 0
    assert results(small) == answer(small, range(4))


@pytest.mark.parametrize("execution", ["jobs", "resident"])
def test_many_queries_cost_one_job_a_batch(spark: Any, tmp_path: Path, execution: str) -> None:
    """Jobs are the fixed cost of a batch; a change costs at most one more, however many queries change.

    Where tasks stay, all of that is one job.
    """
    session = session_of(spark, tmp_path, execution=execution)
    before = jobs_of(spark)
    texts = [PAIR, BRIEF, PAIR.replace("1 HOUR", "1 MINUTE"), LONE]
    for number, text in enumerate(texts):
        session.query(text, name=f"m{number}", sink=weft.to_memory())
        session.query(text, name=f"p{number}", sink=weft.to_parquet(tmp_path / f"p{number}"))
    with running(session):
        feed(session, tmp_path, 0, 1)
        stays = execution == "resident"
        assert len(jobs_of(spark) - before) == (1 if stays else batches_of(session))
        for number in range(3):
            session.query(OTHER, name=f"o{number}", sink=weft.to_memory(), backfill=True)
            session.stop_query(f"m{number}")  # every change may take effect with a batch of its own
        feed(session, tmp_path, 2)
        jobs = len(jobs_of(spark) - before)
        assert jobs == 1 if stays else batches_of(session) < jobs <= 2 * batches_of(session)
    for planned in session.queries:
        if planned.name.startswith("p"):
            names = [output.name for output in planned.query.projection]
            found = rows_of(pq.read_table(tmp_path / planned.name, columns=names))
            assert found == answer(planned, range(3)), planned.name
    assert results(session.queries[-1]) == answer(session.queries[-1], range(3))


def test_a_restart_brings_back_what_ran_and_not_what_was_stopped(spark: Any, tmp_path: Path) -> None:
    """Whoever added a query need not know of a restart; whoever stopped one need not stop it again."""
    taken: list[int] = []

    def begin(**options: Any) -> tuple[weft.Session, weft.PlannedQuery]:
        session = session_of(spark, tmp_path, **options)
        return session, session.query(PAIR, name="first", sink=weft.to_parquet(tmp_path / "first"))

    session, first = begin()
    with running(session):
        feed(session, tmp_path, 0)
        kept = session.query(PAIR.replace("a.k", "a.m"), name="kept", sink=weft.to_parquet(tmp_path / "kept"))
        past = weft.to_parquet(tmp_path / "gone")
        gone = session.query(BRIEF, name="gone", sink=past, backfill=True)
        called = session.query(
            LONE, name="called", sink=weft.foreach_batch(lambda _, n: taken.append(n), arrow=True)
        )
        feed(session, tmp_path, 1)
        first.stop()
        gone.stop()
        feed(session, tmp_path, 2)
    session, _ = begin()
    with pytest.raises(StateError, match=r"a query called[^$]*register it again with its sink"):
        session.start()
    session, again = begin()
    session.query(LONE, name="called", sink=weft.foreach_batch(lambda _, n: taken.append(n), arrow=True))
    with running(session):
        feed(session, tmp_path, 3)
        assert [planned.name for planned in session.queries] == ["first", "called", "kept"]
        assert again.progress.status == session.query_progress("gone").status == "stopped"
        assert session.query_progress("kept").status == session.query_progress("called").status == "running"
        last = batches_of(session) - 1
    assert stored(tmp_path / "first") == answer(first, range(2))
    assert stored(tmp_path / "gone") == answer(gone, range(2))
    assert stored(tmp_path / "kept") == answer(kept, range(4), 1, a=1)
    assert taken[-1] == last
    assert called.name == "called"


def test_a_batch_that_fails_when_queries_change_can_be_mended(spark: Any, tmp_path: Path) -> None:
    """What was laid out for it is laid out again, and tasks do not take it for what it was before."""
    session = session_of(spark, tmp_path)
    first = session.query(PAIR, name="first", sink=weft.to_memory())
    session.query(LONE, name="beside", sink=weft.to_memory())
    session.start()
    feed(session, tmp_path, 0, 1)
    other = session.query(OTHER, name="other", sink=weft.to_memory(), backfill=True)
    wrong = table_of("a", 2).set_column(0, "k", pa.array(["x"] * ROWS))
    put(tmp_path, 2, streams="b")
    pq.write_table(wrong, tmp_path / "partial")
    (tmp_path / "partial").rename(tmp_path / "in" / "a" / "002.parquet")
    for attempt in range(2):
        with pytest.raises(SourceError, match="string"):
            session.await_termination(60)
        session.stop()
        if attempt < 1:
            session.start()
    put(tmp_path, 2, streams="a")
    with running(session):
        feed(session, tmp_path, 3)
    assert results(first) == answer(first, range(4))
    assert results(other) == answer(other, range(4))


def test_a_name_can_be_used_again(spark: Any, tmp_path: Path) -> None:
    """A query that is accepted under the name of one that was stopped must not give nothing, in silence."""
    session = session_of(spark, tmp_path)
    session.query(LONE, name="stays", sink=weft.to_memory())
    first = session.query(PAIR, name="q", sink=weft.to_memory())
    with running(session):
        feed(session, tmp_path, 0)
        with pytest.raises(QueryError, match="already a query 'q'"):
            session.query(LONE, name="q", sink=weft.to_memory())
        first.stop()
        feed(session, tmp_path, 1)
        second = session.query(LONE, name="q", sink=weft.to_memory())
        feed(session, tmp_path, 2)
        assert second.progress.results == second.results().num_rows
        assert session.query_progress("q").status == "running"
        second.stop()
        feed(session, tmp_path, 3)
    assert results(first) == answer(first, range(1))
    assert results(second) == answer(second, range(2, 3))
    again = session_of(spark, tmp_path)
    again.query(LONE, name="stays", sink=weft.to_memory())
    third = again.query(PAIR, name="q", sink=weft.to_memory())
    with running(again):
        feed(again, tmp_path, 4)
    assert third.progress.status == "running"
    assert results(third) == answer(third, range(5), 4, a=4, b=4)
