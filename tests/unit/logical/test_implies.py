"""A query that is told that a store holds all of its tuples must find them all there."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.shares import examples

from weft.kernels.expr.select import holds
from weft.logical.expr.conditions import is_implied
from weft.logical.expr.conversion import literal
from weft.logical.expr.expression import Column, Expr, all_of
from weft.logical.expr.functions import call
from weft.logical.schema import Schema

LONG, DOUBLE = (field.type for field in Schema.parse("x long, y double").fields)
COLUMNS = {"x": Column("r", "x", LONG), "y": Column("r", "y", DOUBLE)}
NUMBERS = st.integers(-3, 3)
VALUES = {
    ("r", "x"): pa.array([*range(-5, 6), None] * 13, pa.int64()),
    ("r", "y"): pa.array([y for y in (*range(-5, 6), None, float("nan")) for _ in range(12)], pa.float64()),
}
ROWS = len(VALUES["r", "x"])


@st.composite
def comparisons(draw: st.DrawFn) -> Expr:
    """A column or a sum of it, compared with a number, a fraction or another column, from either side."""
    column: Expr = COLUMNS[draw(st.sampled_from("xy"))]
    if draw(st.integers(0, 4)) == 0:
        column = call("+", column, literal(1))
    other: Expr = draw(
        st.one_of(
            NUMBERS.map(literal),
            NUMBERS.map(lambda n: literal(n + 0.5)),
            st.sampled_from(list(COLUMNS.values())),
        )
    )
    sides = (column, other) if draw(st.booleans()) else (other, column)
    return call(draw(st.sampled_from(("<", "<=", ">", ">=", "=", "<>"))), *sides)


@given(st.lists(comparisons(), max_size=3), st.lists(comparisons(), min_size=1, max_size=3))
@examples(200)
def test_what_is_implied_is_so(wanted: list[Expr], known: list[Expr]) -> None:
    """For every value, NULL and NaN included."""
    if is_implied(wanted, known):
        passing = holds(all_of(known), VALUES, ROWS)
        for one in wanted:
            assert not (passing & ~holds(one, VALUES, ROWS)).any()


X = COLUMNS["x"]


@pytest.mark.parametrize(
    ("wanted", "known", "answer"),
    [
        (call("<", X, literal(5)), call("<", X, literal(3)), True),
        (call("<", X, literal(5)), call("<=", X, literal(5)), False),
        (call("<=", X, literal(5)), call("<", X, literal(5)), True),
        (call(">", X, literal(5)), call(">", X, literal(6)), True),
        (call(">", X, literal(5)), call("<", X, literal(6)), False),
        (call(">=", X, literal(5)), call("=", X, literal(5)), True),
        (call(">", X, literal(5)), call("=", X, literal(5)), False),
        (call("<", X, literal(5)), call("<", COLUMNS["y"], literal(3)), False),
    ],
)
def test_bounds_follow_from_narrower_ones(wanted: Expr, known: Expr, answer: bool) -> None:
    """It would be no use if it always said no."""
    assert is_implied([wanted], [known]) is answer


def test_what_is_asked_is_implied_by_itself_and_nothing_by_everything() -> None:
    """No filters let all pass: others' tuples are among them."""
    one = call("<>", X, literal(5))
    assert is_implied([one], [one])
    assert is_implied([], [one])
    assert not is_implied([one], [])
