"""Sums that fade, against their definition."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import StatisticsError
from weft.stats.known import CallSums, Checked, HalfLife, JointSums, Known, StreamSums, bounded, weights

HALF_LIVES = st.builds(HalfLife, st.floats(0.5, 100), st.floats(0.5, 100))
STEPS = st.lists(st.tuples(st.integers(1, 4), st.floats(0, 50)), min_size=1, max_size=12)


def batches_of(steps: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Numbers and moments, from how many batches and seconds lie between them."""
    numbers = np.cumsum([number for number, _ in steps])
    moments = np.cumsum([seconds for _, seconds in steps])
    return [(int(n), float(m)) for n, m in zip(numbers, moments, strict=True)]


def age(half_life: HalfLife, batches: list[tuple[int, float]], place: int) -> float:
    """By the definition: step by step, by batches or by seconds, whichever is more."""
    later = zip(batches[place:], batches[place + 1 :], strict=False)
    return sum(max((n - m) / half_life.batches, (u - t) / half_life.seconds) for (m, t), (n, u) in later)


@given(HALF_LIVES, STEPS, st.integers(0, 12))
def test_folding_in_parts_gives_the_sum_by_definition(
    half_life: HalfLife, steps: list[tuple[int, float]], cut: int
) -> None:
    """However the batches are divided among calls."""
    batches = batches_of(steps)
    values = np.random.default_rng(len(steps)).random(len(batches))
    truth = sum(value * 2 ** -age(half_life, batches, place) for place, value in enumerate(values))
    total, before = 0.0, (-1, 0.0)
    for part in (slice(0, min(cut, len(batches))), slice(min(cut, len(batches)), len(batches))):
        if batches[part]:
            old, *each = weights(half_life, before, batches[part])
            total = total * old + float(np.dot(each, values[part]))
            before = batches[part][-1]
    assert total == pytest.approx(truth)


def test_what_passed_first_counts() -> None:
    """Batches, where they come quickly, and seconds, where they come slowly."""
    half_life = HalfLife(2, 10)
    assert weights(half_life, (0, 0.0), [(1, 0.0), (2, 0.0)]) == [0.5, 2**-0.5, 1.0]
    assert weights(half_life, (0, 0.0), [(1, 10.0), (2, 30.0)]) == [0.125, 0.25, 1.0]
    assert weights(half_life, (0, 9.0), [(1, 5.0)]) == [2**-0.5, 1.0]  # clocks may be set back
    assert weights(HalfLife(math.inf, math.inf), (0, 0.0), [(9, 9.0)]) == [1.0, 1.0]


def example() -> Known:
    """A value with something in every part."""
    checked = Checked(100.0, 80.0, 40.0, 7, 70.5)
    return Known(
        7,
        70.5,
        {
            "r": StreamSums(1000.0, 2.0, 2.5, 2.0, 5, ("r", "s"), 80.0, 10.0, 7, 70.5),
            "s": StreamSums(batches=2.0),
        },
        {"f(r.a)": checked},
        {("r.a = s.a",): checked, ("r.a = s.a", "r.b < s.b"): checked},
        {("s.b = t.b",): checked},
        {(("r.a = s.a", "s.b = t.b"), ("r.a = s.a",)): JointSums(checked, 0.5, 0.2)},
        {"f": CallSums(10.0, 0.5, 7, 70.5)},
        {"r.a = s.a": 0.1},
    )


def test_it_goes_through_json() -> None:
    """As it is persisted with the log."""
    assert Known.from_json(example().to_json()) == example()
    assert Known.from_json(Known().to_json()) == Known()


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", example().to_json()[:-9], example().to_json().replace("100.0", '"many"')]
)
def test_what_is_no_such_value_is_refused(text: str) -> None:
    """A file that is damaged is noticed, by one kind of error."""
    with pytest.raises(StatisticsError, match="no statistics"):
        Known.from_json(text)


def test_figures_stay_while_their_evidence_fades() -> None:
    """Until there is so little of it that it is forgotten."""
    before, after = example(), example().faded(1 / 16)
    assert after.rate("r") == before.rate("r") == pytest.approx(1000 / 2.5)
    name = ("r.a = s.a",)
    assert after.first[name].selectivity == pytest.approx(before.first[name].selectivity)
    assert after.first[name].compared == 5.0
    assert after.calls == {}
    assert example().faded(1e-6) == Known(7, 70.5)


def test_rates_are_by_the_stream_that_advances_most() -> None:
    """Streams that take turns or pause do not stretch time, and one that begins late has its own rate."""
    turns = StreamSums(rows=100, batches=10, advance=10, clocks=("r", "s"))
    late = StreamSums(rows=20, batches=2, advance=0, clocks=("r", "s"))
    known = Known(9, 9.0, {"r": turns, "s": late})
    assert (known.rate("r"), known.rate("s")) == (10, 10)
    alone = Known(9, 9.0, {"r": replace(turns, clocks=(), wall=20.0)})
    assert (alone.rate("r"), alone.rate("other")) == (5, None)


def test_silence_tells_nothing_unless_others_speak() -> None:
    """A session that waits for its first tuples must not be planned as if none would ever come."""
    silent = StreamSums(rows=0, batches=5, wall=5, clocks=("r", "s"))
    assert Known(4, 4.0, {"r": silent, "s": silent}).rate("r") is None
    known = Known(4, 4.0, {"r": silent, "s": replace(silent, rows=10, advance=5)})
    assert (known.rate("r"), known.rate("s")) == (0, 2)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_selectivity_is_above_0_and_at_most_1(matched: float, compared: float) -> None:
    """With 0, every plan would seem to cost nothing."""
    assert 0 < bounded(matched, compared) <= 1
    assert bounded(0, 1000) == 0.0005
