"""Heavy values as batches show them: found in a sample, remembered, and told when the plan does not expect them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import weft
from weft.kernels.sample import frequent
from weft.logical.expr import Column, Literal
from weft.optimizer.lookout import Lookout
from weft.plan.graph import PhysicalGraph, StoreNode
from weft.runtime.heavy import Counted, next_heavy
from weft.runtime.local import LocalRunner
from weft.runtime.measure import heavy_known
from weft.runtime.metrics import BatchMetrics
from weft.stats.statistics import Statistics


def session(key: str = "long") -> weft.Session:
    """Two streams with a key."""
    made = weft.Session(options=weft.Options(partitions=4))
    for name in "rs":
        made.stream(name, f"k {key}, x long")
    return made


def batch(keys: list[object]) -> pa.Table:
    """A batch with these keys."""
    return pa.table({"k": keys, "x": list(range(len(keys)))})


def test_a_sample_finds_what_is_common() -> None:
    """Also where the same key comes at equal distances, and among NULLs."""
    dealt = pa.array([i % 8 if i % 8 else None for i in range(80_000)])
    looked, found = frequent(dealt, 20_000, 32, 1)
    assert looked == pytest.approx(17_500, rel=0.05)
    assert {value for value, _ in found} == set(range(1, 8))
    assert all(count == pytest.approx(2_500, rel=0.1) for _, count in found)


def test_the_commonest_are_told_first_and_no_more_than_asked() -> None:
    """Of many values, the ones that matter."""
    keys = np.concatenate([np.arange(10_000), np.full(500, 3), np.full(900, 5)])
    assert frequent(pa.array(keys), 20_000, 2, 0) == (11_400, [(5, 901), (3, 501)])


@pytest.mark.parametrize("kind", ["long", "int", "string"])
def test_batches_tell_the_optimiser_of_heavy_keys(kind: str) -> None:
    """Measured in the columns by which tuples are placed, and kept from batch to batch and through JSON."""
    made = session(kind)
    runner = LocalRunner(made.query("SELECT r.x, s.x AS y FROM r, s WHERE r.k = s.k").graph)
    values = [1] * 50 + list(range(2, 52))
    keys: list[Any] = list(map(str, values)) if kind == "string" else values
    for _ in range(3):
        runner.process({"r": batch(keys), "s": batch(keys[50:])})
    metrics = [BatchMetrics.from_dict(json.loads(json.dumps(one.to_dict()))) for one in runner.metrics]
    found = heavy_known(Statistics(), metrics[-1])
    assert found.stream("r").heavy["k"][keys[0]] == pytest.approx(0.5)
    assert found.stream("r").heavy["k"].keys() == {keys[0]}
    assert found.stream("s").heavy["k"] == {}  # each came once
    assert "x" not in found.stream("r").heavy


def test_what_was_heavy_long_ago_fades() -> None:
    """The newest sample counts most, and tasks count by their rows."""
    known = next_heavy(
        {}, [Counted("r", "k", 300, 100, ((1, 100),)), Counted("r", "k", 100, 100, ((2, 50),))]
    )
    assert known == {"r": {"k": ((1, 0.75), (2, 0.125))}}
    for _ in range(8):
        known = next_heavy(known, [Counted("r", "k", 10, 10, ((2, 5),))])
    assert dict(known["r"]["k"]) == {2: pytest.approx(0.5, abs=0.01)}
    assert next_heavy(known, [Counted("r", "k", 0, 0, ())]) == known


def test_values_that_are_all_there_is_are_no_more_than_that() -> None:
    """Shares are rounded, and statistics refuse more than all tuples."""
    counted = Counted("r", "k", 6, 6, tuple((key, 1) for key in range(6)))
    runner = LocalRunner(graph())
    runner.process({"r": batch([1, 2, 3, 4, 5, 6])})
    last = replace(runner.metrics[-1], heavy=next_heavy({}, [counted]))
    shares = heavy_known(Statistics(), last).stream("r").heavy["k"].values()
    assert sum(shares) == pytest.approx(1.0, abs=1e-5)


def graph() -> PhysicalGraph:
    """A join of two streams in four partitions."""
    return session().query("SELECT r.x FROM r, s WHERE r.k = s.k").graph


def test_heavy_values_ask_for_a_plan_once_and_not_at_once() -> None:
    """A plan is not made anew for what a partition has anyway, nor twice for the same value, nor too often."""
    lookout, plain = Lookout(), graph()
    light, heavy = {"r": {"k": ((1, 0.15),)}}, {"r": {"k": ((1, 0.2),)}}
    assert not lookout.asks(plain, heavy, 7)
    assert not lookout.asks(plain, light, 9)
    assert lookout.asks(plain, heavy, 9)
    assert not lookout.asks(plain, heavy, 30)
    other = {"r": {"k": ((2, 0.3), (1, 0.2))}}
    assert lookout.asks(plain, other, 31)
    assert not lookout.asks(plain, {"r": {"k": ((3, 0.3),)}}, 32)
    assert lookout.asks(plain, {"r": {"k": ((3, 0.3),)}}, 39)


def test_what_the_plan_expects_does_not_ask() -> None:
    """Until it is clearly heavy no more."""
    plain = graph()
    stores = [s for s in plain.stores if isinstance(s.layout.by, Column)]
    type_ = stores[0].layout.by.type  # type: ignore[union-attr]
    scattered = [replace(s, layout=replace(s.layout, heavy=(Literal(1, type_),))) for s in stores]
    lookout = Lookout()
    seen = replace(lookout)
    fake: Any = _Fake(plain, scattered)
    assert not lookout.surprises(fake, {"r": {"k": ((1, 0.1),)}})
    assert lookout.surprises(fake, {"r": {"k": ((1, 0.01),)}})
    assert not seen.surprises(fake, {})


class _Fake:
    """A graph of which only the layouts are another."""

    def __init__(self, real: PhysicalGraph, stores: Sequence[StoreNode]) -> None:
        self.stores, self.input = stores, real.input
