"""Every function of SQL gives what Spark gives, over values at the edges of their types."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

import weft
from tests.equivalence.scalar_functions import (
    by_spark,
    by_weft,
    differences,
    drawn_expressions,
    forms_of,
    table,
)
from tests.shares import quick, seeds
from weft.logical.expr.functions import FUNCTIONS, SECTIONS
from weft.testing import LocalRun

SETTINGS = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.legacy.sizeOfNull": "false",  # which ANSI mode does by itself
    "spark.sql.codegen.wholeStage": "false",  # compiling hundreds of expressions takes longer than to interpret them
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
# What makes and opens maps and structs is left out: the table of edge values has no columns of these types.
NESTED = {entry.name for entry in SECTIONS["Lists, maps and structs"]}
NAMES = [name for name in FUNCTIONS if name not in NESTED]
SHARE = 12  # every so many-th function is compared by one seed


@pytest.fixture
def lenient(spark: Any) -> Iterator[Any]:
    """Spark, giving NULL where it would stop."""
    before = {name: spark.conf.get(name) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


def test_every_function_has_a_form() -> None:
    """A function would be compared with nothing."""
    assert all(forms_of(FUNCTIONS[name]) for name in NAMES)


@pytest.mark.spark
@pytest.mark.parametrize("seed", quick(seeds(SHARE), 0))
def test_functions_give_what_spark_gives(lenient: Any, seed: int) -> None:
    """A join would find other partners than the same query in Spark."""
    random = Random(seed)
    rows, schema = table(random)
    drawn = list(drawn_expressions(random, NAMES[seed % SHARE :: SHARE], schema, 4))
    found = by_spark(lenient, drawn, rows)
    wrong = [
        difference
        for place, one in enumerate(drawn)
        for difference in differences(one, by_weft(one.text, rows, schema), found.column(f"e{place}"))
    ]
    assert not wrong, f"{len(wrong)} cells of {len(drawn) * rows.num_rows} differ: {wrong[:5]}"


@pytest.mark.parametrize("seed", seeds(5))
def test_a_number_finds_the_texts_that_are_this_number(seed: int) -> None:
    """Tuples would be sent by the text, and pairs that are in two partitions never be found."""
    random = Random(seed)
    texts = ["7", " 7 ", "+7", "007", "8", "x", "", None, "-1", "7.5", str(2**40)]
    left = [{"k": random.choice([7, 8, -1, 0, None])} for _ in range(30)]
    right = [{"s": random.choice(texts)} for _ in range(30)]
    session = weft.Session()
    session.stream("a", "k int")
    session.stream("b", "s string")
    session.query("SELECT a.k, b.s FROM a, b WHERE a.k = b.s", name="q", sink=weft.to_memory())
    run, found = LocalRun(session), []
    for first in range(0, 30, 10):
        batch = {"a": left[first : first + 10], "b": right[first : first + 10]}
        found += [(row["k"], row["s"]) for row in run.batch(batch)["q"].to_pylist()]
    numbers: dict[str | None, int] = {
        "7": 7,
        " 7 ": 7,
        "+7": 7,
        "007": 7,
        "8": 8,
        "-1": -1,
        str(2**40): 2**40,
    }
    expected = [
        (a["k"], b["s"]) for a in left for b in right if a["k"] is not None and a["k"] == numbers.get(b["s"])
    ]
    assert sorted(found) == sorted(expected)
