"""UNION, INTERSECT and EXCEPT of random SELECTs, batch by batch, give what DuckDB gives for the same text at once."""

from __future__ import annotations

import random
from collections.abc import Mapping

import duckdb
import pyarrow as pa
import pytest

import weft
from tests.equivalence.grouped import STREAMS, random_session, random_tables, rounded
from tests.equivalence.test_derived import split
from tests.shares import quick, seeds
from weft.testing import LocalRun

_WORDS = ("UNION ALL", "UNION", "INTERSECT", "EXCEPT")


def random_branch(rng: random.Random, columns: int) -> str:
    """A SELECT of a stream that gives whole numbers, and a text last."""
    numbers = [rng.choice(("k", "x", "k + 1", "x % 3", "1")) for _ in range(columns)]
    shown = ", ".join(f"CAST({one} AS BIGINT) AS n{place}" for place, one in enumerate(numbers))
    once = "DISTINCT " if rng.random() < 0.2 else ""
    where = rng.choice(("", " WHERE x > 1", " WHERE k <> 1 OR s = 'p'"))
    if rng.random() < 0.2:
        counted = ", ".join(
            f"{one} AS n{place}" for place, one in enumerate(("count(*)", "max(x)")[:columns])
        )
        return f"SELECT {counted}, s FROM {rng.choice(STREAMS)}{where} GROUP BY s, ts"
    return f"SELECT {once}{shown}, s FROM {rng.choice(STREAMS)}{where}"


def of_duckdb(text: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """What DuckDB gives for a text."""
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(text).to_arrow_table()


def of_weft(rng: random.Random, text: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """What Weft gives for a text, from random batches."""
    session = random_session(rng)
    session.query(text, name="q", sink=weft.to_memory())
    run = LocalRun(session)
    for batch in split(rng, dict(tables), rng.randint(1, 6)):
        run.batch(batch)
    run.end()
    return run.results("q")


@pytest.mark.parametrize("seed", quick(seeds(40), 6))
def test_set_operations(seed: int) -> None:
    """A row that is wanted once would come twice, or one that is wanted twice, once."""
    rng = random.Random(seed)
    columns = rng.randint(1, 2)
    text = random_branch(rng, columns)
    for _ in range(rng.randint(1, 3)):
        more = random_branch(rng, columns)
        if rng.random() < 0.3:
            more = f"({more} {rng.choice(_WORDS)} {random_branch(rng, columns)})"
        text = f"{text} {rng.choice(_WORDS[1:])} {more}"
    tables = random_tables(rng, 20)
    assert rounded(of_weft(rng, text, tables)) == rounded(of_duckdb(text, tables)), text


@pytest.mark.parametrize("word", ["INTERSECT", "EXCEPT"])
def test_rows_leave_when_their_time_says_that_they_are_complete(word: str) -> None:
    """Whoever compares two streams would wait for the end of the input, which does not come."""
    rng = random.Random(7)
    text = f"SELECT k, date_trunc('second', ts) AS t, ts FROM a {word} SELECT k, date_trunc('second', ts), ts FROM b"
    tables = random_tables(rng, 40)
    tables["b"] = pa.concat_tables([tables["b"], tables["a"].slice(0, 20)])
    session = random_session(rng, q=(text, "append"))
    run = LocalRun(session)
    run.batch({name: tables[name] for name in ("a", "b")})
    assert run.results("q").num_rows
    run.end()
    assert rounded(run.results("q")) == rounded(of_duckdb(text, tables))
