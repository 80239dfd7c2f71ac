"""Aggregates over random joins, batch by batch, give what DuckDB gives for all rows at once."""

from __future__ import annotations

import random
from datetime import timedelta

import pyarrow as pa
import pytest

from tests.equivalence.grouped import random_session, random_tables, random_text, rounded
from tests.equivalence.test_derived import split
from tests.shares import quick, seeds
from weft.testing import LocalRun, reference_join


@pytest.mark.parametrize("seed", quick(seeds(200), 20))
def test_groups(seed: int) -> None:
    """A group would be given too early, twice, never, or with the values of other rows."""
    rng = random.Random(seed)
    text = random_text(rng)
    updates = "SELECT DISTINCT" not in text and "session_window" not in text
    modes = {"q": (text, "append")} | ({"u": (text, "update")} if updates else {})
    session = random_session(rng, **modes)
    tables = random_tables(rng, 25)
    run = LocalRun(session)
    for batch in split(rng, tables, rng.randint(1, 6)):
        run.batch(batch)
    run.end()
    query = session.parse(text)
    expected = rounded(reference_join(query, tables))
    assert rounded(run.results("q")) == expected, text
    if updates and "HAVING" not in text:
        assert rounded(last_per_key(run.results("u"))) == expected, text


def last_per_key(table: pa.Table) -> pa.Table:
    """Of the groups that were given, those that were given last."""
    keys = [name for name in table.schema.names if name[0] in "kw"]
    rows = {tuple(map(str, (row[key] for key in keys))): row for row in table.to_pylist()}
    return pa.Table.from_pylist(list(rows.values()), schema=table.schema)


def test_a_group_leaves_when_a_key_says_that_it_is_complete() -> None:
    """Groups by a time that bounds a join would wait for the end of the input, which does not come."""
    joined = "a, b WHERE a.k = b.k AND b.ts BETWEEN a.ts AND a.till"
    text = f"SELECT a.k, a.till, count(*) AS n FROM {joined} GROUP BY 1, 2"
    rng = random.Random(3)
    run = LocalRun(random_session(rng, q=(text, "append")))
    tables = random_tables(rng, 60)
    run.batch({name: table for name, table in tables.items() if name != "c"})
    mark = min(max(tables[name]["ts"].to_pylist()) for name in ("a", "b")) - timedelta(seconds=2)
    given = run.results("q")["till"].to_pylist()
    assert given
    assert max(given) < mark
    run.end()
    late = run.results("q")["till"].to_pylist()[len(given) :]
    assert min(late) >= mark


def test_constants_are_keys() -> None:
    """A report of nothing would have a row that its author did not ask for."""
    rng = random.Random(5)
    some, none = (f"SELECT 'all' AS c, count(*) AS n FROM a WHERE k {test} 9 GROUP BY c" for test in "<>")
    run = LocalRun(random_session(rng, some=(some, "update"), none=(none, "append")))
    run.batch({name: table for name, table in random_tables(rng, 10).items() if name == "a"})
    run.end()
    assert run.results("some").num_rows
    assert not run.results("none").num_rows
