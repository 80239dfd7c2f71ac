"""What the benchmark of groups makes of its figures, and how it draws them: a wrong sum is a wrong claim."""

from __future__ import annotations

from random import Random

import pytest
from benchmarks._ajoin import stream_names
from benchmarks.groups import Run, Share, differences, make_workload, verdicts


def run(rate: float, **results: int) -> Run:
    """A run with two batches before the other queries began, and four since."""
    return Run([10, 10, 10, 10, round(rate), round(rate)], [9.0, 1.0, 5.0, 4.0, 1.0, 1.0], 2, 0, 1, results)


def test_throughput_is_that_of_the_last_half_with_all_queries() -> None:
    """Before, groups are still being formed."""
    assert run(50.0).rate == 50
    assert run(50.0).slowest == 5.0
    assert run(50.0).points[0] == (1.0, 10.0)


def test_each_half_of_the_queries_selects_its_half_of_the_tuples() -> None:
    """Else there would be nothing to group."""
    queries, groups = make_workload(12, stream_names(3), [2, 3], 50, 0.5, seed=3)
    assert sorted(groups.values()).count("") == 6
    for name, text in queries.items():
        assert (".a5 >= " in text) == (groups[name] == "group 2")
        assert (".a5 < " in text) == (groups[name] == "")


@pytest.mark.parametrize("upper", [False, True])
def test_a_part_of_the_values_is_selected(upper: bool) -> None:
    """From either end."""
    found = [Share(upper=upper, part=0.25).draw(Random(seed)).selectivity for seed in range(20)]
    assert all(0.22 <= one <= 0.28 for one in found)


def test_verdicts() -> None:
    """Revised groups count where sessions can revise them, else those placed on arrival."""
    found = {"none": run(100), "placed": run(80), "revised": run(190), "known": run(200)}
    assert [reached for _, reached in verdicts(found)] == [True, True]
    del found["revised"]
    assert [reached for _, reached in verdicts(found)] == [False, False]
    assert verdicts({"none": run(1)}) == []


def test_counts_must_agree() -> None:
    """Groups decide where tuples are stored, never what is found."""
    assert differences({"none": run(1, q0=5, q1=2), "known": run(1, q0=5, q1=3)}) == ["q1 has [2, 3] results"]
