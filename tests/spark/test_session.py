"""What a user meets on a real Spark: sources of every kind, count windows, restarts with more, and clear errors."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
import weft.session.run
from tests.spark.files import START, definition, read_files, rows_of, run, session_of, write
from tests.spark.sessions import jobs_of
from weft.errors import CatalogError, ConfigError, QueryError, SinkError, SourceError, StateError
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import Manifest
from weft.testing import reference_join

PAIR = "SELECT a.k, a.n AS an, b.n AS bn FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS] WHERE a.k = b.k"


def test_count_windows_are_exact_over_partitions_batches_and_restarts(spark: Any, tmp_path: Path) -> None:
    """The last n tuples of a relation, wherever they are stored and whichever task read them."""
    sql = "SELECT a.k, a.n AS an, b.n AS bn FROM a [ROWS 150], b [ROWS 90] WHERE a.k = b.k"
    batches = [(0, 1), (2,), (3, 4)]
    orders = []
    for numbers in batches:
        for number in numbers:
            for stream in "ab":
                write(tmp_path, stream, number)
        session = session_of(spark, tmp_path, driver="round_robin")
        read_files(session, tmp_path, "a", "b")
        session.query(sql, name="q", sink=weft.to_parquet(tmp_path / "out"))
        session.start(available_now=True)
        session.await_termination(120)
        orders += [(m.number, m.order) for m in session.progress["q"][-len(numbers) :]]
        session.stop()
    assert [number for number, _ in orders] == [0, 1, 2, 3, 4]
    expected: Counter[tuple[Any, ...]] = Counter()
    held: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}
    windows = {"a": 150, "b": 90}
    for number, order in orders:
        for alias in order:
            other = "b" if alias == "a" else "a"
            table = pq.read_table(tmp_path / "in" / alias / f"{number:03}.parquet")
            for k, n in zip(table["k"].to_pylist(), table["n"].to_pylist(), strict=True):
                held[alias].append((k, n))
                for ok, on in held[other][-windows[other] :]:
                    if ok == k:
                        expected[(k, n, on) if alias == "a" else (k, on, n)] += 1
    found = pq.read_table(tmp_path / "out", columns=["k", "an", "bn"])
    assert rows_of(found) == expected
    assert found.num_rows > 1000


def test_a_generator_and_a_dataframe_join_files(spark: Any, tmp_path: Path) -> None:
    """Three kinds of sources in one query; the definition says what comes out."""
    made = weft.rate(1000, k=weft.uniform(40), n=weft.sequence(), ts=weft.timestamps(START))
    rows = made.generate(0, 300)
    for stream in "ab":
        write(tmp_path, stream, 0)
    frame = spark.readStream.schema("k long, n long, ts timestamp").parquet(str(tmp_path / "in" / "b"))
    session = session_of(spark, tmp_path)
    session.stream("a", weft.files("parquet", str(tmp_path / "in" / "a")), event_time="ts")
    session.stream("b", frame, event_time="ts")
    session.stream("g", made, event_time="ts", lateness="1 hour")
    sink, other = weft.to_memory(), weft.to_memory()
    pair = session.query(PAIR, name="pair", sink=sink)
    sql = "SELECT a.n AS an, g.n AS gn FROM a [UNBOUNDED], g [UNBOUNDED] WHERE a.k = g.k AND g.n < 300"
    joined = session.query(sql, name="joined", sink=other)
    session.start()
    wanted = rows_of(
        reference_join(joined.query, {"a": pq.read_table(tmp_path / "in" / "a"), "g": pa.table(rows)})
    )
    session.process_all_available()  # though the generator goes on
    deadline = time.monotonic() + 90
    while other.results().num_rows < wanted.total() and time.monotonic() < deadline:
        time.sleep(0.3)
    session.stop()
    assert rows_of(sink.results()) == definition(tmp_path, pair)
    assert rows_of(other.results()) == wanted
    assert wanted.total() > 100


def test_streams_and_queries_can_be_added_between_runs(spark: Any, tmp_path: Path) -> None:
    """The state of the old ones is kept; a new query begins with what comes from then on."""
    for stream in "abc":
        write(tmp_path, stream, 0)
    session = session_of(spark, tmp_path)
    read_files(session, tmp_path, "a", "b")
    planned = session.query(PAIR, name="pair", sink=weft.to_parquet(tmp_path / "pair"))
    run(session)
    for stream in "abc":
        write(tmp_path, stream, 1)
    session = session_of(spark, tmp_path)
    read_files(session, tmp_path, "c", "a", "b")  # in another order
    session.query(PAIR, name="pair", sink=weft.to_parquet(tmp_path / "pair"))
    more = weft.to_memory()
    session.query(PAIR.replace("b.", "c.").replace("b [", "c ["), name="more", sink=more)
    run(session)
    assert rows_of(pq.read_table(tmp_path / "pair", columns=["k", "an", "bn"])) == definition(
        tmp_path, planned
    )
    assert more.results().num_rows > 100


def test_a_query_that_is_left_out_goes_on_if_its_sink_can_be_made_again(spark: Any, tmp_path: Path) -> None:
    """It was asked for and never stopped; a function of the user's is gone with the process."""
    taken: list[int] = []
    sinks = {"pair": weft.to_parquet(tmp_path / "pair"), "kept": weft.to_parquet(tmp_path / "kept")}
    function = weft.foreach_batch(lambda table, _: taken.append(table.num_rows), arrow=True)
    for number, names in enumerate((("pair", "kept", "function"), ("pair",), ("function",))):
        for stream in "ab":
            write(tmp_path, stream, number)
        session = session_of(spark, tmp_path)
        read_files(session, tmp_path, "a", "b")
        for name in names:
            session.query(PAIR, name=name, sink=sinks.get(name, function))
        if "function" not in names:
            with pytest.raises(StateError, match="it knows a query function"):
                session.start()
        else:
            run(session)
    assert sorted(query.name for query in session.queries) == ["function", "kept", "pair"]
    wanted = definition(tmp_path, session.queries[0])
    for name in sinks:
        assert rows_of(pq.read_table(tmp_path / name, columns=["k", "an", "bn"])) == wanted
    assert sum(taken) == wanted.total()


def test_a_restart_goes_on_by_the_plan_it_had(spark: Any, tmp_path: Path) -> None:
    """Its stores are laid out for that plan, whatever the optimiser would choose today."""
    sql = """SELECT a.n AS an, b.n AS bn, c.n AS cn FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS], c [RANGE 5 SECONDS]
             WHERE a.k = b.k AND b.n = c.n"""
    for number, strategy in enumerate(("flat", "left_deep", "flat")):
        for stream in "abc":
            write(tmp_path, stream, number)
        session = session_of(spark, tmp_path)
        read_files(session, tmp_path, "a", "b", "c")
        planned = session.query(sql, name="q", sink=weft.to_parquet(tmp_path / "out"), strategy=strategy)
        run(session)
    found = pq.read_table(tmp_path / "out", columns=["an", "bn", "cn"])
    assert rows_of(found) == definition(tmp_path, planned)
    assert [store.name for store in session.queries[0].graph.stores] == ["a", "b", "c"]


class Uncommitted(Checkpoint):
    """A log that never comes to the manifest of a batch."""

    def commit(self, manifest: Manifest) -> None:
        """Its results are in place by now."""
        if manifest.number == 2:
            raise RuntimeError("broken off")
        super().commit(manifest)


def test_a_query_added_after_a_crash_begins_with_the_batch_after_it(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch that was interrupted is replayed by the plan that was written for it, which does not know the query."""
    for number in range(3):
        for stream in "ab":
            write(tmp_path, stream, number)
    session = session_of(spark, tmp_path)
    read_files(session, tmp_path, "a", "b")
    planned = session.query(PAIR, name="pair", sink=weft.to_parquet(tmp_path / "pair"))
    with monkeypatch.context() as patch:
        patch.setattr(weft.session.run, "Checkpoint", Uncommitted)
        with pytest.raises(RuntimeError, match="broken off"):
            run(session)
    for stream in "ab":
        write(tmp_path, stream, 3)
    session = session_of(spark, tmp_path)
    read_files(session, tmp_path, "a", "b")
    session.query(PAIR, name="pair", sink=weft.to_parquet(tmp_path / "pair"))
    more = weft.to_memory()
    session.query("SELECT a.n FROM a", name="more", sink=more)
    run(session)
    assert rows_of(pq.read_table(tmp_path / "pair", columns=["k", "an", "bn"])) == definition(
        tmp_path, planned
    )
    assert sorted(more.results()["n"].to_pylist()) == list(range(600, 800))


def test_a_start_that_is_refused_leaves_the_checkpoint_as_it_was(spark: Any, tmp_path: Path) -> None:
    """A query whose sink will not take it has never been part of it."""
    for stream in "ab":
        write(tmp_path, stream, 0)
    for refused in (True, False):
        session = session_of(spark, tmp_path)
        read_files(session, tmp_path, "a", "b")
        planned = session.query(PAIR, name="pair", sink=weft.to_parquet(tmp_path / "pair"))
        if refused:
            session.query("SELECT a.n AS batch FROM a", name="more", sink=weft.to_parquet(tmp_path / "more"))
            with pytest.raises(SinkError, match="batch"):
                session.start()
        else:
            run(session)
    assert rows_of(pq.read_table(tmp_path / "pair", columns=["k", "an", "bn"])) == definition(
        tmp_path, planned
    )


def test_a_file_of_another_schema_stops_the_run_and_changes_nothing(spark: Any, tmp_path: Path) -> None:
    """The error names file, column and types; once the file is mended, the run goes on with nothing lost."""
    for stream in "ab":
        write(tmp_path, stream, 0)
    session = session_of(spark, tmp_path)
    read_files(session, tmp_path, "a", "b")
    planned = session.query(PAIR, name="q", sink=weft.to_parquet(tmp_path / "out"))
    run(session)
    before = rows_of(pq.read_table(tmp_path / "out", columns=["k", "an", "bn"]))
    write(tmp_path, "a", 1, k=["x"] * 200)
    write(tmp_path, "b", 1)
    with pytest.raises(SourceError, match=r"001.parquet.*k.*string") as caught:
        run(session)
    assert "long" in str(caught.value)
    assert rows_of(pq.read_table(tmp_path / "out", columns=["k", "an", "bn"])) == before
    write(tmp_path, "a", 1)
    run(session)
    assert rows_of(pq.read_table(tmp_path / "out", columns=["k", "an", "bn"])) == definition(
        tmp_path, planned
    )


def test_too_many_bad_records_stop_the_run(spark: Any, tmp_path: Path) -> None:
    """A limit, for those who would rather stop than lose a whole file to a wrong delimiter."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "x.json").write_text('{"k": 1}\nnonsense\n{"k": 2}\nmore\n')
    for limit, fails in ((1, True), (2, False)):
        session = session_of(spark, tmp_path, dead_letter_limit=limit)
        session.stream("s", weft.files("json", str(folder), schema="k long"))
        sink = weft.to_memory()
        session.query("SELECT s.k FROM s", name="q", sink=sink)
        if fails:
            with pytest.raises(SourceError, match="2 of 4 records were bad"):
                run(session)
        else:
            run(session)
            assert sorted(sink.results()["k"].to_pylist()) == [1, 2]


@pytest.mark.parametrize("late", ["drop", "join"])
def test_late_tuples_are_dropped_or_joined(spark: Any, tmp_path: Path, late: str) -> None:
    """A tuple behind the watermark joins what is still there, if that was asked for; it is counted if not."""
    for number in (5, 6):
        write(tmp_path, "a", number)
        write(tmp_path, "b", number)
    early = [START] * 3
    folder = tmp_path / "in" / "a"
    times = {"k": [1, 1, 1], "n": [-1, -2, -3], "ts": early}
    pq.write_table(pa.table(times), folder / "007.parquet")
    session = session_of(spark, tmp_path)
    read_files(session, tmp_path, "a", "b", late=late)
    sink = weft.to_memory()
    session.query("SELECT a.n FROM a [UNBOUNDED], b [UNBOUNDED] WHERE a.k = b.k", name="q", sink=sink)
    session.start(available_now=True)
    session.await_termination(120)
    late_rows = [m.inputs["a"].late for m in session.progress["q"]]
    session.stop()
    assert (min(sink.results()["n"].to_pylist()) < 0) == (late == "join")
    assert late_rows == [0, 0, 3 if late == "drop" else 0]


@pytest.mark.parametrize(("execution", "jobs"), [("jobs", 3), ("resident", 1)])
def test_a_batch_is_one_job_or_none_and_silence_is_none(
    spark: Any, tmp_path: Path, execution: str, jobs: int
) -> None:
    """Jobs and stages are the fixed cost of a batch; tasks that stay are one job for all of them."""
    for number in range(3):
        for stream in "ab":
            write(tmp_path, stream, number)
    session = session_of(spark, tmp_path, execution=execution)
    read_files(session, tmp_path, "a", "b")
    planned = session.query(PAIR, name="q", sink=weft.to_parquet(tmp_path / "out"))
    tracker = spark.sparkContext.statusTracker()
    before = jobs_of(spark)
    session.start()
    session.process_all_available()
    time.sleep(1)
    found = jobs_of(spark) - before
    stages = [stage for job in found for stage in tracker.getJobInfo(job).stageIds]
    session.stop()
    assert len(found) == jobs
    assert len(stages) == (1 if execution == "resident" else 3 * (1 + planned.graph.hops))


def test_wrong_arguments_are_refused_before_anything_starts(tmp_path: Path) -> None:
    """By name, with what would be right."""
    with pytest.raises(ConfigError, match="did you mean round_robin"):
        weft.Session(driver="round-robin")
    session = weft.Session(checkpoint=tmp_path)
    with pytest.raises(CatalogError, match="cannot be 'keep'"):
        session.stream("s", "k long", late="keep")
    with pytest.raises(CatalogError, match=r"weft\.files"):
        session.stream("s", 5)  # type: ignore[arg-type]
    with pytest.raises(CatalogError, match="cannot be idle"):
        session.stream("s", "k long", idle_after="0 seconds")
    session.stream("s", "k long")
    with pytest.raises(QueryError, match="cannot be called"):
        session.query("SELECT s.k FROM s", name="!x")
