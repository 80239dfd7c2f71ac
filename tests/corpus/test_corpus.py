"""Queries as people write them give the rows that a database gives: the corpus, in random batches.

Its files are in the form of sqllogictest: statements that make tables, and queries with their rows, sorted
(`tests.corpus.make`). Several queries run in a session together, over streams that bring the rows of the tables.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import weft
from tests.corpus.make import FILES, rows_of, written
from tests.shares import current, quick
from weft.connectors.formats.conform import weft_type
from weft.testing import LocalRun

FOLDER = Path(__file__).parent
TOGETHER = 12  # queries in a session
QUICK = 10  # sessions that `make test` runs


@dataclass(frozen=True, slots=True)
class Case:
    """A query of the corpus, and its rows."""

    text: str
    rows: tuple[str, ...]


@cache
def corpus(name: str) -> tuple[tuple[str, ...], tuple[Case, ...]]:
    """The statements and the queries of a file."""
    statements, cases = [], []
    for block in (FOLDER / f"{name}.test").read_text("utf-8").split("\n\n"):
        head, _, body = block.strip("\n").partition("\n")
        if head.startswith("statement ok"):
            statements.append(body)
        elif head.startswith("query"):
            text, _, rows = body.partition("\n----")
            cases.append(Case(text, tuple(rows.split("\n")[1:])))
    return tuple(statements), tuple(cases)


@cache
def tables_of(name: str) -> dict[str, pa.Table]:
    """The tables that the statements of a file make."""
    with duckdb.connect() as connection:
        for statement in corpus(name)[0]:
            connection.execute(statement)
        names = [row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        return {one: connection.table(one).to_arrow_table() for one in names}


def sessions() -> Iterator[tuple[str, int]]:
    """The sessions of the corpus: a file, and the first of the queries that run together; the files by turns."""
    groups = [[(name, first) for first in range(0, len(corpus(name)[1]), TOGETHER)] for name in FILES]
    for turn in range(max(map(len, groups))):
        yield from (group[turn] for group in groups if turn < len(group))


@pytest.mark.parametrize("case", quick(sessions(), QUICK), ids=lambda case: f"{case[0]}-{case[1]}")
def test_queries_give_what_a_database_gives(case: tuple[str, int]) -> None:
    """A query that people write would be refused, or give other rows."""
    name, first = case
    cases = corpus(name)[1][first : first + TOGETHER]
    rng = random.Random(f"{case} {current().seed}")
    run = LocalRun(session_with(name, cases))
    for batch in batches(rng, tables_of(name)):
        run.batch(batch)
    run.end()
    for number, one in enumerate(cases):
        found = run.results(f"q{number}")
        assert rows_of((column.to_pylist() for column in found.columns), one.text) == list(one.rows), one.text


def session_with(name: str, cases: tuple[Case, ...]) -> weft.Session:
    """A session with a stream for each table, and queries that run together."""
    session = weft.Session()
    for stream, table in tables_of(name).items():
        session.stream(
            stream, ", ".join(f"{column.name} {weft_type(column.type)}" for column in table.schema)
        )
    for number, one in enumerate(cases):
        session.query(one.text, name=f"q{number}", sink=weft.to_memory())
    return session


def batches(rng: random.Random, tables: dict[str, pa.Table]) -> Iterator[dict[str, pa.Table]]:
    """The rows of tables in random portions; in a few batches, or in many."""
    most = rng.choice((2, 4, 9))
    given = dict.fromkeys(tables, 0)
    while any(given[name] < table.num_rows for name, table in tables.items()):
        portion = {name: table.slice(given[name], rng.randint(0, most)) for name, table in tables.items()}
        given = {name: given[name] + portion[name].num_rows for name in tables}
        yield {name: some for name, some in portion.items() if some.num_rows}


@pytest.mark.parametrize("name", FILES)
def test_the_corpus_is_what_its_templates_make(name: str) -> None:
    """Somebody would change a row by hand, and what the corpus says would no longer be what a database says."""
    assert (FOLDER / f"{name}.test").read_text("utf-8") == written(name)
