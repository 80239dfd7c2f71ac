"""How many tuples of a key have come since each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.shares import examples
from tests.unit.runtime.joins import graph
from weft.bucket.bucket import build
from weft.kernels.probe.ranges import Matches
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.store_plans import StorePlan
from weft.runtime.state.ranks import ranks_of, ranks_within

NAN = float("nan")
TEXTS = st.sampled_from(["a", "b", "", None])
FLOATS = st.sampled_from([0.0, -0.0, 1.5, NAN, None])


def plan_of() -> StorePlan:
    """A store of v that is counted per vid and x, which stand for any columns here."""
    program = ExecutableGraph(graph("SELECT v.x FROM v [ROWS 2 PER vid, x], w WHERE v.vid = w.vid"))
    return next(plan for plan in program.stores.values() if plan.node.aliases == ("v",))


PLAN = plan_of()


def rows(texts: list[Any], floats: list[Any], numbers: list[int]) -> pa.RecordBatch:
    """Stored tuples with their keys and numbers."""
    columns = {
        "v.vid": pa.array(texts, pa.string()),
        "v.x": pa.array(floats, pa.float64(), from_pandas=False),
    }
    return pa.RecordBatch.from_pydict({**columns, "v.$seq": pa.array(numbers, pa.int64())})


def by_hand(every: list[tuple[Any, Any, int]], one: tuple[Any, Any, int]) -> int:
    """The rank by the definition."""
    newer = {number for text, value, number in every if (text, _same(value)) == (one[0], _same(one[1]))}
    return sum(number >= one[2] for number in newer)


def _same(value: float | None) -> object:
    return "nan" if value is not None and value != value else value


def test_what_is_stored_twice_counts_once() -> None:
    """After queries were regrouped, a store may hold a tuple once for each of them."""
    batch = rows(["a", "a", "a", None, None], [1.5, 1.5, 1.5, NAN, NAN], [7, 7, 4, 5, 6])
    assert ranks_within(PLAN, batch).tolist() == [1, 1, 2, 2, 1]


@examples(20)
@given(
    st.lists(st.lists(st.tuples(TEXTS, FLOATS), min_size=1, max_size=9), min_size=1, max_size=4), st.data()
)
def test_ranks_are_those_of_the_definition(runs: list[list[tuple[Any, Any]]], data: st.DataObject) -> None:
    """A tuple would be in a window that it has left, or not in one that it has not."""
    total = sum(map(len, runs))
    numbers = iter(data.draw(st.permutations([*range(total - total // 3), *range(total // 3)])))
    every = [[(*key, next(numbers)) for key in run] for run in runs]
    stored = [build(rows(*map(list, zip(*run, strict=True))), indexes=PLAN.orders) for run in every]
    flat = [one for run in every for one in run]
    found = []
    for run in every:
        found.append(sorted(data.draw(st.lists(st.integers(0, len(run) - 1), max_size=6))))
    if not any(found):
        return
    splits = tuple(np.cumsum([0, *map(len, found)]).tolist())
    places = np.array([place for some in found for place in some], np.int32)
    matches = Matches(np.zeros(places.size, np.int32), places, splits)
    wanted = [by_hand(flat, run[place]) for run, some in zip(every, found, strict=True) for place in some]
    assert ranks_of(PLAN, matches, stored).tolist() == wanted
    within = ranks_within(PLAN, rows(*map(list, zip(*flat, strict=True))))
    assert within.tolist() == [by_hand(flat, one) for one in flat]
