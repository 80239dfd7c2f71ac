"""On Spark, too, queries that share and come and go answer as if each were alone.

Starting a session costs more than a batch, so a session takes many random workloads at once, each over streams
of its own, and all their changes fall between the same batches. In the middle it is stopped and started again.

Files are looked for stream by stream, so those of one step may come in different batches: what came when is read from
its own report, and in which batches a query was, from the session's.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.equivalence.files import random_layouts
from tests.equivalence.stage import STEPS, Case, Stage
from tests.equivalence.workloads import Change, Workload, random_workload
from tests.shares import numbers, quick, share_of
from weft.optimizer.joint.methods import METHODS

CASES = 15  # in a session


def draw(number: int) -> Case:
    """A random workload of few queries, under names that no other case has.

    Its streams all have event times, or none has: the clock is far from the event times.
    """
    for attempt in count():
        seed = 3_000_000 + 1_000 * number + attempt
        workload = random_workload(seed, prefix=f"c{number}_", batches=(STEPS,), mixed=False)
        if any(change.begin for change in workload.changes[1:]) and len(workload.lives()) <= 9:
            return _case(workload, number, seed)
    raise AssertionError


def _case(workload: Workload, number: int, seed: int) -> Case:
    streams, layouts = random_layouts(workload.streams, seed)
    changes = tuple(
        Change({f"c{number}_{n}": w for n, w in c.begin.items()}, tuple(f"c{number}_{n}" for n in c.stop))
        for c in workload.changes
    )
    wishes = {name: wish for change in changes for name, wish in change.begin.items()}
    singly = {name: replace(layout, files=1) for name, layout in layouts.items()}
    return Case(Workload(streams, changes), singly, wishes)


@pytest.mark.parametrize("method", quick(METHODS))
@pytest.mark.parametrize("block", range(share_of(1)))
def test_queries_that_come_and_go_answer_like_the_definition(
    spark: Any, tmp_path: Path, method: str, block: int
) -> None:
    """Files of all formats; queries with sinks of several kinds, added, stopped and brought back by a new session."""
    place = len(METHODS) * block + METHODS.index(method)
    stage = Stage(spark, tmp_path, method, [draw(number) for number in numbers(CASES, place)], place)
    try:
        report = stage.run()
    finally:
        stage.session.stop()
    assert not [text for case in stage.cases for text in report.wrong(case)]
    came = [m for members in report.members.values() for m in members.values() if m.first]
    assert any(seen.batch < member.first for member in came for seen in member.visibilities)
    assert sum(metrics.results for metrics in report.metrics.values()) > 5 * len(stage.cases)
