"""Partial groups: whatever the order and the portions in which rows come, the values are the same, to the last bit."""

from __future__ import annotations

import math
import random

import numpy as np
import pyarrow as pa
import pytest

from tests.shares import seeds
from weft.kernels.groups.exact_sums import float_digits, merged_digits
from weft.kernels.groups.partials import PartialGroups, TimeWindow
from weft.kernels.groups.states import state_of


def _floats(rng: random.Random, count: int) -> list[float]:
    scale = rng.choice((1.0, 1e-300, 1e290))
    return [rng.gauss(0, 1) * 10.0 ** rng.randint(-8, 8) * scale for _ in range(count)]


@pytest.mark.parametrize("seed", seeds(40))
def test_sums_of_floats_do_not_depend_on_their_order(seed: int) -> None:
    """A batch that is split otherwise, or another number of partitions, would change results."""
    rng = random.Random(seed)
    values = _floats(rng, rng.randint(1, 200))
    whole = merged_digits(float_digits(np.array(values)), np.zeros(len(values), np.int64), 1).values()[0]
    rng.shuffle(values)
    parts = np.array([rng.randrange(7) for _ in values])
    split = merged_digits(float_digits(np.array(values)), parts, 7)
    assert merged_digits(split, np.zeros(7, np.int64), 1).values()[0] == whole
    exact = math.fsum(values)
    assert abs(whole - exact) <= 2 * math.ulp(exact) + max(map(abs, values)) * 2.0**-80


def test_what_is_not_finite_is_summed_as_floats_are() -> None:
    """NaN and infinities would be lost in digits."""
    for values, expected in (([math.inf, 1.0], math.inf), ([-math.inf], -math.inf), ([5e-324, 0.0], 5e-324)):
        sums = merged_digits(float_digits(np.array(values)), np.zeros(len(values), np.int64), 1)
        assert sums.values()[0] == expected
    for values in ([math.inf, -math.inf], [math.nan, 1.0]):
        sums = merged_digits(float_digits(np.array(values)), np.zeros(2, np.int64), 1)
        assert math.isnan(sums.values()[0])


def test_sums_that_do_not_fit_are_null() -> None:
    """A sum of whole numbers would wrap around."""
    big = pa.array([2**62, 2**62, 2**62, -(2**62)], pa.int64())
    groups = PartialGroups(("k",), None, {"a0": (state_of("sum", pa.int64(), pa.int64()), "x")}, None)
    rows = pa.RecordBatch.from_pydict({"k": pa.array([1, 1, 2, 2]), "x": big})
    found = groups.values(groups.lift(rows), pa.timestamp("us"))
    assert found["a0"].to_pylist() == [None, 0]


def test_keys_are_equal_as_in_spark() -> None:
    """NULL, NaN or -0.0 would be groups that SQL does not have."""
    keys = pa.array([None, None, math.nan, math.nan, 0.0, -0.0])
    groups = PartialGroups(("k",), None, {"a0": (state_of("count", None, pa.int64()), None)}, None)
    lifted = groups.lift(pa.RecordBatch.from_pydict({"k": keys}))
    assert groups.values(lifted, pa.timestamp("us"))["a0"].to_pylist() == [2, 2, 2]


def test_nan_is_the_largest_value() -> None:
    """Arrow sorts NaN last in both orders, so MAX would pass over it."""
    values = pa.array([1.0, math.nan, math.inf, None, math.nan], pa.float64())
    rows = pa.RecordBatch.from_pydict({"k": pa.array([1, 1, 1, 1, 2]), "x": values})
    states = {name: (state_of(name, pa.float64(), pa.float64()), "x") for name in ("min", "max")}
    groups = PartialGroups(("k",), None, states, None)
    found = groups.values(groups.lift(rows), pa.timestamp("us"))
    assert found["min"][0].as_py() == 1.0
    assert math.isnan(found["min"][1].as_py())
    assert all(math.isnan(value) for value in found["max"].to_pylist())


def test_sessions_of_many_keys_are_kept_apart_however_far_their_times_are() -> None:
    """Ends of keys would be kept apart by numbers that overflow."""
    day, century = 86_400_000_000, 100 * 365 * 86_400_000_000
    count = 5_000
    keys = np.repeat(np.arange(count), 2)
    times = np.tile(np.array([-century, century]), count) + np.arange(2 * count) * day
    window = TimeWindow("t", day, None)
    groups = PartialGroups(("k",), window, {"n": (state_of("count", None, pa.int64()), None)}, None)
    rows = pa.RecordBatch.from_pydict({"k": pa.array(keys), "t": pa.array(times)})
    assert groups.lift(rows).num_rows == 2 * count
