"""Lists, maps and structs: carried along, taken apart, and refused where they cannot be."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.shares import quick, seeds

import weft
from weft.connectors.formats.conform import weft_type
from weft.errors import CatalogError, SinkError, SourceError, SqlError
from weft.kernels.expr.arrow import arrow_type
from weft.logical.schema import parse_type
from weft.testing import LocalRun

A = "k long, l array<long>, s struct<x:int,y:struct<z:string>>, m map<string,long>"
B = "k long, n long, t array<struct<v:long>>"
QUERIES = (
    "SELECT a.k, a.l, a.s, b.t FROM a JOIN b ON a.k = b.k",
    "SELECT a.l[b.n] AS e, a.s.x AS x, a.s.y.z AS z, a.m['p'] AS p, b.t[0].v AS v FROM a JOIN b ON a.l[0] = b.n",
    "SELECT a.k, a.l, b.t FROM a LEFT JOIN b ON a.s.x = b.k WHERE a.l[0] IS NULL OR a.l[0] < 3",
    "SELECT a.l, b.t FROM a FULL JOIN b ON a.k = b.k AND a.l[1] < b.n",
    "SELECT array(a.k, b.n) AS l, named_struct('u', a.k, 'w', a.s.y) AS n FROM a JOIN b ON a.k = b.k",
    "SELECT d.l[1] AS e FROM (SELECT k, l FROM a WHERE l[0] > 0) AS d SEMI JOIN b ON d.k = b.k",
)


def in_duckdb(text: str) -> str:
    """A query as DuckDB writes it: it counts from 1, and has other words for making lists and structs."""
    for mine, other in (
        *(
            ("a.l[b.n]", "CASE WHEN b.n >= 0 THEN a.l[b.n + 1] END"),
            ("l[0]", "l[1 + 0]"),
            ("l[1]", "l[1 + 1]"),
        ),
        *(("a.m['p']", "a.m['p']"), ("t[0]", "t[1 + 0]"), ("array(a.k, b.n)", "[a.k, b.n]")),
        ("named_struct('u', a.k, 'w', a.s.y)", "{'u': a.k, 'w': a.s.y}"),
    ):
        text = text.replace(mine, other)
    return text


def rows(rng: random.Random) -> dict[str, list[dict[str, Any]]]:
    """Random rows, in which anything may be NULL or empty."""

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.2 else value

    def number() -> Any:
        return maybe(rng.randrange(4))

    def a_row() -> dict[str, Any]:
        struct = {"x": number(), "y": maybe({"z": maybe(rng.choice("pq"))})}
        pairs = {key: number() for key in rng.sample("pqr", rng.randrange(3))}
        numbers = [number() for _ in range(rng.randrange(3))]
        return {"k": number(), "l": maybe(numbers), "s": maybe(struct), "m": maybe(list(pairs.items()))}

    def b_row() -> dict[str, Any]:
        return {"k": number(), "n": number(), "t": maybe([{"v": number()} for _ in range(rng.randrange(3))])}

    return {"a": [a_row() for _ in range(12)], "b": [b_row() for _ in range(12)]}


def session_with(queries: Mapping[str, str]) -> weft.Session:
    """A session with both streams, and queries."""
    session = weft.Session()
    session.stream("a", A)
    session.stream("b", B)
    for name, text in queries.items():
        planned = session.query(text, name=name, sink=weft.to_memory())
        assert session.parse(str(planned.query)) == planned.query
    return session


@pytest.mark.parametrize("seed", quick(seeds(6), 2))
def test_what_is_inside_is_found(seed: int) -> None:
    """A list that is carried along or taken apart would not be that of its row."""
    rng = random.Random(seed)
    given, queries = rows(rng), {f"q{number}": text for number, text in enumerate(QUERIES)}
    session = session_with(queries)
    schemas = {
        s.name: pa.schema([(f.name, arrow_type(f.type)) for f in s.schema]) for s in session.catalog.streams
    }
    run = LocalRun(session)
    tables = {name: pa.Table.from_pylist(some, schema=schemas[name]) for name, some in given.items()}
    cut = rng.randrange(12)
    run.batch({"a": tables["a"].slice(0, cut), "b": tables["b"].slice(cut)})
    run.batch({"b": tables["b"].slice(0, cut), "a": tables["a"].slice(cut)})
    run.end()
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        for name, text in queries.items():
            expected = connection.sql(in_duckdb(text)).to_arrow_table()
            assert shown(run.results(name)) == shown(expected), text


def shown(table: pa.Table) -> list[str]:
    """The rows as texts, in order."""
    return sorted(map(repr, zip(*(column.to_pylist() for column in table.columns), strict=True)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT a.k FROM a JOIN b ON a.l = b.t", "cannot compare"),
        ("SELECT a.k FROM a WHERE a.l = a.l", "cannot be compared as a whole"),
        ("SELECT a.k FROM a WHERE a.l IN (a.l)", "does not work on"),
        ("SELECT greatest(a.l, a.l) AS g FROM a", "does not work on"),
        ("SELECT CAST(a.l AS STRING) AS g FROM a", "cannot cast"),
        ("SELECT a.s.q FROM a", "has no field q"),
        ("SELECT a.l.q FROM a", "has no fields"),
        ("SELECT a.k[0] FROM a", "does not work on"),
        ("SELECT a.l['x'] FROM a", "no place in an array"),
        ("SELECT named_struct('a', 1, 'A', 2) AS n FROM a", "one name"),
        ("SELECT named_struct(1, 2) AS n FROM a", "takes names"),
        ("SELECT [1, 2] AS l FROM a", "stands right after a list"),
    ],
)
def test_what_cannot_be_done_is_refused(text: str, message: str) -> None:
    """A comparison that nothing can answer would fail while the query runs."""
    with pytest.raises(SqlError, match=message) as caught:
        session_with({}).parse(text)
    assert caught.value.hint or "cast" in message


@pytest.mark.parametrize(
    "text", ["array<bigint>", "map<string, array<int>>", "struct<a: int, b:decimal(10, 2)>"]
)
def test_types_are_spelled_in_one_way(text: str) -> None:
    """Two spellings of a type would be two types."""
    type_ = parse_type(text)
    assert parse_type(str(type_)) == type_ == weft_type(arrow_type(type_))


@pytest.mark.parametrize("text", ["array<>", "map<int>", "struct<a>", "struct<a:int,A:int>", "array<foo>"])
def test_types_that_are_none(text: str) -> None:
    """A column of a type that is none would fail when the first row comes."""
    with pytest.raises(CatalogError):
        parse_type(text)


def test_files_have_lists_and_unsigned_numbers(tmp_path: Path) -> None:
    """A folder of files could not be read because of a column that is only carried along."""
    large = pa.large_list(pa.uint64())
    table = pa.table({"k": pa.array([2**64 - 1], pa.uint64()), "l": pa.array([[1, None]], large)})
    pq.write_table(table, tmp_path / "a.parquet")
    session = weft.Session()
    session.stream("a", weft.files("parquet", str(tmp_path)))
    assert str(session.catalog.stream("a").schema) == "k decimal(20,0), l array<decimal(20,0)>"
    sink = weft.to_memory()
    session.query("SELECT a.k, a.l[0] AS e FROM a", name="q", sink=sink)
    with pytest.raises(SourceError, match="cannot be a map<string,long> where values are json"):
        weft.files("json", str(tmp_path), schema="m map<string,long>")
    with pytest.raises(SourceError, match="where values are csv"):
        weft.files("csv", str(tmp_path), schema="m array<long>")


def test_a_sink_without_lists_refuses_them() -> None:
    """A query would fail after its first batch."""
    schema = pa.schema([("l", pa.list_(pa.int64()))])
    for sink in (
        weft.to_postgres("postgresql://localhost/db", table="t"),
        weft.to_kafka("localhost:1", "t"),
    ):
        with pytest.raises(SinkError, match="column l is a list"):
            sink.open(schema)


@pytest.mark.parametrize(
    "origin",
    ["a LATERAL VIEW explode(l) AS e", "a, LATERAL explode(l) AS e", "a CROSS JOIN UNNEST(l) AS t(e)"],
)
def test_lists_are_not_exploded(origin: str) -> None:
    """Whoever wants a row for each element would not be told what to do instead."""
    session = session_with({})
    with pytest.raises(SqlError, match="is not supported") as caught:
        session.parse(f"SELECT a.k FROM {origin}")
    assert "name the elements, as in x[0]" in (caught.value.hint or "")
    session.parse("SELECT a.k, a.l[0] AS e FROM a")


def test_rows_that_are_written_down_are_a_table() -> None:
    """Whoever writes VALUES would not be told what to do instead."""
    session = session_with({})
    with pytest.raises(SqlError, match="VALUES is not supported") as caught:
        session.parse("SELECT a.k, v.t FROM a JOIN (VALUES (1, 'x')) AS v(k, t) ON a.k = v.k")
    assert 'session.table("t", pyarrow.table(' in (caught.value.hint or "")
    session.table("v", pa.table({"k": [1], "t": ["x"]}))
    session.query("SELECT a.k, v.t FROM a JOIN v ON a.k = v.k", name="q", sink=weft.to_memory())
    assert LocalRun(session).batch({"a": [{"k": 1}]})["q"].to_pylist() == [{"k": 1, "t": "x"}]


def test_a_sub_select_as_a_value_is_a_left_join() -> None:
    """Whoever asks for a value of a table would be told of joins that give no columns."""
    session = session_with({})
    session.table("one", pa.table({"k": [1], "t": ["x"]}))
    with pytest.raises(SqlError, match="a sub-select as a value is not supported") as caught:
        session.parse("SELECT a.k, (SELECT one.t FROM one WHERE one.k = a.k) AS t FROM a")
    assert "LEFT JOIN b ON b.k = a.k" in (caught.value.hint or "")
    session.query("SELECT a.k, one.t FROM a LEFT JOIN one ON one.k = a.k", name="q", sink=weft.to_memory())
    run = LocalRun(session)
    run.batch({"a": [{"k": 1}, {"k": 2}]})
    run.end()
    assert sorted(run.results("q").to_pylist(), key=str) == [{"k": 1, "t": "x"}, {"k": 2, "t": None}]
