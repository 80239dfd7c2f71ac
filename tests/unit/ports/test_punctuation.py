"""A punctuation that says too much makes readers believe that they have seen everything."""

from __future__ import annotations

from datetime import datetime, timezone

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.ports.punctuation import MOST, Punctuations


@given(st.lists(st.integers(0, 30)), st.integers(1, 7), st.integers(0, 100), st.integers(0, 5))
def test_all_results_up_to_a_mark_are_among_the_rows(
    numbers: list[int], size: int, before: int, seen: int
) -> None:
    """And no others: the rows of a batch are in blocks of so many tuples, of which ``seen`` came before."""
    tuples = sorted(number + seen for number in numbers)
    blocks = np.array([number // size for number in tuples], np.int64)
    ones = np.ones(blocks.size, np.int64)
    marks = Punctuations.of_blocks(blocks, ones, size, (before, seen), seen + 31)
    assert marks[-1] == weft.Punctuation(before + len(tuples), seen + 31)
    for one in marks:
        assert one.tuples is not None
        assert sum(number < one.tuples for number in tuples) == one.rows - before
    inside = {block * size for block in blocks.tolist() if block * size > seen}
    assert set(marks.marks[:-1].tolist()) == inside


def test_they_travel_with_a_table() -> None:
    """Few of them where there are many, but always the last."""
    many = Punctuations(np.arange(10_000), np.arange(10_000) * 3)
    found = Punctuations.read(many.on(pa.table({"a": [1]})).schema)
    assert len(found) == MOST
    assert (found[0], found[-1]) == (many[0], many[-1])
    assert len(Punctuations.read(pa.schema([]))) == 0


def test_times_are_times() -> None:
    """All that is before a clock has left; at the end, all of all times."""
    one = Punctuations.of_time(4, 1_000_001)
    assert one[0] == weft.Punctuation(4, time=datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc))
    assert Punctuations.read(one.on(pa.table({})).schema)[0] == one[0]
    assert Punctuations.of_time(4, 1 << 62)[0].time == datetime.max.replace(tzinfo=timezone.utc)
    joined = Punctuations.joined([Punctuations.none(timed=True), one, one[:0], one])
    assert len(joined) == 2
    assert joined.timed
    assert not len(Punctuations.joined([]))
