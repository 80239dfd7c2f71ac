"""Writes the corpus: queries from templates, with the rows that DuckDB gives for them.

`python -m tests.corpus.make` writes the files `*.test` anew, in the form of sqllogictest: statements that make the
tables, and queries with their rows, sorted where the query does not say how. The queries are Weft's own SQL; where
DuckDB spells something otherwise, `in_duckdb` says how. Every template is filled in all ways.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import duckdb

FOLDER = Path(__file__).parent

TABLES = {
    "a": ("k BIGINT, x BIGINT, y BIGINT, s VARCHAR", 8),
    "b": ("k BIGINT, z BIGINT, s VARCHAR", 7),
    "c": ("k BIGINT, w BIGINT", 6),
    "n": ("k BIGINT, l BIGINT[], r STRUCT(f BIGINT, g VARCHAR)", 6),
}


def statements(rng: random.Random) -> list[str]:
    """The statements that make the tables."""
    made = []
    for name, (columns, count) in TABLES.items():
        types = [
            column.rsplit(" ", 1)[-1] for column in columns.replace("f BIGINT, g VARCHAR", "f").split(", ")
        ]
        rows = ", ".join(f"({', '.join(_value(rng, kind) for kind in types)})" for _ in range(count))
        made += [f"CREATE TABLE {name} ({columns})", f"INSERT INTO {name} VALUES {rows}"]
    return made


def _value(rng: random.Random, kind: str) -> str:
    if rng.random() < 0.15:
        return "NULL"
    if kind.startswith("VARCHAR"):
        return rng.choice(("'p'", "'q'", "''"))
    if kind == "BIGINT[]":
        return f"[{', '.join(_value(rng, 'BIGINT') for _ in range(rng.randrange(4)))}]"
    if kind.startswith("STRUCT"):
        return f"{{'f': {_value(rng, 'BIGINT')}, 'g': {_value(rng, 'VARCHAR')}}}"
    return str(rng.randrange(5))


SIDES = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
TESTS = ("SEMI JOIN", "ANTI JOIN")
ON = (
    *("a.k = b.k", "a.k = b.k AND a.x > b.z", "a.k = b.k AND a.x > 1", "a.k = b.k AND b.z < 3", "a.x < b.z"),
    *("a.k = b.k OR a.x = b.z", "a.k + 1 = b.k", "a.k BETWEEN b.k AND b.z", "a.s = b.s AND a.k <> b.k"),
    *(
        "a.k = b.k AND a.s = 'p'",
        "a.k IS NOT DISTINCT FROM b.k",
        "a.k = b.k AND a.x IS DISTINCT FROM b.z",
        "1 = 2",
    ),
)
WHERE = (
    "",
    " WHERE a.x > 1",
    " WHERE a.s = 'p' OR a.y IS NULL",
    " WHERE NOT a.x = 2",
    " WHERE a.k IN (1, 2, NULL)",
)
BOTH = (" WHERE b.z IS NULL", " WHERE a.x = b.z OR b.s = 'q'", " WHERE coalesce(a.x, b.z) > 1")


def joins() -> Iterator[str]:
    """Two streams: every kind of join, with conditions of every kind."""
    for kind, on, where in product(SIDES, ON, (*WHERE[:3], *BOTH)):
        yield f"SELECT a.k, a.x, b.k, b.z FROM a {kind} b ON {on}{where}"
    for kind, on, where in product(TESTS, ON, WHERE):
        yield f"SELECT a.k, a.x, a.s FROM a {kind} b ON {on}{where}"


def trees() -> Iterator[str]:
    """Three streams: left to right, in parentheses, and with commas."""
    second = ("b.k = c.k", "a.k = c.k AND b.z < c.w", "c.w = a.x")
    for one, two, on, where in product(
        SIDES, (*SIDES, *TESTS), second, ("", " WHERE a.x > 1", " WHERE b.z IS NULL")
    ):
        shown = "a.x, b.z" if two in TESTS else "a.x, b.z, c.w"
        yield f"SELECT {shown} FROM a {one} b ON a.k = b.k {two} c ON {on}{where}"
    for one, two, on in product(
        (*SIDES, *TESTS), SIDES, ("a.k = b.k", "a.x = c.w", "a.k = b.k AND a.x < c.w")
    ):
        shown = "a.k, a.x" if one in TESTS else "a.x, b.z, c.w"
        yield f"SELECT {shown} FROM a {one} (b {two} c ON b.k = c.k) ON {on}"
    for kind, where in product(SIDES, ("c.k = a.k", "c.k = b.k AND c.w > a.x")):
        yield f"SELECT a.x, b.z, c.w FROM a {kind} b ON a.k = b.k, c WHERE {where}"
        yield f"SELECT a.x, b.z, c.w FROM c, a {kind} b ON a.k = b.k WHERE {where}"
    for kind in SIDES:
        yield f"SELECT p.x, q.x, r.x FROM a p {kind} a q ON p.k = q.k {kind} a r ON q.k = r.y"


def names() -> Iterator[str]:
    """USING and NATURAL, and what `*` gives."""
    for kind, shown in product(
        SIDES, ("*", "k, x, z", "a.k, b.k", "a.*, z", "* EXCEPT (x)", "b.*", "x AS k2, k")
    ):
        yield f"SELECT {shown} FROM a {kind} b USING (k)"
        listed = (
            "k, s, x, y, z" if "*" in shown else shown
        )  # of * DuckDB gives the columns of USING in another order
        yield f"SELECT {listed} FROM a {kind} b USING (k, s)"
        yield f"SELECT {listed} FROM a NATURAL {kind} b"
    for one, two in product(SIDES, SIDES):
        yield f"SELECT * FROM a {one} b USING (k) {two} c USING (k)"
        yield f"SELECT k, x, z, w FROM a NATURAL {one} b NATURAL {two} c"
    for kind in TESTS:
        yield f"SELECT * FROM a {kind} b USING (k)"
        yield f"SELECT k, s FROM a {kind} b USING (k, s) WHERE x > 1"
    for kind in SIDES:
        yield f"SELECT t.p, u.q FROM a AS t(p, m, o, v) {kind} b AS u(q, e, d) ON t.p = u.q AND t.m < u.e"
        yield f"SELECT * EXCEPT (k, s) FROM (SELECT k, x FROM a) AS d {kind} b USING (k)"


def sub_selects() -> Iterator[str]:
    """EXISTS, IN, ANY and ALL, wherever a condition can stand."""
    inner = (
        *(
            "b.k = a.k",
            "b.k = a.k AND b.z > a.x",
            "b.z = a.x",
            "b.z < 3",
            "b.k > a.k",
            "b.s = a.s OR b.z = a.y",
        ),
        *("b.k IS NOT DISTINCT FROM a.k", "b.k = a.k AND b.z IS NOT NULL", "FALSE"),
    )
    tests = [f"EXISTS (SELECT 1 FROM b WHERE {on})" for on in inner]
    tests += [f"a.x {word}IN (SELECT z FROM b WHERE {on})" for word in ("", "NOT ") for on in inner]
    tests += [
        "a.x IN (SELECT z FROM b)",
        "a.y NOT IN (SELECT w FROM c)",
        "(a.k, a.x) IN (SELECT k, z FROM b)",
        "EXISTS (SELECT DISTINCT b.z FROM b WHERE b.k = a.k)",
        "a.x NOT IN (SELECT DISTINCT z FROM b WHERE b.k = a.k)",
        "a.x IN (SELECT z FROM b UNION SELECT w FROM c UNION SELECT z FROM b)",
        "a.x <= ALL (SELECT DISTINCT z FROM b WHERE b.k = a.k)",
    ]
    signs = ("=", "<>", "<", ">=")
    tests += [
        f"a.x {sign} {every} (SELECT z FROM b WHERE b.k = a.k)" for sign in signs for every in ("ANY", "ALL")
    ]
    tests += [f"a.x {sign} {every} (SELECT w FROM c)" for sign in signs for every in ("ANY", "ALL")]
    for test in tests:
        yield f"SELECT a.k, a.x FROM a WHERE {test}"
        yield f"SELECT a.k, a.x FROM a WHERE NOT {test}"
        yield f"SELECT a.k, a.x FROM a WHERE a.y = 1 OR {test}"
        yield f"SELECT a.k, {test} AS t FROM a"
        yield f"SELECT a.k, CASE WHEN {test} THEN 'yes' ELSE a.s END AS t FROM a WHERE a.x > 0"
        yield f"SELECT a.x, c.w FROM a JOIN c ON a.k = c.k WHERE {test}"
        yield f"SELECT a.x, c.w FROM a LEFT JOIN c ON a.k = c.k WHERE {test}"
    for value in ("a.x + 1", "a.x WHERE a.y > 1", "coalesce(a.x, a.y) WHERE a.s = 'p' OR a.y IS NULL"):
        yield f"SELECT a.k, (SELECT {value}) AS v FROM a"
        yield f"SELECT a.k, b.z FROM a LEFT JOIN b ON a.k = b.k WHERE (SELECT {value}) > 1"
    nested = "EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND {} (SELECT 1 FROM c WHERE c.k = b.z))"
    for outer, word in product(("", "NOT "), ("EXISTS", "NOT EXISTS")):
        yield f"SELECT a.x FROM a WHERE {outer}{nested.format(word)}"


def laterals() -> Iterator[str]:
    """LATERAL sub-selects, which see what stands before them."""
    bodies = (
        *("SELECT b.z FROM b WHERE b.k = a.k", "SELECT b.z + a.x AS z FROM b WHERE b.k = a.k AND b.z > a.y"),
        *("SELECT coalesce(b.z, 7) AS z FROM b WHERE b.k = a.k", "SELECT a.x + 1 AS z"),
        *("SELECT c.w AS z FROM b JOIN c ON b.k = c.k WHERE b.z = a.x", "SELECT b.z FROM b WHERE b.s = a.s"),
    )
    for body, where in product(
        bodies, ("", " WHERE d.z > 1", " WHERE a.s = 'p'", " WHERE d.z = a.x OR a.y = 1")
    ):
        yield f"SELECT a.k, a.x, d.z FROM a, LATERAL ({body}) AS d{where}"
        yield f"SELECT a.k, a.x, d.z FROM a JOIN LATERAL ({body}) AS d ON d.z > 0{where}"
    for body, on in product(bodies, ("TRUE", "d.z > 1", "d.z <> a.x")):
        yield f"SELECT a.k, a.x, d.z FROM a LEFT JOIN LATERAL ({body}) AS d ON {on}"
    made = ("SELECT 7 AS z", "SELECT a.x + 1 AS z", "SELECT coalesce(c.w, 7) AS z FROM c WHERE c.k = a.k")
    for body, kind, on in product(made, ("LEFT", "RIGHT", "FULL"), ("b.k = a.k", "b.k = a.k AND d.z > b.z")):
        beside = f"(a CROSS JOIN LATERAL ({body}) AS d)"
        yield f"SELECT a.x, d.z, b.z FROM b {kind} JOIN {beside} ON {on}"
        yield f"SELECT a.x, d.z, b.z FROM {beside} {kind} JOIN b ON {on}"


def versions() -> Iterator[str]:
    """ASOF joins by any value: the value of the version that is chosen does not depend on ties."""
    sides = ("", "LEFT ", "RIGHT ", "FULL ")
    for side, sign, key in product(
        sides, (">=", ">", "<=", "<"), ("a.k = b.k AND ", "", "a.s = b.s AND a.k = b.k AND ")
    ):
        for where in ("", " WHERE a.y > 1", " WHERE b.z IS NOT NULL"):
            yield f"SELECT a.k, a.x, b.z FROM a ASOF {side}JOIN b ON {key}a.x {sign} b.z{where}"
    for side, sign in product(("SEMI ", "ANTI "), (">=", "<")):
        yield f"SELECT a.k, a.x FROM a ASOF {side}JOIN b ON a.k = b.k AND a.x {sign} b.z"
    for side, kind in product(sides[:2], SIDES[:2]):
        yield f"SELECT a.x, b.z, c.w FROM a ASOF {side}JOIN b ON a.k = b.k AND a.x >= b.z {kind} c ON a.k = c.k"
        yield f"SELECT a.x, b.z, c.w FROM a {kind} c ON a.k = c.k ASOF {side}JOIN b ON a.k = b.k AND c.w < b.z"
    for side in sides:
        body = "SELECT k, z + 1 AS z FROM b WHERE z > 0"
        yield f"SELECT a.x, d.z FROM a ASOF {side}JOIN ({body}) AS d ON a.k = d.k AND a.x >= d.z"


def derived() -> Iterator[str]:
    """Sub-selects in FROM, WITH, and UNION ALL."""
    inner = (
        "SELECT k, x FROM a WHERE x > 1",
        "SELECT a.k, b.z AS x FROM a JOIN b ON a.k = b.k",
        "SELECT k, x + 1 AS x FROM a",
    )
    for body, kind, on in product(inner, SIDES, ("d.k = c.k", "d.x = c.w", "d.k = c.k AND d.x < c.w")):
        yield f"SELECT d.k, d.x, c.w FROM ({body}) AS d {kind} c ON {on}"
        yield f"WITH d AS ({body}) SELECT d.x, c.w FROM c {kind} d ON {on}"
    for body, kind in product(inner, SIDES):
        yield f"WITH d(p, q) AS ({body}) SELECT d.q, e.q FROM d {kind} d AS e ON d.p = e.q"
        yield f"SELECT k, x FROM ({body}) AS d UNION ALL SELECT k, w FROM c"
        yield f"SELECT u.k, u.v, b.z FROM ({body} UNION ALL SELECT k, w FROM c) AS u(k, v) {kind} b ON u.k = b.k"
    for one, two in product(inner, inner):
        yield f"({one}) UNION ALL ({two})"
        yield f"{one} UNION ALL SELECT k, w FROM c UNION ALL {two}"
    for word in TESTS:
        yield f"SELECT k, x FROM a {word} (SELECT k FROM b WHERE z > 1 UNION ALL SELECT w FROM c) AS u USING (k)"


def insides() -> Iterator[str]:
    """Lists and structs: carried along, and taken apart."""
    values = ("n.l[0]", "n.l[1]", "n.r.f", "n.k")
    for kind, value, other in product(SIDES, values, ("a.k", "a.x")):
        yield f"SELECT n.l, n.r, a.x FROM n {kind} a ON {value} = {other}"
        yield f"SELECT n.r.g, {value} AS v, a.x FROM n {kind} a ON {value} < {other} AND n.r.g = a.s"
    for word, value in product(TESTS, values):
        yield f"SELECT n.l, n.r.f FROM n {word} b ON {value} = b.z"
        yield f"SELECT a.k FROM a {word} n ON {value} = a.x AND n.l[0] IS NOT NULL"
    for value in values:
        yield f"SELECT n.l, EXISTS (SELECT 1 FROM b WHERE b.k = {value}) AS e FROM n"
        yield f"SELECT d.l[0] AS v, d.g FROM (SELECT l, r.g AS g, {value} AS v FROM n) AS d JOIN a ON d.v = a.k"


def sorting() -> Iterator[str]:
    """ORDER BY, LIMIT and OFFSET, by keys that leave no ties between different rows."""
    keys = (
        *(
            "x, k, y, s",
            "x DESC, k, y DESC, s",
            "s NULLS LAST, 2 DESC NULLS FIRST, 1, y",
            "x + k DESC, k, x, y, s",
        ),
        *("a.x IS NULL, k DESC, 2, 3, s", "coalesce(x, y), k, x, y, s DESC", "4 DESC, 3, 2 DESC, 1"),
    )
    cuts = ("", " LIMIT 3", " LIMIT 2 OFFSET 1", " LIMIT 0", " LIMIT 100 OFFSET 4")
    for order, cut, where in product(keys, cuts, ("", " WHERE x > 1")):
        yield f"SELECT k, x, y, s FROM a{where} ORDER BY {order}{cut}"
    for kind, cut, order in product(
        SIDES, cuts[:3], ("1, 2, 3, 4", "2 DESC, 1 DESC, 4, 3", "a.x + b.z, 1, 2, 3, 4")
    ):
        yield f"SELECT a.k AS i, a.x, b.k AS j, b.z FROM a {kind} b ON a.k = b.k ORDER BY {order}{cut}"
    for kind, cut in product(TESTS, cuts):
        yield f"SELECT a.x, a.k FROM a {kind} b ON a.k = b.k ORDER BY a.x, k DESC{cut}"
    grouped = (
        "k",
        "count(*) DESC, k",
        "t NULLS LAST, k DESC",
        "sum(x) - k, k",
        "max(y) DESC NULLS FIRST, n, 1",
    )
    for order, cut in product(grouped, cuts):
        yield f"SELECT k, sum(x) AS t, count(*) AS n FROM a GROUP BY k ORDER BY {order}{cut}"
        body = "SELECT k, x, y FROM a WHERE x > 0"
        yield f"SELECT k, count(*) AS n, sum(x) AS t FROM ({body}) AS d GROUP BY k ORDER BY {order}{cut}"
    for cut in cuts:
        yield f"SELECT DISTINCT s FROM a ORDER BY s DESC{cut}"
        yield f"SELECT k, x FROM a UNION ALL SELECT k, w FROM c ORDER BY x DESC, k{cut}"
        yield f"WITH d AS (SELECT k, x + 1 AS v FROM a) SELECT v, k FROM d ORDER BY d.k, v{cut}"
        yield f"SELECT a.k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k) ORDER BY k{cut}"


FILES = {
    make.__name__: make
    for make in (joins, trees, names, sub_selects, laterals, versions, derived, insides, sorting)
}

HEAD = "# Written by `python -m tests.corpus.make`: {}\n"


def in_duckdb(text: str) -> str:
    """A query as DuckDB spells it; there, places in lists are counted from 1."""
    return text.replace("* EXCEPT", "* EXCLUDE").replace("l[0]", "l[1+0]").replace("l[1]", "l[1+1]")


def shown(value: Any) -> str:
    """A value as it stands in the corpus."""
    return (
        {None: "NULL", "": "(empty)"}.get(value, str(value))
        if not isinstance(value, list | dict)
        else str(value)
    )


def rows_of(columns: Iterable[list[Any]], text: str = "") -> list[str]:
    """The rows of a result, sorted unless the text of the query says in which order; values are apart by tabs."""
    rows = ["\t".join(map(shown, row)) for row in zip(*columns, strict=True)]
    return rows if is_ordered(text) else sorted(rows)


def is_ordered(text: str) -> bool:
    """Whether a query of the corpus says in which order its rows come."""
    return " ORDER BY " in text


def written(name: str) -> str:
    """A file of the corpus."""
    make = FILES[name]
    made = statements(random.Random(name))
    parts = [HEAD.format((make.__doc__ or "").strip()), *(f"statement ok\n{one}\n" for one in made)]
    with duckdb.connect() as connection:
        connection.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")  # as in Spark
        for one in made:
            connection.execute(one)
        for text in dict.fromkeys(make()):
            found = connection.sql(in_duckdb(text)).to_arrow_table()
            rows = rows_of((column.to_pylist() for column in found.columns), text)
            head = f"query {'T' * found.num_columns} {'nosort' if is_ordered(text) else 'rowsort'}"
            parts.append("\n".join([head, text, "----", *rows, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    for name in FILES:
        (FOLDER / f"{name}.test").write_text(written(name), encoding="utf-8")
