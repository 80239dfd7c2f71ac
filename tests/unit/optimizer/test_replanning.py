"""Heavy values that the plan does not expect ask for another one: clearly, once, and not too often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import weft
from weft.logical.expr.expression import Column, Literal
from weft.optimizer.adaptation import HeavyValueWatch
from weft.plan.physical.graph import PhysicalGraph, StoreNode


def graph() -> PhysicalGraph:
    """A join of two streams in four partitions."""
    session = weft.Session(options=weft.Options(partitions=4))
    for name in "rs":
        session.stream(name, "k long, x long")
    return session.query("SELECT r.x FROM r, s WHERE r.k = s.k").graph


def test_heavy_values_ask_for_a_plan_once_and_not_at_once() -> None:
    """A plan is not made anew for what a partition has anyway, nor twice for the same value, nor too often."""
    lookout, plain = HeavyValueWatch(), graph()
    light, heavy = {"r": {"k": ((1, 0.15),)}}, {"r": {"k": ((1, 0.2),)}}
    assert not lookout.should_replan(plain, heavy, 7)
    assert not lookout.should_replan(plain, light, 9)
    assert lookout.should_replan(plain, heavy, 9)
    assert not lookout.should_replan(plain, heavy, 30)
    other = {"r": {"k": ((2, 0.3), (1, 0.2))}}
    assert lookout.should_replan(plain, other, 31)
    assert not lookout.should_replan(plain, {"r": {"k": ((3, 0.3),)}}, 32)
    assert lookout.should_replan(plain, {"r": {"k": ((3, 0.3),)}}, 39)


def test_what_the_plan_expects_does_not_ask() -> None:
    """Until it is clearly heavy no more."""
    plain = graph()
    stores = [s for s in plain.stores if isinstance(s.layout.by, Column)]
    type_ = stores[0].layout.by.type  # type: ignore[union-attr]
    scattered = [replace(s, layout=replace(s.layout, heavy=(Literal(1, type_),))) for s in stores]
    lookout = HeavyValueWatch()
    seen = replace(lookout)
    fake: Any = _Fake(plain, scattered)
    assert not lookout.surprises(fake, {"r": {"k": ((1, 0.1),)}})
    assert lookout.surprises(fake, {"r": {"k": ((1, 0.01),)}})
    assert not seen.surprises(fake, {})


class _Fake:
    """A graph of which only the layouts are another."""

    def __init__(self, real: PhysicalGraph, stores: Sequence[StoreNode]) -> None:
        self.stores, self.input = stores, real.input
