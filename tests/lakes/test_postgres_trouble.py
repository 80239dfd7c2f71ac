"""What would be lost: results in a PostgreSQL table whose server restarts, or that others change meanwhile."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import pyarrow as pa
import pytest

import weft
from tests.lakes.conftest import PASSWORD, PostgresServer
from tests.lakes.story import OWNER
from weft.connectors.postgres import sink as postgres
from weft.connectors.postgres.sink import PostgresSink
from weft.errors import SinkError

psycopg = pytest.importorskip("psycopg", reason='needs pip install "weft[postgres]"')

SCHEMA = pa.schema([("k", pa.int64()), ("c", pa.string())])


@pytest.fixture
def dsn(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the connection is, to a database without tables."""
    monkeypatch.setenv("WEFT_TEST_PG", server.dsn)
    ask("DROP SCHEMA public CASCADE")
    ask("CREATE SCHEMA public")
    return "env:WEFT_TEST_PG"


def ask(sql: str) -> list[tuple[Any, ...]]:
    """What a reader sees."""
    with psycopg.connect(os.environ["WEFT_TEST_PG"], autocommit=True) as connection:
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description else []


def opened(
    dsn: str, table: str = "t", *, last: int = -1, schema: pa.Schema = SCHEMA, **options: Any
) -> PostgresSink:
    """A sink whose session goes on after a batch."""
    sink = weft.to_postgres(dsn, table, **options)
    sink.open(schema, OWNER)
    sink.recover(last)
    return sink


def rows(*keys: int) -> pa.Table:
    """A batch."""
    return pa.table([keys, [f"text {key}" for key in keys]], schema=SCHEMA)


@pytest.mark.parametrize("key", [(), ("k",)])
def test_a_server_that_restarts_is_waited_for(
    key: tuple[str, ...], server: PostgresServer, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes away after the rows were copied, and again after it has committed and before it could say so."""
    sink = opened(dsn, key=key)
    sink.commit(0, rows(1))
    add, commit = PostgresSink._add, psycopg.Connection.commit
    crashes = ["after the rows", "after the commit"]

    def crash() -> None:
        crashes.pop(0)
        server.stop()
        threading.Timer(0.5, server.start).start()

    def adding(*given: Any) -> None:
        add(*given)
        if crashes and crashes[0] == "after the rows":
            crash()

    def committing(connection: Any) -> None:
        commit(connection)
        if crashes == ["after the commit"]:
            crash()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(PostgresSink, "_add", adding)
    monkeypatch.setattr(psycopg.Connection, "commit", committing)
    sink.commit(1, rows(2, 3))
    assert not crashes
    sink.commit(2, rows(4))
    assert ask("SELECT k FROM t ORDER BY k") == [(1,), (2,), (3,), (4,)]


def test_a_server_that_stays_away_is_an_error_and_the_batch_can_be_repeated(
    server: PostgresServer, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The patience is as long as it is said to be; the password is not in the error."""
    monkeypatch.setattr(postgres, "_PATIENCE", 0.3)
    sink = opened(dsn)
    sink.commit(0, rows(1))
    server.stop()
    try:
        began = time.monotonic()
        with pytest.raises(SinkError, match=r"to_postgres: t at env:WEFT_TEST_PG: .*connection") as caught:
            sink.commit(1, rows(2))
        assert 0.3 < time.monotonic() - began < 30
        assert PASSWORD not in str(caught.value)
        with pytest.raises(SinkError, match=r"t at env:WEFT_TEST_PG: .*connection"):
            opened(dsn, last=0)
    finally:
        server.start()
    again = opened(dsn, last=0)
    again.commit(1, rows(2))
    assert ask("SELECT k FROM t ORDER BY k") == [(1,), (2,)]


def test_what_others_change_while_it_runs_is_found(dsn: str) -> None:
    """A value must not be rounded to a type that a column did not have at the start."""
    sink = opened(dsn)
    sink.commit(0, rows(1))
    ask("ALTER TABLE t ADD COLUMN note text DEFAULT 'x'")  # that is in nobody's way
    sink.commit(1, rows(2))
    ask("ALTER TABLE t ALTER COLUMN k TYPE real")
    with pytest.raises(SinkError, match="column k of the table t has the type real, results bigint"):
        sink.commit(2, rows(2**53 + 1))
    ask("ALTER TABLE t ALTER COLUMN k TYPE numeric")
    sink.commit(2, rows(2**53 + 1))
    ask("ALTER TABLE t DROP COLUMN c")
    with pytest.raises(SinkError, match="the results have a column c, the table t has none"):
        sink.commit(3, rows(4))
    ask("DROP TABLE t")
    with pytest.raises(SinkError, match='relation "t" does not exist'):
        sink.commit(3, rows(4))


def test_one_table_by_two_names_is_not_written_by_two_queries(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batches of the second would be taken for replays, and its results lost."""
    monkeypatch.setenv("WEFT_TEST_PG_2", os.environ["WEFT_TEST_PG"])
    one, other = opened(dsn), opened("env:WEFT_TEST_PG_2")
    one.commit(0, rows(1))
    with pytest.raises(SinkError, match="t has got batch 0 from another query or session"):
        other.commit(0, rows(2))
    assert ask("SELECT k FROM t") == [(1,)]


def test_odd_names_and_lone_values_arrive(dsn: str) -> None:
    """Reserved words, quotes, percent signs, upper case, and the name that is used for merging."""
    names = ["select", 'a"b%s', "ü😀", "Upper", "weft_row0", "k"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    sink = opened(dsn, 'Odd %s "Table"', schema=schema, key=["select", "k"])
    sink.commit(0, pa.table([[1, 1, 2]] * 5 + [[7, 7, 7]], schema=schema))
    assert ask('SELECT * FROM "Odd %s ""Table""" ORDER BY 1') == [(1,) * 5 + (7,), (2,) * 5 + (7,)]
    alone = pa.schema([("c", pa.string())])
    texts = ["a", "\\.", "", None, "b\n\\.\nc", "\\N", '"', "\\.\\."]  # COPY ends with a line \.
    opened(dsn, "alone", schema=alone).commit(0, pa.table([texts], schema=alone))
    assert [text for (text,) in ask("SELECT c FROM alone ORDER BY ctid")] == texts


def test_a_database_of_another_encoding_gets_the_same_texts(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it cannot hold is refused."""
    ask("DROP DATABASE IF EXISTS latin")
    ask("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    monkeypatch.setenv("WEFT_TEST_PG", os.environ["WEFT_TEST_PG"].replace("dbname=postgres", "dbname=latin"))
    schema = pa.schema([("größe", pa.string())])
    sink = opened(dsn, schema=schema)
    sink.commit(0, pa.table([["é"]], schema=schema))
    assert ask("SELECT octet_length(größe), convert_from(größe::bytea, 'LATIN1') FROM t") == [(1, "é")]
    with pytest.raises(SinkError, match="no equivalent in encoding"):
        sink.commit(1, pa.table([["€"]], schema=schema))


def test_what_cannot_be_written_to_is_refused_before_the_start(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Views, computed columns, tables without the right to add rows, other databases."""
    ask("CREATE TABLE base (k bigint PRIMARY KEY, c text)")
    ask("CREATE VIEW shown AS SELECT * FROM base")
    ask("CREATE TABLE computed (k bigint, c text GENERATED ALWAYS AS ('x') STORED)")
    ask("DROP ROLE IF EXISTS poor")
    ask("CREATE ROLE poor LOGIN PASSWORD 'poor'")
    ask("GRANT ALL ON SCHEMA public TO poor")
    for table, message in (
        ("shown", "shown is not a table"),
        ("computed", "column c of the table computed has the type generated text"),
    ):
        with pytest.raises(SinkError, match=message):
            opened(dsn, table)
    long = pa.schema([("c" * 70, pa.int64())])  # PostgreSQL would cut it off
    with pytest.raises(SinkError, match="the results have a column ccc"):
        opened(dsn, "long", schema=long)
    opened(dsn, "made")
    ask("GRANT ALL ON weft_batches TO poor")
    ask("GRANT INSERT ON made TO poor")
    poor = os.environ["WEFT_TEST_PG"].replace("user=weft", "user=poor").replace(PASSWORD, "poor")
    monkeypatch.setenv("WEFT_TEST_POOR", poor)
    with pytest.raises(SinkError, match="lacks rights on the table base") as caught:
        opened("env:WEFT_TEST_POOR", "base", key="k")
    assert caught.value.hint == "GRANT INSERT, SELECT, UPDATE ON base TO …"
    opened("env:WEFT_TEST_POOR", "made").commit(0, rows(1))
    assert ask("SELECT k FROM made") == [(1,)]


@pytest.mark.parametrize(
    ("address", "message", "hint"),
    [
        ("mysql://host/db", "is to mysql, and only PostgreSQL", "foreach_batch"),
        ("jdbc:oracle:thin:@host:1521", "is to oracle, and only PostgreSQL", "foreach_batch"),
        ("jdbc:postgresql://host/db", "begins with jdbc:postgresql:", "begin it with postgresql://"),
        ("postgresql+psycopg://host/db", r"begins with postgresql\+psycopg:", "begin it with postgresql://"),
    ],
)
def test_other_databases_are_refused_with_what_to_do(
    address: str, message: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written out or found in the environment."""
    with pytest.raises(SinkError, match=message) as caught:
        weft.to_postgres(address, "t")
    assert hint in str(caught.value.hint)
    monkeypatch.setenv("WEFT_TEST_PG", address)
    with pytest.raises(SinkError, match=message):
        weft.to_postgres("env:WEFT_TEST_PG", "t").open(SCHEMA)


def test_nobody_answers_at_the_start() -> None:
    """That is said at once, and not after the patience with a server that restarts."""
    began = time.monotonic()
    with pytest.raises(SinkError, match="Connection refused"):
        weft.to_postgres("host=127.0.0.1 port=1 user=x dbname=x", "t").open(SCHEMA)
    assert time.monotonic() - began < 10
