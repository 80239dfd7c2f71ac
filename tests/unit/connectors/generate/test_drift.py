"""Data that drifts: a batch that is repeated must have the same rows, wherever the dial stands by then."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path

import pytest

from weft.connectors.generate.drift import Dial, drifting
from weft.connectors.generate.rate import RateSource, choice, rate, sequence, uniform
from weft.errors import SourceError
from weft.logical.codec import decode, encode
from weft.ports.source import CursorContext, MemoryBlobs, Part


def drifting_source(dial: Dial | None = None) -> RateSource:
    geo = drifting(choice({"US": 0.9, "DE": 0.1}), choice({"US": 0.1, "FR": 0.9}))
    return rate(1000, seed=3, dial=dial, n=sequence(), k=drifting(uniform(1000), uniform(10)), geo=geo)


def test_values_are_mixed_as_the_dial_says() -> None:
    source = drifting_source()
    for position in (0.0, 0.25, 0.5, 1.0):
        batch = source.generate(0, 40_000, position)
        geo = Counter(batch["geo"].to_pylist())
        assert geo["US"] / 40_000 == pytest.approx(0.9 - 0.8 * position, abs=0.01)
        assert geo["FR"] / 40_000 == pytest.approx(0.9 * position, abs=0.01)
        small = sum(k < 10 for k in batch["k"].to_pylist())
        assert small / 40_000 == pytest.approx(0.01 + 0.99 * position, abs=0.01)
        assert batch["n"].to_pylist()[:3] == [0, 1, 2]
    assert source.generate(0, 100) == source.generate(0, 100, 0.0)
    halves = source.generate(500, 30, 0.3).to_pylist() + source.generate(530, 70, 0.3).to_pylist()
    assert halves == source.generate(500, 100, 0.3).to_pylist()


def test_a_part_keeps_where_the_dial_stood(tmp_path: Path) -> None:
    dial = Dial()
    source = drifting_source(dial)
    cursor = source.open(CursorContext("s", {}, MemoryBlobs(), tmp_path))
    cursor.look(0.0)
    (plain,) = cursor.look(1.0).parts
    assert "dial" not in plain.what  # as in batch plans of before
    dial.turn(0.75)
    (part,) = cursor.look(1.0).parts
    cursor.take([part])
    dial.turn(0.1)
    task: RateSource = pickle.loads(pickle.dumps(source))
    again = decode(Part, json.loads(json.dumps(encode(part))))
    assert task.read("s", again).batch == source.generate(0, 1000, 0.75)
    (following,) = cursor.look(2.0).parts
    assert following.what == {"first": 1000, "rows": 1000, "dial": 0.1}


@pytest.mark.parametrize("position", [-0.1, 1.1, float("nan")])
def test_a_dial_goes_from_0_to_1(position: float) -> None:
    with pytest.raises(SourceError, match="from 0 to 1"):
        Dial().turn(position)


def test_a_column_keeps_its_type() -> None:
    with pytest.raises(SourceError, match="cannot drift from long to string"):
        drifting(uniform(3), choice(["a"]))
