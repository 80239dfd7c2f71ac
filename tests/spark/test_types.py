"""Types of expressions, and columns of joins with USING, beside Spark's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from weft.logical.catalog import Catalog
from weft.logical.expr.expression import type_sql
from weft.logical.schema import Schema, Stream
from weft.sql.bind import parse_query

TYPES = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal(10,2)")
SCHEMA = ", ".join(f"c{number} {type_}" for number, type_ in enumerate(TYPES))
PAIRS = (
    *("{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / {b}", "{a} % {b}", "nullif({a}, {b})", "if(x, {a}, {b})"),
    *("coalesce({a}, {b})", "case when x then {a} else {b} end", "greatest({a}, {b})", "least({a}, {b})"),
)
CONSTANTS = (
    "{a} + 1",
    "{a} * 2",
    "{a} / 2",
    "{a} % 2",
    "1 - {a}",
    "-{a}",
    "nullif({a}, 0)",
    "{a} + 3000000000",
)

# What is listed in docs/decisions/0007-types-and-constants.md: a constant does not widen what it stands beside.
NARROWER = ("coalesce(c0, 1)", "coalesce(c1, 300)", "greatest(c6, 1)", "coalesce(c2, 1.5)")


def _written() -> Iterator[str]:
    names = [f"c{number}" for number, _ in enumerate(TYPES)]
    for text in PAIRS:
        yield from (text.format(a=a, b=b) for a in names for b in names)
    for text in CONSTANTS:
        yield from (text.format(a=a) for a in names)


@pytest.fixture
def typed(spark: Any) -> Iterator[Any]:
    """A table with a column of every numeric type, and Spark in its default mode."""
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    spark.createDataFrame([], f"{SCHEMA}, x boolean").createOrReplaceTempView("weft_typed")
    yield spark
    spark.catalog.dropTempView("weft_typed")


def _types(spark: Any, texts: list[str]) -> tuple[list[str], list[str]]:
    """The types of expressions: ours, and Spark's."""
    catalog = Catalog((Stream("weft_typed", Schema.parse(f"{SCHEMA}, x boolean")),))
    listed = ", ".join(f"{text} AS e{number}" for number, text in enumerate(texts))
    query = parse_query(f"SELECT {listed} FROM weft_typed", catalog)
    ours = [type_sql(output.expr.type).lower().replace(" ", "") for output in query.projection]
    theirs = [field.dataType.simpleString() for field in spark.sql(f"SELECT {listed} FROM weft_typed").schema]
    return ours, theirs


def test_numbers_have_the_types_that_spark_gives_them(typed: Any) -> None:
    """A result's column would have another type than the same query has in Spark; int + float is double in both."""
    texts = list(_written())
    ours, theirs = _types(typed, texts)
    wrong = [(text, one, other) for text, one, other in zip(texts, ours, theirs, strict=True) if one != other]
    assert not wrong
    assert ours[texts.index("c2 + c4")] == "double"


def test_the_differences_that_are_listed(typed: Any) -> None:
    """A difference that is listed would be none any more."""
    ours, theirs = _types(typed, list(NARROWER))
    assert ours == ["tinyint", "smallint", "decimal(10,2)", "double"]
    assert theirs == ["int", "int", "decimal(12,2)", "decimal(11,1)"]


TABLES = {"a": "v long, k long, j long", "b": "w long, j long, k long", "c": "k long, u long, v long"}


@pytest.mark.parametrize(
    "origin",
    [
        *("a JOIN b USING (k)", "a JOIN b USING (k, j)", "a JOIN b USING (j, k)", "a RIGHT JOIN b USING (k)"),
        *("a FULL JOIN b USING (k) FULL JOIN c USING (k)", "a JOIN b USING (k) JOIN c USING (v)"),
        *("a LEFT JOIN (b FULL JOIN c USING (k)) USING (k)", "a JOIN b USING (k, j) JOIN c ON b.w = c.u"),
        "c JOIN a ON c.u = a.v JOIN b USING (j)",
    ],
)
def test_star_has_the_columns_of_spark_in_its_order(origin: str, spark: Any) -> None:
    """Columns that are told by their place would be others than in Spark."""
    for name, columns in TABLES.items():
        spark.createDataFrame([], columns).createOrReplaceTempView(name)
    theirs = spark.sql(f"SELECT * FROM {origin}").columns
    catalog = Catalog(tuple(Stream(name, Schema.parse(columns)) for name, columns in TABLES.items()))
    ours = [output.name for output in parse_query(f"SELECT * FROM {origin}", catalog).projection]
    for name in TABLES:
        spark.catalog.dropTempView(name)
    assert [name.split("_")[-1] for name in ours] == theirs
    assert len(set(ours)) == len(ours)
