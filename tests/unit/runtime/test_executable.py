"""What follows from a graph alone: which columns travel, and how probes search."""

from __future__ import annotations

import pickle

import pytest

from tests.unit.runtime.joins import graph
from weft.bucket.index import by_hash, by_value
from weft.runtime.program.access_paths import Access
from weft.runtime.program.executable import ExecutableGraph

CHAIN = """
    SELECT v.x, c.t FROM v [RANGE 5 SECONDS], w [RANGE 5 SECONDS], c [RANGE 5 SECONDS]
    WHERE v.vid = w.vid AND w.uid = c.uid
"""


def access(where: str, inputs: str = "v, w") -> Access:
    """How tuples of v find those of w."""
    program = ExecutableGraph(graph(f"SELECT v.x FROM {inputs} WHERE {where}"))
    return next(step.access for step in program.steps.values() if step.rule.start == "v")


def test_only_columns_that_are_read_later_are_kept() -> None:
    """A column nobody reads would be shuffled and stored for nothing."""
    program = ExecutableGraph(graph(CHAIN, "left_deep"))
    assert program.stores["w"].columns == ("w.ts", "w.uid", "w.vid")
    assert "w.s" not in {name for names in program.carried.values() for name in names}
    last = next(step for step in program.steps.values() if set(step.joined) == {"c", "v", "w"})
    assert not {*last.from_probe, *last.from_store}, (
        "results are made of row numbers, when a query takes them"
    )
    between = [step for step in program.steps.values() if set(step.joined) == {"c", "w"}]
    assert [{*step.from_probe, *step.from_store} for step in between] == [{"c.t", "w.vid"}] * 2


def test_a_program_travels_as_json() -> None:
    """Spark pickles what it sends to its workers."""
    program = ExecutableGraph(graph(CHAIN))
    again = pickle.loads(pickle.dumps(program))
    assert (again.graph, again.stores, again.steps) == (program.graph, program.stores, program.steps)


def test_equalities_are_one_index_over_all_of_them() -> None:
    """Two keys that are not selective alone are together."""
    found = access("v.vid = w.vid AND v.x = w.uid")
    assert (found.kind, found.order) == ("equality", by_hash("w.vid", "w.uid"))


def test_a_value_between_two_bounds_is_found_by_its_order() -> None:
    """Else every pair is compared."""
    found = access("w.uid BETWEEN v.x - 1 AND v.x + 1")
    assert (found.kind, found.order, found.rest) == ("band", by_value("w.uid"), None)


def test_a_band_is_found_from_either_side() -> None:
    """`v.x - 1 <= w.uid` has an order for v only as `v.x <= w.uid + 1`; it is checked, since that may overflow."""
    program = ExecutableGraph(graph("SELECT v.x FROM v, w WHERE w.uid BETWEEN v.x - 1 AND v.x + 1"))
    found = next(step.access for step in program.steps.values() if step.rule.start == "w")
    assert (found.kind, found.order) == ("band", by_value("v.x"))
    assert found.rest is not None


@pytest.mark.parametrize(
    "where",
    [
        "w.ts BETWEEN v.ts - INTERVAL '1' SECOND AND v.ts + INTERVAL '2' SECOND",
        "w.ts - INTERVAL '2' SECOND <= v.ts AND v.ts - INTERVAL '1' SECOND <= w.ts",
    ],
)
def test_bounds_on_the_event_time_narrow_the_window_however_written(where: str) -> None:
    """They are the commonest band; with an equality, they cost nothing."""
    found = access(where)
    assert (found.kind, found.order, len(found.times), found.rest) == ("theta", by_value("w.ts"), 2, None)
    both = access(f"v.vid = w.vid AND {where}")
    assert (both.kind, len(both.times), both.rest) == ("equality", 2, None)


def test_what_is_no_comparison_filters_pairs() -> None:
    """A disjunction has no order."""
    found = access("v.vid = w.vid OR v.x = w.uid")
    assert (found.kind, found.order) == ("theta", None)
    assert found.rest is not None


def test_with_a_window_time_is_the_order_of_a_theta_probe() -> None:
    """One bound halves the candidates; a window keeps them few."""
    assert access("v.x < w.uid").order == by_value("w.uid")
    assert access("v.x < w.uid", "v, w [RANGE 1 SECOND]").order == by_value("w.ts")


def test_a_comparison_of_the_very_values_of_an_equality_is_checked() -> None:
    """It is a contradiction, and must give nothing."""
    assert access("v.vid = w.vid AND v.vid < w.vid").rest is not None
