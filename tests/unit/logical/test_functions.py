"""Types: what compares with what, and what an expression becomes."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone

import pytest

from weft.errors import CatalogError, QueryError
from weft.logical.expr.conversion import cast, coerce, literal
from weft.logical.expr.expression import Column, Expr, Literal, make_call, to_sql
from weft.logical.expr.functions import FUNCTIONS, call, named_functions
from weft.logical.schema import DataType, Field, Schema, Stream, parse_type

BOOLEAN = DataType("boolean")


def column(type_: str) -> Column:
    return Column("x", type_.split("(")[0], parse_type(type_))


def compared(left: Expr, right: Expr) -> str:
    return to_sql(call("<", left, right))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("int", "long", "CAST(x.int AS BIGINT) < x.long"),
        ("byte", "short", "CAST(x.byte AS SMALLINT) < x.short"),
        ("int", "float", "CAST(x.int AS DOUBLE) < CAST(x.float AS DOUBLE)"),
        ("float", "double", "CAST(x.float AS DOUBLE) < x.double"),
        ("long", "decimal(10,2)", "CAST(x.long AS DECIMAL(22,2)) < CAST(x.decimal AS DECIMAL(22,2))"),
        ("decimal(10,2)", "double", "CAST(x.decimal AS DOUBLE) < x.double"),
        ("date", "timestamp", "CAST(x.`date` AS TIMESTAMP) < x.`timestamp`"),
    ],
)
def test_columns_meet_in_the_wider_type(left: str, right: str, expected: str) -> None:
    """Two columns would be compared by their bits."""
    assert compared(column(left), column(right)) == expected


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("byte", 5, "x.byte < 5"),
        ("byte", 300, "CAST(x.byte AS INT) < 300"),
        ("long", 5, "x.long < 5"),
        ("double", 5, "x.double < 5.0"),
        ("float", 5, "CAST(x.float AS DOUBLE) < 5.0"),
        ("long", 1.5, "CAST(x.long AS DOUBLE) < 1.5"),
        ("decimal(10,2)", 5, "x.decimal < CAST(5 AS DECIMAL(10,2))"),
        ("decimal(2,2)", 5, "CAST(x.decimal AS DECIMAL(12,2)) < CAST(5 AS DECIMAL(12,2))"),
        ("timestamp", "2024-01-01", "x.`timestamp` < TIMESTAMP '2024-01-01 00:00:00'"),
        ("date", "2024-01-01", "x.`date` < DATE '2024-01-01'"),
        ("string", None, "x.string < NULL"),
    ],
)
def test_constants_take_the_type_of_the_column(
    type_: str, value: int | float | str | None, expected: str
) -> None:
    """A filter would cast every tuple instead of its constant."""
    assert compared(column(type_), literal(value)) == expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("string", "long", "CAST(x.string AS BIGINT) < x.long"),
        ("int", "string", "CAST(x.int AS BIGINT) < CAST(x.string AS BIGINT)"),
        ("string", "float", "CAST(x.string AS DOUBLE) < CAST(x.float AS DOUBLE)"),
        ("string", "decimal(10,2)", "CAST(x.string AS DOUBLE) < CAST(x.decimal AS DOUBLE)"),
        ("timestamp", "string", "x.`timestamp` < CAST(x.string AS TIMESTAMP)"),
        ("string", "date", "CAST(x.string AS DATE) < x.`date`"),
    ],
)
def test_a_text_is_compared_as_what_it_is_compared_with(left: str, right: str, expected: str) -> None:
    """Spark finds a partner for '7' among numbers, and Weft would not."""
    assert compared(column(left), column(right)) == expected


@pytest.mark.parametrize(
    ("type_", "text", "expected"),
    [
        ("int", "7", "x.int < 7"),
        ("byte", " 7 ", "x.byte < 7"),
        ("byte", "300", "CAST(x.byte AS BIGINT) < 300"),
        ("int", "seven", "CAST(x.int AS BIGINT) < CAST('seven' AS BIGINT)"),
        ("double", "7.5", "x.double < 7.5"),
        ("double", "1e400", "x.double < CAST('1e400' AS DOUBLE)"),
    ],
)
def test_a_constant_text_takes_the_type_of_the_column(type_: str, text: str, expected: str) -> None:
    """A filter would cast every tuple instead of its constant."""
    assert compared(column(type_), literal(text)) == expected


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("boolean", "int"),
        ("timestamp", "long"),
        ("interval", "string"),
        ("binary", "int"),
    ],
)
def test_what_does_not_compare(left: str, right: str) -> None:
    """A comparison would silently be by text."""
    with pytest.raises(QueryError, match=f"cannot compare {left} with {right}"):
        call("=", column(left), column(right))


@pytest.mark.parametrize(
    ("function", "types", "result"),
    [
        ("+", ("byte", "byte"), "byte"),
        ("+", ("int", "long"), "long"),
        ("/", ("int", "int"), "double"),
        ("/", ("decimal(10,2)", "int"), "decimal(21,13)"),
        ("/", ("decimal(38,6)", "decimal(38,6)"), "decimal(38,6)"),
        ("*", ("decimal(10,2)", "decimal(5,3)"), "decimal(16,5)"),
        ("*", ("decimal(38,10)", "decimal(38,10)"), "decimal(38,6)"),
        ("+", ("decimal(10,2)", "decimal(5,3)"), "decimal(12,3)"),
        ("%", ("decimal(10,2)", "decimal(5,3)"), "decimal(5,3)"),
        ("*", ("decimal(10,2)", "short"), "decimal(16,2)"),
        ("abs", ("interval",), "interval"),
        ("-", ("timestamp", "timestamp"), "interval"),
        ("-", ("timestamp", "interval"), "timestamp"),
        ("+", ("date", "interval"), "timestamp"),
        ("*", ("interval", "int"), "interval"),
        ("length", ("string",), "int"),
        ("abs", ("short",), "short"),
        ("coalesce", ("byte", "long", "int"), "long"),
        ("year", ("date",), "int"),
        ("add_months", ("timestamp", "int"), "date"),
        ("unix_micros", ("timestamp",), "long"),
    ],
)
def test_types_of_results(function: str, types: tuple[str, ...], result: str) -> None:
    """A column of the result would have another type than the one announced."""
    assert str(call(function, *map(column, types)).type) == result


def test_arithmetic_is_as_wide_as_its_operands() -> None:
    """127 + 1 would overflow, because the constant was squeezed into the column's byte."""
    assert call("+", column("byte"), literal(1)).type == DataType("int")


@pytest.mark.parametrize(
    ("function", "types"),
    [
        *[("+", ("string", "date")), ("-", ("interval", "timestamp")), ("*", ("interval", "interval"))],
        *[("lower", ("interval",)), ("not", ("int",)), ("neg", ("boolean",)), ("%", ("boolean", "int"))],
        *[("year", ("int",)), ("and", ("boolean", "string")), ("coalesce", ("int", "string"))],
        *[("case", ("int", "int", "int")), ("in", ("int", "boolean")), ("abs", ("timestamp",))],
    ],
)
def test_what_does_not_work(function: str, types: tuple[str, ...]) -> None:
    """An expression would fail on the first tuple instead of at once."""
    with pytest.raises(QueryError):
        call(function, *map(column, types))


@pytest.mark.parametrize(
    ("from_", "to", "allowed"),
    [
        ("long", "string", True),
        ("string", "decimal(10,2)", True),
        ("boolean", "int", True),
        ("date", "timestamp", True),
        ("timestamp", "long", False),
        ("interval", "string", False),
        ("long", "timestamp", False),
        ("date", "boolean", False),
    ],
)
def test_casts(from_: str, to: str, allowed: bool) -> None:
    """A cast that means nothing would be accepted."""
    if allowed:
        assert cast(column(from_), parse_type(to)).type == parse_type(to)
    else:
        with pytest.raises(QueryError, match="cannot cast"):
            cast(column(from_), parse_type(to))


def test_casts_of_times_are_constants() -> None:
    """TIMESTAMP '…' and CAST('…' AS TIMESTAMP) would be two queries."""
    assert cast(literal("2024-01-01"), DataType("date")) == literal(date(2024, 1, 1))
    with pytest.raises(QueryError, match="is not a timestamp"):
        cast(literal("soon"), DataType("timestamp"))
    assert coerce(literal(None), DataType("long")) == Literal(None, DataType("long"))


def test_literals() -> None:
    """Constants that Python finds equal would be one constant."""
    assert literal(1) != literal(True)
    assert literal(1) != literal(1.0)
    assert literal(0.0) != literal(-0.0)
    assert literal(1) != Literal(1, DataType("long"))
    assert len({literal(0.0), literal(-0.0), literal(0), literal(False)}) == 4
    zone = timezone(timedelta(hours=2))
    assert literal(datetime(2024, 1, 1, 12, tzinfo=zone)) == literal(datetime(2024, 1, 1, 10))
    assert str(literal(1 << 40).type) == "long"


@pytest.mark.parametrize(
    "value",
    [
        1 << 63,
        float("nan"),
        float("inf"),
        timedelta(days=100_001),
        "\ud800",
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
    ],
)
def test_constants_that_cannot_be_held(value: int | float | str | datetime | timedelta) -> None:
    """A constant would be rounded, or break the file it is written to."""
    with pytest.raises(QueryError):
        literal(value)


def test_normal_form() -> None:
    """One predicate, spelt in two ways, would be two."""
    a, b, ok = column("int"), column("long"), column("boolean")
    assert call(">", a, b) == call("<", b, a)
    assert call("not", call("<", a, b)) == call("<=", b, a)
    assert call("not", call("not", ok)) == ok
    assert call("and", ok, call("and", ok, literal(True))) == ok
    assert call("or", ok, literal(True)) == literal(True)
    assert call("+", a, b) == call("+", b, a)
    assert call("in", a, literal(2), literal(1), literal(2)) == call("in", a, literal(1), literal(2))
    assert make_call("not", [call("and", ok, call("=", a, b))], BOOLEAN) == call(
        "or", call("not", ok), call("<>", a, b)
    )


def test_number_of_arguments() -> None:
    """An argument too many would be ignored."""
    with pytest.raises(QueryError, match="lower takes 1 argument, not 2"):
        call("lower", column("string"), column("string"))
    with pytest.raises(QueryError, match="round takes 1 to 2 arguments, not 3"):
        call("round", column("int"), literal(1), literal(1))
    with pytest.raises(QueryError, match="coalesce takes 1 arguments or more, not 0"):
        call("coalesce")
    with pytest.raises(QueryError, match="there is no function lowr"):
        call("lowr")
    assert set(named_functions()) < set(FUNCTIONS)


# Schemas


def test_schemas() -> None:
    """A schema would be read otherwise than Spark reads it."""
    schema = Schema.parse(" a\tBIGINT, b: decimal( 5 ,2 ),c timestamp_ltz")
    assert str(schema) == "a long, b decimal(5,2), c timestamp"
    assert str(Stream("s", schema, "C").event_time) == "c"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a banana",
        "a long, A int",
        "1a long",
        "a decimal(39,2)",
        "a decimal(0,0)",
        f"a decimal({'9' * 5000},0)",
    ],
)
def test_schemas_that_make_no_sense(text: str) -> None:
    """A stream would be registered that no query can read."""
    with pytest.raises(CatalogError):
        Schema.parse(text)


def test_streams_check_themselves() -> None:
    """A stream's event time could be a text."""
    schema = Schema((Field("a", DataType("long")), Field("ts", DataType("timestamp"))))
    with pytest.raises(CatalogError, match="not a timestamp"):
        Stream("s", schema, "a")
    with pytest.raises(CatalogError, match="no column 'tss'"):
        Stream("s", schema, "tss")
    with pytest.raises(CatalogError, match="not a stream name"):
        Stream("a b", schema)
    with pytest.raises(CatalogError, match="lateness is negative"):
        Stream("s", schema, "ts", timedelta(seconds=-1))
