"""The normal form of joins, and which conditions reject rows that are padded with NULLs."""

from __future__ import annotations

import pytest

from weft.logical.catalog import Catalog
from weft.logical.expr.nulls import rejects_null
from weft.logical.query.join_tree import Join
from weft.logical.query.query import Input, Query
from weft.logical.schema import Schema, Stream
from weft.sql.bind import parse_predicate, parse_query

SCHEMA = Schema.parse("a long, b long, s string, ok boolean, ts timestamp")
CATALOG = Catalog(tuple(Stream(name, SCHEMA, "ts") for name in "rstu"))
INPUTS = [Input(stream.name, stream) for stream in CATALOG.streams]


def parse(sql: str) -> Query:
    """A query over r, s, t and u."""
    return parse_query(f"SELECT r.a FROM {sql}", CATALOG)


def shape(node: Join | str | None) -> str:
    """A tree without its conditions."""
    if not isinstance(node, Join):
        return node or "none"
    return f"({shape(node.left)} {node.kind} {shape(node.right)})"


@pytest.mark.parametrize(
    "text",
    [
        *("s.a = r.a", "s.a <> 1", "s.a + 1 < r.b", "NOT s.ok", "s.ok", "s.a IS NOT NULL", "s.a IN (1, 2)"),
        *("s.a = 1 AND r.ok", "s.a = 1 OR s.b = 2", "s.a = 1 OR s.b = 2 AND r.ok", "LOWER(s.s) LIKE 'x%'"),
        *("NULLIF(s.a, 1) = 2", "COALESCE(s.a, s.b) = r.a", "GREATEST(s.a, s.b) > 1", "s.ts < r.ts"),
        *(
            "CASE WHEN s.ok THEN TRUE ELSE FALSE END",
            "NOT (s.a IS NULL OR r.ok)",
            "CAST(s.a AS STRING) = 'x'",
        ),
    ],
)
def test_a_condition_that_rejects_null(text: str) -> None:
    """Padded rows would be made, waited for and thrown away."""
    assert rejects_null(parse_predicate(text, INPUTS), frozenset("s"))


@pytest.mark.parametrize(
    "text",
    [
        *("r.a = 1", "s.a IS NULL", "s.a = 1 OR r.a = 1", "COALESCE(s.a, 0) = 0", "COALESCE(s.a, r.a) = t.a"),
        *("NOT (s.a IS NOT NULL)", "CASE WHEN s.ok THEN FALSE ELSE TRUE END", "s.a = 1 OR s.b IS NULL"),
        *("GREATEST(s.a, r.a) = 1", "NULLIF(r.a, s.a) = 1", "(s.a = r.a) IS NULL", "r.ok OR s.ok"),
    ],
)
def test_a_condition_that_null_may_fulfil(text: str) -> None:
    """Rows would be lost."""
    assert not rejects_null(parse_predicate(text, INPUTS), frozenset("s"))


def test_inputs_that_are_missing_together() -> None:
    """An outer join of two inputs pads both or neither."""
    either = parse_predicate("s.a = 1 OR t.a = 1", INPUTS)
    assert rejects_null(either, frozenset("st"))
    assert not rejects_null(either, frozenset("s"))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("r RIGHT JOIN s ON r.a = s.a", "(s left r)"),
        ("r FULL JOIN s ON r.a = s.a", "(r full s)"),
        ("r LEFT JOIN s ON r.a = s.a WHERE r.b = 1", "(r left s)"),
        ("r FULL JOIN s ON r.a = s.a WHERE r.b = 1", "(r left s)"),
        ("r FULL JOIN s ON r.a = s.a WHERE s.b = 1", "(s left r)"),
        ("r FULL JOIN s ON r.a = s.a WHERE COALESCE(r.b, s.b) = 1", "(r full s)"),
        ("r LEFT JOIN s ON r.a = s.a LEFT JOIN t ON s.b = t.b", "((r left s) left t)"),
        ("r LEFT JOIN s ON r.a = s.a JOIN t ON s.b = t.b LEFT JOIN u ON t.a = u.a", "(((r inner s) inner t) left u)"),
        ("r LEFT JOIN (s LEFT JOIN t ON s.b = t.b) ON r.a = t.a", "(r left (s inner t))"),
        ("r LEFT JOIN (s FULL JOIN t ON s.b = t.b) ON r.a = t.a", "(r left (t left s))"),
        ("r FULL JOIN (s LEFT JOIN t ON s.b = t.b) ON r.a = t.a", "(r full (s left t))"),
        ("r LEFT JOIN s ON r.a = s.a SEMI JOIN t ON s.b = t.b", "((r inner s) semi t)"),
        ("r LEFT JOIN s ON r.a = s.a ANTI JOIN t ON s.b = t.b", "((r left s) anti t)"),
        ("r ANTI JOIN (s LEFT JOIN t ON s.b = t.b) ON r.a = t.a", "(r anti (s inner t))"),
        ("r SEMI JOIN (s LEFT JOIN t ON s.b = t.b) ON r.a = s.a", "(r semi (s left t))"),
        ("r LEFT JOIN s ON r.a = s.a LEFT JOIN t ON r.b = t.b WHERE s.b > 1", "((r inner s) left t)"),
    ],
)  # fmt: skip
def test_outer_joins_are_reduced(sql: str, expected: str) -> None:
    """State would be kept, and results held back, for rows that a condition above throws away."""
    query = parse(sql)
    assert shape(query.outer) == expected
    assert parse_query(str(query), CATALOG) == query


def test_what_is_an_inner_join_is_planned_as_one() -> None:
    """LEFT JOIN with a condition on its right side would cost more than the JOIN that it is."""
    left = parse("r LEFT JOIN s ON r.a = s.a AND r.b > 2 RIGHT JOIN t ON s.b = t.b WHERE s.ok AND t.ok")
    assert left.outer is None
    assert left == parse("r, s, t WHERE r.a = s.a AND r.b > 2 AND s.b = t.b AND s.ok AND t.ok")
    assert [str(key) for key in left.keys] == ["r.a = s.a", "s.b = t.b"]
