"""The machine against the evaluator: the fast way to filter pairs must never disagree with the plain one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shares import examples
from weft.kernels.expr.arrow import arrow_type
from weft.kernels.expr.select import holds
from weft.kernels.probe.pair_program import program
from weft.logical.expr.conversion import cast, literal
from weft.logical.expr.expression import Column, Expr
from weft.logical.expr.functions import call
from weft.logical.schema import DataType

NAN, INF = float("nan"), float("inf")
POOLS: dict[str, list[Any]] = {
    "byte": [-128, -1, 0, 1, 127],
    "short": [-(2**15), -3, 0, 2, 2**15 - 1],
    "int": [-(2**31), -1, 0, 1, 7, 2**31 - 1],
    "long": [-(2**63), -5, -1, 0, 1, 3, 2**32, 2**62, 2**63 - 1],
    "float": [-1.5, -0.0, 0.0, 2.5, NAN, INF],
    "double": [-1.5, -0.0, 0.0, 0.5, 3.0, NAN, INF, -INF],
    "boolean": [False, True],
    "date": [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2024, 2, 29)],
    "timestamp": [
        dt.datetime(1970, 1, 1),
        dt.datetime(2024, 2, 29, 12),
        dt.datetime(1969, 12, 31, 23, 59, 59),
    ],
}
TYPES = {name: DataType(name) for name in POOLS}
NUMBERS = ("byte", "short", "int", "long", "float", "double")
COLUMNS = {(alias, kind): kind for alias in "ps" for kind in POOLS}


def leaf(kind: str) -> st.SearchStrategy[Expr]:
    constants = [literal(value) for value in POOLS[kind] if value == value and value not in (INF, -INF)]
    columns: list[Expr] = [Column(alias, kind, TYPES[kind]) for alias in "ps"]
    return st.sampled_from(columns * 2 + [constant for constant in constants if constant.type == TYPES[kind]])


def number(depth: int) -> st.SearchStrategy[Expr]:
    some = st.sampled_from(NUMBERS).flatmap(leaf)
    if not depth:
        return some
    below = number(depth - 1)
    return st.one_of(
        some,
        st.builds(call, st.sampled_from(["+", "-", "*", "/", "%"]), below, below),
        st.builds(call, st.sampled_from(["neg", "abs"]), st.sampled_from(NUMBERS).flatmap(leaf)),
        st.builds(cast, below, st.sampled_from([TYPES[kind] for kind in NUMBERS])),
    )


def moment() -> st.SearchStrategy[Expr]:
    time, day = leaf("timestamp"), leaf("date")
    span = st.sampled_from([literal(dt.timedelta(days=days)) for days in (-1, 1)])
    return st.one_of(time, day, st.builds(call, st.sampled_from(["+", "-"]), st.one_of(time, day), span))


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> Expr:
    kind = draw(st.integers(0, 6 if depth else 3))
    compare = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
    if kind == 0:
        return call(compare, draw(number(2)), draw(number(2)))
    if kind == 1:
        return call(compare, draw(moment()), draw(moment()))
    if kind == 2:
        return call(
            "in",
            draw(leaf("int")),
            *(literal(value) for value in draw(st.lists(st.integers(-1, 2), min_size=1))),
        )
    if kind == 3:
        return draw(leaf("boolean"))
    if kind == 4:
        return call("not", draw(conditions(depth - 1)))
    if kind == 5:
        return call("is null", draw(number(1)))
    return call(
        draw(st.sampled_from(["and", "or"])), draw(conditions(depth - 1)), draw(conditions(depth - 1))
    )


@st.composite
def columns(draw: st.DrawFn) -> dict[tuple[str, str], Any]:
    found = {}
    rows = {alias: draw(st.integers(1, 6)) for alias in "ps"}
    for (alias, name), kind in COLUMNS.items():
        values = draw(
            st.lists(
                st.sampled_from([*POOLS[kind], None]), min_size=rows[alias] + 1, max_size=rows[alias] + 1
            )
        )
        found[alias, name] = pa.array(values, arrow_type(TYPES[kind]), from_pandas=False).slice(1)
    return found


@examples(65)
@given(columns(), conditions())
def test_programs_agree_with_the_evaluator(data: dict[tuple[str, str], Any], predicate: Expr) -> None:
    found = program(predicate)
    if found is None:
        return
    ours, theirs = ({key: data[key] for key in data if key[0] == alias} for alias in "ps")
    sizes = [len(next(iter(side.values()))) for side in (ours, theirs)]
    probe, stored = (
        side.ravel().astype(np.int32) for side in np.meshgrid(*map(np.arange, sizes), indexing="ij")
    )
    kept = found.bind(ours, theirs).keep(probe, stored)
    values = {key: column.take(pa.array(probe if key[0] == "p" else stored)) for key, column in data.items()}
    true = holds(predicate, values, probe.size)
    assert kept[0].tolist() == probe[true].tolist()
    assert kept[1].tolist() == stored[true].tolist()


def test_programs_exist_for_what_matters() -> None:
    price, other = Column("p", "x", TYPES["long"]), Column("s", "y", TYPES["double"])
    assert program(call("<", call("+", price, literal(3)), call("*", other, literal(2.0)))) is not None
    text = Column("p", "t", DataType("string"))
    assert program(call("like", text, literal("a%"))) is None
    assert program(literal(True)) is None


@pytest.mark.parametrize("size", [1, 511, 512, 513, 5000])
def test_blocks_have_no_seams(size: int) -> None:
    random = np.random.default_rng(size)
    left, right = random.integers(0, 100, 50), random.integers(0, 100, 70)
    probe, stored = (random.integers(0, high, size).astype(np.int32) for high in (50, 70))
    condition = call("<", Column("p", "x", TYPES["long"]), Column("s", "x", TYPES["long"]))
    found = program(condition)
    assert found is not None
    kept = found.bind({("p", "x"): pa.array(left)}, {("s", "x"): pa.array(right)}).keep(probe, stored)
    true = left[probe] < right[stored]
    assert kept[0].tolist() == probe[true].tolist()
    assert kept[1].tolist() == stored[true].tolist()


ENDS = (-(1 << 63), -(1 << 62) - 1, -(1 << 62), -1, 0, 1, 2, 3, 1 << 62, (1 << 63) - 1)


@pytest.mark.parametrize(("function", "exact"), [("+", int.__add__), ("-", int.__sub__), ("*", int.__mul__)])
def test_what_needs_more_bits_has_no_value(function: str, exact: Callable[[int, int], int]) -> None:
    """A sum that wraps around would be compared as if it were one."""
    left, right = Column("p", "x", TYPES["long"]), Column("s", "x", TYPES["long"])
    found = program(call("not", call("is null", call(function, left, right))))
    assert found is not None
    probe, stored = (
        side.ravel().astype(np.int32) for side in np.meshgrid(*[np.arange(len(ENDS))] * 2, indexing="ij")
    )
    ends = pa.array(ENDS, pa.int64())
    kept = found.bind({("p", "x"): ends}, {("s", "x"): ends}).keep(probe, stored)
    fits = [
        (i, j) for i, a in enumerate(ENDS) for j, b in enumerate(ENDS) if -(1 << 63) <= exact(a, b) < 1 << 63
    ]
    assert list(zip(*(side.tolist() for side in kept), strict=True)) == fits


def test_the_least_number_has_no_absolute_value() -> None:
    """It would stay negative, and so be smaller than all others."""
    found = program(call("<", call("abs", Column("p", "x", TYPES["long"])), Column("s", "x", TYPES["long"])))
    assert found is not None
    ends, most = pa.array(ENDS, pa.int64()), pa.array([(1 << 63) - 1], pa.int64())
    places = np.arange(len(ENDS), dtype=np.int32)
    kept, _ = found.bind({("p", "x"): ends}, {("s", "x"): most}).keep(places, np.zeros_like(places))
    assert kept.tolist() == [i for i, end in enumerate(ENDS) if abs(end) < (1 << 63) - 1]
