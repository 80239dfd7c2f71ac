"""Queries over groups of other queries, batch by batch, give what DuckDB gives for all rows at once."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pyarrow as pa
import pytest

import weft
from tests.equivalence.grouped import random_session, random_tables, rounded
from tests.equivalence.test_derived import split
from tests.shares import quick, seeds
from weft.errors import QueryError, SqlError
from weft.logical.nested.nested import inner_queries
from weft.logical.query.query import Query
from weft.testing import LocalRun, reference_join

# Groups that are complete some time, each with a key k, a number n and a time e.
_INNER = (
    "SELECT k, count(*) AS n, window.end AS e FROM a GROUP BY k, window(ts, '5 seconds')",
    "SELECT k, sum(x) AS n, window.start AS e FROM a GROUP BY k, window(ts, '6 seconds', '3 seconds')",
    "SELECT k, max(x) AS n, till AS e FROM a GROUP BY k, till, ts",
    "SELECT a.k, count(*) AS n, a.till AS e FROM a, c WHERE a.k = c.k AND c.ts BETWEEN a.ts AND a.till "
    "GROUP BY a.k, a.till",
    "SELECT a.k, count(c.x) AS n, window.end AS e FROM a [RANGE 3 SECONDS] LEFT JOIN c [RANGE 4 SECONDS] ON a.k = c.k "
    "GROUP BY a.k, window(a.ts, '5 seconds')",
    "SELECT k, count(*) AS n, session_window.end AS e FROM a "
    "GROUP BY k, session_window(ts, '1 second') HAVING count(*) > 1",
    "SELECT a.k, a.ts AS e, min(c.x) AS n FROM a [RANGE 3 SECONDS], c [RANGE 4 SECONDS] WHERE a.k = c.k "
    "GROUP BY a.k, a.ts, c.ts",
    "SELECT DISTINCT k, x % 2 AS n, ts AS e FROM a",
    "SELECT k, x % 2 AS n, date_trunc('second', ts) AS e, ts FROM a UNION SELECT k, x, till, ts FROM c",
    "SELECT k, x % 3 AS n, ts AS e FROM a INTERSECT SELECT k, x, ts FROM a",
    "SELECT k, x AS n, ts AS e FROM a EXCEPT SELECT k, x, ts FROM a WHERE x > 2",
)
_OUTER = (
    "SELECT d.n, count(*) AS c, sum(d.k) AS s FROM {d} GROUP BY d.n",
    "SELECT b.x, d.n, d.e FROM {d}, b WHERE b.k = d.k AND b.ts BETWEEN d.e - INTERVAL '5' SECOND AND d.e",
    "SELECT b.x, d.n FROM {d} [RANGE 6 SECONDS], b [RANGE 9 SECONDS] WHERE b.k = d.k",
    "SELECT b.x, d.n FROM b [RANGE 9 SECONDS] LEFT JOIN {d} [RANGE 4 SECONDS] ON b.k = d.k AND b.x < d.n",
    "SELECT d.k, window.start AS w, avg(d.n) AS m FROM {d} GROUP BY d.k, window(d.e, '10 seconds')",
    "SELECT d.k, max(d.n) AS m, count(*) AS c FROM {d}, b [RANGE 9 SECONDS] WHERE b.k = d.k GROUP BY d.k",
    "SELECT d.e, d.k + 1 AS k FROM {d} WHERE d.n > 1",
)


def answer(query: Query, tables: Mapping[str, pa.Table]) -> pa.Table:
    """What a query gives, by the reference, whose inputs may be other queries."""
    given = {}
    for input_ in query.inputs:
        inner = inner_queries(input_.stream)
        parts = [answer(one, tables) for one in inner.values()] or [tables[input_.stream.name]]
        given[input_.alias] = pa.concat_tables(parts)
    return reference_join(query, given)


@pytest.mark.parametrize("seed", quick(seeds(60), 6))
def test_groups_as_inputs(seed: int) -> None:
    """A group would be no input, be one twice, or come after what waits for it was let go."""
    rng = random.Random(seed)
    inner, outer, way = rng.choice(_INNER), rng.choice(_OUTER), rng.choice(("with", "from", "name"))
    session = random_session(rng)
    if way == "name":
        mode = rng.choice(("append", "update")) if inner in (_INNER[0], _INNER[1], _INNER[4]) else "append"
        session.query(inner, name="d", sink=weft.to_memory(), mode=mode)
    text = outer.format(d=f"({inner}) AS d" if way == "from" else "d")
    text = text.replace(") AS d [RANGE 6 SECONDS]", ") [RANGE 6 SECONDS] AS d")
    text = text.replace(") AS d [RANGE 4 SECONDS]", ") [RANGE 4 SECONDS] AS d")
    text = f"WITH d AS ({inner}) {text}" if way == "with" else text
    session.query(text, name="q", sink=weft.to_memory())
    tables = random_tables(rng, 25)
    run = LocalRun(session)
    for batch in split(rng, tables, rng.randint(1, 6)):
        run.batch(batch)
    run.end()
    assert rounded(run.results("q")) == rounded(answer(session.parse(text), tables)), text


def test_groups_are_taken_before_the_input_ends() -> None:
    """What a query gives of others' groups would wait for an end that does not come."""
    rng = random.Random(1)
    text = f"WITH d AS ({_INNER[3]}) {_OUTER[4].format(d='d')}"
    session = random_session(rng, q=(text, "append"))
    run = LocalRun(session)
    for batch in split(rng, random_tables(rng, 60), 5):
        run.batch(batch)
    assert run.results("q").num_rows


@pytest.mark.parametrize(
    "inner", ["SELECT k, count(*) AS n FROM a GROUP BY k", "SELECT DISTINCT k, x AS n FROM a"]
)
def test_groups_that_are_never_complete_are_no_input(inner: str) -> None:
    """A query would wait for tuples that never come."""
    session = random_session(random.Random(1))
    with pytest.raises((SqlError, QueryError), match="these never are"):
        session.parse(f"SELECT d.n FROM ({inner}) AS d WHERE d.n > 1")
    session.parse(
        "SELECT d.n FROM (SELECT k, count(*) AS n FROM a GROUP BY k, window(ts, '10 minutes')) AS d WHERE d.n > 1"
    )
    session.parse("SELECT d.n FROM (SELECT k, x AS n FROM a GROUP BY k, x, ts) AS d WHERE d.n > 1")


def test_aggregates_of_conditions_are_refused_with_a_remedy() -> None:
    """Whoever compares with an aggregate would not learn how to write it."""
    session = random_session(random.Random(1))
    with pytest.raises(SqlError, match="of a condition"):
        session.parse(
            "SELECT a.x FROM a WHERE EXISTS (SELECT max(b.x) AS m FROM b WHERE b.k = a.k GROUP BY b.k)"
        )
    session.parse(f"SELECT a.x FROM a JOIN ({_INNER[0].replace('FROM a', 'FROM b')}) AS d ON a.k = d.k")
