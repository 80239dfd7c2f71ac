"""Clauses that become joins give what DuckDB gives for the same text: the corpus, in random batches.

Every case of `clauses.test` is one query over a(k, x, y), b(k, z) and c(k, w), whose values are random, with NULLs.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import weft
from tests.shares import quick, seeds
from weft.testing import LocalRun

QUERIES = [
    block.split("\n", 1)[1].strip()
    for block in (Path(__file__).parent / "clauses.test").read_text("utf-8").split("\n\n")
    if block.startswith("query")
]
COLUMNS = {"a": "kxy", "b": "kz", "c": "kw"}
ROWS = 12
CASES = [(number, seed) for seed in seeds(4) for number in range(len(QUERIES))]


@pytest.mark.parametrize("case", quick(CASES, len(QUERIES)))
def test_clause(case: tuple[int, int]) -> None:
    """A clause that people write would give other rows than a database gives."""
    number, seed = case
    rng = random.Random(1_000 * seed + number)
    tables = {name: _table(rng, columns) for name, columns in COLUMNS.items()}
    assert _rows(_answer(rng, QUERIES[number], tables)) == _rows(_expected(QUERIES[number], tables))


def _table(rng: random.Random, columns: str) -> pa.Table:
    values = [[None if rng.random() < 0.15 else rng.randint(0, 4) for _ in range(ROWS)] for _ in columns]
    return pa.table({name: pa.array(some, pa.int64()) for name, some in zip(columns, values, strict=True)})


def _rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _expected(text: str, tables: dict[str, pa.Table]) -> pa.Table:
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(text.replace("* EXCEPT", "* EXCLUDE")).to_arrow_table()


def _answer(rng: random.Random, text: str, tables: dict[str, pa.Table]) -> pa.Table:
    session = weft.Session()
    for name, columns in COLUMNS.items():
        schema = ", ".join(f"{column} BIGINT" for column in columns)
        session.stream(name, weft.files("json", f"{name}/", schema=schema))
    session.query(text, name="q", sink=weft.to_console())
    run, given, results = LocalRun(session), dict.fromkeys(tables, 0), []
    while any(count < ROWS for count in given.values()):
        batch = {}
        for name, table in tables.items():
            size = rng.randint(0, 6)
            batch[name] = table.slice(given[name], size)
            given[name] += size
        results.append(run.batch({name: some for name, some in batch.items() if some.num_rows})["q"])
    return pa.concat_tables([*results, run.end()["q"]])
