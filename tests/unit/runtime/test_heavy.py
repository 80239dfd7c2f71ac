"""Heavy values as batches show them: found in a sample, and remembered."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import weft
from tests.local_runner import LocalRunner
from weft.logical.codec import encode
from weft.runtime.observe.batch_statistics import heavy_known
from weft.runtime.observe.metrics import BatchMetrics
from weft.stats.sampling.attributes import Attribute
from weft.stats.sampling.estimates import next_heavy
from weft.stats.sampling.samples import AttributeSample, Common
from weft.stats.skew import HeavyValue
from weft.stats.statistics import Statistics


def session(key: str = "long") -> weft.Session:
    """Two streams with a key."""
    made = weft.Session(options=weft.Options(partitions=4))
    for name in "rs":
        made.stream(name, f"k {key}, x long")
    return made


def batch(keys: list[object], kind: str = "long") -> pa.Table:
    """A batch with these keys, of a type."""
    types = {"long": pa.int64(), "int": pa.int32(), "string": pa.string()}
    return pa.table({"k": pa.array(keys, types[kind]), "x": list(range(len(keys)))})


def counted(rows: int, looked: int, *values: tuple[HeavyValue, int]) -> AttributeSample:
    """What a task reports of common values."""
    common = tuple(Common(value, hash(value), count) for value, count in values)
    hashes, counts = tuple(one.hash for one in common), tuple(one.count for one in common)
    return AttributeSample(Attribute("r", "k"), rows, looked, 0, hashes=hashes, counts=counts, common=common)


@pytest.mark.parametrize("kind", ["long", "int", "string"])
def test_batches_tell_the_optimiser_of_heavy_keys(kind: str) -> None:
    """Measured in the columns that queries join on, and kept from batch to batch and through JSON."""
    made = session(kind)
    runner = LocalRunner(made.query("SELECT r.x, s.x AS y FROM r, s WHERE r.k = s.k").graph)
    values = [1] * 50 + list(range(2, 52))
    keys: list[Any] = list(map(str, values)) if kind == "string" else values
    for _ in range(3):
        runner.process({"r": batch(keys, kind), "s": batch(keys[50:], kind)})
    metrics = [BatchMetrics.from_dict(json.loads(json.dumps(encode(one)))) for one in runner.metrics]
    found = heavy_known(Statistics(), metrics[-1])
    assert found.stream("r").heavy["k"][keys[0]] == pytest.approx(0.5)
    assert found.stream("r").heavy["k"].keys() == {keys[0]}
    assert found.stream("s").heavy["k"] == {}  # each came once
    assert "x" not in found.stream("r").heavy


def test_what_was_heavy_long_ago_fades() -> None:
    """The newest sample counts most, and tasks count by their rows."""
    known = next_heavy({}, [counted(300, 100, (1, 100)), counted(100, 100, (2, 50))])
    assert known == {"r": {"k": ((1, 0.75), (2, 0.125))}}
    for _ in range(8):
        known = next_heavy(known, [counted(10, 10, (2, 5))])
    assert dict(known["r"]["k"]) == {2: pytest.approx(0.5, abs=0.01)}
    assert next_heavy(known, [counted(0, 0)]) == known


def test_values_that_are_all_there_is_are_no_more_than_that() -> None:
    """Shares are rounded, and statistics refuse more than all tuples."""
    runner = LocalRunner(session().query("SELECT r.x FROM r, s WHERE r.k = s.k").graph)
    runner.process({"r": batch([1, 2, 3, 4, 5, 6])})
    last = replace(runner.metrics[-1], heavy=next_heavy({}, [counted(6, 6, *((k, 1) for k in range(6)))]))
    shares = heavy_known(Statistics(), last).stream("r").heavy["k"].values()
    assert sum(shares) == pytest.approx(1.0, abs=1e-5)
