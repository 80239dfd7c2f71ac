"""The guide to functions: complete, and true."""

from __future__ import annotations

import weft
from weft.logical.expr.function_guide import GUIDE
from weft.logical.expr.functions import FUNCTIONS
from weft.testing import LocalRun


def test_every_function_is_explained() -> None:
    """A function that is not on the page is not used."""
    assert set(GUIDE) == set(FUNCTIONS)
    assert all(entry.examples and entry.text.endswith(".") for entry in GUIDE.values())


def test_every_example_gives_what_stands_beside_it() -> None:
    """An example that is wrong is worse than none."""
    examples = [example for entry in GUIDE.values() for example in entry.examples]
    session = weft.Session()
    session.stream("t", "x long")
    columns = ", ".join(f"{sql} AS e{number}" for number, (sql, _) in enumerate(examples))
    session.query(f"SELECT {columns} FROM t", name="all", sink=weft.to_memory())
    run = LocalRun(session)
    (row,) = run.batch({"t": [{"x": 1}]})["all"].to_pylist()
    assert {sql: str(row[f"e{number}"]) for number, (sql, _) in enumerate(examples)} == dict(examples)
