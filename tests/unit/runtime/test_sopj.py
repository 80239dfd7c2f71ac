"""The example of SOPJ (tables I to V): a full outer join of three sources, tuple by tuple, and what is left of it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.local_runner import LocalRunner
from weft.optimizer.space import Options
from weft.session.session import Session

SQL = """SELECT jk, a1, a2, b1, c1, c2, c3, provenance
         FROM d1 FULL JOIN d2 USING (jk) FULL JOIN d3 USING (jk)"""
COLUMNS = {"d1": ("a1", "a2"), "d2": ("b1",), "d3": ("c1", "c2", "c3")}
ALL = "d1, d2, d3"


@pytest.fixture
def runner() -> LocalRunner:
    session = Session(options=Options(partitions=2))
    for name, columns in COLUMNS.items():
        session.stream(name, ", ".join(f"{column} string" for column in ("jk", *columns)))
    return LocalRunner(session.query(SQL, name="q").graph)


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a table, sorted by what of d1 they have."""
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=str)


def arrive(runner: LocalRunner, source: str, key: str | None, *values: str) -> list[tuple[Any, ...]]:
    """What leaves when a tuple arrives."""
    tuple_ = dict(zip(("jk", *COLUMNS[source]), (key, *values), strict=True))
    table = pa.table({name: pa.array([value], pa.string()) for name, value in tuple_.items()})
    return rows(runner.process({source: table}))


def test_the_tables_of_the_paper(runner: LocalRunner) -> None:
    """Results must leave with the tuple that completes their key, each once: data integration would see them late or
    twice, or would never hear of a key that some source lacks."""
    # Table I: the key is not complete.
    assert arrive(runner, "d1", "jk5", "v11", "v12") == []
    assert arrive(runner, "d3", "jk5", "v31", "v34", "v33") == []
    assert arrive(runner, "d1", "jk5", "v15", "v14") == []
    assert (runner.metrics[-1].keys["q"].open, runner.metrics[-1].keys["q"].complete) == (1, 0)
    # Tables II and III: d2 completes it; all of d1 × d2 × d3 leaves (equation 7).
    assert arrive(runner, "d2", "jk5", "v21") == [
        ("jk5", "v11", "v12", "v21", "v31", "v34", "v33", ALL),
        ("jk5", "v15", "v14", "v21", "v31", "v34", "v33", ALL),
    ]
    assert (runner.metrics[-1].keys["q"].open, runner.metrics[-1].keys["q"].complete) == (0, 1)
    # Tables IV and V: one more of d3; only what is new leaves (equation 8).
    assert arrive(runner, "d3", "jk5", "v35", "v36", "v38") == [
        ("jk5", "v11", "v12", "v21", "v35", "v36", "v38", ALL),
        ("jk5", "v15", "v14", "v21", "v35", "v36", "v38", ALL),
    ]
    # Keys that sources lack, and tuples without a key, stay open ...
    assert arrive(runner, "d2", "jk6", "v22") == []
    assert arrive(runner, "d1", "jk7", "v16", "v17") == []
    assert arrive(runner, "d3", "jk7", "v39", "v40", "v41") == []
    assert arrive(runner, "d2", None, "v23") == []
    # ... until the end of the input: the dangling tuples, with NULL for what is missing.
    assert rows(runner.end()["q"]) == [
        ("jk6", None, None, "v22", None, None, None, "d2"),
        ("jk7", "v16", "v17", None, "v39", "v40", "v41", "d1, d3"),
        (None, None, None, "v23", None, None, None, "d2"),
    ]
    keys = runner.metrics[-1].keys["q"]
    assert (keys.seen, keys.complete, keys.dangling, keys.open) == (3, 1, 2, 0)
    assert rows(runner.end()["q"]) == []


def test_any_source_may_complete_a_key(runner: LocalRunner) -> None:
    """A key completed by the wrong source would be forgotten; the order of arrival is nobody's choice."""
    for number, order in enumerate((("d1", "d2", "d3"), ("d2", "d3", "d1"), ("d3", "d1", "d2"))):
        key = f"k{number}"
        for source in order[:-1]:
            assert arrive(runner, source, key, *COLUMNS[source]) == []
        last = arrive(runner, order[-1], key, *COLUMNS[order[-1]])
        assert last == [(key, "a1", "a2", "b1", "c1", "c2", "c3", ALL)]
    assert runner.end()["q"].num_rows == 0


def test_a_key_may_become_complete_within_a_batch(runner: LocalRunner) -> None:
    """Batches of more than one tuple are the rule: a key would be counted, or its result given, twice or never."""
    data = {
        source: pa.table({"jk": ["k", "k"], **{column: ["x", "y"] for column in columns}})
        for source, columns in COLUMNS.items()
    }
    assert runner.process(data).num_rows == 8
    assert (runner.metrics[-1].keys["q"].seen, runner.metrics[-1].keys["q"].complete) == (1, 1)
    assert runner.end()["q"].num_rows == 0
