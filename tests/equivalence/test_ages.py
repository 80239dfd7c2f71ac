"""Tuples that carry their ages are joined like others: whatever edges, stores and query-sets they pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.equivalence import test_outer_runtime, test_workloads
from tests.shares import quick, seeds
from weft.runtime.log.values import Inputs
from weft.runtime.loop import loop

CHECKS = {
    "queries": test_workloads.check,
    "outer queries": test_workloads.check_outer,
    "counts per key": test_workloads.check_counted,
    "outer joins": test_outer_runtime.check,
}


def each_its_own(inputs: Inputs, now: int) -> dict[str, int | None]:  # noqa: ARG001
    """The ages of a batch's streams if no two tuples came at one time."""
    return {stream: None for stream, parts in inputs.items() if parts}


@pytest.mark.ci
@pytest.mark.parametrize("name", quick(CHECKS, 2))
def test_ages_do_not_change_the_answer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that some batches of an edge have and others lack, or that a store keeps, would be an error."""
    monkeypatch.setattr(loop, "ages_of_inputs", each_its_own)
    check: Callable[[int, Counter[str]], None] = CHECKS[name]
    for seed in seeds(3):
        check(seed, Counter())
