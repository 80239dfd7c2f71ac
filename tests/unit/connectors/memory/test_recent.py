"""The last results of a query, numbered: bounded, and honest about what is gone."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.connectors.memory.recent import RecentSink, to_recent
from weft.connectors.sink_descriptions import describe_sink, make_sink
from weft.errors import SinkError


def table(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


def filled(*batches: Sequence[int], rows: int = 5) -> RecentSink:
    sink = to_recent(rows)
    sink.open(table().schema)
    for number, batch in enumerate(batches):
        sink.begin(number)
        sink.commit(number, table(*batch))
    return sink


def values(sink: RecentSink, after: int = 0, most: int = 1000) -> list[int]:
    found: list[int] = sink.page(after, most).table.column("x").to_pylist()
    return found


def test_pages_follow_each_other() -> None:
    """A reader that asks on where it was sees everything once."""
    sink = filled([1, 2], [], [3], [4, 5])
    first = sink.page(0, 3)
    assert (first.table.column("x").to_pylist(), first.last, first.newest, first.missed) == (
        [1, 2, 3],
        3,
        5,
        0,
    )
    assert values(sink, first.last) == [4, 5]
    assert values(sink, 5) == []
    assert values(sink, -1) == []
    assert sink.page(99).last == 5


def test_who_is_too_slow_is_told_what_is_gone() -> None:
    """Not more than so many rows are kept, whole batches at a time."""
    sink = filled([1, 2, 3], [4, 5, 6], [7])
    page = sink.page(1)
    assert page.table.column("x").to_pylist() == [4, 5, 6, 7]
    assert (page.missed, page.last, page.newest) == (2, 7, 7)
    sink.clear()
    gone = sink.page(5)
    assert (gone.table.num_rows, gone.missed, gone.last) == (0, 2, 7)


def test_of_a_large_batch_the_end_is_kept_and_the_rest_freed() -> None:
    """A batch of millions must not stay in memory because its last rows do."""
    sink = filled(range(100_000))
    page = sink.page(0)
    assert page.table.column("x").to_pylist() == list(range(99_995, 100_000))
    assert page.missed == 99_995
    assert sum(chunk.get_total_buffer_size() for chunk in page.table.column("x").chunks) < 1000


def test_bytes_are_bounded_too() -> None:
    """Wide rows count for more."""
    sink = RecentSink(rows=1000, bytes=1000)
    wide = pa.table({"x": ["y" * 400] * 10})
    sink.open(wide.schema)
    for number in range(5):
        sink.commit(number, wide)
    page = sink.page(0)
    assert 1 <= page.table.num_rows <= 3
    assert page.missed == 50 - page.table.num_rows


def test_a_batch_that_is_committed_again_counts_once() -> None:
    """As after a commit that failed halfway."""
    sink = filled([1, 2], [3])
    sink.commit(1, table(3))
    assert values(sink) == [1, 2, 3]
    sink.recover(0)
    assert values(sink) == [1, 2]
    sink.commit(1, table(3))
    assert (values(sink), sink.page(0).newest) == ([1, 2, 3], 3)


def test_a_sink_that_is_made_again_is_another() -> None:
    """Its numbers begin anew, which its origin tells."""
    sink = filled([1])
    again = make_sink(describe_sink(sink) or {})
    assert isinstance(again, RecentSink)
    assert (again.rows, again.bytes) == (sink.rows, sink.bytes)
    assert again.origin != sink.origin
    assert again.page(0).newest == 0


def test_other_columns_and_senseless_limits_are_refused() -> None:
    """With the remedy."""
    sink = filled([1])
    with pytest.raises(SinkError, match="other columns"):
        sink.open(pa.schema([("y", pa.string())]))
    for wrong in (0, -1, True, "many"):
        with pytest.raises(SinkError, match="rows cannot be"):
            to_recent(wrong)  # type: ignore[arg-type]


def test_readers_are_told_and_cannot_stop_the_query() -> None:
    """A reader that fails is the reader's trouble."""
    sink, told = filled(), list[int]()

    def fail() -> None:
        raise ValueError("a reader")

    end = sink.subscribe(lambda: told.append(1))
    sink.subscribe(fail)
    sink.commit(0, table(1))
    sink.commit(1, table())
    assert told == [1]
    end()
    sink.commit(2, table(2))
    assert told == [1]


@given(st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=20), st.integers(1, 20), st.integers(1, 7))
def test_every_result_is_read_or_missed(batches: list[list[int]], rows: int, most: int) -> None:
    """However batches and pages fall, numbers have no holes."""
    sink = filled(rows=rows)
    after = seen = missed = 0
    every = [value for batch in batches for value in batch]
    for number, batch in enumerate(batches):
        sink.commit(number, table(*batch))
        page = sink.page(after, most)
        got = page.table.column("x").to_pylist()
        assert got == every[after + page.missed : page.last]
        assert len(got) <= most
        seen, missed, after = seen + len(got), missed + page.missed, page.last
        assert seen + missed == after
    assert sink.results().num_rows <= max(rows, max(map(len, batches), default=0))


@given(
    st.lists(st.lists(st.integers(0, 200), max_size=8), max_size=12),
    st.integers(50, 900),
    st.integers(1, 900),
)
def test_rows_of_any_width_are_read_or_missed(batches: list[list[int]], kept: int, size: int) -> None:
    """A batch of which only the end fits would leave a gap before it, and its rows would come under two numbers."""
    every = [
        f"{number:06}{'x' * width}" for number, width in enumerate(w for batch in batches for w in batch)
    ]
    sink, after, written = RecentSink(1000, kept), 0, 0
    sink.open(pa.schema([("x", pa.string())]))
    for number, batch in enumerate(batches):
        sink.commit(number, pa.table({"x": pa.array(every[written : written + len(batch)], pa.string())}))
        written += len(batch)
        page = sink.page(after, 5, size)
        assert page.table.column("x").to_pylist() == every[after + page.missed : page.last]
        assert page.table.num_rows or page.last == written
        after = page.last
    assert sink.results().column("x").to_pylist() == every[len(every) - sink.results().num_rows :]


def test_reading_while_a_query_commits() -> None:
    """No page has a hole or a row twice."""
    sink, found = filled(rows=50), list[int]()

    def write() -> None:
        for number in range(500):
            sink.commit(number, table(*range(3 * number, 3 * number + 3)))

    writer = threading.Thread(target=write)
    writer.start()
    after = missed = 0
    while after < 1500:
        page = sink.page(after, 7)
        found += page.table.column("x").to_pylist()
        missed, after = missed + page.missed, page.last
    writer.join()
    assert found == sorted(set(found))
    assert len(found) + missed == 1500
