"""Comparisons read as bounds of a value."""

from __future__ import annotations

import pytest

from weft import Session
from weft.logical.expr.bounds import Bound, bounds, ranges
from weft.logical.expr.expression import aliases


def _bounds(where: str, stored: str = "r") -> list[Bound]:
    session = Session()
    session.stream("r", "x int, y float, z double, d decimal(10, 2), t timestamp")
    session.stream("s", "a int, b float, c double, e decimal(10, 2), u timestamp")
    query = session.parse(f"SELECT r.x FROM r, s WHERE {where}")
    known = frozenset({"r", "s"} - {stored})
    return list(bounds(query.predicates, known, frozenset({stored})))


@pytest.mark.parametrize(
    ("where", "width"),
    [
        ("r.x BETWEEN s.a - 10 AND s.a + 10", 20),
        ("r.y BETWEEN s.b - 10 AND s.b + 10", 20),
        ("r.z BETWEEN s.c - 0.5 AND s.c + 1.5", 2),
        ("r.x + 3 BETWEEN s.a AND s.a + 4", 4),
        ("r.t BETWEEN s.u - INTERVAL '5' SECOND AND s.u", 5_000_000),
    ],
)
def test_a_band_has_the_same_width_from_both_sides(where: str, width: float) -> None:
    for stored in ("r", "s"):
        (found,) = ranges(_bounds(where, stored))
        assert found.width == width
        assert aliases(found.stored) == {stored}
        assert len(str(found.stored)) == len("r.x")  # the plain column, which has an order of its own


@pytest.mark.parametrize(
    "where",
    [
        "r.x < s.a",
        "r.x BETWEEN s.a AND s.a",  # an equality in disguise has no width
        "r.x BETWEEN s.a - 10 AND s.b + 10",
        "r.x BETWEEN s.a + 10 AND s.a - 10",
        "r.x > s.a AND r.z < s.c",
    ],
)
def test_what_is_no_band_of_one_width(where: str) -> None:
    assert list(ranges(_bounds(where))) == []


def test_moving_a_constant_is_exact_for_times_alone() -> None:
    exact = {one.predicate: one.exact for one in _bounds("r.x + 1 < s.a AND r.z + 1 < s.c")}
    assert set(exact.values()) == {False}
    (time,) = _bounds("r.t + INTERVAL '1' SECOND < s.u")
    assert time.exact
    (plain,) = _bounds("r.x < s.a + 1")
    assert plain.exact
    assert plain.limit.open


def test_rounded_bounds_give_way() -> None:
    (found,) = _bounds("r.z + 10 <= s.c")
    assert found.limit.slack > (0.0, 0.0)
    assert not found.limit.open
