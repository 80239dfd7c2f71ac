"""``SELECT *`` over joins with USING, against what DuckDB gives.

DuckDB leaves a column of USING where the left side has it; the SQL standard and Spark put these columns first, and so
does Weft. Where the left side begins with them, as here, all agree; `tests/spark` compares the other orders.
"""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from weft.errors import SqlError
from weft.logical.catalog import Catalog
from weft.logical.schema import Schema, Stream
from weft.sql.bind import parse_query
from weft.testing import reference_join

TABLES = {
    "a": pa.table({"k": [1, 2, 3, None], "j": [1, 1, 2, 2], "v": [10, 20, 30, 40]}),
    "b": pa.table({"k": [2, 3, 4, None], "j": [1, 2, 3, 3], "w": [5, 6, 7, 8]}),
    "c": pa.table({"k": [3, 4, 5], "u": [0, 1, 2], "v": [30, 31, 32]}),
    "d": pa.table({"k": [1, 3, 9], "x": [7, 8, 9]}),
}
CATALOG = Catalog(
    tuple(
        Stream(name, Schema.parse(", ".join(f"{c} long" for c in table.schema.names)))
        for name, table in TABLES.items()
    )
)


def names(sql: str) -> list[str]:
    return [output.name for output in parse_query(sql, CATALOG).projection]


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("a JOIN d USING (k)", ["k", "j", "v", "x"]),
        ("b JOIN d USING (k)", ["k", "j", "w", "x"]),
        ("a LEFT JOIN d USING (k)", ["k", "j", "v", "x"]),
        ("a RIGHT JOIN d USING (k)", ["k", "j", "v", "x"]),
        ("a FULL JOIN d USING (k)", ["k", "j", "v", "x"]),
        ("a JOIN b USING (k, j)", ["k", "j", "v", "w"]),
        ("a FULL JOIN b USING (k, j)", ["k", "j", "v", "w"]),
        ("a JOIN b USING (k)", ["k", "a_j", "v", "b_j", "w"]),
        ("a FULL JOIN b USING (k) FULL JOIN d USING (k)", ["k", "a_j", "v", "b_j", "w", "x"]),
        ("a RIGHT JOIN b USING (k, j) LEFT JOIN d USING (k)", ["k", "j", "v", "w", "x"]),
        ("d FULL JOIN (a FULL JOIN b USING (k, j)) USING (k)", ["k", "x", "j", "v", "w"]),
        ("a JOIN b USING (k, j) JOIN c ON c.u = b.w", ["k", "j", "a_v", "w", "c_k", "u", "c_v"]),
    ],
)
def test_star_gives_the_columns_of_using_once(origin: str, expected: list[str]) -> None:
    """A query that ran elsewhere would have other columns here, or NULL where the other side has the key."""
    query = parse_query(f"SELECT * FROM {origin}", CATALOG)
    assert [output.name for output in query.projection] == expected
    with duckdb.connect() as connection:
        for name, table in TABLES.items():
            connection.register(name, table)
        theirs = connection.sql(f"SELECT * FROM {origin}").fetchall()
    ours = reference_join(query, {alias: TABLES[alias] for alias in query.aliases}).to_pydict()
    rows = list(zip(*ours.values(), strict=True))
    assert sorted(map(repr, rows)) == sorted(map(repr, theirs))


def test_columns_of_using_come_first() -> None:
    """The columns would be in an order that neither SQL nor Spark has."""
    assert names("SELECT * FROM a JOIN c USING (v)") == ["v", "a_k", "j", "c_k", "u"]
    assert names("SELECT * FROM a JOIN b USING (j, k)") == ["j", "k", "v", "w"]
    assert names("SELECT * FROM a JOIN b USING (k, j) JOIN c USING (v)") == ["v", "k", "j", "w", "c_k", "u"]
    assert names("SELECT * FROM c, a JOIN b USING (k, j) WHERE c.k = b.k") == [
        *("c_k", "u", "c_v", "k", "j", "a_v", "w")
    ]


def test_names_that_clash() -> None:
    """Two columns of one name would be one too many, and one of them lost."""
    two = "SELECT * FROM a JOIN b USING (k), c JOIN d USING (k) WHERE a.k = c.k"
    assert names(two) == ["a_k", "a_j", "a_v", "b_j", "w", "c_k", "u", "c_v", "x"]
    assert names("SELECT *, k, a.k AS again FROM a JOIN d USING (k)") == ["k", "j", "v", "x", "a_k", "again"]
    odd = Catalog(
        (Stream("a", Schema.parse("k long, b_j long, j long")), Stream("b", Schema.parse("K long, j long")))
    )
    query = parse_query("SELECT * FROM b JOIN a USING (K)", odd)
    assert [output.name for output in query.projection] == ["K", "b_j", "b_j_2", "a_j"]
    with pytest.raises(SqlError, match=r"columns 4 and 5 of the result are both called x: d\.x and a\.v"):
        names("SELECT *, v AS x FROM a JOIN d USING (k)")


def test_what_using_does_not_change() -> None:
    """``v.*``, and joins that give one side only, would change their names."""
    assert names("SELECT d.* FROM a JOIN d USING (k)") == ["d_k", "d_x"]
    assert names("SELECT * FROM a SEMI JOIN d USING (k)") == ["a_k", "a_j", "a_v"]
    assert names("SELECT * FROM a JOIN d ON a.k = d.k") == ["a_k", "a_j", "a_v", "d_k", "d_x"]


def test_using_names_a_column_once() -> None:
    """A slip would be taken for something that it does not say."""
    with pytest.raises(SqlError, match="USING names K twice"):
        names("SELECT * FROM a JOIN d USING (k, K)")
