"""Constants and types as SQL writes them.

Guarantees: a constant that Weft cannot hold exactly is an error, never a rounded value; months and years are no
intervals.
"""

from __future__ import annotations

from decimal import Decimal

from sqlglot import exp

from weft.errors import QueryError
from weft.logical.expr.conversion import literal
from weft.logical.expr.expression import Literal
from weft.logical.schema import DataType
from weft.logical.times import parse_interval
from weft.sql.reject import refuse_arguments
from weft.sql.source import SqlText

__all__ = ["interval", "literal_of", "type_of"]

_TYPES = {
    exp.DType.TINYINT: "byte",
    exp.DType.SMALLINT: "short",
    exp.DType.INT: "int",
    exp.DType.BIGINT: "long",
    exp.DType.FLOAT: "float",
    exp.DType.DOUBLE: "double",
    exp.DType.BOOLEAN: "boolean",
    exp.DType.TEXT: "string",
    exp.DType.BINARY: "binary",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPTZ: "timestamp",
    exp.DType.TIMESTAMPLTZ: "timestamp",
}
_LONGEST_INTEGER = 19
_MONTHS = (
    "with n months, of which a year has 12 (negative ones to subtract), write add_months(x, n) of a date, and "
    "add_months(x, n) + (x - CAST(x AS DATE)) of a timestamp"
)


def literal_of(node: exp.Literal | exp.Boolean | exp.Null, sign: str = "") -> Literal:
    """The constant that a node stands for."""
    if isinstance(node, exp.Null):
        return literal(None)
    if isinstance(node, exp.Boolean):
        return literal(bool(node.this))
    return literal(node.name) if node.is_string else _number(sign + node.name)


def _number(text: str) -> Literal:
    digits = text.lstrip("-0")
    if digits.isdigit() and len(digits) > _LONGEST_INTEGER:
        raise QueryError(f"{text[:40]} does not fit in 64 bits")
    try:
        value = int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        raise QueryError(f"cannot read the number {text[:40]}") from None
    if isinstance(value, float) and _is_rounded(text, value):
        raise QueryError(
            f"{text[:40]} has more digits than a double, which would be {value!r}",
            hint="leave out the point, or write CAST('…' AS DECIMAL(38,0))",
        )
    return literal(value)


def _is_rounded(text: str, value: float) -> bool:
    """Whether a whole number that is written with a point was rounded to another number."""
    whole, point, fraction = text.partition(".")
    if not point or not whole.lstrip("-").isdigit() or fraction.strip("0"):
        return False
    return abs(value) != float("inf") and Decimal(whole) != Decimal(value)


def interval(node: exp.Interval) -> Literal:
    """The span of time that INTERVAL '5' SECOND stands for."""
    amount, unit = node.this, node.args.get("unit")
    if not isinstance(amount, exp.Literal):
        raise QueryError("INTERVAL takes a constant", hint="multiply: x * INTERVAL '1' SECOND")
    if unit is not None and not isinstance(unit, exp.Var):
        raise QueryError(
            "an INTERVAL has one unit", hint="add two intervals, or write INTERVAL '1 day 2 hours'"
        )
    text = f"{amount.name} {unit.name}" if unit is not None else amount.name
    if any(word.startswith(("month", "year", "quarter")) for word in text.lower().split()):
        raise QueryError(f"INTERVAL {text}: months and years differ in length", hint=_MONTHS)
    return literal(parse_interval(text))


def type_of(source: SqlText, node: exp.Cast) -> DataType:
    """The type that CAST names."""
    to = node.args["to"]
    kind = to.this if isinstance(to, exp.DataType) else None
    if kind in _TYPES:
        refuse_arguments(source, to, "this", "nested")
        return DataType(_TYPES[kind])
    if kind is exp.DType.DECIMAL:
        refuse_arguments(source, to, "this", "nested", "expressions")
        return DataType("decimal", *_precision(to))
    name = source.text_of(source.span(to)) if source.span(to) != source.whole else str(to)
    raise QueryError(
        f"there is no type {name}", hint="cast to a type of a stream's columns, as BIGINT or STRING"
    )


def _precision(to: exp.DataType) -> tuple[int, int]:
    numbers = [param.name for param in to.expressions]
    if not all(number.isdigit() and len(number) < 3 for number in numbers) or len(numbers) > 2:
        raise QueryError(
            f"decimal({', '.join(numbers)}) is not a type", hint="write DECIMAL(precision, scale)"
        )
    precision, scale = (*map(int, numbers), 0)[:2] if numbers else (10, 0)
    return precision, scale
