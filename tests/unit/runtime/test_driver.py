"""The driver policies are the paper's; a wrong order costs early results, never a result."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from tests.local_runner import LocalRunner
from tests.unit.runtime.joins import graph, v, w
from weft.errors import ConfigError
from weft.runtime.loop.driver_order import POLICIES, BatchFacts, JoinFacts, driver_order

SEEN = BatchFacts(
    batch=1,
    rows={"a": 10, "b": 100, "c": 1},
    oldest={"a": 5, "b": 7, "c": 3},
    stored={"a": 1000, "b": 10, "c": 50},
    arrived={"a": 1000, "b": 10, "c": 50},
    joins=(JoinFacts(("a", "b", "c"), 500),),
)


def test_timestamp_takes_the_oldest_first() -> None:
    """The policy of the original MJoin."""
    assert driver_order("timestamp", SEEN) == ("c", "a", "b")


def test_round_robin_takes_turns() -> None:
    """No input is always last."""
    firsts = [driver_order("round_robin", BatchFacts(batch, SEEN.rows))[0] for batch in range(4)]
    assert firsts == ["a", "b", "c", "a"]


def test_consumption_rate_takes_the_most_selective_first() -> None:
    """σ_Sj = |MJoin| / |S_j|: 0.5, 50, 10."""
    assert driver_order("consumption_rate", SEEN) == ("a", "c", "b")


def test_initial_output_size_is_equation_1() -> None:
    """a: 10·10·50, b: 100·1000·50, c: 1·1000·10; then b's table has 110: a: 10·110·50, c: 1·1000·110."""
    assert driver_order("initial_output_size", SEEN) == ("b", "c", "a")


def test_output_rate_is_equation_1_per_tuple() -> None:
    """a: 10·50, b: 1000·50, c: 1000·10; then a: 110·50, c: 1000·110."""
    assert driver_order("output_rate", SEEN) == ("b", "c", "a")


def test_the_paper_s_selectivities() -> None:
    """Tables 2 and 3: σ_MJoin is 5·10⁻¹² in data sets I to IV; σ_S of V and VI is 10², 10 and 1, so S3 is first."""
    streams = ("s1", "s2", "s3")
    equal = JoinFacts(streams, 5 * 10**6)
    seen = BatchFacts(9, dict.fromkeys(streams, 1), arrived=dict.fromkeys(streams, 10**6), joins=(equal,))
    assert seen.selectivity(equal) == pytest.approx(5e-12)
    assert driver_order("consumption_rate", seen) == streams
    sizes = dict(zip(streams, (10**4, 10**5, 10**6), strict=True))
    unequal = JoinFacts(streams, 10**6)
    seen = BatchFacts(9, dict.fromkeys(streams, 1), arrived=sizes, joins=(unequal,))
    assert [seen.results_of(name) / sizes[name] for name in streams] == [100, 10, 1]
    assert seen.selectivity(unequal) == pytest.approx(1e-9)
    assert driver_order("consumption_rate", seen) == ("s3", "s2", "s1")


def test_a_burst_comes_first_by_output_size_and_a_rare_stream_by_output_rate() -> None:
    """Data set VI late in the run: S3 brings most rows; but one tuple of S1 has the most partners."""
    stored = {"s1": 9_000, "s2": 90_000, "s3": 500_000}
    rows = {"s1": 1_000, "s2": 10_000, "s3": 500_000}
    seen = BatchFacts(9, rows, stored=stored, arrived=stored, joins=(JoinFacts(("s1", "s2", "s3"), 10**5),))
    assert driver_order("initial_output_size", seen)[0] == "s3"  # 500k·9k·90k against 1k·90k·500k
    assert driver_order("output_rate", seen)[0] == "s1"  # 90k·500k


@pytest.mark.parametrize("seed", range(50))
def test_greedy_policies_take_the_best_that_is_left(seed: int) -> None:
    """By equation (1), computed anew for every place of the order; in the end all orders give as many results."""
    rng = random.Random(seed)
    names = "abcd"[: rng.randint(2, 4)]
    rows, stored = ({name: rng.choice((0, 1, 10, 500)) for name in names} for _ in range(2))
    arrived = {name: stored[name] + rng.randint(0, 99) for name in names}
    joins = tuple(
        JoinFacts(tuple(sorted(rng.sample(names, rng.randint(1, len(names))))), rng.randint(0, 1_000))
        for _ in range(rng.randint(1, 3))
    )
    seen = BatchFacts(seed, rows, stored=stored, arrived=arrived, joins=joins)

    def gain(name: str, done: tuple[str, ...]) -> float:
        tables = {one: stored[one] + (rows[one] if one in done else 0) for one in names}
        mine = [join for join in joins if name in join.inputs]
        others = [math.prod(tables[one] for one in join.inputs if one != name) for join in mine]
        sizes = [math.prod(max(1, arrived[one]) for one in join.inputs) for join in mine]
        return sum(
            max(1, join.results) / size * other for join, size, other in zip(mine, sizes, others, strict=True)
        )

    for policy, weight in (
        ("initial_output_size", rows),
        ("output_rate", {n: min(1, rows[n]) for n in names}),
    ):
        order = driver_order(policy, seen)
        for place, name in enumerate(order):
            scores = {one: weight[one] * gain(one, order[:place]) for one in order[place:]}
            assert scores[name] >= max(scores.values()) * (1 - 1e-12)
    totals = [
        sum(rows[name] * gain(name, order[:place]) for place, name in enumerate(order))
        for order in itertools.permutations(names)
    ]
    assert max(totals) == pytest.approx(min(totals))


def test_an_input_is_worth_what_it_gives_to_its_own_joins() -> None:
    """The queries over c and d have many tuples and few results; they make neither a nor b better."""
    joins = (JoinFacts(("a", "b"), 1_000), JoinFacts(("c", "d"), 1))
    stored = {"a": 10, "b": 100, "c": 10**6, "d": 10**6}
    seen = BatchFacts(3, dict.fromkeys("abcd", 10), stored=stored, arrived=stored, joins=joins)
    assert driver_order("initial_output_size", seen) == ("a", "b", "c", "d")


@pytest.mark.parametrize(("v_time", "first"), [(1, 1), (9, 2)])
def test_results_come_in_the_driver_order(v_time: int, first: int) -> None:
    """An order that nobody follows would gain nothing: what the first input gives comes first."""
    runner = LocalRunner(graph("SELECT v.x FROM v, w WHERE v.vid = w.vid"), partitions=1, driver="timestamp")
    runner.process({"v": v((7, 2, 0)), "w": w((7, 0, "a", 0))})
    found = runner.process({"v": v((7, 1, v_time)), "w": w((7, 0, "b", 5))})
    assert found.column("x").to_pylist()[0] == first  # a new v with the old w, or an old v with the new w
    assert sorted(found.column("x").to_pylist()) == [1, 1, 2]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_orders_every_input_even_when_nothing_is_known(policy: str) -> None:
    """The first batch has no statistics."""
    seen = BatchFacts(0, {"b": 0, "a": 0, "c": 0})
    assert sorted(driver_order(policy, seen)) == ["a", "b", "c"]
    assert driver_order(policy, seen) == driver_order(policy, seen)


def test_an_unknown_policy_is_answered_with_those_there_are() -> None:
    """A typing error."""
    with pytest.raises(ConfigError, match="did you mean output_rate"):
        driver_order("output_rates", SEEN)
