"""Values become JSON and come back as what they were, whatever they are made of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.logical.codec import PackedNumbers, compact, decode, encode


class Pair(NamedTuple):
    """A named tuple."""

    low: int
    high: int | None = None


@compact
@dataclass(frozen=True, slots=True)
class Short:
    """A dataclass that is written as a list."""

    name: str = ""
    pairs: tuple[Pair, ...] = ()


@compact
@dataclass(frozen=True, slots=True)
class Plain:
    """A dataclass of numbers alone."""

    low: int
    high: int = 0


@dataclass(frozen=True, slots=True)
class Label:
    """A class that is a text."""

    text: str

    def __str__(self) -> str:
        return f"<{self.text}>"

    @classmethod
    def from_text(cls, text: str) -> Label:
        """What `str` made."""
        return cls(text[1:-1])


@dataclass(frozen=True, slots=True)
class Whole:
    """One field for every kind that the codec knows."""

    number: int = 0
    size: float | None = None
    data: bytes = b""
    moment: datetime | None = None
    span: timedelta = timedelta(0)
    texts: tuple[str, ...] = ()
    mixed: tuple[int, str] = (0, "")
    named: frozenset[str] = frozenset()
    listed: Sequence[int] = ()
    short: Short = Short()
    shorts: Mapping[str, Short] = field(default_factory=dict)
    numbered: Mapping[int, Label] = field(default_factory=dict)
    paired: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    packed: Annotated[tuple[int, ...], PackedNumbers()] = ()
    floats: Annotated[tuple[float, ...], PackedNumbers("d")] = ()
    free: Mapping[str, Any] = field(default_factory=dict)
    label: Label | None = None


NUMBERS = st.integers(-(1 << 62), 1 << 62)
PAIRS = st.builds(Pair, NUMBERS, st.none() | NUMBERS)
SHORTS = st.builds(Short, st.text(), st.lists(PAIRS, max_size=3).map(tuple))
WHOLES = st.builds(
    Whole,
    NUMBERS,
    st.none() | st.floats(allow_nan=False),
    st.binary(),
    st.none() | st.datetimes(timezones=st.just(timezone.utc)),
    st.timedeltas(),
    st.lists(st.text(), max_size=3).map(tuple),
    st.tuples(NUMBERS, st.text()),
    st.frozensets(st.text(), max_size=3),
    st.lists(NUMBERS, max_size=3),
    SHORTS,
    st.dictionaries(st.text(), SHORTS, max_size=3),
    st.dictionaries(NUMBERS, st.builds(Label, st.text()), max_size=3),
    st.dictionaries(st.lists(st.text(), max_size=2).map(tuple), NUMBERS, max_size=3),
    st.lists(st.integers(0, (1 << 64) - 1), max_size=3).map(tuple),
    st.lists(st.floats(allow_nan=False), max_size=3).map(tuple),
    st.dictionaries(st.text(), st.none() | NUMBERS | st.lists(st.text()), max_size=3),
    st.none() | st.builds(Label, st.text()),
)


@given(WHOLES)
def test_a_value_comes_back_as_it_was(value: Whole) -> None:
    """Whatever its fields hold."""
    assert decode(Whole, json.loads(json.dumps(encode(value)))) == value


def test_a_value_is_as_short_as_its_kind() -> None:
    """Many values of a compact class, and fields that are None, take little room."""
    data = encode(Whole(shorts={"a": Short("x", (Pair(1),))}, numbered={7: Label("y")}))
    data = json.loads(json.dumps(data))
    assert (data["shorts"], data["numbered"]) == ({"a": ["x", [[1, None]]]}, {"7": "<y>"})
    assert "label" not in data


def test_an_older_form_is_read() -> None:
    """Fields that it lacks have their defaults; a list stands for a dataclass, and may have its first fields alone."""
    assert decode(Whole, {"number": 3}) == Whole(3)
    assert decode(Whole, [3, 0.5]) == Whole(3, 0.5)
    assert decode(Short, {"name": "x", "pairs": [[1, 2]]}) == Short("x", (Pair(1, 2),))


def test_a_newer_form_is_read() -> None:
    """A field that the class does not have is passed over."""
    assert decode(Whole, {"number": 3, "colour": "red"}) == Whole(3)
    assert decode(Plain, [3, 4, "red"]) == Plain(3, 4)


def test_what_does_not_say_what_it_is_is_refused() -> None:
    """Two classes may have the same fields."""
    with pytest.raises(TypeError, match="does not say of which of these types it is"):
        decode(Short | Pair, {})  # type: ignore[arg-type]


def test_the_value_that_is_written_stays_as_it_is() -> None:
    """Changes of what was made of it do not reach it."""
    value = Whole(shorts={"a": Short()})
    data = encode(value)
    data["shorts"]["b"] = 1
    data["number"] = 7
    assert asdict(value) == asdict(Whole(shorts={"a": Short()}))
