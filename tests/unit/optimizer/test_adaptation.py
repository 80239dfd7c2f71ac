"""When a plan gives way to a better one: too easily, and batches pay for changes; too seldom, and for an old plan."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.unit.plan.workloads import CHAIN, OTHER, PAIR, shared
from weft.errors import ConfigError
from weft.optimizer.adaptation import (
    AT_ONCE,
    EAGER,
    SIDE_BY_SIDE,
    Adaptation,
    Hysteresis,
    Prospect,
    is_alike,
    judge,
)
from weft.plan.workload import WorkloadPlan

# A plan that saves half of 0.4 seconds of work per second, for ten seconds: 2 seconds.
HALF = Prospect(gain=0.5, work=0.4, horizon=10.0)
SAVES = 2.0

# By default, laying out stores anew may hold up a batch for half a second; filling adds a part of 4 seconds of work.
QUICK, LONG, TOO_LONG = 0.3, 1.5, 2.5
CHEAP, DEAR = 0.1, 0.75


class TestJudge:
    """Every way in which a judgement can end."""

    @pytest.mark.parametrize(
        ("gain", "threshold", "way"),
        [
            (0.09, 0.1, None),
            (0.1, 0.1, AT_ONCE),
            (0.0, 0.0, None),
            (-0.5, 0.0, None),
            (1e-6, 0.0, AT_ONCE),
        ],
    )
    def test_a_gain_below_the_threshold_is_no_reason(
        self, gain: float, threshold: float, way: str | None
    ) -> None:
        """Nor is no gain at all, whatever the threshold."""
        verdict = judge(replace(HALF, gain=gain), Adaptation(threshold=threshold))
        assert verdict.way == way
        assert f"{gain:.0%} less work expected" in verdict.reason

    def test_other_orders_over_the_same_stores_cost_nothing(self) -> None:
        """They are taken at once, however little work there is to save."""
        assert judge(replace(HALF, work=0.0), Adaptation()).way == AT_ONCE

    @pytest.mark.parametrize(
        ("pause", "extra", "way"),
        [
            (QUICK, None, EAGER),
            (QUICK, CHEAP, EAGER),
            (LONG, CHEAP, SIDE_BY_SIDE),
            (LONG, -0.1, SIDE_BY_SIDE),  # a new plan whose stores are those there are, laid out for less work
            (LONG, None, EAGER),  # nothing else is possible, and it pays
            (LONG, DEAR, None),
            (TOO_LONG, CHEAP, SIDE_BY_SIDE),
            (TOO_LONG, DEAR, None),
            (TOO_LONG, None, None),
        ],
    )
    def test_cost_chooses_the_way(self, pause: float, extra: float | None, way: str | None) -> None:
        """Eager within the latency that users allow, else side by side; neither if it does not pay."""
        verdict = judge(replace(HALF, pause=pause, extra=extra), Adaptation())
        assert verdict.way == way
        assert (verdict.way is None) == verdict.reason.endswith("not worth it")
        assert f"{SAVES:.2f} s saved by the time the windows have passed" in verdict.reason
        hour = judge(replace(HALF, pause=pause, extra=extra), Adaptation(horizon=timedelta(hours=1)))
        assert f"{SAVES:.2f} s saved in 1:00:00" in hour.reason

    @pytest.mark.parametrize(
        ("migrate", "pause", "extra", "way"),
        [
            ("eager", LONG, CHEAP, EAGER),
            ("eager", TOO_LONG, CHEAP, None),
            ("side by side", QUICK, CHEAP, SIDE_BY_SIDE),
            ("side by side", QUICK, DEAR, None),
            ("side by side", QUICK, None, EAGER),  # where stores would never have all they need
            ("side by side", TOO_LONG, None, None),
        ],
    )
    def test_users_choose_the_way(
        self, migrate: str, pause: float, extra: float | None, way: str | None
    ) -> None:
        """But a change that does not pay is none."""
        verdict = judge(replace(HALF, pause=pause, extra=extra), Adaptation(migrate=migrate))
        assert verdict.way == way

    @pytest.mark.parametrize(
        ("migrate", "pause", "extra", "way"),
        [
            ("auto", None, None, AT_ONCE),
            ("auto", QUICK, DEAR, EAGER),
            ("auto", TOO_LONG, DEAR, SIDE_BY_SIDE),
            ("auto", TOO_LONG, None, EAGER),
            ("eager", TOO_LONG, CHEAP, EAGER),
            ("side by side", QUICK, DEAR, SIDE_BY_SIDE),
            ("side by side", TOO_LONG, None, EAGER),
        ],
    )
    def test_always_is_always(self, migrate: str, pause: float | None, extra: float | None, way: str) -> None:
        """Whatever it costs, and even if nothing is gained."""
        prospect = replace(HALF, gain=-1.0, pause=pause, extra=extra)
        assert judge(prospect, Adaptation(migrate=migrate), always=True).way == way

    def test_how_long_a_saving_counts_decides(self) -> None:
        """Within short windows, a change is seldom worth it."""
        short = replace(HALF, horizon=1.0, pause=QUICK, extra=None)
        assert judge(short, Adaptation()).way is None
        assert judge(replace(short, horizon=2.0), Adaptation()).way == EAGER


class TestAdaptation:
    """What cannot be meant is refused, with what could be."""

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"epoch_batches": 0}, "an epoch of 0 batches"),
            ({"epoch_seconds": -1.0}, "-1.0 seconds cannot be"),
            ({"epoch_seconds": math.nan}, "epoch_seconds cannot be nan"),
            ({"half_life_batches": 0.0}, "half-life"),
            ({"half_life_seconds": -5.0}, "half-life"),
            ({"half_life_seconds": math.nan}, "half_life_seconds cannot be nan"),
            ({"threshold": -0.1}, "a threshold of -0.1"),
            ({"threshold": 1.0}, "a threshold of 1.0"),
            ({"threshold": math.nan}, "threshold cannot be nan"),
            ({"horizon": timedelta(0)}, "a horizon of 0:00:00"),
            ({"latency": -1.0}, "latency"),
            ({"latency": math.nan}, "latency"),
            ({"planning_seconds": 0.0}, "planning"),
            ({"migrate": "lazy"}, "no way 'lazy' to migrate"),
            ({"epoch_batches": "8"}, "epoch_batches"),
            ({"epoch_batches": True}, "epoch_batches"),
            ({"threshold": "10 %"}, "threshold"),
            ({"horizon": 60}, "horizon"),
            ({"migrate": None}, "migrate"),
        ],
    )
    def test_wrong_values_are_refused(self, given: dict[str, Any], message: str) -> None:
        """They would make plans change never, or all the time."""
        with pytest.raises(ConfigError, match=message) as error:
            Adaptation(**given)
        assert error.value.hint

    @pytest.mark.parametrize(
        "given",
        [
            {},
            {"epoch_batches": 1, "epoch_seconds": 0.0, "threshold": 0.0, "latency": 0.0},
            {"epoch_seconds": 1, "half_life_batches": 4, "latency": math.inf},
            {"horizon": timedelta(minutes=5), "migrate": "side by side"},
        ],
    )
    def test_others_are_not(self, given: dict[str, Any]) -> None:
        """Whole numbers are numbers, too."""
        Adaptation(**given)


ONE, TWO, THREE = (shared(q=sql) for sql in (PAIR, OTHER, CHAIN))


def changed(times: int, *plans: WorkloadPlan) -> Hysteresis:
    """After so many changes, from plan to plan and back to the first."""
    found = Hysteresis()
    for n in range(times):
        found.changed(plans[n % len(plans)], plans[(n + 1) % len(plans)])
    return found


class TestHysteresis:
    """A workload that flips must not make the plan flip."""

    def test_a_better_plan_is_taken_at_once(self) -> None:
        """As long as none has come back."""
        assert Hysteresis().allows()
        assert changed(2, ONE, TWO, THREE).needed == 1

    @pytest.mark.parametrize(("times", "needed"), [(1, 1), (2, 2), (3, 4), (4, 8), (7, 64), (20, 64)])
    def test_every_return_doubles_what_is_needed(self, times: int, needed: int) -> None:
        """Up to a limit, so that a change that stays is followed some day."""
        found = changed(times, ONE, TWO)
        assert found.needed == needed
        assert [found.allows() for _ in range(needed)] == [False] * (needed - 1) + [True]

    def test_a_return_by_way_of_others_is_one(self) -> None:
        """Plans may also go round in circles."""
        assert changed(3, ONE, TWO, THREE).needed == 2

    def test_an_epoch_without_a_better_plan_begins_anew(self) -> None:
        """It has to be better for epochs on end."""
        found = changed(3, ONE, TWO)
        assert not found.allows()
        assert not found.allows()
        found.stays()
        assert [found.allows() for _ in range(4)] == [False, False, False, True]

    def test_quiet_epochs_make_up_for_a_flip(self) -> None:
        """What flipped an hour ago may be followed quickly again."""
        found = changed(3, ONE, TWO)
        for _ in range(found.memory - 1):
            found.stays()
        assert found.needed == 4
        found.stays()
        assert found.needed == 2
        for _ in range(found.memory):
            found.stays()
        assert found.needed == 1
        for _ in range(3 * found.memory):
            found.stays()
        assert found.needed == 1

    def test_only_some_plans_are_remembered(self) -> None:
        """A session runs for months."""
        found = Hysteresis()
        plans = [shared(**{f"q{n}": PAIR}) for n in range(40)]
        for before, after in pairwise(plans):
            found.changed(before, after)
        assert len(found.left) == 8
        assert found.needed == 1


def test_plans_are_alike_whatever_they_were_made_from() -> None:
    """Two searches that find the same would be a change."""
    assert is_alike(ONE, replace(ONE, cost=None))
    assert is_alike(shared(a=PAIR, b=OTHER), shared(b=OTHER, a=PAIR))
    assert not is_alike(ONE, TWO)
    assert not is_alike(ONE, shared(q=PAIR, r=PAIR))
    assert not is_alike(shared("flat", q=CHAIN), shared("left_deep", q=CHAIN))
