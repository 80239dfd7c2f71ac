"""The filters of many queries together against each by itself: a difference loses or invents a query's results."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shares import examples
from tests.unit.kernels.columns import chunked
from weft.errors import PlanError
from weft.kernels.expr.arrow import arrow_type
from weft.kernels.expr.select import Columns, holds
from weft.kernels.query_sets import predicate_index
from weft.kernels.query_sets.predicate_index import PredicateIndex
from weft.kernels.query_sets.query_set import set_bit
from weft.logical.expr.conversion import cast, literal
from weft.logical.expr.expression import BOOLEAN, Call, Column, Expr, Literal, conjuncts
from weft.logical.expr.functions import call
from weft.logical.schema import DataType, parse_type

NAN, INF = float("nan"), float("inf")
WORDS = 4
_MOMENT = dt.datetime(2024, 2, 28, 23, 59, 59, 999_999)
# The greatest prefix there is; prefixes that several share; ends with a zero, which a prefix cannot show.
_TEXTS = [
    "",
    "a",
    "a\0",
    "b",
    "abcdefgh",
    "abcdefgh\0",
    "abcdefghi",
    "abcdefghj",
    "abcdefghjk",
    "日本語",
    "\U0010ffff" * 3,
]
_FLOATS = [0.0, -0.0, 1.5, -1.5, NAN, INF, -INF, 3.0]

VALUES: dict[str, list[Any]] = {
    "byte": [-128, -1, 0, 1, 127],
    "short": [-(2**15), -1, 0, 1, 2**15 - 1],
    "int": [-(2**31), -1, 0, 1, 2, 2**31 - 1],
    "long": [-(2**63), -1, 0, 1, 2, 3, 2**63 - 1],
    "float": _FLOATS,
    "double": [*_FLOATS, 5e-324, 1.7e308],
    "boolean": [False, True],
    "string": _TEXTS,
    "binary": [*(text.encode() for text in _TEXTS), b"\xff" * 8, b"\xff" * 9],
    "date": [dt.date(2024, 2, 28) + dt.timedelta(days=days) for days in range(4)],
    "timestamp": [_MOMENT + dt.timedelta(microseconds=micros) for micros in range(4)],
    "interval": [dt.timedelta(0), dt.timedelta(microseconds=-1), dt.timedelta(days=1)],
    "decimal(10,2)": [Decimal("0.00"), Decimal("-1.25"), Decimal("1.25"), Decimal("99999999.99")],
    "decimal(38,4)": [Decimal(0), Decimal("1e30"), Decimal("-1e30"), Decimal(10**30 + 1), Decimal("0.5")],
}
KINDS = list(VALUES)
COLUMNS = {f"c{i}": kind for i, kind in enumerate(KINDS)}


def column(name: str) -> Column:
    return Column("t", name, parse_type(COLUMNS[name]))


def constant(value: Any, kind: DataType) -> Expr:
    """A constant as a query would write it; the text of what is no literal is cast."""
    plain = isinstance(value, int | str | dt.date | dt.timedelta) or value is None
    if kind.name == "binary":
        value, plain = None if value is None else value.decode(errors="replace"), False
    if plain and kind.name != "decimal":
        return Literal(value, kind)
    return cast(literal(None), kind) if value is None else Call("cast", (literal(str(value)),), kind)


@st.composite
def comparisons(draw: st.DrawFn, name: str) -> Expr:
    """A column compared with one constant, or some."""
    kind = parse_type(COLUMNS[name])
    constants = st.sampled_from([*VALUES[COLUMNS[name]], None]).map(lambda value: constant(value, kind))
    function = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "in", "is null"]))
    if function == "is null":
        return call(function, column(name))
    if function == "in":
        return call(function, column(name), *draw(st.lists(constants, min_size=1, max_size=4)))
    return call(function, column(name), draw(constants))


@st.composite
def predicates(draw: st.DrawFn) -> Expr:
    """What can be looked up, mixed with what cannot."""
    name = draw(st.sampled_from(list(COLUMNS)))
    one, other, far = (draw(comparisons(n)) for n in (name, name, draw(st.sampled_from(list(COLUMNS)))))
    text, number = column(_of("string")), column(_of("long"))
    shapes = [
        *(one, one, one, call("not", one), call("or", one, other), call("not", call("and", one, other))),
        *(call("or", one, call("and", other, call("not", one))), call("or", one, far)),
        *(call("like", text, literal("a%")), call("<", call("length", text), literal(3))),
        *(call("<", column(_of("int")), number), call("<", call("+", number, literal(1)), literal(2))),
        *(column(_of("boolean")), call("not", column(_of("boolean"))), Literal(False, BOOLEAN)),
        *(call("<", cast(column(_of("int")), parse_type("double")), literal(0.5)), Literal(True, BOOLEAN)),
        *(call("and", one, far), Literal(None, BOOLEAN), Call("not", (one,), BOOLEAN)),
    ]
    return draw(st.sampled_from(shapes))


def _of(kind: str) -> str:
    return f"c{KINDS.index(kind)}"


@st.composite
def tables(draw: st.DrawFn, names: Mapping[str, str]) -> tuple[Columns, int]:
    """Columns of every type with NULLs, some of them slices or in chunks."""
    rows, before = draw(st.integers(0, 40)), draw(st.integers(0, 3))
    found: dict[tuple[str, str], Any] = {}
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    for name, kind in names.items():
        values = [*VALUES[kind], None]
        picks = [values[i] for i in generator.integers(0, len(values), rows + before)]
        array = pa.array(picks, arrow_type(parse_type(kind)), from_pandas=False).slice(before)
        found["t", name] = chunked(array, 2) if draw(st.booleans()) else array
    return found, rows


def check(filters: Mapping[int, tuple[Expr, ...]], columns: Columns, rows: int) -> None:
    index = PredicateIndex.from_filters(filters, WORDS)
    masks = {slot: np.ones(rows, np.bool_) for slot in filters}
    for slot, queries in filters.items():
        for predicate in queries:
            masks[slot] &= holds(predicate, columns, rows)
    expected = np.zeros((WORDS, rows), np.int64)
    for slot, mask in masks.items():
        set_bit(expected, slot, mask)
    assert np.array_equal(index.query_sets(columns, rows), expected)


@examples(50)
@given(st.dictionaries(st.integers(0, 199), st.lists(predicates(), max_size=3), max_size=25), tables(COLUMNS))
def test_queries_of_all_kinds(filters: dict[int, list[Expr]], table: tuple[Columns, int]) -> None:
    check({slot: tuple(found) for slot, found in filters.items()}, *table)


@pytest.mark.parametrize("kind", KINDS)
@examples(5)
@given(data=st.data())
def test_every_comparison_of_a_type(kind: str, data: st.DataObject) -> None:
    """All constants against all values, so that every bound is met from both sides."""
    name, type_ = _of(kind), parse_type(kind)
    filters: list[tuple[Expr, ...]] = [()]
    for value in [*VALUES[kind], None]:
        bound = constant(value, type_)
        filters += [(call(function, column(name), bound),) for function in ("=", "<>", "<", "<=", ">", ">=")]
        filters += [(Call("not", (call("=", column(name), bound),), BOOLEAN),)]
        filters += [(call("not", call("in", column(name), bound, constant(VALUES[kind][1], type_))),)]
    columns, rows = data.draw(tables({name: kind}))
    check(dict(enumerate(filters)), columns, rows)


def test_two_hundred_queries_on_many_rows() -> None:
    """Several words, and rows that cross the borders of blocks."""
    generator = np.random.default_rng(7)
    rows = 5003
    columns: dict[tuple[str, str], Any] = {
        ("t", f"n{i}"): pa.array(generator.integers(0, 60, rows), mask=generator.random(rows) < 0.05)
        for i in range(4)
    }
    columns["t", "s"] = pa.array([f"prefix-{i % 40:03}" for i in range(rows)])
    filters: dict[int, tuple[Expr, ...]] = {}
    for slot in range(200):
        name, function = f"n{generator.integers(4)}", ["=", "<", "<=", ">", ">="][slot % 5]
        number = call(function, Column("t", name, DataType("long")), literal(int(generator.integers(60))))
        text = call("<=", Column("t", "s", DataType("string")), literal(f"prefix-{slot % 50:03}"))
        filters[slot] = (number, text) if slot % 3 else (number,)
    check(filters, columns, rows)


def test_more_attributes_than_are_held_at_once() -> None:
    generator = np.random.default_rng(8)
    columns = {("t", f"n{i}"): pa.array(generator.integers(0, 9, 3000)) for i in range(40)}
    numbers = [Column("t", f"n{i}", DataType("long")) for i in range(40)]
    below = [call("<", number, literal(8 - i % 3)) for i, number in enumerate(numbers)]
    check({slot: (below[slot % 40], below[slot * 7 % 40], below[-1]) for slot in range(130)}, columns, 3000)
    check({0: (below[0],), 130: (below[1],)}, columns, 3000)  # no word needs both


def test_slots_without_a_query_are_in_no_set() -> None:
    index = PredicateIndex.from_filters({3: (), 70: ()})
    assert index.query_sets({}, 2).tolist() == [[8, 8], [64, 64]]
    assert PredicateIndex.from_filters({}).query_sets({}, 2).tolist() == [[0, 0]]
    assert PredicateIndex.from_filters({0: ()}, words=3).query_sets({}, 1).tolist() == [[1], [0], [0]]


def test_a_predicate_is_evaluated_once_for_all_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred queries with one slow filter must not cost a hundred times as much."""
    calls: list[str] = []

    def counted(function: Any) -> Any:
        def wrapped(expr: Expr, *rest: Any) -> Any:
            calls.append(str(expr))
            return function(expr, *rest)

        return wrapped

    text, number = Column("t", "s", DataType("string")), Column("t", "n", DataType("long"))
    slow = call("like", text, literal("a%"))
    filters = {s: (slow, call("<", number, literal(s)), call("=", text, literal(str(s)))) for s in range(100)}
    data = {("t", "s"): pa.array(["a", "b"]), ("t", "n"): pa.array([1, 2])}
    index = PredicateIndex.from_filters(filters)
    for name in ("holds", "evaluate"):
        monkeypatch.setattr(predicate_index, name, counted(getattr(predicate_index, name)))
    index.query_sets(data, 2)
    assert sorted(calls) == ["t.n", "t.s", str(slow)]


def test_what_is_looked_up_and_what_is_not() -> None:
    """Were all predicates evaluated one by one, every test but this one would still pass."""
    number = Column("t", "n", DataType("long"))
    one, other = call("<", number, literal(5)), call("in", number, literal(7), literal(9))
    either = call("or", one, call("not", other))
    negative = call("<", call("neg", number), literal(5))
    index = PredicateIndex.from_filters(
        {0: (one,), 1: (other,), 2: (either,), 3: (negative,), 4: (call("and", one, other),)}
    )
    assert [str(attribute.expr) for attribute in index.attributes] == ["t.n", "-t.n"]
    assert all(attribute.cutting is not None for attribute in index.attributes)
    assert [
        attribute.cutting
        for attribute in PredicateIndex.from_filters({0: (call("=", number, number),)}).attributes
    ] == [None]


def test_a_missing_column_is_named() -> None:
    index = PredicateIndex.from_filters({0: conjuncts(call("<", column("c3"), literal(5)))})
    with pytest.raises(PlanError, match=r"t\.c3"):
        index.query_sets({("t", "other"): pa.array([1])}, 1)
