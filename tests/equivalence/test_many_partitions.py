"""More partitions than rows, in several tasks, or in tasks whose hops share no memory: the answer stays the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.equivalence.options import random_options
from tests.equivalence.oracle import Oracle, differs, run
from tests.equivalence.streams import random_join
from tests.shares import seeds
from weft.optimizer.single.strategies import optimise
from weft.plan.physical.lower import lower
from weft.runtime import local
from weft.runtime.local import LocalExecutor
from weft.stats.statistics import Statistics

SEEDS = 3
STRATEGIES = ("flat", "left_deep", "auto")


class HopsApart(LocalExecutor):
    """Hops that go on with what is in segments, as those of jobs do, which may run in different processes."""

    def __init__(self, *given: int) -> None:
        super().__init__(*given)
        self.stays = False


@pytest.mark.parametrize(("partitions", "tasks"), [(7, 1), (7, 3), (16, 5)])
@pytest.mark.parametrize("apart", [False, True])
def test_many_partitions_answer_like_the_definition(
    partitions: int, tasks: int, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that went to a partition that nobody looks at, or were left in one, would be lost."""
    monkeypatch.setattr(local, "TASKS", tasks)
    if apart:
        monkeypatch.setattr("tests.local_runner.LocalExecutor", HopsApart)
    for seed in seeds(SEEDS, partitions + tasks):
        join = random_join(seed)
        options = replace(random_options(seed, STRATEGIES[seed % 3]), partitions=partitions)
        graph = lower(optimise(join.query, Statistics(), options))
        runner = run(join, graph, partitions=partitions)
        assert runner.loop.executor.tasks == tasks
        wrong = differs(Oracle.of(join), runner.results(), runner.metrics)
        assert not wrong, f"seed {seed}: {wrong}: {join.query}"
