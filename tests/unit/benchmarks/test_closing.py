"""What the benchmark of outer joins counts: else it compares the cost of different things."""

from __future__ import annotations

import pytest
from benchmarks.closing import KINDS, end_seconds, measure


@pytest.fixture(scope="module")
def costs() -> dict[str, tuple[int, int]]:
    found = {kind: measure(kind, rows=200, keys=1_000, batches=2, seed=1) for kind in KINDS}
    return {kind: (cost.results, cost.closed) for kind, cost in found.items()}


def test_all_kinds_join_the_same_rows(costs: dict[str, tuple[int, int]]) -> None:
    pairs, _ = costs["inner"]
    assert pairs > 0
    assert costs["left"][0] - costs["left"][1] == costs["full"][0] - costs["full"][1] == pairs


def test_rows_without_a_partner_are_closed(costs: dict[str, tuple[int, int]]) -> None:
    assert costs["inner"][1] == 0
    assert costs["full"][1] > costs["left"][1] == costs["anti"][0] > 0


def test_the_end_gives_the_keys_that_lack_an_input() -> None:
    _, results = end_seconds(rows=500, seed=1)
    assert 0 < results < 60  # of 510 keys, each input lacks 10
