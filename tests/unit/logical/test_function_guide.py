"""The guide to functions: complete, and true."""

from __future__ import annotations

import weft
from weft.logical.expr.functions import FUNCTIONS, SECTIONS, SYNONYMS
from weft.testing import LocalRun


def test_every_function_is_explained() -> None:
    """A function that is not on the page is not used."""
    assert all(entry.examples and entry.text.endswith(".") for entry in FUNCTIONS.values())


def test_every_name_means_one_function() -> None:
    """Which of two entries a name means would depend on their order."""
    names = [entry.name for entries in SECTIONS.values() for entry in entries]
    assert len(names) == len(set(names)) == len(FUNCTIONS)
    synonyms = [name for entry in FUNCTIONS.values() for name in entry.synonyms]
    assert len(synonyms) == len(SYNONYMS)
    assert not set(SYNONYMS) & set(FUNCTIONS)


def test_every_example_gives_what_stands_beside_it() -> None:
    """An example that is wrong is worse than none."""
    examples = [example for entry in FUNCTIONS.values() for example in entry.examples]
    session = weft.Session()
    session.stream("t", "x long")
    columns = ", ".join(f"{sql} AS e{number}" for number, (sql, _) in enumerate(examples))
    session.query(f"SELECT {columns} FROM t", name="all", sink=weft.to_memory())
    run = LocalRun(session)
    (row,) = run.batch({"t": [{"x": 1}]})["all"].to_pylist()
    assert {sql: str(row[f"e{number}"]) for number, (sql, _) in enumerate(examples)} == dict(examples)
