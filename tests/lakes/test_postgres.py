"""What would be lost: a result that is in a table twice or not at all, a value that is changed, or a password."""

from __future__ import annotations

import json
import logging
import os
import pickle
import random
import traceback
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import weft
from tests.lakes.conftest import PASSWORD, PostgresServer
from tests.lakes.killing import killed_run, wanted
from tests.lakes.program import QUERY, make_session, write_input
from tests.lakes.story import OWNER, SCHEMA, commit, crash_at, expected, groups_live, live, started
from tests.shares import seeds
from weft.connectors.postgres.sink import PostgresSink
from weft.connectors.sink_descriptions import describe_sink, make_sink, same_place
from weft.errors import SinkError

psycopg = pytest.importorskip("psycopg", reason='needs pip install "weft[postgres]"')


@pytest.fixture
def dsn(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the connection is, to a database without tables."""
    monkeypatch.setenv("WEFT_TEST_PG", server.dsn)
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return "env:WEFT_TEST_PG"


def ask(sql: str) -> list[tuple[Any, ...]]:
    """What a reader sees."""
    with psycopg.connect(os.environ["WEFT_TEST_PG"], autocommit=True) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description else []


@pytest.mark.parametrize("key", [(), ("k",)])
@pytest.mark.parametrize("seed", seeds(6))
def test_a_crash_at_any_step_leaves_every_row_once(
    seed: int, key: tuple[str, ...], dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after rows are copied and the transaction is committed, and before the manifest is written."""
    steps = [(PostgresSink, "_add"), (psycopg.Connection, "commit")]
    crash = crash_at(monkeypatch, steps)
    given = live(lambda: weft.to_postgres(dsn, "results", key=key), crash, random.Random(seed))
    assert ask("SELECT * FROM results ORDER BY k") == expected(given)


def test_batches_are_noted_by_checkpoint_and_table(dsn: str) -> None:
    """Two queries write to two tables, and another checkpoint has batches of its own."""
    for table, owner, keys in (
        ("a", OWNER, [1]),
        ("b", OWNER, [2]),
        ("a", "checkpoint-2", [3]),
        ("a", OWNER, [1]),
    ):
        sink = started(lambda table=table: weft.to_postgres(dsn, table), -1, owner)  # type: ignore[misc]
        commit(sink, 0, keys, random.Random(0))
    assert ask("SELECT k FROM a ORDER BY k") == [(1,), (3,)]
    assert ask("SELECT k FROM b") == [(2,)]
    for batch in (1, 2):
        commit(started(lambda: weft.to_postgres(dsn, "a"), batch - 1), batch, [batch], random.Random(0))
    with pytest.raises(SinkError, match="a has batch 2, but the checkpoint ends with 0"):
        started(lambda: weft.to_postgres(dsn, "a"), 0)


def test_a_row_replaces_the_one_with_its_key(dsn: str) -> None:
    """Of rows with one key in a batch, the last one stays."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    sink = weft.to_postgres(dsn, "latest", key="k")
    sink.open(schema, OWNER)
    sink.commit(0, pa.table({"k": [1, 2, 1], "v": ["a", "b", "c"]}, schema))
    sink.commit(1, pa.table({"k": [2, 3, 2], "v": ["d", "e", None]}, schema))
    assert ask("SELECT * FROM latest ORDER BY k") == [(1, "c"), (2, None), (3, "e")]
    only = weft.to_postgres(dsn, "keys", key=["k"])
    only.open(schema.remove(1), OWNER)
    only.commit(0, pa.table({"k": [1, 1, 2]}))
    assert ask("SELECT * FROM keys ORDER BY k") == [(1,), (2,)]


@pytest.mark.parametrize("seed", seeds(5))
def test_all_values_arrive_as_they_are(seed: int, dsn: str) -> None:
    """Random values of all types, NULLs and extremes among them, in several slices."""
    rng = random.Random(seed)
    size = rng.choice((1, 7, 300))

    def column(type_: pa.DataType, values: list[Any]) -> pa.ChunkedArray:
        array = pa.array([rng.choice((None, *values)) for _ in range(size + 3)], type_)
        return pa.chunked_array([array.slice(1, 1), array.slice(3, size - 1)])

    texts = ["", "NULL", "\\N", "\\.", 'a"b', "a,b", "a\r\nb\n", "é\t€𝄞", "'", " x "]
    table = pa.table(
        {
            "byte": column(pa.int8(), [-128, 127]),
            "int": column(pa.int32(), [-(2**31), 2**31 - 1]),
            "long": column(pa.int64(), [-(2**63), 2**63 - 1, 0]),
            "b": column(pa.bool_(), [True, False]),
            "f": column(pa.float32(), [0.25, float("inf"), -0.0]),
            "d": column(pa.float64(), [0.1, -1e300, 5e-324, float("-inf"), 1 / 3]),
            'a "text"': column(pa.string(), texts),
            "bytes": column(pa.binary(), [b"", b"\x00\xff\\x", b"abc"]),
            "day": column(pa.int32(), [0, -1, 20000]).cast(pa.date32()),
            "ts": column(pa.int64(), [0, -1, 1_700_000_000_123_456]).cast(pa.timestamp("us", "UTC")),
            "dec": column(pa.int64(), [0, -1, 99]).cast(pa.decimal128(38, 10)),
        }
    )
    sink = weft.to_postgres(dsn, "all types", key=())
    sink.open(table.schema, OWNER)
    sink.commit(0, table)
    found = ask('SELECT * FROM "all types" ORDER BY ctid')
    assert found == [tuple(row.values()) for row in table.to_pylist()]


def test_other_tables_are_refused_before_the_start(dsn: str) -> None:
    """Each error names the column and says what the table has."""
    ask("CREATE TABLE t (k bigint, c text, ts timestamptz)")
    ask("CREATE TABLE narrow (k integer, c text, ts timestamptz)")
    ask("CREATE TABLE short (k bigint, c varchar(3), ts timestamptz)")
    ask("CREATE TABLE needs (k bigint, c text, ts timestamptz, z integer NOT NULL)")
    ask("CREATE TABLE wide (ts timestamptz, c varchar, k numeric, z integer NOT NULL DEFAULT 1)")

    def refused(table: str, message: str, schema: pa.Schema = SCHEMA, **options: Any) -> None:
        with pytest.raises(SinkError, match=message) as caught:
            weft.to_postgres(dsn, table, **options).open(schema, OWNER)
        assert caught.value.hint

    refused("narrow", "column k of the table narrow has the type integer, results bigint")
    refused("short", r"column c of the table short has the type character varying\(3\), results text")
    refused("needs", "needs a value for z")
    refused("t", "have a column x, the table t has none", pa.schema([*SCHEMA, ("x", pa.int64())]))
    refused("t", "no unique index over k", key="k")
    refused("t", "no column z", key="z")
    refused("t", "column d has the type interval", pa.schema([("d", pa.duration("us"))]))
    refused("nowhere.t", 'schema "nowhere" does not exist')
    commit(started(lambda: weft.to_postgres(dsn, "wide"), -1), 0, [1], random.Random(0))
    assert ask("SELECT k, z FROM wide") == [(1, 1)]
    for table in ("", "a.b.c", "a."):
        with pytest.raises(SinkError, match="no name of a table"):
            weft.to_postgres(dsn, table)


def test_a_password_is_never_seen(
    dsn: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in the checkpoint, logs, plans, descriptions or errors; a connection that has one must not be written out."""
    for written in (
        f"host=x password={PASSWORD}",
        f"postgresql://me:{PASSWORD}@host/db",
        "postgresql://h/d?password=x",
    ):
        with pytest.raises(SinkError, match="a password is written") as refused:
            weft.to_postgres(written, "t")
        assert PASSWORD not in str(refused.value)
    assert weft.to_postgres("host=/run dbname=x passfile=/etc/pass", "t").describe()
    caplog.set_level(logging.DEBUG)
    secret = tmp_path / "dsn"
    secret.write_text(os.environ["WEFT_TEST_PG"] + "\n", encoding="utf-8")
    root = tmp_path / "run"
    root.mkdir()
    session = make_session(root)
    session.query(QUERY, name="results", sink=weft.to_postgres(f"file:{secret}", "results"))
    session.start()
    write_input(root, 0)
    session.process_all_available()
    shown = session.queries[0].explain()
    session.stop()
    assert ask("SELECT count(*) FROM results") == [(20,)]
    kept = b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())
    assert f"file:{secret}".encode() in kept
    sink = weft.to_postgres(dsn, "t")
    sink.open(SCHEMA, OWNER)
    texts = [
        shown,
        caplog.text,
        kept.decode("latin-1"),
        repr(sink),
        str(pickle.dumps(sink)),
        str(sink.describe()),
    ]
    wrong = os.environ["WEFT_TEST_PG"].replace("of the tests", "that is wrong")
    monkeypatch.setenv("WEFT_TEST_PG", wrong)
    with pytest.raises(SinkError, match="password authentication failed") as caught:
        sink.recover(-1)
    texts.append("".join(traceback.format_exception(caught.value)))
    assert not any("s3cret" in text for text in texts)


def test_a_connection_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference, and what to do."""
    monkeypatch.delenv("WEFT_NO_SUCH", raising=False)
    with pytest.raises(SinkError, match="env:WEFT_NO_SUCH has no text"):
        weft.to_postgres("env:WEFT_NO_SUCH", "t").open(SCHEMA)
    with pytest.raises(SinkError, match=r"file:.* cannot be read: No such file"):
        weft.to_postgres(f"file:{tmp_path}/none", "t").open(SCHEMA)
    with pytest.raises(SinkError, match="the connection is empty"):
        weft.to_postgres(" ", "t")


def test_it_is_made_again_as_it_was() -> None:
    """After a crash; two queries are not to write to one table."""
    sink = weft.to_postgres("env:WEFT_TEST_PG", "sales.t", key=["a", "b"])
    found = describe_sink(sink)
    assert found is not None
    assert make_sink(json.loads(json.dumps(found))) == sink
    assert same_place(sink, weft.to_postgres("env:WEFT_TEST_PG", "sales.t"))
    assert not same_place(sink, weft.to_postgres("env:WEFT_TEST_PG", "t"))


@pytest.mark.parametrize("seed", seeds(1))
def test_a_session_that_is_killed_adds_every_result_once(seed: int, dsn: str, tmp_path: Path) -> None:
    """The whole way, with `kill -9` at random moments."""
    killed_run(tmp_path, "postgres", dsn, 2, seed, os.environ)
    assert ask("SELECT * FROM results ORDER BY k") == wanted()


@pytest.mark.parametrize("seed", seeds(6))
def test_groups_that_change_are_there_once(seed: int, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after each step of a commit; a group whose key is NULL or NaN would be there several times."""
    crash = crash_at(monkeypatch, [(PostgresSink, "_add"), (psycopg.Connection, "commit")])
    described = describe_sink(weft.to_postgres(dsn, "groups").keyed(["a b", "k"])) or {}
    wanted_rows = groups_live(lambda: make_sink(described), crash, random.Random(seed))
    assert sorted(map(str, ask("SELECT * FROM groups"))) == wanted_rows


def test_groups_need_keys_that_tell_them_apart(dsn: str) -> None:
    """Rows of groups would be added again and again."""
    with pytest.raises(SinkError, match="told apart by a, b"):
        weft.to_postgres(dsn, "groups", key="a").keyed(["a", "b"])
    with pytest.raises(SinkError, match="has no key"):
        weft.to_postgres(dsn, "groups").keyed([])
    ask("CREATE TABLE groups (k bigint UNIQUE, n bigint)")
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64())])
    with pytest.raises(SinkError, match="takes no two NULLs"):
        weft.to_postgres(dsn, "groups").keyed(["k"]).open(schema, OWNER)
    ask("DROP TABLE groups")
    ask("CREATE TABLE groups (k bigint, n bigint, UNIQUE NULLS NOT DISTINCT (k))")  # as the hint says
    weft.to_postgres(dsn, "groups", key="k").keyed(["k"]).open(schema, OWNER)


def test_a_query_updates_its_groups(dsn: str, tmp_path: Path) -> None:
    """The whole way: a row for each group, as it is after the last batch."""
    session = weft.Session(checkpoint=tmp_path / "ck", execution="local")
    (tmp_path / "in").mkdir()
    for number in range(3):
        lines = [json.dumps({"k": key % 2 or None, "ts": f"2026-01-01 00:00:0{number}"}) for key in range(4)]
        (tmp_path / "in" / f"{number}.json").write_text("\n".join(lines))
    source = weft.files("json", tmp_path / "in", schema="k int, ts timestamp", max_files_per_batch=1)
    session.stream("a", source, event_time="ts")
    sink = weft.to_postgres(dsn, "counts")
    session.query("SELECT k, count(*) AS n FROM a GROUP BY k", name="q", sink=sink, mode="update")
    session.run_available()
    assert ask("SELECT * FROM counts ORDER BY k") == [(1, 6), (None, 6)]
