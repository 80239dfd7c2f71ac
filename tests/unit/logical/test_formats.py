"""Formats of dates and times: what is refused, and that what is said instead works."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow.compute as pc
import pytest

import weft
from weft.errors import SqlError
from weft.testing import LocalRun


def asked(text: str, value: str = "5/2024") -> Any:
    """The value of an expression over a text `s` and a function `own`."""
    session = weft.Session()
    session.stream("t", "s string, f string")
    session.function("own", pc.utf8_upper, returns="string")
    session.query(f"SELECT {text} AS e FROM t", name="q", sink=weft.to_memory())
    (row,) = LocalRun(session).batch({"t": [{"s": value, "f": "M/yyyy"}]})["q"].to_pylist()
    return row["e"]


@pytest.mark.parametrize(
    ("wrong", "message", "hint", "right"),
    [
        ("to_date(s, 'M/YYYY')", "has YYYY, which is not supported", "session.function", "own(s)"),
        ("date_format(DATE '2024-05-01', 'GGG')", "has GGG", "it may have y, M, L", "own(s)"),
        ("to_date(s, '[M/]yyyy')", "has [, which is not", "session.function", "own(s)"),
        ("to_date(s, 'My')", "where M ends and y begins", "write MM, or", "to_date(s, 'M/y')"),
        ("to_date(s, 'M/yyyy M')", "a letter twice", "leave one", "to_date(s, 'M/yyyy')"),
        ("to_date(s, 'HH a')", "the hour twice", "hh with a", "to_date(s, 'hh a')"),
        ("to_date(s, 'DDD')", "D without a year", "yyyy-DDD", "to_date(s, 'yyyy-DDD')"),
        ("to_date(s, f)", "needs a constant format", "the format itself", "to_date(s, 'yyyy-MM-dd')"),
    ],
)
def test_formats_that_cannot_be_read_are_refused(wrong: str, message: str, hint: str, right: str) -> None:
    """A stream would be NULL for ever, and nobody would know why."""
    with pytest.raises(SqlError) as caught:
        asked(wrong)
    assert message in str(caught.value)
    assert hint in str(caught.value).partition("hint: ")[2]
    asked(right)


def test_quotes_stand_for_themselves() -> None:
    """A T in a time would be taken for a letter of the format."""
    assert asked(r"to_timestamp(s, 'yyyy\'T\'HH')", "2024T05") == dt.datetime(
        2024, 1, 1, 5, tzinfo=dt.timezone.utc
    )
    assert asked(r"date_format(DATE '2024-05-01', 'h \'o\'\'clock\'')") == "12 o'clock"
    assert asked("to_date(s, NULL)") is None
