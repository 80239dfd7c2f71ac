"""Every probe against brute force: a missing pair is a lost result, a pair too many a wrong one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shares import examples
from tests.unit.kernels.columns import KEY_TYPES, VALUE_TYPES, batches, chunked, less, same
from weft.bucket.bucket import Bucket, build
from weft.bucket.index import Order, by_hash, by_value
from weft.errors import StateError
from weft.kernels.probe.band import Band, band, band_portions
from weft.kernels.probe.equality import in_order, probe, probe_portions
from weft.kernels.probe.ranges import Matches, Window
from weft.kernels.probe.theta import Sides, theta, theta_portions
from weft.logical.expr.conversion import literal
from weft.logical.expr.expression import Column, Expr
from weft.logical.expr.functions import call
from weft.logical.schema import DataType

REACH = 3

Pair = tuple[int, int, int]


def with_times(batch: Any, draw: st.DrawFn) -> Any:
    times = draw(st.lists(st.integers(0, 12), min_size=batch.num_rows, max_size=batch.num_rows))
    return batch.append_column("ts", pa.array(times, pa.int64()).view(pa.timestamp("us")))


@st.composite
def joins(draw: st.DrawFn, kinds: list[Any]) -> tuple[Any, list[Any]]:
    """A probe batch and the batches of some runs, with event times."""
    names = {"k": draw(st.sampled_from(kinds)), "u": draw(st.sampled_from(kinds))}
    probes = with_times(draw(batches(names, 12)), draw)
    return probes, [with_times(draw(batches(names, 25)), draw) for _ in range(draw(st.integers(1, 3)))]


def times_of(batch: Any) -> Any:
    return batch.column("ts").cast(pa.int64()).to_numpy()


def window_of(probes: Any) -> Window:
    return Window.around(times_of(probes), REACH, 1)


def in_window(probe_time: int, stored_time: int) -> bool:
    return probe_time - REACH <= stored_time <= probe_time + 1


def pairs_of(matches: Matches) -> list[Pair]:
    runs = np.repeat(np.arange(len(matches.splits) - 1), np.diff(matches.splits))
    return list(zip(runs.tolist(), matches.probe.tolist(), matches.stored.tolist(), strict=True))


def expected(
    probes: Any,
    runs: Iterable[Bucket],
    match: Callable[[dict[str, Any], dict[str, Any]], bool],
    windowed: bool,
) -> set[Pair]:
    found = set()
    for number, run in enumerate(runs):
        stored_times, probe_times = times_of(run.batch), times_of(probes)
        stored, tuples = (batch.select(["k", "u"]).to_pylist() for batch in (run.batch, probes))
        for i, one in enumerate(tuples):
            for j, other in enumerate(stored):
                if match(one, other) and (not windowed or in_window(probe_times[i], stored_times[j])):
                    found.add((number, i, j))
    return found


def check(matches: Matches, wanted: set[Pair]) -> None:
    found = pairs_of(matches)
    assert len(found) == len(set(found))
    assert set(found) == wanted


@examples(20)
@given(st.data(), joins(KEY_TYPES), st.booleans())
def test_equality(data: st.DataObject, join: tuple[Any, list[Any]], windowed: bool) -> None:
    probes, stored = join
    orders = [by_hash("k"), by_hash("u"), by_hash("u", "k")]
    layout = data.draw(st.sampled_from([*orders, None]))
    runs = [build(batch, layout=layout, indexes=orders, event_time="ts") for batch in stored]
    for order in orders:
        columns = [chunked(probes.column(name), 1 + windowed) for name in order.columns]
        matches = probe(in_order(columns), runs, order, window=window_of(probes) if windowed else None)

        def match(one: dict[str, Any], other: dict[str, Any], order: Order = order) -> bool:
            return all(same(one[name], other[name]) for name in order.columns)

        check(matches, expected(probes, runs, match, windowed))


@examples(25)
@given(st.data(), joins(VALUE_TYPES), st.booleans(), st.booleans(), st.booleans())
def test_bands(
    data: st.DataObject, join: tuple[Any, list[Any]], low_open: bool, high_open: bool, windowed: bool
) -> None:
    probes, stored = join
    kind = probes.schema.field("k").type
    probes = probes.set_column(
        1, "u", probes.column("k").take(pa.array(np.arange(probes.num_rows)[::-1].copy()))
    )
    stored = [batch.set_column(1, "u", batch.column("k")) for batch in stored]
    ends = data.draw(st.sampled_from([("k", "u"), ("k", None), (None, "u")]))
    low, high = (None if end is None else probes.column(end) for end in ends)
    layout = data.draw(st.sampled_from([by_value("k"), by_hash("u"), None]))
    runs = [build(batch, layout=layout, indexes=[by_value("k")], event_time="ts") for batch in stored]
    limits = Band(low, high, low_open=low_open, high_open=high_open)
    matches = band(limits, runs, by_value("k"), window=window_of(probes) if windowed else None)

    def match(one: dict[str, Any], other: dict[str, Any]) -> bool:
        above = ends[0] is None or less(one["k"], other["k"], or_equal=not low_open)
        below = ends[1] is None or less(other["k"], one["u"], or_equal=not high_open)
        return other["k"] is not None and above and below

    assert probes.schema.field("k").type == kind
    check(matches, expected(probes, runs, match, windowed))


@pytest.mark.parametrize("finite", [[], [0.0], [0.0, 0.0], [-1.7e308, 1.7e308], [-1.0, 0.5, 2.0]])
def test_bands_over_infinities(finite: list[float]) -> None:
    """However few finite values there are to scale by, the least comes before the greatest, and NaN last."""
    stored = [-INF, *finite, INF, float("nan")]
    run = build(pa.RecordBatch.from_pydict({"k": pa.array(stored)}), indexes=[by_value("k")])
    for place, bound in enumerate(stored):
        below = band(Band(high=pa.array([bound])), [run], by_value("k"))
        last = max(i for i, value in enumerate(stored) if i == place or value == bound)
        assert sorted(below.stored.tolist()) == list(range(last + 1))


INF = float("inf")
LONG = DataType("long")
SIDES = Sides(
    {("p", "k"): "k", ("p", "u"): "u"},
    {("s", "k"): "k", ("s", "u"): "u"},
)
P_K, P_U, S_K, S_U = (Column(alias, name, LONG) for alias in "ps" for name in "ku")


def predicates() -> dict[str, tuple[Expr, Callable[[dict[str, Any], dict[str, Any]], bool]]]:
    total = call("+", P_K, S_K)

    def known(*values: Any) -> bool:
        return None not in values

    return {
        "less": (
            call("<", total, literal(3)),
            lambda p, s: known(p["k"], s["k"]) and -(2**63) <= p["k"] + s["k"] < 3,
        ),
        "differ or unknown": (
            call("or", call("<>", P_K, S_K), call("is null", S_U)),
            lambda p, s: s["u"] is None or (known(p["k"], s["k"]) and p["k"] != s["k"]),
        ),
        "of one side": (call("=", P_U, literal(1)), lambda p, _s: p["u"] == 1),
        "constant": (literal(True), lambda _p, _s: True),
    }


@examples(20)
@given(st.data(), joins([pa.int64()]), st.sampled_from(sorted(predicates())), st.booleans())
def test_theta(data: st.DataObject, join: tuple[Any, list[Any]], name: str, windowed: bool) -> None:
    probes, stored = join
    predicate, match = predicates()[name]
    layout = data.draw(st.sampled_from([None, by_value("ts"), by_hash("k")]))
    runs = [build(batch, layout=layout, event_time="ts") for batch in stored]
    matches = theta(predicate, SIDES, probes, runs, window=window_of(probes) if windowed else None)
    check(matches, expected(probes, runs, match, windowed))


@examples(15)
@given(joins([pa.int64()]), st.integers(1, 7))
def test_portions_are_bounded_and_complete(join: tuple[Any, list[Any]], portion: int) -> None:
    probes, stored = join
    run = build(stored[0], layout=by_hash("k"), indexes=[by_value("k"), by_value("ts")], event_time="ts")
    window = window_of(probes)
    limits = Band(probes.column("k"), probes.column("u"))
    predicate, _ = predicates()["less"]
    keys = in_order([probes.column("k")])
    ways: list[Callable[[int], Iterable[tuple[Any, Any]]]] = [
        lambda size: probe_portions(keys, run, by_hash("k"), window=window, portion=size),
        lambda size: band_portions(limits, run, by_value("k"), window=window, portion=size),
        lambda size: theta_portions(predicate, SIDES, probes, run, window=window, portion=size),
    ]
    for way in ways:
        small, large = list(way(portion)), list(way(1 << 20))
        assert all(len(rows) <= portion for rows, _ in small)
        joined = [np.concatenate([np.empty(0, np.int32), *sides]) for sides in zip(*small, strict=True)]
        at_once = [np.concatenate([np.empty(0, np.int32), *sides]) for sides in zip(*large, strict=True)]
        assert [side.tolist() for side in joined] == [side.tolist() for side in at_once]


@pytest.mark.parametrize("order", [by_hash("k"), by_hash("u")])
def test_a_key_with_many_rows_is_searched(order: Order) -> None:
    """Slots longer than any shortcut: a thousand rows of one key, of which the window holds a few."""
    times = pa.array(np.random.default_rng(1).permutation(1000)).view(pa.timestamp("us"))
    keys = pa.array(np.arange(1000) % 2)
    run = build(
        pa.record_batch({"k": keys, "u": keys, "ts": times}),
        layout=by_hash("k"),
        indexes=[order],
        event_time="ts",
    )
    probe_times = np.array([-5, 0, 500, 999, 2000])
    window = Window.around(probe_times, 3, 3)
    matches = probe(in_order([pa.array([0, 1, 1, 0, 1])]), [run], order, window=window)
    stored = run.batch.column(order.columns[0]).to_numpy()
    found = {(i, j) for _, i, j in pairs_of(matches)}
    run_times = times_of(run.batch)
    assert found == {
        (i, j)
        for i, key in enumerate([0, 1, 1, 0, 1])
        for j in range(1000)
        if stored[j] == key and abs(run_times[j] - probe_times[i]) <= 3
    }


def test_windows_reach_to_the_ends_of_time() -> None:
    """Without a lower or upper bound the window is as wide as 64 bits; it must not overflow."""
    batch = pa.record_batch({"k": [1, 1, 1], "ts": pa.array([-(10**17), 0, 10**17], pa.timestamp("us"))})
    run = build(batch, layout=by_hash("k"), event_time="ts")
    keys = in_order([pa.array([1])])
    forever = Window(np.array([-(2**63)]), np.array([2**63 - 1]))
    assert len(probe(keys, [run], by_hash("k"), window=forever)) == 3
    upto_now = Window(np.array([-(2**63)]), np.array([0]))
    assert len(probe(keys, [run], by_hash("k"), window=upto_now)) == 2


def test_wrong_uses_are_named() -> None:
    run = build(pa.record_batch({"k": [1], "s": ["a"]}), layout=by_hash("k"), indexes=[by_value("k")])
    keys = in_order([pa.array([1])])
    with pytest.raises(StateError, match=r"no index hash\(s\)"):
        probe(keys, [run], by_hash("s"))
    for wrong in (["a"], [1.0], [True]):
        with pytest.raises(StateError, match=r"cannot be compared with the int64 of hash\(k\)"):
            probe(in_order([pa.array(wrong)]), [run], by_hash("k"))
    with pytest.raises(StateError, match="without an event time"):
        probe(keys, [run], by_hash("k"), window=Window(np.zeros(1, np.int64), np.zeros(1, np.int64)))
    with pytest.raises(StateError, match=r"double cannot be compared with the int64 of value\(k\)"):
        band(Band(pa.array([1.0])), [run], by_value("k"))
    with pytest.raises(StateError, match="needs a bound"):
        Band()
    with pytest.raises(StateError, match="as many lower as upper"):
        Band(pa.array([1]), pa.array([1, 2]))
    with pytest.raises(StateError, match="one earliest and one latest"):
        Window(np.zeros(1, np.int64), np.zeros(2, np.int64))
