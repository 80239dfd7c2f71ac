"""Columns, literals and calls, and how they are written.

Guarantees: nodes are frozen and typed; `to_sql` prints a text that binds back to the same value. They are put together
by `weft.logical.expr.expression`, which normalises.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from weft.logical.names import identifier
from weft.logical.schema import DataType
from weft.logical.times import format_duration

__all__ = ["BOOLEAN", "Call", "Column", "Expr", "Literal", "Value", "identifier", "to_sql", "type_sql"]

Value = None | bool | int | float | str | date | datetime | timedelta

BOOLEAN = DataType("boolean")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the input that goes by ``alias``."""

    alias: str
    name: str
    type: DataType

    def __str__(self) -> str:
        return to_sql(self)


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: Value
    type: DataType

    def __str__(self) -> str:
        return to_sql(self)

    def __eq__(self, other: object) -> bool:
        # Python finds 1 == True == 1.0 and 0.0 == -0.0; a literal's identity is its text and its type.
        return (
            isinstance(other, Literal)
            and self.type == other.type
            and type(self.value) is type(other.value)
            and str(self.value) == str(other.value)
        )

    def __hash__(self) -> int:
        return hash((self.type, str(self.value)))


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function applied to arguments; built by `make_call`, which normalises."""

    function: str
    args: tuple[Expr, ...]
    type: DataType

    def __str__(self) -> str:
        return to_sql(self)


Expr = Column | Literal | Call

# How tightly an operator binds; what is not listed is written as a function call.
_PRECEDENCE = {"or": 1, "and": 2, "not": 3, "=": 4, "<>": 4, "<": 4, "<=": 4}
_PRECEDENCE |= {
    "in": 4,
    "like": 4,
    "ilike": 4,
    "rlike": 4,
    "is null": 4,
    "+": 5,
    "-": 5,
    "*": 6,
    "/": 6,
    "%": 6,
    "neg": 7,
}
_ENCLOSED = {"&": "&", "^": "^", "|": "|", "div": "DIV"}  # operators that are written in parentheses
_TURNED = {"<": ">", "<=": ">="}
_TYPE_SQL = {"long": "BIGINT", "short": "SMALLINT", "byte": "TINYINT"}


def to_sql(expr: Expr) -> str:
    """The expression as SQL.

    >>> long = DataType("long")
    >>> to_sql(Call("<", (Literal(3, long), Column("v", "likes", long)), BOOLEAN))
    'v.likes > 3'
    """
    return _sql(expr, 0)


def _sql(expr: Expr, context: int) -> str:
    if isinstance(expr, Column):
        return f"{identifier(expr.alias)}.{identifier(expr.name)}"
    if isinstance(expr, Literal):
        text = _literal_sql(expr)
        return f"({text})" if context >= 7 and text.startswith("-") else text
    level = _PRECEDENCE.get(expr.function)
    if level is None:
        return _function_sql(expr)
    text = _operator_sql(expr, level)
    return f"({text})" if level < context or (level == context == 4) else text


def _operator_sql(expr: Call, level: int) -> str:
    name = expr.function
    if name in ("and", "or"):
        return f" {name.upper()} ".join(_sql(arg, level + 1) for arg in expr.args)
    first = _sql(expr.args[0], level if name in ("+", "-", "*", "/", "%") else level + 1)
    if name == "not":
        return f"NOT {first}"
    if name == "neg":
        return f"-{first}"
    if name == "is null":
        return f"{first} IS NULL"
    if name == "in":
        return f"{first} IN ({', '.join(map(to_sql, expr.args[1:]))})"
    second = _sql(expr.args[1], level + 1)
    if name in _TURNED and isinstance(expr.args[0], Literal):  # people write the constant last
        return f"{second} {_TURNED[name]} {first}"
    return f"{first} {name.upper()} {second}"


def _function_sql(expr: Call) -> str:
    if expr.function == "cast":
        return f"CAST({to_sql(expr.args[0])} AS {type_sql(expr.type)})"
    if expr.function in (".", "[]"):
        many, part = expr.args
        inside = to_sql(many) if isinstance(many, Column) else f"({to_sql(many)})"
        if expr.function == "." and isinstance(part, Literal):
            return f"{inside}.{identifier(str(part.value))}"
        return f"{inside}[{to_sql(part)}]"
    if expr.function == "case":
        *pairs, otherwise = expr.args
        whens = zip(pairs[::2], pairs[1::2], strict=True)
        text = " ".join(f"WHEN {to_sql(when)} THEN {to_sql(then)}" for when, then in whens)
        return f"CASE {text} ELSE {to_sql(otherwise)} END"
    if expr.function == "~":
        return f"(~{_sql(expr.args[0], 8)})"
    if expr.function in _ENCLOSED:
        return "(" + f" {_ENCLOSED[expr.function]} ".join(_sql(arg, 8) for arg in expr.args) + ")"
    return f"{expr.function.upper()}({', '.join(map(to_sql, expr.args))})"


def type_sql(type_: DataType) -> str:
    """A type as SQL's CAST names it."""
    return _TYPE_SQL.get(type_.name, str(type_).upper())


def _literal_sql(literal: Literal) -> str:
    value = literal.value
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    if isinstance(value, str):
        return "'" + _NOT_PLAIN.sub(_escaped, value) + "'"
    if isinstance(value, timedelta):
        sign, span = ("-", -value) if value < timedelta(0) else ("", value)
        count, unit = format_duration(span).split()
        return f"INTERVAL '{sign}{count}' {unit.removesuffix('S')}"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return repr(value)


# Quotes, backslashes, control characters and what some viewers take for the end of a line.
_NOT_PLAIN = re.compile(r"['\\\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "'": "\\'", "\\": "\\\\"}


def _escaped(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04x}"
