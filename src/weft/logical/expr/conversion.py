"""Constants, casts, and the types in which expressions meet.

Guarantees: a constant has the type that Spark would give it. `coerce` converts a constant where it is, if that loses
nothing, and wraps anything else in an explicit cast. `common_type` is the one that holds the values of two expressions,
and `compared_type` the one in which Spark compares them: there, a text becomes what it is compared with.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone

from weft.errors import QueryError
from weft.logical.expr.expression import BOOLEAN, Call, Expr, Literal, Value, to_sql
from weft.logical.schema import DataType

__all__ = [
    "DATE",
    "DOUBLE",
    "INT",
    "INTERVAL",
    "LONG",
    "NULL",
    "STRING",
    "TIMESTAMP",
    "as_decimal",
    "cast",
    "coerce",
    "common_type",
    "compared_type",
    "literal",
    "wider",
]

INT, LONG, DOUBLE = DataType("int"), DataType("long"), DataType("double")
STRING, DATE, TIMESTAMP = DataType("string"), DataType("date"), DataType("timestamp")
INTERVAL, NULL = DataType("interval"), DataType("null")

_INT_BITS = {"byte": 8, "short": 16, "int": 32, "long": 64}
_INT_DIGITS = {"byte": 3, "short": 5, "int": 10, "long": 20}


def literal(value: Value) -> Literal:
    """A constant with the type Spark would give it; fractions are doubles.

    >>> str(literal(1 << 40).type), str(literal("a").type)
    ('long', 'string')
    """
    if isinstance(value, bool):
        return Literal(value, BOOLEAN)
    if isinstance(value, int):
        if not _fits(value, LONG):
            raise QueryError(
                f"{value} does not fit in 64 bits", hint=f"write CAST('{value}' AS DECIMAL(38, 0))"
            )
        return Literal(value, INT if _fits(value, INT) else LONG)
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        raise QueryError(f"{value} is not a constant", hint=f"write CAST('{value}' AS DOUBLE)")
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        raise QueryError("a string with half a surrogate pair is not a constant")
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = _in_utc(value)
    if isinstance(value, timedelta) and abs(value) > timedelta(days=100_000):
        raise QueryError(
            f"an interval of {value.days} days is longer than 100,000 days", hint="use a shorter one"
        )
    return Literal(value, _TYPE_OF[type(value)])


_TYPE_OF: dict[type, DataType] = {type(None): NULL, float: DOUBLE, str: STRING}
_TYPE_OF |= {date: DATE, datetime: TIMESTAMP, timedelta: INTERVAL}


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(timezone.utc).replace(tzinfo=None)
    except OverflowError:
        raise QueryError(f"{moment} is not between the years 1 and 9999 in UTC") from None


def _fits(value: int, type_: DataType) -> bool:
    return -(1 << (_INT_BITS[type_.name] - 1)) <= value < 1 << (_INT_BITS[type_.name] - 1)


def cast(expr: Expr, to: DataType) -> Expr:
    """The expression cast to a type, unless it has it already; a text that names a time becomes a constant."""
    if expr.type == to:
        return expr
    if isinstance(expr, Literal) and isinstance(expr.value, str) and to.is_time:
        return _time_literal(expr.value, to)
    castable = to.name == "string" or expr.type.name in ("string", "null")
    numbers = (expr.type.is_numeric or expr.type == BOOLEAN) and (to.is_numeric or to == BOOLEAN)
    times = expr.type.is_time and to.is_time
    nested = to.is_nested or expr.type.is_nested
    if not (castable or numbers or times) or INTERVAL in (expr.type, to) or to == NULL or nested:
        raise QueryError(f"cannot cast {to_sql(expr)} from {expr.type} to {to}")
    return Call("cast", (expr,), to)


def coerce(expr: Expr, to: DataType) -> Expr:
    """As `cast`, but a constant is converted at once where that loses nothing."""
    if isinstance(expr, Literal) and expr.type != to:
        value = expr.value
        if value is None:
            return Literal(None, to)
        if isinstance(value, int) and not isinstance(value, bool):
            if to.is_integer and _fits(value, to):
                return Literal(value, to)
            if to == DOUBLE and abs(value) <= 1 << 53:
                return Literal(float(value), DOUBLE)
        if isinstance(value, str) and to.is_numeric and (number := _number_in(value, to)) is not None:
            return number
    return cast(expr, to)


def _number_in(text: str, to: DataType) -> Literal | None:
    """The number that a text plainly is, if a type holds it exactly."""
    plain = text.strip(" ")
    if to.is_integer and re.fullmatch(r"[+-]?\d{1,19}", plain, re.ASCII) and _fits(int(plain), to):
        return Literal(int(plain), to)
    if to == DOUBLE and re.fullmatch(r"[+-]?\d{1,15}(\.\d{1,15})?", plain, re.ASCII):
        return Literal(float(plain), DOUBLE)
    return None


def _time_literal(text: str, to: DataType) -> Literal:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise QueryError(f"{text!r} is not a {to}", hint="write it as in '2024-03-01 12:30:00'") from None
    return literal(moment.date() if to == DATE else moment)


def compared_type(left: Expr, right: Expr) -> DataType | None:
    """The type in which two expressions compare, or None where they do not."""
    for text, other in ((left, right), (right, left)):
        if text.type == STRING and (other.type.is_numeric or other.type.name in _READ_FROM_TEXTS):
            return _type_of_text(text, other.type)
    return common_type(left, right)


_READ_FROM_TEXTS = ("boolean", "date", "timestamp", "binary")


def _type_of_text(text: Expr, other: DataType) -> DataType:
    """As what a text is compared with a value of another type; whole numbers meet in 64 bits, others in doubles."""
    if not other.is_numeric:
        return other
    if not other.is_integer:
        return DOUBLE
    narrow = isinstance(text, Literal) and _number_in(str(text.value), other) is not None
    return other if narrow else LONG


def common_type(left: Expr, right: Expr) -> DataType | None:
    """The type that holds the values of two expressions, or None where there is none."""
    one, other = left.type, right.type
    if one == other or other == NULL:
        return one
    if one == NULL:
        return other
    if one.is_numeric and other.is_numeric:
        return _common_number(left, right)
    if one.is_time and other.is_time:
        return TIMESTAMP
    for this, that in ((left, other), (right, one)):
        if isinstance(this, Literal) and this.type == STRING and that.is_time:
            return that
    return None


def _common_number(left: Expr, right: Expr) -> DataType:
    for this, that in ((left, right.type), (right, left.type)):
        if isinstance(this, Literal) and this.type.is_integer and isinstance(this.value, int):
            if that.is_integer and _fits(this.value, that):
                return that
            if that.name == "decimal" and len(str(abs(this.value))) <= that.precision - that.scale:
                return that
            if that.name == "float":
                return DOUBLE
    return wider(left.type, right.type)


def wider(one: DataType, other: DataType) -> DataType:
    """The numeric type that holds the values of both, as Spark widens."""
    if "double" in (one.name, other.name):
        return DOUBLE
    if "float" in (one.name, other.name):
        return one if one.name == other.name else DOUBLE
    if "decimal" in (one.name, other.name):
        return _common_decimal(one, other)
    return max(one, other, key=lambda type_: _INT_BITS[type_.name])


def _common_decimal(one: DataType, other: DataType) -> DataType:
    sides = [
        type_ if type_.name == "decimal" else DataType("decimal", _INT_DIGITS[type_.name])
        for type_ in (one, other)
    ]
    scale = max(side.scale for side in sides)
    whole = max(side.precision - side.scale for side in sides)
    return DataType("decimal", min(38, whole + scale), min(scale, 38))


def as_decimal(expr: Expr) -> DataType:
    """The type of a decimal that holds all digits of a whole number or decimal."""
    if expr.type.name == "decimal":
        return expr.type
    if isinstance(expr, Literal):
        return DataType("decimal", len(str(expr.value).lstrip("-")))
    return DataType("decimal", _INT_DIGITS[expr.type.name])
