"""Tables of sessions that run in this process: versions, restarts, replays, and what is refused."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from weft.errors import CatalogError, QueryError, SourceError, SqlError, StateError, WeftError
from weft.optimizer.space import Options
from weft.runtime.loop.loop import Loop
from weft.runtime.observe.inspect import inspect
from weft.service.terminal.state_view import state_json
from weft.testing import LocalRun

NOON = datetime(2026, 1, 1, 12)


def write(folder: Path, name: str, table: pa.Table) -> None:
    """Put a Parquet file into a folder, as a whole."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{name}"
    pq.write_table(table, hidden)
    os.replace(hidden, folder / name)


def orders(*rows: tuple[int, int]) -> pa.Table:
    """Orders of customers, a second apart."""
    times = [NOON + timedelta(seconds=number) for number, _ in rows]
    given = {"id": [number for number, _ in rows], "customer": [customer for _, customer in rows]}
    return pa.table({**given, "ts": pa.array(times, pa.timestamp("us", "UTC"))})


def customers(**names: int) -> pa.Table:
    """Customers by name."""
    return pa.table(
        {"id": pa.array(list(names.values()), pa.int64()), "name": pa.array(list(names), pa.string())}
    )


def made(root: Path, table: Any, refresh: str | None = None, text: str | None = None) -> weft.Session:
    """A session that joins orders with customers, in this process."""
    session = weft.Session(checkpoint=root / "ck", execution="local", options=Options(partitions=2))
    session.stream(
        "orders",
        weft.files("parquet", str(root / "orders"), schema="id long, customer long, ts timestamp"),
        event_time="ts",
    )
    session.table("customers", table, refresh=refresh)
    query = text or "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id"
    session.query(query, name="named", sink=weft.to_parquet(str(root / "out")))
    return session


def given(root: Path) -> list[tuple[Any, ...]]:
    """All results so far, sorted."""
    files = sorted((root / "out").glob("**/*.parquet"))
    tables = [pq.read_table(file) for file in files]
    return sorted(tuple(row.values()) for table in tables for row in table.to_pylist())


def wait_for(what: Callable[[], bool]) -> None:
    """Wait until something holds, for a minute at most."""
    until = time.monotonic() + 60
    while not what():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.01)


def test_that_a_new_version_is_taken_up_while_the_session_runs(tmp_path: Path) -> None:
    write(tmp_path / "dim", "a.parquet", customers(ann=1, bob=2))
    write(tmp_path / "orders", "1.parquet", orders((1, 1), (2, 3)))
    session = made(tmp_path, weft.files("parquet", str(tmp_path / "dim")), refresh="50 ms")
    session.start()
    try:
        session.process_all_available()
        assert given(tmp_path) == [(1, "ann")]
        first = session.tables["customers"]
        assert first.rows == 2
        write(tmp_path / "dim", "b.parquet", customers(cid=3))
        wait_for(lambda: session.tables["customers"].version != first.version)
        write(tmp_path / "orders", "2.parquet", orders((3, 3), (4, 1)))
        session.process_all_available()
        assert given(tmp_path) == [(1, "ann"), (3, "cid"), (4, "ann")]
        assert session.tables["customers"].rows == 3
        assert "customers: version" in session.explain()
    finally:
        session.stop()


def test_that_a_table_that_cannot_be_read_any_more_stays_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "dim", "a.parquet", customers(ann=1))
    write(tmp_path / "orders", "1.parquet", orders((1, 1)))
    session = made(tmp_path, weft.files("parquet", str(tmp_path / "dim")), refresh="50 ms")
    session.start()
    try:
        session.process_all_available()
        with caplog.at_level(logging.WARNING, logger="weft"):
            (tmp_path / "dim" / "b.parquet").write_bytes(b"no parquet at all")
            wait_for(lambda: session.tables["customers"].failures > 0)
        assert "table customers stays as it was read before" in caplog.text
        assert "b.parquet" in session.tables["customers"].problem
        write(tmp_path / "orders", "2.parquet", orders((2, 1)))
        session.process_all_available()
        assert given(tmp_path) == [(1, "ann"), (2, "ann")]
    finally:
        session.stop()


def test_that_a_table_that_was_never_read_is_an_error_at_the_start(tmp_path: Path) -> None:
    session = made(tmp_path, weft.files("parquet", str(tmp_path / "dim"), schema="id long, name string"))
    with pytest.raises(SourceError, match=r"there is no .*dim"):
        session.start()


def test_that_a_restart_goes_on_with_the_table_as_it_is_then(tmp_path: Path) -> None:
    write(tmp_path / "dim", "a.parquet", customers(ann=1))
    write(tmp_path / "orders", "1.parquet", orders((1, 1), (2, 2)))
    made(tmp_path, weft.files("parquet", str(tmp_path / "dim"))).run_available()
    write(tmp_path / "orders", "2.parquet", orders((3, 1), (4, 2)))
    made(tmp_path, weft.files("parquet", str(tmp_path / "dim"))).run_available()
    assert given(tmp_path) == [(1, "ann"), (3, "ann")]
    write(tmp_path / "dim", "a.parquet", customers(bob=2))
    write(tmp_path / "orders", "3.parquet", orders((5, 1), (6, 2)))
    made(tmp_path, weft.files("parquet", str(tmp_path / "dim"))).run_available()
    assert given(tmp_path) == [(1, "ann"), (3, "ann"), (6, "bob")]
    state = state_json(inspect(tmp_path / "ck"))
    assert '"name": "customers"' in state


def test_that_a_batch_that_is_repeated_sees_the_version_of_its_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "dim", "a.parquet", customers(ann=1))
    write(tmp_path / "orders", "1.parquet", orders((1, 1), (2, 2)))
    session = made(tmp_path, weft.files("parquet", str(tmp_path / "dim")))

    def killed(self: Loop, plan: Any) -> Any:  # noqa: ARG001
        raise RuntimeError("the process ends here")

    with monkeypatch.context() as patched:
        patched.setattr(Loop, "execute", killed)
        with pytest.raises(RuntimeError, match="ends here"):
            session.run_available()
    write(tmp_path / "dim", "a.parquet", customers(bob=2))  # the files of the plan are gone
    write(tmp_path / "orders", "2.parquet", orders((3, 1), (4, 2)))
    made(tmp_path, weft.files("parquet", str(tmp_path / "dim"))).run_available()
    assert given(tmp_path) == [(1, "ann"), (4, "bob")]


def test_that_a_delta_table_is_read_in_its_newest_version(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    path = str(tmp_path / "dim")
    deltalake.write_deltalake(path, customers(ann=1))
    write(tmp_path / "orders", "1.parquet", orders((1, 1), (2, 2)))
    made(tmp_path, weft.delta(path)).run_available()
    deltalake.write_deltalake(path, customers(bob=2), mode="overwrite")
    write(tmp_path / "orders", "2.parquet", orders((3, 1), (4, 2)))
    session = made(tmp_path, weft.delta(path))
    session.run_available()
    assert session.tables["customers"].version == "1"
    write(tmp_path / "orders", "3.parquet", orders((5, 1), (6, 2)))
    made(tmp_path, weft.delta(path, version=0)).run_available()
    assert given(tmp_path) == [(1, "ann"), (4, "bob"), (5, "ann")]


def test_that_a_query_that_comes_later_sees_the_table_and_shares_its_store() -> None:
    session = weft.Session(options=Options(partitions=3))
    session.stream("orders", "id long, customer long, ts timestamp", event_time="ts")
    session.table("customers", customers(ann=1, bob=2))
    text = "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id"
    session.query(text, name="one", sink=weft.to_memory())
    run = LocalRun(session)
    assert run.batch({"orders": orders((1, 1))})["one"].num_rows == 1
    session.query(f"{text} WHERE c.name = 'bob'", name="two", sink=weft.to_memory())
    found = run.batch({"orders": orders((2, 2))})
    assert found["one"].num_rows == found["two"].num_rows == 1
    graph = session.shared_graph
    assert graph is not None
    assert [store.users for store in graph.stores] == [("one", "two")]


def test_that_a_stream_that_only_looks_up_is_not_stored() -> None:
    session = weft.Session(options=Options(partitions=2))
    session.stream("orders", "id long, customer long, ts timestamp", event_time="ts")
    session.table("customers", customers(ann=1))
    text = "SELECT o.id FROM orders o JOIN customers c ON o.customer = c.id"
    graph = session.query(text, name="one").graph
    assert [store.aliases for store in graph.stores] == [("c",)]


REFUSED = {
    "SELECT c.id FROM customers c": "needs a stream",
    "SELECT o.id FROM orders o, customers [RANGE 1 MINUTE] c WHERE o.customer = c.id": "is a table, and has no window",
    "SELECT c.id FROM customers c LEFT JOIN orders o ON o.customer = c.id": "its rows start no result",
    "SELECT c.id FROM orders o FULL JOIN customers c ON o.customer = c.id": "its rows start no result",
    "SELECT c.id FROM customers c SEMI JOIN orders o ON o.customer = c.id": "its rows start no result",
    "SELECT o.id FROM orders o LEFT JOIN (orders p JOIN customers c ON p.customer = c.id) ON o.id = p.id": "cannot "
    "decide here",
    "SELECT o.id, c.one FROM orders o LEFT JOIN (SELECT id, 1 AS one FROM customers) c ON o.customer = c.id": "c reads "
    "tables alone, and cannot be united with the join around it",
    "SELECT u.id FROM (SELECT id FROM orders UNION ALL SELECT id FROM customers) u": "UNION ALL takes streams, and "
    "customers is a table",
    "SELECT c.id FROM (SELECT id FROM customers) AS c": "needs a stream",
}


@pytest.mark.parametrize("text", REFUSED)
def test_that_a_table_is_refused_where_it_cannot_stand(text: str) -> None:
    session = weft.Session()
    session.stream("orders", "id long, customer long, ts timestamp", event_time="ts")
    session.table("customers", "id long, name string")
    with pytest.raises(SqlError, match=REFUSED[text]) as caught:
        session.query(text)
    assert "^" in str(caught.value)


def test_what_else_of_tables_is_refused(tmp_path: Path) -> None:
    session = weft.Session()
    for refresh in ("soon", "0 seconds", timedelta(seconds=-1)):
        with pytest.raises(WeftError, match=r"refreshed every|cannot read 'soon'"):
            session.table("planned", "id long", refresh=refresh)
    session.stream("orders", "id long, customer long, ts timestamp", event_time="ts")
    session.table("customers", customers(ann=1))
    text = "SELECT o.id FROM orders o JOIN customers c ON o.customer = c.id"
    with pytest.raises(QueryError, match="backfill needs what c was"):
        session.query(text, backfill=True)
    with pytest.raises(QueryError, match="no order of arrival"):
        session.query(text, order="inner")
    with pytest.raises(CatalogError, match="already a stream"):
        session.table("orders", customers(ann=1))
    with pytest.raises(CatalogError, match="refreshed"):
        session.table("other", customers(ann=1), refresh="0 seconds")
    with pytest.raises(CatalogError, match="that is a table"):
        session.stream("other", weft.delta(str(tmp_path)))  # type: ignore[arg-type]
    with pytest.raises(CatalogError, match="a table cannot be 3"):
        session.table("other", 3)
    with pytest.raises(SourceError, match="none is cleaned away"):
        session.table("other", weft.files("csv", str(tmp_path), schema="a long", clean="delete"))
    with pytest.raises(SourceError, match="cannot be opened"):
        session.table("other", weft.delta(str(tmp_path / "nothing")))


def test_that_a_log_does_not_take_a_stream_for_a_table(tmp_path: Path) -> None:
    write(tmp_path / "dim", "a.parquet", customers(ann=1))
    write(tmp_path / "orders", "1.parquet", orders((1, 1)))
    made(tmp_path, weft.files("parquet", str(tmp_path / "dim"))).run_available()
    session = weft.Session(checkpoint=tmp_path / "ck", execution="local", options=Options(partitions=2))
    source = weft.files("parquet", str(tmp_path / "orders"), schema="id long, customer long, ts timestamp")
    session.stream("orders", source, event_time="ts")
    session.stream("customers", weft.files("parquet", str(tmp_path / "dim")))
    session.query("SELECT c.id FROM customers c", name="named", sink=weft.to_memory())
    with pytest.raises(StateError, match="customers was a table, and is a stream now"):
        session.start()


def test_that_padded_rows_leave_at_once() -> None:
    session = weft.Session(options=Options(partitions=2))
    session.stream("orders", "id long, customer long, ts timestamp", event_time="ts", lateness="1 hour")
    session.table("customers", customers(ann=1))
    text = "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id"
    planned = session.query(text, name="one", sink=weft.to_memory())
    assert "leave at once" in planned.explain()
    run = LocalRun(session)
    assert run.batch({"orders": orders((1, 1), (2, 2))})["one"].num_rows == 2
    assert run.batch({"customers": customers(bob=2)})["one"].num_rows == 0
    assert run.end()["one"].num_rows == 0


def test_that_state_of_a_stream_beside_a_table_is_forgotten() -> None:
    session = weft.Session(options=Options(partitions=1))
    session.stream("orders", "id long, customer long, ts timestamp", event_time="ts")
    session.table("customers", customers(ann=1))
    text = "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id"
    session.query(text, name="one", sink=weft.to_memory())
    run = LocalRun(session)
    for number in range(60):
        run.batch({"orders": orders((number, 1))})
    last = run._loop.history.last
    assert last is not None
    assert last.stores["orders"].rows < 20


def test_that_a_pipeline_file_has_tables(tmp_path: Path) -> None:
    from weft.service.pipeline import load_pipeline

    write(tmp_path / "dim", "a.parquet", customers(ann=1, bob=2))
    (tmp_path / "p.yaml").write_text(
        "streams:\n  orders:\n    schema: id long, customer long, ts timestamp\n    event_time: ts\n"
        "tables:\n  customers:\n    source: {files: parquet, path: dim}\n    refresh: 5 minutes\n"
        "queries:\n  named: SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id\n"
    )
    session = load_pipeline(tmp_path / "p.yaml").session
    assert session.statistics.rows("customers") == 2
    assert session._registered.tables["customers"].refresh == 300


INSIDE = """
    SELECT d.id, d.name, o.id AS other FROM (SELECT o.id, o.customer, c.name FROM orders o LEFT JOIN customers c
    ON o.customer = c.id) [RANGE 1 HOUR] AS d, orders [RANGE 1 HOUR] AS o WHERE d.id = o.id
"""


def test_that_a_table_inside_a_derived_stream_is_read_and_taken_up(tmp_path: Path) -> None:
    write(tmp_path / "dim", "a.parquet", customers(ann=1))
    write(tmp_path / "orders", "1.parquet", orders((1, 1)))
    session = made(tmp_path, weft.files("parquet", str(tmp_path / "dim")), refresh="20 ms", text=INSIDE)
    for name in ("orders", "customers"):
        with pytest.raises(CatalogError, match="query named reads"):
            session.remove_stream(name)
    (inner,) = (i.stream.name for i in session.parse(INSIDE).inputs if i.stream.definition)
    with pytest.raises(CatalogError, match="a sub-select of query named is already called"):
        session.stream(inner, "k long")
    session.start(ends=True)
    try:
        session.process_all_available()
        first = session.tables["customers"]
        write(tmp_path / "dim", "a.parquet", customers(bob=1))
        wait_for(lambda: session.tables["customers"].version not in (None, first.version))
        write(tmp_path / "orders", "2.parquet", orders((2, 1)))
        session.end()
    finally:
        session.stop()
    assert given(tmp_path) == [(1, "ann", 1), (2, "bob", 2)]


def test_that_no_row_is_late_behind_a_table_inside_a_derived_stream() -> None:
    session = weft.Session(options=Options(partitions=2))
    session.stream("orders", "id long, customer long, ts timestamp", event_time="ts")
    session.table("customers", "id long, name string")
    session.query(INSIDE, name="named", sink=weft.to_memory())
    run = LocalRun(session)
    for number in range(6):
        rows = [{"id": number, "customer": number % 2, "ts": NOON + timedelta(seconds=number)}]
        version = {"customers": [{"id": 1, "name": f"ann {number}"}]} if number % 3 == 0 else {}
        run.batch({"orders": rows, **version})
    run.end()
    found = sorted(tuple(row.values()) for row in run.results("named").to_pylist())
    names = [None, "ann 0", None, "ann 3", None, "ann 3"]
    assert found == [(number, name, number) for number, name in enumerate(names)]
