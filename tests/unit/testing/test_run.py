"""`LocalRun`: a user's session over tables, batch by batch, without Java."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from weft.errors import CatalogError, ConfigError, QueryError, ResultError, SourceError
from weft.testing import LocalRun, reference_join

NOON = datetime(2026, 1, 1, 12)


def shop(**options: Any) -> weft.Session:
    """A session over orders and payments, as a user's program makes it."""
    session = weft.Session(**options)
    orders = weft.files("parquet", "orders/", schema="id INT, amount DOUBLE, ts TIMESTAMP")
    session.stream("orders", orders, event_time="ts")
    payments = weft.files("json", "payments/", schema="order_id INT, ts TIMESTAMP")
    session.stream("payments", payments, event_time="ts", lateness="10 seconds")
    return session


PAID = """SELECT o.id, o.amount FROM orders [RANGE 5 MINUTES] AS o, payments [RANGE 5 MINUTES] AS p
          WHERE o.id = p.order_id"""
UNPAID = """SELECT o.id FROM orders [RANGE 5 MINUTES] AS o
            ANTI JOIN payments [RANGE 5 MINUTES] AS p ON o.id = p.order_id"""


def order(number: int, seconds: int = 0) -> dict[str, Any]:
    """A row of the stream of orders."""
    return {"id": number, "amount": float(number), "ts": NOON + timedelta(seconds=seconds)}


def payment(number: int, seconds: int = 0) -> dict[str, Any]:
    """A row of the stream of payments."""
    return {"order_id": number, "ts": NOON + timedelta(seconds=seconds)}


def test_a_pipeline_runs_over_rows_given_by_hand(tmp_path: Path) -> None:
    """The session's own sources and sinks are left alone; every batch says what it gave."""
    session = shop()
    session.query(PAID, name="paid", sink=weft.to_parquet(tmp_path / "out"))
    run = LocalRun(session)
    assert run.batch({"orders": [order(1), order(2)]})["paid"].num_rows == 0
    assert run.batch({"payments": [payment(2, 20)]})["paid"].to_pylist() == [{"id": 2, "amount": 2.0}]
    assert run.batch({"payments": [payment(1, 400)]})["paid"].num_rows == 0  # outside the window
    assert run.results("paid").to_pylist() == [{"id": 2, "amount": 2.0}]
    assert not (tmp_path / "out").exists()


def test_rows_of_outer_joins_wait_for_the_watermark_or_the_end() -> None:
    """What waits for a partner leaves when none can come, and at the latest when the input ends."""
    session = shop()
    session.query(UNPAID, name="unpaid", sink=weft.to_memory())
    run = LocalRun(session)
    run.batch({"orders": [order(1), order(2)], "payments": [payment(1)]})
    assert run.results("unpaid").num_rows == 0
    run.batch({"orders": [order(3, 600)], "payments": [payment(9, 600)]})
    assert run.results("unpaid").to_pylist() == [{"id": 2}]
    assert run.end()["unpaid"].to_pylist() == [{"id": 3}]


def test_the_clock_is_the_tests_own() -> None:
    """Streams without event time arrive when the test says so."""
    session = weft.Session()
    for name in ("a", "b"):
        session.stream(name, weft.files("json", name, schema="k INT"))
    text = "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k"
    session.query(text, name="near", sink=weft.to_memory())
    run = LocalRun(session, now=NOON)
    run.batch({"a": [{"k": 1}]})
    assert run.batch({"b": [{"k": 1}]}, now=NOON + timedelta(seconds=9))["near"].num_rows == 1
    run.advance("2 seconds")
    assert run.now == NOON + timedelta(seconds=11)
    assert run.batch({"b": [{"k": 1}]})["near"].num_rows == 0


def test_queries_come_and_go_between_batches() -> None:
    """A query that the session is given while it runs begins with the next batch, and one may stop."""
    session = shop()
    session.query(PAID, name="paid", sink=weft.to_memory())
    run = LocalRun(session)
    run.batch({"orders": [order(1)]})
    session.query(PAID.replace("o.amount", "o.amount * 2 AS twice"), name="doubled", sink=weft.to_memory())
    given = run.batch({"payments": [payment(1, 1)]})
    assert given["paid"].num_rows == 1
    assert given["doubled"].to_pylist() == [{"id": 1, "twice": 2.0}]  # it sees what the other one stored
    run.stop_query("paid")
    given = run.batch({"orders": [order(2, 2)], "payments": [payment(2, 2)]})
    assert (given["paid"].num_rows, given["doubled"].num_rows) == (0, 1)


def test_many_batches_give_what_the_definition_gives() -> None:
    """However rows are cut into batches, the results are those of the definition."""
    session = shop(options=weft.Options(partitions=3))
    planned = session.query(PAID, name="paid", sink=weft.to_memory())
    orders = [order(number % 7, number) for number in range(60)]
    payments = [payment(number % 5, number * 2) for number in range(40)]
    run = LocalRun(session)
    for at in range(0, 60, 11):
        run.batch({"orders": orders[at : at + 11], "payments": payments[at * 2 // 3 : (at + 11) * 2 // 3]})
    run.batch({"payments": payments[44:]})
    tables = {"o": pa.Table.from_pylist(orders), "p": pa.Table.from_pylist(payments)}
    expected = reference_join(planned.query, tables)

    def rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(row.values()) for row in table.to_pylist())

    assert rows(run.results("paid")) == rows(expected)
    assert run.results("paid").num_rows > 20


def test_wrong_rows_are_refused_or_set_aside() -> None:
    """A name or type that is wrong is said at once; a row without its time is a dead letter, as anywhere."""
    session = shop()
    with pytest.raises(ConfigError, match="no query has a sink"):
        LocalRun(session).batch({})
    session.query(PAID, name="paid", sink=weft.to_memory())
    run = LocalRun(session)
    with pytest.raises(CatalogError, match=r"no stream 'order'(.|\n)*orders"):
        run.batch({"order": [order(1)]})
    with pytest.raises(CatalogError, match=r"no column 'amuont'(.|\n)*amount"):
        run.batch({"orders": [{"id": 1, "amuont": 2.0}]})
    with pytest.raises(CatalogError, match="not of the stream's types"):
        run.batch({"orders": [{"id": "one"}]})
    with pytest.raises(QueryError, match=r"no query 'payd'(.|\n)*paid"):
        run.results("payd")
    run.batch({"orders": [{"id": 1, "amount": 1.0, "ts": None}, order(2)], "payments": [payment(2)]})
    assert run.results("paid").to_pylist() == [{"id": 2, "amount": 2.0}]
    assert len(run.dead_letters) == 1


def test_a_batch_that_is_refused_has_no_effect() -> None:
    """A table of other columns is an error, and what else came with it does not count; the next batch does."""
    session = shop()
    session.query(PAID, name="paid", sink=weft.to_memory())
    run = LocalRun(session)
    run.batch({"orders": [order(1)]})
    with pytest.raises(SourceError, match="no column order_id"):
        run.batch({"payments": pa.table({"id": [1]}), "orders": [order(2)]})
    given = run.batch({"payments": [payment(1), payment(2)]})
    assert given["paid"].to_pylist() == [{"id": 1, "amount": 1.0}]
    assert run.batch({"orders": [order(2)]})["paid"].num_rows == 1


def test_streams_can_be_registered_while_it_runs() -> None:
    """As in a session that runs."""
    session = shop()
    session.query(PAID, name="paid", sink=weft.to_memory())
    run = LocalRun(session)
    run.batch({"orders": [order(1)]})
    session.stream("refunds", weft.files("json", "r", schema="order_id INT, ts TIMESTAMP"), event_time="ts")
    text = PAID.replace("payments", "refunds")
    session.query(text, name="refunded", sink=weft.to_memory())
    assert run.batch({"refunds": [payment(1, 1)]})["refunded"].to_pylist() == [{"id": 1, "amount": 1.0}]


def test_it_loads_neither_spark_nor_java() -> None:
    """A user's test needs no Java."""
    code = "import weft, sys; from weft.testing import LocalRun; print('pyspark' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_a_query_that_fails_raises_where_its_results_are_waited_for() -> None:
    """An empty table would be taken for the answer."""
    session = shop(result_limit=1)
    session.query(PAID, name="paid", sink=weft.to_memory())
    session.query(f"{PAID} AND o.id = 1", name="first", sink=weft.to_memory())
    run = LocalRun(session)
    assert run.batch({"orders": [order(1)], "payments": [payment(1)]})["paid"].num_rows == 1
    with pytest.raises(ResultError, match=r"query paid has failed: .*1 result"):
        run.batch({"orders": [order(2), order(3)], "payments": [payment(2), payment(3)]})
    for _ in "12":
        with pytest.raises(ResultError, match="query paid has failed"):
            run.results("paid")
        assert run.batch({"orders": [order(4)]}).keys() == {"first"}
    assert run.results("first").num_rows == 1


def test_running_what_is_there_raises_the_error_of_a_query_that_failed(tmp_path: Path) -> None:
    """A program that reads the results afterwards would take too few for all."""
    session = weft.Session(execution="local", checkpoint=tmp_path / "ck", result_limit=3)
    for name in "ab":
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"k": [1, 1, 2]}), tmp_path / name / "1.parquet")
        session.stream(name, weft.files("parquet", str(tmp_path / name), schema="k long"))
    text = "SELECT a.k FROM a [ROWS 10], b [ROWS 10] WHERE a.k = b.k"
    many = session.query(text, name="many", sink=weft.to_memory())
    few = session.query(f"{text} AND a.k = 2", name="few", sink=weft.to_memory())
    with pytest.raises(ResultError, match="query many has failed"):
        session.run_available()
    with pytest.raises(ResultError, match="query many has failed"):
        many.results()
    assert many.progress.status == "stopped"
    assert few.results().num_rows == 1
