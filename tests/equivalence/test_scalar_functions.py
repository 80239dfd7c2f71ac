"""Every function of SQL gives what Spark gives, over values at the edges of their types."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from tests.equivalence.scalar_functions import (
    by_spark,
    by_weft,
    differences,
    drawn_expressions,
    forms_of,
    table,
)
from tests.shares import quick, seeds
from weft.logical.expr.functions import FUNCTIONS

SETTINGS = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.wholeStage": "false",  # compiling hundreds of expressions takes longer than to interpret them
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
NAMES = [*FUNCTIONS]
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
    assert all(forms_of(entry) for entry in FUNCTIONS.values())


@pytest.mark.spark
@pytest.mark.parametrize("seed", quick(seeds(SHARE), 1))
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
