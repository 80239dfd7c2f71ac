"""Windows and durations: what is printed reads back."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import durations, windows

from weft.errors import QueryError
from weft.logical.query.window import UNBOUNDED, Range, Rows, Window
from weft.logical.times import format_duration, parse_duration
from weft.sql.windows import parse_window


@given(durations)
def test_durations(span: timedelta) -> None:
    """A window would grow or shrink each time it is stored."""
    assert parse_duration(format_duration(span)) == span


@given(windows)
def test_windows(window: Window) -> None:
    """A window would not survive being printed."""
    text = str(window)
    given_text = text.removeprefix("RANGE ") if isinstance(window, Range) else text
    if isinstance(window, Rows):
        given_text = f"{window.count} rows"
    assert parse_window(given_text) == window


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("1 hour 30 minutes", timedelta(minutes=90)),
        ("1h30m", timedelta(minutes=90)),
        ("1 day, 2 hours", timedelta(hours=26)),
        ("0.5 ms", timedelta(microseconds=500)),
        ("5 SEC", timedelta(seconds=5)),
    ],
)
def test_spellings(text: str, span: timedelta) -> None:
    """Common spellings of durations would be refused."""
    assert parse_duration(text) == span


@pytest.mark.parametrize(
    "text", ["", "5", "minutes", "5 months", "-5 seconds", "1e3 s", "9" * 400 + " days", "5 s x"]
)
def test_not_durations(text: str) -> None:
    """A misspelt duration would be read as a shorter one."""
    with pytest.raises(QueryError, match="as a duration"):
        parse_duration(text)


@given(st.integers(max_value=0) | st.integers(min_value=1 << 63))
def test_rows_are_positive(count: int) -> None:
    """A window of no rows would join nothing, for ever."""
    with pytest.raises(QueryError):
        Rows(count)


def test_ranges_are_positive() -> None:
    """A window of no time would join nothing, for ever."""
    for span in (timedelta(0), timedelta(seconds=-1), timedelta(days=100_001)):
        with pytest.raises(QueryError):
            Range(span)
    assert str(UNBOUNDED) == "UNBOUNDED"
