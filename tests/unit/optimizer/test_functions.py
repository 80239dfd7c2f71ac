"""What users' functions cost decides where they are called."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import weft
from weft.optimizer.cost import call_cost
from weft.optimizer.joint.methods import METHODS, optimise_all
from weft.optimizer.single.strategies import STRATEGIES
from weft.optimizer.space import Options, Space
from weft.plan.physical.rules import ProbeRule
from weft.session.planned_query import PlannedQuery
from weft.stats.statistics import Statistics, StreamStatistics

# Every a joins every c that is similar, one in 10,000 of them; or the b of its key, and then the c of that one's.
TEXT = """
    SELECT a.x AS ax, c.x AS cx FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS], c [RANGE 10 SECONDS]
    WHERE a.k = b.k AND b.m = c.m AND similar(a.x, c.x)
"""


def session(cost: float | None, likely: float | None = 1e-4) -> weft.Session:
    """Streams of which keys let little through, and similarity less."""
    known = dict.fromkeys("abc", StreamStatistics(1_000, {"k": 2_000, "m": 2_000}))
    made = weft.Session(statistics=Statistics(known), options=Options(partitions=2))
    for name in "abc":
        made.stream(name, "k long, m long, x double, ts timestamp", event_time="ts")
    made.function("similar", lambda one, _: one, returns="boolean", cost=cost, selectivity=likely)
    return made


def first_steps(planned: PlannedQuery) -> dict[str, tuple[str, ...]]:
    """The stores that tuples of a and c visit first."""
    firsts = {alias: next(iter(planned.graph.probes(alias))) for alias in "ac"}
    return {alias: planned.graph.store(rule.store).aliases for alias, rule in firsts.items()}


def test_a_cheap_function_comes_first_and_a_dear_one_last() -> None:
    """A function of milliseconds, called for every pair there is."""
    cheap = session(0.0).query(TEXT, strategy="flat")
    dear = session(1e-3).query(TEXT, strategy="flat")
    assert first_steps(cheap) == {"a": ("c",), "c": ("a",)}
    assert first_steps(dear) == {"a": ("b",), "c": ("b",)}


def test_what_was_measured_decides_and_not_what_was_said() -> None:
    """Statistics that are measured and then not used."""
    made = session(0.0)
    assert first_steps(made.query(TEXT, name="before", strategy="flat"))["a"] == ("c",)
    made.statistics = Statistics(
        made.statistics.streams,
        made.statistics.selectivities,
        costs={"similar": 1e-3},
        likely={"similar": 1e-4},
    )
    assert first_steps(made.query(TEXT, name="after", strategy="flat"))["a"] == ("b",)


# `merge` goes by sizes alone, as CLASH describes it.
@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "merge"])
def test_no_strategy_calls_a_dear_function_for_every_pair(strategy: str) -> None:
    """A strategy that does not see the cost; 10,000 tuples of each input would be compared with 10,000."""
    planned = session(1e-3).query(TEXT, strategy=strategy)
    calls = [rule for rule in planned.graph.rules if isinstance(rule, ProbeRule) and _calls(rule)]
    assert calls
    assert all(len(rule.known) + len(planned.graph.store(rule.store).aliases) == 3 for rule in calls)


def test_a_function_of_one_side_costs_nothing_per_pair() -> None:
    """A plan that goes out of its way to avoid what is computed once per tuple."""
    made = session(1e-3)
    made.function("folded", lambda x: x, returns="double", cost=1e-3)
    text = TEXT.replace("similar(a.x, c.x)", "folded(a.x) < folded(c.x)")
    space = Space(made.parse(text), made.statistics, made.options)
    [(selectivity, seconds)] = space.checks(0b001, 0b100)
    assert selectivity == pytest.approx(1 / 3)
    assert seconds == 0.0
    other = Space(made.parse(TEXT.replace("c.x)", "folded(c.x))")), made.statistics, made.options)
    assert other.checks(0b001, 0b100) == ((1e-4, 1e-3),)
    assert other.checks(0b001, 0b010) == ()


def _calls(rule: ProbeRule) -> bool:
    return any("SIMILAR" in str(predicate) for predicate in rule.predicates)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "auto"])
def test_queries_planned_together_pay_a_function_once(method: str) -> None:
    """A joint plan that calls a dear function early, or twice for two queries."""
    made = session(1e-3)
    queries = {"one": made.parse(TEXT), "two": made.parse(TEXT.replace("a.x AS ax,", ""))}
    found = optimise_all(queries, made.statistics, made.options, method=method)
    alone = optimise_all({"one": queries["one"]}, made.statistics, made.options, method=method)
    walks = {walk.start: walk.visits[0].aliases for answer in found.plan.answers for walk in answer.walks}
    assert (walks["a"], walks["c"]) != (("c",), ("a",))
    assert found.workspace.cost_of(found.plan) < 1.5 * alone.workspace.cost_of(alone.plan)


def test_functions_in_one_step_are_called_in_the_order_of_what_they_reject_per_second() -> None:
    """Twenty dear calls for one that a cheap one would have spared."""
    checks: Mapping[str, tuple[float, float]] = {"cheap": (0.5, 1e-6), "dear": (0.1, 1e-3)}
    best = call_cost(10, checks.values())
    assert best == pytest.approx(200 * 1e-6 + 100 * 1e-3)
    assert best == call_cost(10, reversed(list(checks.values())))
    assert call_cost(10, []) == 0.0
