"""Names in double quotes."""

from __future__ import annotations

import pytest

from weft.errors import SqlError
from weft.logical.catalog import Catalog
from weft.logical.schema import Schema, Stream
from weft.sql.bind import parse_query
from weft.sql.builder import select

SCHEMA = Schema.parse("k long, v long, größe long, select string, per string, ts timestamp")
CATALOG = Catalog(tuple(Stream(name, SCHEMA) for name in ("a", "b", "order")))


@pytest.mark.parametrize(
    ("quoted", "plain"),
    [
        ('SELECT a."k" FROM a', "SELECT a.k FROM a"),
        ('SELECT "a"."k" FROM a', "SELECT a.k FROM a"),
        ('SELECT a."K" AS "x y" FROM a', "SELECT a.k AS `x y` FROM a"),
        ('SELECT a.k "x y" FROM a', "SELECT a.k AS `x y` FROM a"),
        ('SELECT "v".* FROM a "v"', "SELECT v.* FROM a v"),
        ('SELECT a."größe" + "b"."v" AS s FROM a, "b"', "SELECT a.`größe` + b.v AS s FROM a, b"),
        ('SELECT a.k FROM a JOIN "b" USING ("k", v, "ts")', "SELECT a.k FROM a JOIN b USING (k, v, ts)"),
        ('SELECT a.k FROM a JOIN "b" AS "c" ON a."k" = "c"."v"', "SELECT a.k FROM a JOIN b c ON a.k = c.v"),
        (
            'SELECT a.k FROM a, "order" [ROWS 3 PER "k", per] WHERE "order".k = a.k',
            "SELECT a.k FROM a, `order` [ROWS 3 PER k, per] WHERE `order`.k = a.k",
        ),
        (
            'SELECT "x ""y"".z"."select" FROM "order" [RANGE 1 HOUR] AS "x ""y"".z"',
            'SELECT `x "y".z`.`select` FROM `order` [RANGE 1 HOUR] AS `x "y".z`',
        ),
        ('SELECT "a`b".k FROM a AS "a`b"', "SELECT `a``b`.k FROM a AS `a``b`"),
        (
            'SELECT CASE WHEN a."k" IN (1, 2) THEN lower(a."select") END AS c FROM a',
            "SELECT CASE WHEN a.k IN (1, 2) THEN lower(a.`select`) END AS c FROM a",
        ),
    ],
)
def test_names_in_double_quotes(quoted: str, plain: str) -> None:
    """SQL that other tools write could not be read."""
    query = parse_query(quoted, CATALOG, cross=True)
    assert query == parse_query(plain, CATALOG, cross=True)
    assert parse_query(str(query), CATALOG, cross=True) == query


@pytest.mark.parametrize(
    ("condition", "normal"),
    [
        ('a.per = "US"', "a.per = 'US'"),
        ('a.per IN ("US", "DE")', "a.per IN ('DE', 'US')"),
        ('per LIKE "x%"', "a.per LIKE 'x%'"),
        ('concat(per, "x") = "y"', "CONCAT(a.per, 'x') = 'y'"),
        ('a.ts > TIMESTAMP "2024-01-01 00:00:00"', "a.ts > TIMESTAMP '2024-01-01 00:00:00'"),
    ],
)
def test_elsewhere_they_are_texts(condition: str, normal: str) -> None:
    """Queries of Spark's would read columns where they mean texts."""
    assert [str(term) for term in parse_query(f"SELECT a.k FROM a WHERE {condition}", CATALOG).filters] == [
        normal
    ]


def test_what_may_be_either_is_refused() -> None:
    """SELECT "k" would give the letter k in every row, and nobody would know why."""
    with pytest.raises(SqlError, match='"k" may mean a column or a text') as caught:
        parse_query('SELECT "k" FROM a', CATALOG)
    assert caught.value.hint == "write `k` for the column, 'k' for the text"
    assert caught.value.start == len("SELECT ")
    with pytest.raises(SqlError, match="may mean a column or a text"):
        parse_query('SELECT a.k FROM a, b WHERE a.k = b.k AND a.per = "Per"', CATALOG)
    parse_query("SELECT 'k' AS letter, a.v FROM a", CATALOG)


def test_the_builder_reads_them_too() -> None:
    """The builder would read other names than SQL."""
    built = (
        select('v."k"', '"w"."v" AS "x y"').from_("a", alias="v").join("b", alias="w", on='v."k" = "w"."k"')
    )
    assert built.build(CATALOG) == parse_query(
        "SELECT v.k, w.v AS `x y` FROM a v JOIN b w ON v.k = w.k", CATALOG
    )
