"""Grids: what lies between two pairs of bounds is found in the cells between theirs."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.bucket.bucket import build
from weft.bucket.index import by_value
from weft.kernels.expr.grid_cells import cells_of
from weft.kernels.expr.select import evaluate
from weft.kernels.probe.grid import grid, grid_ranges
from weft.kernels.probe.ranges import pairs
from weft.logical.expr import bounds as limits
from weft.logical.expr.expression import Column
from weft.logical.schema import DataType

DOUBLE = DataType("double")

numbers = st.one_of(
    st.integers(-40, 40).map(float),
    st.floats(-50, 50),
    st.sampled_from([math.inf, -math.inf, math.nan, 1e300, -1e300, 0.0, -0.0]),
)
maybe = st.one_of(numbers, st.none())


def _rank(value: float) -> float:
    """NaN is greater than every number, as in Spark SQL."""
    return math.inf if math.isnan(value) else value


@given(st.lists(numbers, min_size=2, max_size=30), st.sampled_from([0.25, 1.0, 7.0, 1e-300, 1e300]))
def test_cells_keep_the_order_of_values(values: list[float], width: float) -> None:
    ordered = sorted(values, key=_rank)
    cells = cells_of(pa.array(ordered, pa.float64()), width)
    assert (np.diff(cells) >= 0).all()


def test_cells_of_times_and_dates_count_their_units() -> None:
    assert cells_of(pa.array([25, -1], pa.timestamp("us")), 10.0).tolist() == [2, -1]
    assert cells_of(pa.array([25, -1], pa.date32()), 10.0).tolist() == [2, -1]


@given(
    st.lists(st.tuples(maybe, maybe), min_size=1, max_size=25),
    st.lists(st.tuples(maybe, maybe, maybe, maybe), min_size=1, max_size=12),
    st.sampled_from([0.5, 3.0, 20.0]),
    st.sampled_from([0.5, 3.0, 20.0]),
)
def test_a_grid_has_every_row_between_the_bounds_once(
    rows: list[tuple[float | None, float | None]],
    tuples: list[tuple[float | None, ...]],
    width: float,
    fine: float,
) -> None:
    xs, ys = (pa.array(side, pa.float64()) for side in zip(*rows, strict=True))
    place = limits.grid((Column("r", "x", DOUBLE), width), (Column("r", "y", DOUBLE), fine * limits.FINE))
    key = evaluate(place, {("r", "x"): xs, ("r", "y"): ys}, len(xs))
    order = by_value("k")
    run = build(pa.RecordBatch.from_pydict({"k": key, "at": pa.array(range(len(xs)))}), layout=order)
    ends = [pa.array(side, pa.float64()) for side in zip(*tuples, strict=True)]
    looked = grid((ends[0], ends[1]), width, (ends[2], ends[3]), fine)
    at = run.batch.column("at").to_pylist()
    found = (
        [
            (probe, at[row])
            for some in pairs(grid_ranges(looked, run, order), run)
            for probe, row in zip(*(part.tolist() for part in some), strict=True)
        ]
        if looked
        else []
    )
    assert len(found) == len(set(found))
    wanted = {
        (i, j)
        for i, (low_x, high_x, low_y, high_y) in enumerate(tuples)
        for j, (x, y) in enumerate(rows)
        if _between(low_x, x, high_x) and _between(low_y, y, high_y)
    }
    assert wanted <= set(found)


def _between(low: float | None, value: float | None, high: float | None) -> bool:
    if low is None or value is None or high is None:
        return False
    first, last = (math.isnan(low), low), (math.isnan(high), high)
    here = (math.isnan(value), value)
    return _less(first, here) and _less(here, last)


def _less(one: tuple[bool, float], other: tuple[bool, float]) -> bool:
    return other[0] or (not one[0] and one[1] <= other[1])


def test_a_grid_looks_at_few_rows_beside_those_it_must() -> None:
    rng = np.random.default_rng(1)
    xs, ys = (pa.array(rng.uniform(0, 1000, 20_000)) for _ in range(2))
    place = limits.grid((Column("r", "x", DOUBLE), 20.0), (Column("r", "y", DOUBLE), 20.0))
    key = evaluate(place, {("r", "x"): xs, ("r", "y"): ys}, len(xs))
    run = build(pa.RecordBatch.from_pydict({"k": key}), layout=by_value("k"))
    at = rng.uniform(50, 950, (2, 500))
    looked = grid(
        (pa.array(at[0] - 10), pa.array(at[0] + 10)), 20.0, (pa.array(at[1] - 10), pa.array(at[1] + 10)), 1.25
    )
    assert looked is not None
    matches = 500 * 20_000 * 0.02**2
    assert grid_ranges(looked, run, by_value("k")).total < 2.5 * matches


@pytest.mark.parametrize("side", [0, 1, 2, 3])
def test_a_bound_that_is_null_finds_nothing(side: int) -> None:
    ends = [pa.array([0.0]), pa.array([1.0]), pa.array([0.0]), pa.array([1.0])]
    ends[side] = pa.array([None], pa.float64())
    assert grid((ends[0], ends[1]), 1.0, (ends[2], ends[3]), 1.0) is None
