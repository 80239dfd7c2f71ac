"""Users' functions on Spark's workers: they answer like the definition, fail alone, and are needed after a restart."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import weft
from tests.spark.files import read_files, rows_of, run, session_of, write
from tests.spark.sessions import running
from weft.errors import FunctionError, StateError
from weft.testing import reference_join

FROM = "FROM a [RANGE 2 SECONDS], b [RANGE 2 SECONDS]"
CLOSE = f"SELECT a.n AS an, b.n AS bn {FROM} WHERE close_to(a.k, b.k) AND odd(a.n)"
PLAIN = f"SELECT a.n AS an, b.n AS bn {FROM} WHERE a.k = b.k AND odd(a.n)"


def functions(broken: bool = False) -> dict[str, Any]:
    """Functions that workers cannot import, only be sent; one may fail for tuples of the second batch."""

    def close_to(one: Any, other: Any) -> Any:
        return pc.less_equal(pc.abs(pc.subtract(one, other)), 1)

    def odd(value: Any) -> Any:
        return pc.equal(pc.bit_wise_and(value, 1), 1)

    def fragile(value: Any) -> Any:
        if broken and pc.max(value).as_py() >= 250:
            raise ValueError("too much")
        return pc.greater_equal(value, 0)

    return {"close_to": close_to, "odd": odd, "fragile": fragile}


def opened(spark: Any, root: Path, broken: bool = False) -> weft.Session:
    """A session with streams and functions."""
    session = session_of(spark, root)
    read_files(session, root, "a", "b")
    for name, function in functions(broken).items():
        session.function(name, function, returns="boolean")
    return session


def definition(root: Path, planned: weft.PlannedQuery) -> Any:
    """The answer by the definition."""
    tables = {i.alias: pq.read_table(root / "in" / i.stream.name) for i in planned.query.inputs}
    return rows_of(reference_join(planned.query, tables, functions()))


def test_functions_answer_fail_alone_and_outlive_a_restart(spark: Any, tmp_path: Path) -> None:
    """A function that fails stops the queries that call it, from its batch on; the others lose nothing."""
    for stream in "ab":
        write(tmp_path, stream, 0)
    fragile = f"SELECT a.n AS an, b.n AS bn {FROM} WHERE a.k = b.k AND fragile(b.n)"
    joined = f"SELECT a.n AS an, b.n AS bn {FROM} WHERE a.k = b.k AND fragile(a.n + b.n - b.n)"
    texts = {"close": CLOSE, "plain": PLAIN, "filtered": fragile, "joined": joined}
    session = opened(spark, tmp_path, broken=True)
    planned = {}
    for name, text in texts.items():
        planned[name] = session.query(text, name=name, sink=weft.to_parquet(tmp_path / "out" / name))
    with running(session):
        session.process_all_available()
        first = {name: pq.read_table(tmp_path / "out" / name) for name in ("filtered", "joined")}
        assert min(table.num_rows for table in first.values()) > 100
        for number in (1, 2, 3):
            for stream in "ab":
                write(tmp_path, stream, number)
        session.process_all_available()
        for name, given in (("filtered", 1), ("joined", 0)):
            assert planned[name].progress.status == "stopped"
            assert "function fragile raised ValueError: too much, first for" in planned[name].progress.reason
            delivered = rows_of(pq.read_table(tmp_path / "out" / name, columns=["an", "bn"]))
            assert not rows_of(first[name].select(["an", "bn"])) - delivered
            assert not delivered - definition(tmp_path, planned[name])
            assert max(row[given] for row in delivered) < 250  # nothing from the batch on in which it failed
        assert "= 250" in planned["filtered"].progress.reason
        measured = session.measured()
        assert 0 < measured.costs["close_to"] < 1e-3
        assert 0.03 < measured.selectivities["CLOSE_TO(a.k, b.k)"] < 0.15
        session.function("late", lambda value: pc.equal(value, 7), returns="boolean")
        late = session.query("SELECT a.n AS an FROM a WHERE late(a.k)", name="late", sink=weft.to_memory())
        for stream in "ab":
            write(tmp_path, stream, 4)
        session.process_all_available()
        assert late.results().num_rows > 0
        late.stop()
        session.process_all_available()
    for stream in "ab":
        write(tmp_path, stream, 5)
    again = session_of(spark, tmp_path)
    read_files(again, tmp_path, "a", "b")
    again.query("SELECT a.n AS an FROM a WHERE a.k = 1", name="other", sink=weft.to_memory())
    with pytest.raises(StateError, match="query close of the checkpoint calls a function close_to"):
        again.start()
    again = opened(spark, tmp_path)
    run_again(again)
    for name in ("close", "plain"):
        found = pq.read_table(tmp_path / "out" / name, columns=["an", "bn"])
        assert rows_of(found) == definition(tmp_path, planned[name])


def run_again(session: weft.Session) -> None:
    """Go on with the queries of the checkpoint, and one that makes it possible to start."""
    session.query("SELECT a.n AS an FROM a WHERE a.k = 1", name="other", sink=weft.to_memory())
    run(session)


def test_where_no_other_query_goes_on_the_error_is_raised_and_a_repaired_function_loses_nothing(
    spark: Any, tmp_path: Path
) -> None:
    """A query that stops without a word, or whose batch is lost though its function was mended."""
    for number in (0, 1):
        for stream in "ab":
            write(tmp_path, stream, number)
    text = f"SELECT a.n AS an, b.n AS bn {FROM} WHERE a.k = b.k AND fragile(a.n)"
    for broken in (True, False):
        session = opened(spark, tmp_path, broken)
        planned = session.query(text, name="q", sink=weft.to_parquet(tmp_path / "out"))
        if broken:
            with pytest.raises(
                FunctionError, match=r"function fragile raised ValueError: too much, first for a\.n = 250"
            ):
                run(session)
        else:
            run(session)
    assert rows_of(pq.read_table(tmp_path / "out", columns=["an", "bn"])) == definition(tmp_path, planned)


def test_a_function_that_cannot_be_sent_is_refused_at_once() -> None:
    """An error inside a worker, minutes later."""
    lock = threading.Lock()

    def locked(value: pa.Array) -> pa.Array:
        with lock:
            return value

    with pytest.raises(FunctionError, match="function locked cannot be sent to Spark's workers"):
        weft.Session().function("locked", locked, returns="long")
