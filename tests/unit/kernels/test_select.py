"""The evaluator where DuckDB and Spark differ: expected values are those of Spark SQL."""

from __future__ import annotations

import datetime as dt
import re
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.kernels.expressions import INF, NAN, alike, column, one, values
from weft.errors import FunctionError, PlanError, QueryError
from weft.kernels.expr.select import evaluate, holds
from weft.logical.expr.conversion import cast, literal
from weft.logical.expr.expression import Call
from weft.logical.expr.functions import call
from weft.logical.schema import parse_type

BIG, SMALL = 2**63 - 1, -(2**63)


@pytest.mark.parametrize(
    ("function", "kind", "left", "right", "expected"),
    [
        ("+", "long", BIG, 1, None),
        ("+", "long", BIG, -1, BIG - 1),
        ("-", "long", SMALL, 1, None),
        ("-", "long", -1, SMALL, BIG),
        ("*", "long", 2**62, 2, None),
        ("*", "long", -1, SMALL, None),
        ("*", "long", SMALL, -1, None),
        ("*", "long", SMALL, 1, SMALL),
        ("*", "long", 0, SMALL, 0),
        ("+", "int", 2**31 - 1, 1, None),
        ("*", "int", 2**16, -(2**15), -(2**31)),
        ("+", "byte", 100, 28, None),
        ("+", "byte", 100, 27, 127),
        ("/", "long", 7, 0, None),
        ("/", "long", 7, 2, 3.5),
        ("/", "double", 1.0, 0.0, None),
        ("/", "double", -1.0, -0.0, None),
        ("%", "long", -7, 3, -1),
        ("%", "long", 7, -3, 1),
        ("%", "long", 7, 0, None),
        ("%", "long", SMALL, -1, 0),
        ("%", "double", -7.5, 2.0, -1.5),
        ("%", "double", 7.5, 0.0, None),
        ("power", "double", 2.0, 0.5, 2**0.5),
        ("power", "double", -8.0, 1 / 3, NAN),
        ("=", "double", NAN, NAN, True),
        ("<", "double", INF, NAN, True),
        ("<=", "double", NAN, 1.0, False),
        ("=", "double", -0.0, 0.0, True),
        ("=", "long", None, None, None),
        ("greatest", "double", NAN, 1.0, NAN),
        ("least", "double", NAN, 1.0, 1.0),
        ("greatest", "long", None, 1, 1),
        ("nullif", "double", NAN, NAN, None),
    ],
)
def test_arithmetic_and_order(function: str, kind: str, left: Any, right: Any, expected: Any) -> None:
    assert alike(one(function, (kind, left), (kind, right)), expected)
    both = values(
        call(function, column(kind), column(kind, "y")), x=(kind, [left, None]), y=(kind, [right, right])
    )
    assert alike(both[0], expected)


@pytest.mark.parametrize(
    ("function", "kind", "value", "expected"),
    [
        ("neg", "long", SMALL, None),
        ("neg", "double", 0.0, -0.0),
        ("abs", "int", -(2**31), None),
        ("abs", "int", -5, 5),
        ("ceil", "double", 1.2, 2),
        ("ceil", "double", -1.2, -1),
        ("floor", "double", -1.2, -2),
        ("floor", "double", 1e300, BIG),
        ("floor", "double", -1e300, SMALL),
        ("ceil", "double", NAN, 0),
        ("ceil", "decimal(10,2)", Decimal("1.01"), 2),
        ("sign", "long", -5, -1.0),
        ("ln", "double", 0.0, None),
        ("ln", "double", -1.0, None),
        ("ln", "double", NAN, NAN),
        ("sqrt", "double", -1.0, NAN),
        ("exp", "double", 0.0, 1.0),
        ("round", "double", 2.5, 3.0),
        ("round", "double", -2.5, -3.0),
        ("round", "double", NAN, NAN),
        ("round", "double", -0.4, 0.0),
        ("round", "decimal(10,2)", Decimal("9.99"), Decimal("10.00")),
        ("year", "date", dt.date(1969, 12, 31), 1969),
        ("hour", "date", dt.date(2024, 1, 1), 0),
        ("unix_micros", "timestamp", dt.datetime(1970, 1, 1, 0, 0, 1), 1_000_000),
        ("length", "string", "日本", 2),
        ("reverse", "string", "aé", "éa"),
        ("trim", "string", " \ta ", "\ta"),
    ],
)
def test_functions_of_one(function: str, kind: str, value: Any, expected: Any) -> None:
    assert alike(one(function, (kind, value)), expected)
    assert one(function, (kind, None)) is None


@pytest.mark.parametrize(
    ("value", "places", "expected"),
    [
        (2.675, 2, 2.68),
        (1.005, 2, 1.01),
        (-2.675, 2, -2.68),
        (0.285, 2, 0.29),
        (1250.0, -2, 1300.0),
        (1e300, 2, 1e300),
    ],
)
def test_doubles_round_as_they_print(value: float, places: int, expected: float) -> None:
    assert values(call("round", column("double"), literal(places)), x=("double", [value])) == [expected]


@given(st.floats(-1e6, 1e6), st.integers(0, 5))
def test_rounding_against_decimals(value: float, places: int) -> None:
    exact = Decimal(repr(value)).quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_UP)
    assert values(call("round", column("double"), literal(places)), x=("double", [value])) == [float(exact)]


def test_integers_round_to_tens() -> None:
    rounded = call("round", column("int"), literal(-1))
    assert values(rounded, x=("int", [15, -15, 14, 2**31 - 1, None])) == [20, -20, 10, None, None]
    with pytest.raises(QueryError, match="constant number of places"):
        values(call("round", column("int"), column("int")), x=("int", [1]))


digits = st.integers(-(10**9), 10**9)


@given(digits, digits, st.sampled_from(["+", "-", "*", "/", "%"]), st.integers(0, 4), st.integers(0, 4))
def test_decimals_are_exact(left: int, right: int, operator: str, scale: int, other_scale: int) -> None:
    kinds = [f"decimal(14,{scale})", f"decimal(14,{other_scale})"]
    a, b = Decimal(left).scaleb(-scale), Decimal(right).scaleb(-other_scale)
    expr = call(operator, column(kinds[0]), column(kinds[1], "y"))
    (found,) = values(expr, x=(kinds[0], [a]), y=(kinds[1], [b]))
    with localcontext() as context:
        context.prec = 60
        if b == 0 and operator in ("/", "%"):
            assert found is None
            return
        exact = {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else a, "%": a % b if b else a}[operator]
        wanted = exact.quantize(Decimal(1).scaleb(-expr.type.scale), rounding=ROUND_HALF_UP)
    fits = abs(wanted) < Decimal(10) ** (expr.type.precision - expr.type.scale)
    assert found == (wanted if fits else None)


def test_connectives_have_three_values() -> None:
    a, b = column("boolean", "a"), column("boolean", "b")
    three = [True, False, None]
    grid = {"a": ("boolean", [x for x in three for _ in three]), "b": ("boolean", three * 3)}
    assert values(call("and", a, b), **grid) == [True, False, None, False, False, False, None, False, None]
    assert values(call("or", a, b), **grid) == [True, True, True, True, False, None, True, None, None]
    assert values(call("not", a), **grid)[::3] == [False, True, None]


def test_in_with_null_is_never_false() -> None:
    options = (literal(1), literal(2), literal(None))
    member = Call(
        "in",
        (column("int"), *(Call("cast", (o,), parse_type("int")) for o in options)),
        parse_type("boolean"),
    )
    assert values(member, x=("int", [1, 3, None])) == [True, None, None]
    doubles = call("in", column("double"), literal(0.0), literal(1.0))
    assert values(doubles, x=("double", [-0.0, 1.0, NAN, None])) == [True, True, False, None]


def test_case_takes_the_first_that_is_true() -> None:
    x = column("int")
    expr = call(
        "case",
        call(">", x, literal(10)),
        literal("big"),
        call(">", x, literal(5)),
        literal("middle"),
        literal(None),
    )
    assert values(expr, x=("int", [11, 6, 1, None])) == ["big", "middle", None, None]


texts = st.text(st.sampled_from("ab%_\\é日 "), max_size=8)


def like(text: str, pattern: str) -> bool | None:
    """LIKE by regular expression; None for a pattern that Spark refuses."""
    if not re.fullmatch(r"(?s)(?:[^\\]|\\[%_\\])*", pattern):
        return None
    parts = re.findall(r"(?s)\\.|.", pattern)
    known = {"%": ".*", "_": "."}
    return bool(re.fullmatch("(?s)" + "".join(known.get(p) or re.escape(p[-1]) for p in parts), text))


def replace(text: str, old: str, new: str) -> str:
    return text.replace(old, new) if old else text


def levenshtein(one: str, other: str) -> int:
    row = list(range(len(one) + 1))
    for j, b in enumerate(other, 1):
        diagonal, row[0] = row[0], j
        for i, a in enumerate(one, 1):
            diagonal, row[i] = row[i], min(diagonal + (a != b), row[i] + 1, row[i - 1] + 1)
    return row[-1]


TWO: dict[str, Any] = {
    "like": like,
    "levenshtein": levenshtein,
    "contains": lambda a, b: b in a,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "concat": lambda a, b: a + b,
}


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=6), st.sampled_from(sorted(TWO)))
def test_functions_of_two_texts(pairs: list[tuple[str, str]], function: str) -> None:
    lefts, rights = (list(side) for side in zip(*pairs, strict=True))
    x, y = column("string"), column("string", "y")
    expected = [TWO[function](a, b) for a, b in pairs]
    table = {"x": ("string", [*lefts, None, "a"]), "y": ("string", [*rights, "a", None])}
    assert values(call(function, x, y), **table) == [*expected, None, None]
    assert values(call(function, x, literal(rights[0])), **table)[0] == expected[0]
    assert values(call(function, literal(lefts[0]), y), **table)[0] == expected[0]
    assert values(call(function, literal(lefts[0]), literal(rights[0])), **table)[0] == expected[0]


@given(st.text("abc", min_size=60, max_size=70), st.text("abc", min_size=1, max_size=80))
def test_distances_of_long_texts(left: str, right: str) -> None:
    """Either side of the 64 characters that a machine word holds."""
    assert one("levenshtein", ("string", left), ("string", right)) == levenshtein(left, right)


@given(texts, texts, texts)
def test_replacing(text: str, old: str, new: str) -> None:
    expected = replace(text, old, new)
    assert one("replace", ("string", text), ("string", old), ("string", new)) == expected
    constants = call("replace", column("string"), literal(old), literal(new))
    assert values(constants, x=("string", [text, None])) == [expected, None]


def substring(text: str, first: int, count: int) -> str:
    begin = first - 1 if first > 0 else len(text) + first if first < 0 else 0
    return text[max(0, begin) : max(0, begin + max(0, count))]


@given(texts, st.integers(-10, 10), st.integers(-2, 10))
def test_substrings(text: str, first: int, count: int) -> None:
    expected = substring(text, first, count)
    assert one("substring", ("string", text), ("int", first), ("int", count)) == expected
    rest = call("substring", column("string"), literal(first))
    assert values(rest, x=("string", [None, text])) == [None, substring(text, first, 100)]


@pytest.mark.parametrize(
    ("day", "months", "expected"),
    [
        (dt.date(2024, 1, 31), 1, dt.date(2024, 2, 29)),
        (dt.date(2023, 1, 31), 1, dt.date(2023, 2, 28)),
        (dt.date(2024, 2, 29), 12, dt.date(2025, 2, 28)),
        (dt.date(1970, 3, 31), -1, dt.date(1970, 2, 28)),
        (dt.date(1969, 12, 31), -22, dt.date(1968, 2, 29)),
    ],
)
def test_adding_months(day: dt.date, months: int, expected: dt.date) -> None:
    assert one("add_months", ("date", day), ("int", months)) == expected


def test_intervals() -> None:
    utc = dt.timezone.utc
    ts, other = column("timestamp"), column("timestamp", "y")
    moment = dt.datetime(2024, 3, 1, 12, tzinfo=utc)
    table: dict[str, tuple[str, list[Any]]] = {
        "x": ("timestamp", [moment, None]),
        "y": ("timestamp", [moment - dt.timedelta(days=1), moment]),
    }
    second = literal(dt.timedelta(seconds=1))
    assert values(call("+", ts, second), **table) == [moment + dt.timedelta(seconds=1), None]
    assert values(call("-", ts, other), **table) == [dt.timedelta(days=1), None]
    assert values(call("*", call("-", ts, other), literal(2)), **table) == [dt.timedelta(days=2), None]
    assert values(call("+", cast(ts, parse_type("date")), second), **table)[0] == dt.datetime(
        2024, 3, 1, 0, 0, 1, tzinfo=utc
    )
    within = call("<=", call("-", ts, other), literal(dt.timedelta(hours=24)))
    assert values(within, **table) == [True, None]


def test_predicates_hold_where_they_are_true() -> None:
    data = {("t", "x"): pa.array([1, None, 3])}
    assert holds(call(">", column("long"), literal(1)), data, 3).tolist() == [False, False, True]
    assert holds(literal(True), data, 3).tolist() == [True] * 3
    assert holds(literal(None), data, 3).tolist() == [False] * 3
    assert evaluate(literal(None), data, 2).to_pylist() == [None, None]


def test_what_is_unknown_is_named() -> None:
    with pytest.raises(PlanError, match=r"no column t\.y"):
        evaluate(column("long", "y"), {("t", "x"): pa.array([1])}, 1)
    with pytest.raises(PlanError, match="no kernel for the function >"):  # its normal form is <
        evaluate(
            Call(">", (column("long"), column("long")), parse_type("boolean")), {("t", "x"): pa.array([1])}, 1
        )
    with pytest.raises(FunctionError, match="no function frobnicate"):
        evaluate(Call("frobnicate", (column("long"),), parse_type("long")), {("t", "x"): pa.array([1])}, 1)


def test_every_function_of_the_language_has_a_kernel() -> None:
    from weft.kernels.expr.select import _FUNCTIONS
    from weft.logical.expr.functions import FUNCTIONS

    normalised = {">", ">="} | {name for name, entry in FUNCTIONS.items() if entry.rewritten}
    assert set(FUNCTIONS) - normalised <= set(_FUNCTIONS)


def test_columns_of_other_widths_are_brought_to_the_type() -> None:
    """A source may store an int as 64 bits or a timestamp in milliseconds without a zone."""
    data = {("t", "x"): pa.array([1, 2], pa.int64()), ("t", "y"): pa.array([1, 2], pa.timestamp("ms"))}
    assert evaluate(call("+", column("int"), literal(1)), data, 2).type == pa.int32()
    assert evaluate(call("unix_micros", column("timestamp", "y")), data, 2).to_pylist() == [1000, 2000]
    nulls = {("t", "x"): pa.nulls(2)}
    assert evaluate(call("upper", column("string")), nulls, 2).to_pylist() == [None, None]


def test_large_columns_cross_no_border_wrongly() -> None:
    """Vectorised code has edges at its vector and buffer sizes."""
    size = 70_003
    numbers = np.arange(size)
    texts = pa.array([f"{i:x}" for i in range(size)])
    data = {("t", "x"): pa.chunked_array([numbers[:5], numbers[5:]]), ("t", "s"): texts}
    total = call("+", column("long"), call("length", column("string", "s")))
    expected = numbers + np.array([len(f"{i:x}") for i in range(size)])
    assert np.array_equal(evaluate(total, data, size).to_numpy(), expected)
