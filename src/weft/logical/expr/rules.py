"""The rules by which calls of functions and operators are typed.

Guarantees: a rule gives a typed expression in normal form, with explicit casts where arguments must have one type, or a
`QueryError` that names the arguments and says what would do. Both sides of a comparison have one type, so that an
equality is transitive and needs no rule at run time. Arguments are converted where Spark converts them: a text to the
type that it is compared with, a number to a text where a function takes texts (`fitted`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from weft.errors import QueryError
from weft.logical.expr.conversion import (
    DATE,
    DOUBLE,
    INTERVAL,
    LONG,
    NULL,
    STRING,
    TIMESTAMP,
    as_decimal,
    cast,
    coerce,
    common_type,
    compared_type,
    literal,
    wider,
)
from weft.logical.expr.expression import BOOLEAN, Call, Expr, Literal, make_call, to_sql
from weft.logical.schema import DataType

__all__ = [
    "CallTypes",
    "TypingRule",
    "absolute",
    "addition",
    "any_to_boolean",
    "arithmetic",
    "boolean",
    "case",
    "comparison",
    "division",
    "fitted",
    "membership",
    "mismatch",
    "multiplication",
    "negation",
    "nullif",
    "numeric",
    "of_common_type",
    "same_type",
    "texts",
]


TypingRule = Callable[
    [str, Sequence[Expr]], Expr
]  # the name of a function and its arguments ↦ the typed call

_MOST_DIGITS = 38


def texts(args: Sequence[Expr]) -> str:
    """Arguments as they stand in an error message."""
    return ", ".join(map(to_sql, args))


def mismatch(function: str, args: Sequence[Expr], hint: str | None = None) -> QueryError:
    """The error for arguments whose types a function does not take."""
    kinds = " and ".join(str(arg.type) for arg in args) if args else "nothing"
    return QueryError(f"{function} does not work on {kinds}: {texts(args)}", hint=hint)


def comparison(function: str, args: Sequence[Expr]) -> Expr:
    """A comparison of two sides, which are brought to their common type."""
    left, right = args
    type_ = compared_type(left, right)
    if type_ is not None and type_.is_nested:
        raise QueryError(
            f"{type_} cannot be compared as a whole: {to_sql(left)} {function} {to_sql(right)}", hint=_INSIDE
        )
    if type_ is None:
        raise QueryError(
            f"cannot compare {left.type} with {right.type}: {to_sql(left)} {function} {to_sql(right)}",
            hint="CAST one side to the type of the other",
        )
    return make_call(function, (coerce(left, type_), coerce(right, type_)), BOOLEAN)


_INSIDE = "compare what is inside: fields of structs, as in s.name, elements, as in x[0]"


def same_type(args: Sequence[Expr], function: str) -> tuple[Expr, ...]:
    """The arguments brought to one type."""
    widest = args[0]
    for arg in args[1:]:
        type_ = common_type(widest, arg)
        if type_ is None:
            raise mismatch(function, args, "all must be of one kind; CAST what differs")
        widest = coerce(widest, type_)
    return tuple(coerce(arg, widest.type) for arg in args)


def membership(function: str, args: Sequence[Expr]) -> Expr:
    """IN; where an option is no constant, it is the OR of equalities."""
    needle, *options = args
    if needle.type.is_nested:
        raise mismatch("IN", args, _INSIDE)
    if all(isinstance(option, Literal) and common_type(needle, option) for option in options):
        return make_call(function, same_type(args, "IN"), BOOLEAN)
    return make_call("or", (comparison("=", (needle, option)) for option in options), BOOLEAN)


def boolean(function: str, args: Sequence[Expr]) -> Expr:
    """AND, OR and NOT, of conditions."""
    if any(arg.type not in (BOOLEAN, NULL) for arg in args):
        raise mismatch(function.upper(), args, "it joins conditions, which are TRUE or FALSE")
    return make_call(function, (coerce(arg, BOOLEAN) for arg in args), BOOLEAN)


def any_to_boolean(function: str, args: Sequence[Expr]) -> Expr:
    """A condition on an argument of any type."""
    return make_call(function, args, BOOLEAN)


def addition(function: str, args: Sequence[Expr]) -> Expr:
    """`+` and `-` of numbers, of times and intervals, of intervals, and of dates and whole numbers of days."""
    left, right = args
    kinds = {left.type.name, right.type.name}
    if left.type == DATE and right.type.is_integer:
        return make_call("date_add" if function == "+" else "date_sub", args, DATE)
    if function == "+" and right.type == DATE and left.type.is_integer:
        return make_call("date_add", (right, left), DATE)
    if kinds in ({"timestamp", "interval"}, {"date", "interval"}):
        if function == "-" and left.type == INTERVAL:
            raise mismatch(function, args, "subtract the interval from the time")
        return _shift(function, args)
    if function == "-" and left.type.is_time and right.type.is_time:
        return make_call("-", args, INTERVAL)
    if kinds == {"interval"}:
        return _add_intervals(function, left, right)
    return arithmetic(function, args)


def _shift(function: str, args: Sequence[Expr]) -> Expr:
    """A time and an interval; a date and whole days give a date again, as in Spark."""
    moved = make_call(function, args, TIMESTAMP)
    spans = [arg.value for arg in args if isinstance(arg, Literal) and isinstance(arg.value, timedelta)]
    whole = spans and not spans[0] % timedelta(days=1)
    return cast(moved, DATE) if whole and any(arg.type == DATE for arg in args) else moved


def _add_intervals(function: str, left: Expr, right: Expr) -> Expr:
    if isinstance(left, Literal) and isinstance(right, Literal):
        one, other = left.value, right.value
        if isinstance(one, timedelta) and isinstance(other, timedelta):
            return literal(one + other if function == "+" else one - other)
    return make_call(function, (left, right), INTERVAL)


def arithmetic(function: str, args: Sequence[Expr]) -> Expr:
    """An operator on two numbers; its type is the wider one, and of decimals by Spark's rules."""
    args = [coerce(arg, DOUBLE) if arg.type == STRING else arg for arg in args]
    known = next((arg.type for arg in args if arg.type != NULL), DOUBLE)
    args = [coerce(arg, known) if arg.type == NULL else arg for arg in args]
    if not all(arg.type.is_numeric for arg in args):
        raise mismatch(function, args, "it needs numbers")
    type_ = wider(args[0].type, args[1].type)
    return make_call(function, args, _decimal_result(function, args) if type_.name == "decimal" else type_)


def _decimal_result(function: str, args: Sequence[Expr]) -> DataType:
    """The type of decimal arithmetic by Spark's rules."""
    (p1, s1), (p2, s2) = ((type_.precision, type_.scale) for type_ in map(as_decimal, args))
    scale, whole = max(s1, s2), max(p1 - s1, p2 - s2) + 1
    match function:
        case "*":
            scale, whole = s1 + s2, p1 + p2 + 1 - s1 - s2
        case "/":
            scale, whole = max(6, s1 + p2 + 1), p1 - s1 + s2
        case "%" | "pmod":
            whole = min(p1 - s1, p2 - s2)
    if whole + scale > _MOST_DIGITS:  # the whole part comes first, but six digits after the point are kept
        scale = max(_MOST_DIGITS - whole, min(scale, 6))
    return DataType("decimal", max(1, min(whole + scale, _MOST_DIGITS)), scale)


def multiplication(function: str, args: Sequence[Expr]) -> Expr:
    """`*` of numbers, or of an interval and a whole number."""
    if {arg.type.name for arg in args} >= {"interval"} and any(a.type.is_integer for a in args):
        return make_call(function, args, INTERVAL)
    return arithmetic(function, args)


def division(function: str, args: Sequence[Expr]) -> Expr:
    """`/`, which gives a double unless its operands are decimals."""
    quotient = arithmetic(function, args)
    if quotient.type.name == "decimal" or not isinstance(quotient, Call):
        return quotient
    return make_call(function, quotient.args, DOUBLE)


def negation(function: str, args: Sequence[Expr]) -> Expr:
    """The minus sign; that of a constant becomes part of the constant."""
    (operand,) = args
    value = operand.value if isinstance(operand, Literal) else None
    if isinstance(value, int | float | timedelta) and not isinstance(value, bool):
        return literal(-value)
    operand = coerce(operand, DOUBLE) if operand.type in (STRING, NULL) else operand
    if not (operand.type.is_numeric or operand.type == INTERVAL):
        raise mismatch("-", args, "it needs a number")
    return make_call(function, (operand,), operand.type)


def case(function: str, args: Sequence[Expr]) -> Expr:
    """CASE, as pairs of a condition and a value, and the value otherwise."""
    conditions, values = args[:-1:2], (*args[1::2], args[-1])
    if any(condition.type not in (BOOLEAN, NULL) for condition in conditions):
        raise mismatch("WHEN", conditions, "it needs a condition")
    *results, otherwise = same_type(values, "CASE")
    pairs = [part for pair in zip(conditions, results, strict=True) for part in pair]
    return make_call(function, (*pairs, otherwise), otherwise.type)


def of_common_type(function: str, args: Sequence[Expr]) -> Expr:
    """A function whose arguments and result have one type."""
    same = same_type(args, function)
    if same[0].type.is_nested and function != "coalesce":
        raise mismatch(function, args, _INSIDE)
    return make_call(function, same, same[0].type)


def nullif(function: str, args: Sequence[Expr]) -> Expr:
    """NULLIF has the type of its first argument, whatever that is compared with, as in Spark."""
    same, given = same_type(args, function), args[0]
    if same[0].type.is_nested:
        raise mismatch(function, args, _INSIDE)
    if given.type in (same[0].type, NULL):
        return make_call(function, same, same[0].type)
    return case("case", (comparison("=", args), literal(None), given))


def numeric(result: DataType | None) -> TypingRule:
    """A rule for numbers that gives ``result``, or the type of the first argument."""

    def rule(function: str, args: Sequence[Expr]) -> Expr:
        numbers = [number for arg in args if (number := fitted(arg, "number")) is not None]
        if len(numbers) < len(args):
            raise mismatch(function, args, "it needs numbers")
        return make_call(function, numbers, result or numbers[0].type)

    return rule


def absolute(function: str, args: Sequence[Expr]) -> Expr:
    """ABS, also of intervals."""
    (operand,) = args
    if isinstance(operand, Literal) and isinstance(operand.value, timedelta):
        return literal(abs(operand.value))
    if operand.type == INTERVAL:
        return make_call(function, args, INTERVAL)
    return numeric(None)(function, args)


# The kinds of parameters that several types fit, and the type that a text becomes for them.
_KINDS: dict[str, tuple[Callable[[DataType], bool], DataType]] = {
    "number": (lambda type_: type_.is_numeric, DOUBLE),
    "integer": (lambda type_: type_.is_integer, LONG),
    "time": (lambda type_: type_.is_time, TIMESTAMP),
    "text": (lambda type_: type_.name in ("string", "binary"), STRING),
    "any": (lambda _: True, NULL),
}


def fitted(arg: Expr, kind: str) -> Expr | None:
    """An argument as a parameter of some kind takes it, converted where Spark converts by itself; None: it does not.

    Any value becomes a text, a text any value, a number any other number, a time a date and a date a time.
    """
    accepts, otherwise = _KINDS.get(kind, (lambda type_: type_.name == kind, DataType("string")))
    if accepts(arg.type) and (arg.type != NULL or kind == "any"):
        return arg
    to = otherwise if kind in _KINDS else DataType(kind)
    if arg.type == NULL:
        return Literal(None, to)
    if to == INTERVAL or arg.type == INTERVAL:
        return None
    numbers = arg.type.is_numeric and to.is_numeric and kind not in ("number", "integer")
    times = arg.type.is_time and to.is_time
    return coerce(arg, to) if STRING in (arg.type, to) or numbers or times else None


@dataclass(frozen=True, slots=True)
class CallTypes:
    """What a function takes and gives: kinds of parameters, the least and the most arguments, the type of the result.

    The last parameter stands for all that follow. A result ``first`` is of the type of the first argument.
    """

    kinds: tuple[str, ...]
    least: int
    most: int | None
    result: str

    @classmethod
    def parse(cls, text: str) -> CallTypes:
        """Read a text; parameters in brackets may be left out, one with dots is repeated, one with ``=`` is a constant.

        >>> CallTypes.parse("string, [int] -> string")
        CallTypes(kinds=('string', 'int'), least=1, most=2, result='string')
        """
        left, _, result = (part.strip() for part in text.partition("->"))
        parameters = [part.strip() for part in left.split(",")] if left else []
        least = sum(not part.startswith("[") for part in parameters)
        most = None if left.endswith("…") else len(parameters)
        return cls(tuple(part.strip("[]…") for part in parameters), least, most, result)

    def rule(self, function: str, args: Sequence[Expr]) -> Expr:
        """The typed call of a function with this signature."""
        last = len(self.kinds) - 1
        kinds = [self.kinds[min(place, last)] for place in range(len(args))]
        fitting = [fitted(arg, kind.lstrip("=")) for arg, kind in zip(args, kinds, strict=True)]
        found = [arg for arg in fitting if arg is not None]
        if len(found) < len(args):
            expected = ", ".join(kind.lstrip("=") for kind in self.kinds)
            raise mismatch(function, args, f"it takes ({expected})")
        for arg, kind in zip(found, kinds, strict=True):
            if kind.startswith("=") and not isinstance(arg, Literal):
                raise QueryError(f"{function} needs a constant: {to_sql(arg)}", hint="write the value itself")
        type_ = found[0].type if self.result == "first" else DataType(self.result)
        return make_call(function, found, type_)
