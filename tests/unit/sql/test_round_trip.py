"""What is printed reads back as the same value, and the builder says what SQL says."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.shares import examples
from tests.strategies import UNTESTED, catalogs, outer_queries, queries, to_builder
from tests.unit.sql.samples import CATALOG

from weft.errors import QueryError
from weft.logical.query.horizon import check_times
from weft.logical.query.query import Query
from weft.sql.bind import parse_query


def test_every_function_is_drawn() -> None:
    """Otherwise a function could print wrongly and no test would see it."""
    assert not UNTESTED


def _is_satisfiable(query: Query) -> bool:
    """Whether SQL accepts it: a query that can have no results is refused."""
    try:
        check_times(query)
    except QueryError:
        return False
    return True


@given(st.data())
@examples(65)
def test_query(data: st.DataObject) -> None:
    """A printed query would not mean what it was printed from: explain and recovery would lie."""
    catalog = data.draw(catalogs())
    query = data.draw(queries(catalog))
    assume(_is_satisfiable(query))
    assert parse_query(str(query), catalog) == query
    assert to_builder(query).build(catalog) == query


@given(st.data())
@examples(50)
def test_outer_query(data: st.DataObject) -> None:
    """An outer join would change its place when printed, and with it the result."""
    catalog = data.draw(catalogs())
    query = data.draw(outer_queries(catalog))
    assert parse_query(str(query), catalog) == query
    assert to_builder(query).build(catalog) == query


@pytest.mark.parametrize(
    "text",
    [
        "SELECT v.vid AS `select`, v.ts AS `a``b`, v.title AS `x y` FROM videos AS v",
        "SELECT 'it\\'s' AS a, '\\\\' AS b, '\\n\\t\\u0000é\U0001f600' AS c FROM videos",
        "SELECT 1e-07 AS a, 1e+300 AS b, -0.0 AS c, -9223372036854775808 AS d, 9223372036854775807 AS e FROM videos",
        "SELECT v.likes - (v.likes - -1) AS a, -(-v.likes) AS b, (v.likes + 1) * 2 % 3 / 4 AS c FROM videos AS v",
        "SELECT (v.ok = (v.vid IS NULL)) IS NULL AS a, NOT (v.title LIKE 'x') AS b FROM videos AS v",
        "SELECT (v.title LIKE 'x') = (v.vid IN (1, 2)) AS a, NOT v.ok AND (v.likes = 1 OR v.ok) AS b FROM videos AS v",
        "SELECT CASE WHEN v.ok THEN CASE WHEN v.ok THEN 1 ELSE 2 END ELSE 3 END + 1 AS a FROM videos AS v",
        "SELECT v.ts + INTERVAL '-1500' MILLISECOND AS a, v.ts - INTERVAL '0' SECOND AS b FROM videos AS v",
        "SELECT TIMESTAMP '2024-01-01 00:00:00.000001' AS a, DATE '0001-01-01' AS b FROM videos",
        "SELECT CAST(CAST(v.likes AS DECIMAL(38,38)) AS STRING) AS a, CAST(NULL AS BIGINT) AS b FROM videos AS v",
        "SELECT v.vid AS a FROM videos AS v CROSS JOIN views AS w",
        "SELECT v.vid AS a FROM videos AS v LEFT OUTER JOIN (views AS w LEFT OUTER JOIN comments AS c ON c.uid = w.uid)"
        " ON v.vid = w.vid CROSS JOIN views",
    ],
)
def test_printed_as_written(text: str) -> None:
    """A text in normal form would be printed as another, and users could not compare what they see."""
    query = parse_query(text, CATALOG)
    assert str(query) == text
    assert parse_query(str(query), CATALOG) == query
