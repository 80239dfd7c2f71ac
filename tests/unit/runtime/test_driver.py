"""The driver policies are the paper's; a wrong order costs early results, never a result."""

from __future__ import annotations

import pytest

from weft.errors import ConfigError
from weft.runtime.loop.driver import POLICIES, JoinFacts, Observed, driver_order

SEEN = Observed(
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
    firsts = [driver_order("round_robin", Observed(batch, SEEN.rows))[0] for batch in range(4)]
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


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_orders_every_input_even_when_nothing_is_known(policy: str) -> None:
    """The first batch has no statistics."""
    seen = Observed(0, {"b": 0, "a": 0, "c": 0})
    assert sorted(driver_order(policy, seen)) == ["a", "b", "c"]
    assert driver_order(policy, seen) == driver_order(policy, seen)


def test_an_unknown_policy_is_answered_with_those_there_are() -> None:
    """A typing error."""
    with pytest.raises(ConfigError, match="did you mean output_rate"):
        driver_order("output_rates", SEEN)
