"""Whatever is asked for and whatever is known: the planner gives a plan that is right in itself, and says nothing else.

Every case is a random workload by one method of the joint optimiser, through the planner that sessions use; queries
come and go, and statistics change. What the planner makes of it is lowered, and a graph checks itself when it is made.
A warning that it fell back to separate plans is a failure here.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.shares import quick, seeds
from tests.unit.planner_cases import Case, random_case
from weft.adapting.planner import Planner
from weft.optimizer.joint.methods import METHODS
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.active import ActiveQueries
from weft.runtime.queries.request import QueryRequest
from weft.runtime.queries.visibility import StateFacts

BLOCKS, SEEDS = 4, 20

# Where the solver took steps that cost nothing without those that lead to them (144).
ONCE_WRONG = (144,)


class _Warnings(logging.Handler):
    """Keeps what is said."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.found.append(record.getMessage())


@contextmanager
def _silence() -> Iterator[None]:
    """Fail if the planner has a reason to warn."""
    logger, handler = logging.getLogger("weft"), _Warnings()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
    assert not handler.found


def check(seed: int) -> Counter[str]:
    """The workload of a seed by one of the methods, and what was met on the way."""
    case, method = random_case(seed), METHODS[seed % len(METHODS)]
    try:
        with _silence():
            return _planned(case, method)
    except Exception as error:
        raise AssertionError(f"seed {seed}, {method}") from error


def _planned(case: Case, method: str) -> Counter[str]:
    statistics = iter(case.statistics)
    planner, active_queries = Planner(case.options, method), ActiveQueries()
    met: Counter[str] = Counter()
    for number, names in enumerate(case.running):
        requests = {name: QueryRequest(case.queries[name], (), case.strategies.get(name)) for name in names}
        afresh = active_queries.plan is not None and requests == active_queries.requests
        decision = planner(
            active_queries, requests, next(statistics), StateFacts(number=number), None, afresh
        )
        assert [member.name for member in decision.graph.members] == sorted(names)
        active_queries = ActiveQueries(
            requests, decision.plan, ExecutableGraph(decision.graph), {}, decision.fresh
        )
        met.update({result.method for result in planner.last.values()})
        met["an intermediate result"] += any(len(store.aliases) > 1 for store in decision.plan.stores)
    return met


@pytest.mark.parametrize("block", quick(range(BLOCKS), 2))
def test_every_workload_gets_a_plan(block: int) -> None:
    """Else a session would end, or its queries share nothing, because of an unusual statistic."""
    met: Counter[str] = Counter()
    taken = seeds(SEEDS, block)
    for seed in taken:
        met.update(check(seed))
    for what in ("exact", "incremental", "separate", "an intermediate result"):
        assert met[what] >= len(taken) // 20, f"too few plans are {what}: {met}"


@pytest.mark.parametrize("seed", ONCE_WRONG)
def test_what_once_went_wrong_goes_right(seed: int) -> None:
    """The rarer finds of longer campaigns."""
    check(seed)
