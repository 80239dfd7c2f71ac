"""On Spark, too, joins by order answer like the definition: a session takes many of them, each over streams of its own.

In the middle it is stopped, and another one goes on with what is stored.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.equivalence.files import Layout
from tests.equivalence.oracle import Oracle
from tests.equivalence.stage import STEPS, Case, Stage
from tests.equivalence.theta import random_theta
from tests.equivalence.workloads import Change, Wish, Workload
from tests.shares import numbers, share_of
from weft.optimizer.joint.methods import METHODS

CASES = 20  # in a session
FORMATS = ("parquet", "arrow")  # the others have no infinities


def draw(number: int) -> Case:
    """A random join by order that has results.

    Its streams all have event times, or none has: the clock is far from the event times.
    """
    for attempt in count():
        seed = 6_000_000 + 1_000 * number + attempt
        join = random_theta(seed, prefix=f"t{number}_", batches=(STEPS,), mixed=False)
        if Oracle.of(join).found.num_rows:
            wishes = {f"t{number}": Wish(str(join.query), join.query)}
            layouts = {name: Layout(FORMATS[number % 2], 1) for name in join.tables}
            changes = (Change(wishes), *(Change() for _ in range(STEPS - 1)))
            return Case(Workload(join, changes), layouts, wishes)
    raise AssertionError


@pytest.mark.parametrize("block", range(share_of(1)))
def test_random_joins_answer_like_the_definition(spark: Any, tmp_path: Path, block: int) -> None:
    """Bounds would not survive being written and read, or what is stored would not be found again."""
    cases = [draw(number) for number in numbers(CASES, block)]
    stage = Stage(spark, tmp_path, METHODS[block % len(METHODS)], cases, block)
    try:
        report = stage.run()
    finally:
        stage.session.stop()
    assert not [text for case in cases for text in report.wrong(case)]
    assert sum(metrics.results for metrics in report.metrics.values()) > 5 * len(cases)
