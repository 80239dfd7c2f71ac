"""ORDER BY, LIMIT and OFFSET: what they mean, and where they are refused."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import weft
from weft.errors import QueryError, SqlError
from weft.ports.sink import Sink
from weft.sql.builder import Builder
from weft.testing import LocalRun

NOON = datetime(2026, 1, 1, 12)


def session() -> weft.Session:
    """A session with two streams."""
    made = weft.Session()
    made.stream("a", "k long, x double, s string, l array<long>, ts timestamp", event_time="ts")
    made.stream("b", "k long, z long, ts timestamp", event_time="ts")
    return made


def results(text: str, rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """What a query gives, of rows of a that come one by one, when the input has ended."""
    made = session()
    made.query(text, name="q", sink=weft.to_memory())
    run = LocalRun(made)
    for row in rows:
        assert run.batch({"a": [{"ts": NOON, **row}]})["q"].num_rows == 0
    run.end()
    found: list[dict[str, object]] = run.results("q").to_pylist()
    return found


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a.k AS k FROM a ORDER BY 1 DESC NULLS FIRST",
        "SELECT a.k AS k FROM a ORDER BY a.x + 1, 1 NULLS LAST LIMIT 3 OFFSET 2",
        "SELECT a.k AS k, SUM(a.x) AS t FROM a GROUP BY a.k ORDER BY COUNT(1) DESC, 2 LIMIT 5",
        "SELECT DISTINCT a.s AS s FROM a ORDER BY 1",
        "SELECT a.k AS k FROM a LIMIT 0",
    ],
)
def test_a_printed_query_sorts_as_it_did(text: str) -> None:
    """A query that is read again from the log would give its rows in another order."""
    query = session().parse(text)
    assert str(query) == text
    assert session().parse(str(query)) == query


def test_nan_is_larger_than_all_and_nulls_stand_where_spark_has_them() -> None:
    """Rows with NaN would come before others, or NULLs at the other end."""
    rows: list[dict[str, object]] = [
        {"k": 1, "x": float("nan")},
        {"k": 2, "x": None},
        {"k": 3, "x": 1.0},
        {"k": 4, "x": float("inf")},
    ]
    orders = {"x": [2, 3, 4, 1], "x DESC": [1, 4, 3, 2], "x NULLS LAST": [3, 4, 1, 2]}
    orders["x DESC NULLS FIRST"] = [2, 1, 4, 3]
    for order, expected in orders.items():
        found = results(f"SELECT k FROM a ORDER BY {order}", rows)
        assert [row["k"] for row in found] == expected, order


def test_columns_that_are_sorted_by_do_not_reach_the_sink() -> None:
    """A sink would get columns that nobody selected."""
    rows: list[dict[str, object]] = [{"k": 1, "s": "b"}, {"k": 2, "s": "a"}]
    assert results("SELECT k FROM a ORDER BY upper(s)", rows) == [{"k": 2}, {"k": 1}]


def test_a_name_is_a_column_of_the_result_first() -> None:
    """ORDER BY k would sort by another column than the result's k."""
    rows: list[dict[str, object]] = [{"k": 1, "x": 2.0}, {"k": 2, "x": 1.0}]
    assert results("SELECT -k AS k FROM a ORDER BY k", rows) == [{"k": -2}, {"k": -1}]
    assert results("SELECT -k AS k FROM a ORDER BY a.k", rows) == [{"k": -1}, {"k": -2}]
    assert results("SELECT -k AS k FROM a ORDER BY k * 2", rows) == [{"k": -2}, {"k": -1}]


@pytest.mark.parametrize(
    ("text", "message", "instead"),
    [
        ("SELECT k FROM a ORDER BY 2", "the result has no column 2", "SELECT k FROM a ORDER BY 1"),
        (
            "SELECT k FROM a ORDER BY l",
            "rows cannot be sorted by a array<long>",
            "SELECT k FROM a ORDER BY l[0]",
        ),
        (
            "SELECT DISTINCT k FROM a ORDER BY x",
            "ORDER BY of SELECT DISTINCT names what is not selected",
            "SELECT DISTINCT k, x FROM a ORDER BY x",
        ),
        ("SELECT k FROM a LIMIT 'x'", "LIMIT takes a whole number of rows", "SELECT k FROM a LIMIT 10"),
        (
            "SELECT k FROM a LIMIT 1 OFFSET k",
            "OFFSET takes a whole number of rows",
            "SELECT k FROM a LIMIT 1 OFFSET 10",
        ),
        (
            "SELECT k FROM a FETCH FIRST 3 ROWS ONLY",
            "LIMIT takes a whole number of rows",
            "SELECT k FROM a LIMIT 10",
        ),
        (
            "SELECT k FROM (SELECT k FROM a LIMIT 3) AS d",
            "LIMIT in a sub-select is not supported",
            "SELECT k FROM (SELECT k FROM a) AS d LIMIT 3",
        ),
        ("SELECT k FROM a SORT BY k", "SORT BY is not supported", "SELECT k FROM a ORDER BY k"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write(text: str, message: str, instead: str) -> None:
    """Rows would be sorted otherwise than was asked for, without a word."""
    with pytest.raises(SqlError) as caught:
        session().parse(text)
    assert caught.value.message == message
    assert caught.value.hint
    session().parse(instead)


def over_files(folder: Path, text: str, sink: Sink) -> weft.Session:
    """A session with a query over files, which come into a folder."""
    made = weft.Session(checkpoint=str(folder / "ck"), execution="local")
    made.stream("a", weft.files("json", str(folder / "in"), schema="k long"))
    made.query(text, name="q", sink=sink)
    return made


def add_rows(folder: Path, name: str, *keys: int) -> None:
    """A file with a row for each key."""
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / f"{name}.json").write_text(
        "".join(f'{{"k": {key}}}\n' for key in keys), encoding="utf-8"
    )


@pytest.mark.parametrize(("clause", "word"), [("ORDER BY k", "sorted"), ("LIMIT 2", "counted off")])
def test_an_input_without_end_is_never_sorted(tmp_path: Path, clause: str, word: str) -> None:
    """A session would wait for ever, and its results with it; what the error says to do instead would not help."""
    add_rows(tmp_path, "one", 2, 1)
    made = over_files(tmp_path, f"SELECT k FROM a {clause}", weft.to_memory())
    with pytest.raises(QueryError, match=f"{word} .* when the input has ended") as caught:
        made.start()
    assert "session.run_available()" in (caught.value.hint or "")
    made.run_available()
    assert sorted(made.queries[0].results().column("k").to_pylist()) == [1, 2]


@pytest.mark.parametrize("limit", ["", " LIMIT 3"])
def test_what_waits_to_be_sorted_outlives_the_session(tmp_path: Path, limit: str) -> None:
    """Rows from before a restart would be missing, would come twice, or would not be among the others in order."""
    text, out = f"SELECT k FROM a ORDER BY k{limit}", tmp_path / "out"
    for name, keys in (("one", (5, 3)), ("two", (4, 1)), ("three", (6,))):
        add_rows(tmp_path, name, *keys)
        over_files(tmp_path, text, weft.to_parquet(out)).run_available(end=False)
        assert not any(pq.read_metadata(path).num_rows for path in out.rglob("*.parquet"))
    add_rows(tmp_path, "four", 2, 9)
    over_files(tmp_path, text, weft.to_parquet(out)).run_available()
    found = pq.read_table(out).column("k").to_pylist()
    assert found == ([1, 2, 3] if limit else [1, 2, 3, 4, 5, 6, 9])


def test_order_by_event_time_is_the_order_of_event_time() -> None:
    """Rows in the order of their times would wait for the end of an input that has none."""
    made = session()
    text = "SELECT a.k, b.z FROM a JOIN b ON a.k = b.k ORDER BY greatest(a.ts, b.ts)"
    planned = made.query(text, name="q", sink=weft.to_memory())
    assert str(planned.ordering) == "event"
    assert planned.query.sorting is None
    assert [output.name for output in planned.query.outputs] == ["k", "z"]
    single = made.query("SELECT k FROM a ORDER BY ts", name="r", sink=weft.to_memory())
    assert str(single.ordering) == "event"
    run = LocalRun(made)
    for late in (3, 1, 2):
        run.batch({"a": [{"k": late, "ts": NOON + timedelta(seconds=late)}]})
    run.end()
    assert run.results("r").column("k").to_pylist() == sorted(run.results("r").column("k").to_pylist())
    other = made.query("SELECT a.k FROM a JOIN b ON a.k = b.k ORDER BY a.ts", name="s", sink=weft.to_memory())
    assert other.ordering is None  # the time of one of two streams is not that of the result


def test_an_order_is_said_once() -> None:
    """Of two orders, one would be forgotten."""
    with pytest.raises(QueryError, match="ORDER BY or LIMIT, and order='event'"):
        session().query("SELECT k FROM a LIMIT 3", order="event")
    session().query("SELECT k FROM a LIMIT 3")
    with pytest.raises(QueryError, match="groups that change"):
        session().query("SELECT k, count(*) AS n FROM a GROUP BY k ORDER BY n", mode="update")
    session().query("SELECT k, count(*) AS n FROM a GROUP BY k ORDER BY n")
    session().query("SELECT k, count(*) AS n FROM a GROUP BY k", mode="update")


def test_results_that_are_sorted_are_no_stream() -> None:
    """Another query would read rows that were not cut."""
    made = session()
    made.query("SELECT k FROM a LIMIT 3", name="whole", sink=weft.to_memory())
    with pytest.raises(SqlError, match="ORDER BY or LIMIT cannot be read as a stream"):
        made.query("SELECT k FROM whole")


def test_aggregates_over_a_sub_select_are_aggregates() -> None:
    """A sub-select that is flattened would take the groups of the query around it with it."""
    rows: list[dict[str, object]] = [{"k": 1, "x": 2.0}, {"k": 2, "x": 1.0}, {"k": 2, "x": 3.0}]
    text = "SELECT k, count(*) AS n FROM (SELECT k FROM a WHERE x > 1) AS d GROUP BY k ORDER BY k"
    assert results(text, rows) == [{"k": 1, "n": 1}, {"k": 2, "n": 1}]


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (
            weft.select("a.k").from_("a").order_by("a.x DESC NULLS LAST", "1").limit(3),
            "ORDER BY a.x DESC NULLS LAST, 1 LIMIT 3",
        ),
        (
            weft.select("a.k").from_("a").order_by("k").order_by("length(a.s)").limit(2, offset=4),
            "ORDER BY k, length(a.s) LIMIT 2 OFFSET 4",
        ),
        (weft.select("a.k").from_("a").limit(0), "LIMIT 0"),
    ],
)
def test_a_builder_sorts_as_sql_does(built: Builder, text: str) -> None:
    """Whoever builds queries could not say in which order rows are wanted, or would get another one."""
    made = session()
    assert made.parse(built) == made.parse(f"SELECT a.k FROM a {text}")


def test_a_builder_sorts_a_union_as_a_whole() -> None:
    """The rows of one branch would be sorted, and not those of the union."""
    made, branch = session(), weft.select("b.k").from_("b")
    built = weft.select("a.k").from_("a").union_all(branch).order_by("k DESC").limit(1)
    assert made.parse(built) == made.parse(
        "SELECT a.k FROM a UNION ALL SELECT b.k FROM b ORDER BY k DESC LIMIT 1"
    )
    made.query(built, name="q", sink=weft.to_memory())
    run = LocalRun(made)
    run.batch({"a": [{"k": 1, "ts": NOON}, {"k": 5, "ts": NOON}], "b": [{"k": 7, "ts": NOON}]})
    run.batch({"b": [{"k": 3, "ts": NOON}]})
    run.end()
    assert run.results("q").to_pylist() == [{"k": 7}]


def test_a_builder_refuses_an_order_where_rows_have_none() -> None:
    """An order would be dropped without a word, or a wrong number of rows be given."""
    inner = weft.select("a.k").from_("a").order_by("k")
    for built in (lambda: session().parse(weft.select("*").from_(inner, alias="d")), lambda: inner.limit(-1)):
        with pytest.raises(QueryError) as caught:
            built()
        assert caught.value.hint
    with pytest.raises(SqlError, match="cannot make sense"):
        inner.order_by("k DESC x")
    with pytest.raises(QueryError, match="takes a text"):
        inner.order_by(1)  # type: ignore[arg-type]
