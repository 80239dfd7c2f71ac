"""The functions and operators of the expression language, and the rules by which their calls are typed.

Guarantees: `call` gives a typed expression in normal form, with explicit casts where arguments must have one type, or a
`QueryError` that names the arguments and says what would do. Both sides of a comparison have one type, so that an
equality is transitive and needs no rule at run time. There is one typing rule for each kind of function or operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches

from weft.errors import QueryError
from weft.logical.expr.conversion import (
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    LONG,
    NULL,
    STRING,
    TIMESTAMP,
    as_decimal,
    cast,
    coerce,
    common_type,
    literal,
    wider,
)
from weft.logical.expr.expression import BOOLEAN, Expr, Literal, make_call, to_sql
from weft.logical.schema import DataType

__all__ = [
    "FUNCTIONS",
    "TypingRule",
    "absolute",
    "addition",
    "any_to_boolean",
    "arithmetic",
    "boolean",
    "call",
    "case",
    "comparison",
    "division",
    "membership",
    "multiplication",
    "named_functions",
    "negation",
    "nullif",
    "numeric",
    "of_common_type",
    "similar_functions",
    "texts",
    "typed",
]


TypingRule = Callable[
    [str, Sequence[Expr]], Expr
]  # the name of a function and its arguments ↦ the typed call

_MOST_DIGITS = 38


def texts(args: Sequence[Expr]) -> str:
    """Arguments as they stand in an error message."""
    return ", ".join(map(to_sql, args))


def _mismatch(function: str, args: Sequence[Expr], hint: str | None = None) -> QueryError:
    kinds = " and ".join(str(arg.type) for arg in args) if args else "nothing"
    return QueryError(f"{function} does not work on {kinds}: {texts(args)}", hint=hint)


def comparison(function: str, args: Sequence[Expr]) -> Expr:
    """A comparison of two sides, which are brought to their common type."""
    left, right = args
    type_ = common_type(left, right)
    if type_ is None:
        raise QueryError(
            f"cannot compare {left.type} with {right.type}: {to_sql(left)} {function} {to_sql(right)}",
            hint="CAST one side to the type of the other",
        )
    return make_call(function, (coerce(left, type_), coerce(right, type_)), BOOLEAN)


def _same_type(args: Sequence[Expr], function: str) -> tuple[Expr, ...]:
    """The arguments brought to one type."""
    widest = args[0]
    for arg in args[1:]:
        type_ = common_type(widest, arg)
        if type_ is None:
            raise _mismatch(function, args, "all must be of one kind; CAST what differs")
        widest = coerce(widest, type_)
    return tuple(coerce(arg, widest.type) for arg in args)


def membership(function: str, args: Sequence[Expr]) -> Expr:
    """IN; where an option is no constant, it is the OR of equalities."""
    needle, *options = args
    if all(isinstance(option, Literal) for option in options):
        return make_call(function, _same_type(args, "IN"), BOOLEAN)
    return make_call("or", (comparison("=", (needle, option)) for option in options), BOOLEAN)


def boolean(function: str, args: Sequence[Expr]) -> Expr:
    """AND, OR and NOT, of conditions."""
    if any(arg.type not in (BOOLEAN, NULL) for arg in args):
        raise _mismatch(function.upper(), args, "it joins conditions, which are TRUE or FALSE")
    return make_call(function, (coerce(arg, BOOLEAN) for arg in args), BOOLEAN)


def any_to_boolean(function: str, args: Sequence[Expr]) -> Expr:
    """A condition on an argument of any type."""
    return make_call(function, args, BOOLEAN)


def addition(function: str, args: Sequence[Expr]) -> Expr:
    """`+` and `-` of numbers, of times and intervals, and of intervals."""
    left, right = args
    kinds = {left.type.name, right.type.name}
    if kinds in ({"timestamp", "interval"}, {"date", "interval"}):
        if function == "-" and left.type == INTERVAL:
            raise _mismatch(function, args, "subtract the interval from the time")
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
    if {"null"} & {arg.type.name for arg in args} or not all(arg.type.is_numeric for arg in args):
        raise _mismatch(function, args, "it needs numbers")
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
        case "%":
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
    exact = quotient.type.name == "decimal"
    return quotient if exact else make_call(function, args, DOUBLE)


def negation(function: str, args: Sequence[Expr]) -> Expr:
    """The minus sign; that of a constant becomes part of the constant."""
    (operand,) = args
    value = operand.value if isinstance(operand, Literal) else None
    if isinstance(value, int | float | timedelta) and not isinstance(value, bool):
        return literal(-value)
    if not (operand.type.is_numeric or operand.type == INTERVAL):
        raise _mismatch("-", args, "it needs a number")
    return make_call(function, args, operand.type)


def case(function: str, args: Sequence[Expr]) -> Expr:
    """CASE, as pairs of a condition and a value, and the value otherwise."""
    conditions, values = args[:-1:2], (*args[1::2], args[-1])
    if any(condition.type not in (BOOLEAN, NULL) for condition in conditions):
        raise _mismatch("WHEN", conditions, "it needs a condition")
    *results, otherwise = _same_type(values, "CASE")
    pairs = [part for pair in zip(conditions, results, strict=True) for part in pair]
    return make_call(function, (*pairs, otherwise), otherwise.type)


def of_common_type(function: str, args: Sequence[Expr]) -> Expr:
    """A function whose arguments and result have one type."""
    same = _same_type(args, function)
    return make_call(function, same, same[0].type)


def nullif(function: str, args: Sequence[Expr]) -> Expr:
    """NULLIF has the type of its first argument, whatever that is compared with, as in Spark."""
    same, given = _same_type(args, function), args[0]
    if given.type in (same[0].type, NULL):
        return make_call(function, same, same[0].type)
    return case("case", (comparison("=", args), literal(None), given))


def numeric(result: DataType | None) -> TypingRule:
    """A rule for numbers that gives ``result``, or the type of the first argument."""

    def rule(function: str, args: Sequence[Expr]) -> Expr:
        if not all(arg.type.is_numeric for arg in args):
            raise _mismatch(function, args, "it needs numbers")
        return make_call(function, args, result or args[0].type)

    return rule


def absolute(function: str, args: Sequence[Expr]) -> Expr:
    """ABS, also of intervals."""
    (operand,) = args
    if isinstance(operand, Literal) and isinstance(operand.value, timedelta):
        return literal(abs(operand.value))
    if operand.type == INTERVAL:
        return make_call(function, args, INTERVAL)
    return numeric(None)(function, args)


def typed(result: DataType, *parameters: str) -> TypingRule:
    """A rule for arguments of fixed kinds that gives ``result``; the last parameter stands for all that follow."""

    def rule(function: str, args: Sequence[Expr]) -> Expr:
        for position, arg in enumerate(args):
            if not _is_a(arg.type, parameters[min(position, len(parameters) - 1)]):
                expected = ", ".join(parameters)
                raise _mismatch(function, args, f"it takes ({expected})")
        return make_call(function, args, result)

    return rule


def _is_a(type_: DataType, kind: str) -> bool:
    if kind == "time":
        return type_.is_time
    return type_.name == kind or type_ == NULL or (kind == "long" and type_.is_integer)


_KEYWORDS = ("and", "or", "not", "in", "like", "neg", "case")


@dataclass(frozen=True, slots=True)
class Function:
    """How many arguments a function takes (``most`` None: any number) and how it is typed."""

    rule: TypingRule
    least: int
    most: int | None


def call(function: str, *args: Expr) -> Expr:
    """A typed call in normal form.

    >>> from weft.logical.expr.conversion import literal
    >>> str(call("=", call("lower", literal("A")), literal("a")))
    "LOWER('A') = 'a'"
    """
    known = FUNCTIONS.get(function)
    if known is None:
        raise QueryError(f"there is no function {function}", hint=similar_functions(function))
    if len(args) < known.least or (known.most is not None and len(args) > known.most):
        raise QueryError(f"{function} takes {_count(known)}, not {len(args)}: {function}({texts(args)})")
    return known.rule(function, args)


def _count(function: Function) -> str:
    if function.most is None:
        return f"{function.least} arguments or more"
    if function.least == function.most:
        return f"{function.least} argument{'' if function.least == 1 else 's'}"
    return f"{function.least} to {function.most} arguments"


def named_functions() -> list[str]:
    """The functions that are called by name, as in LOWER(x); the others are operators."""
    return [name for name in FUNCTIONS if name.isidentifier() and name not in _KEYWORDS]


def similar_functions(name: str, more: Iterable[str] = ()) -> str:
    """A hint with the few functions, built in and ``more``, whose names are most like this one.

    >>> similar_functions("lowr")
    'did you mean lower? There are lower, power, floor, hour and 31 more'
    >>> similar_functions("quarters")
    'there are reverse, sqrt, greatest and 32 more'
    """
    known = [*named_functions(), *more]
    close = get_close_matches(name.lower(), known, n=_FEW, cutoff=0.5)
    shown = close or sorted(known)[:_FEW]
    listing = f"There are {', '.join(shown)} and {len(known) - len(shown)} more"
    meant = get_close_matches(name.lower(), close, n=1, cutoff=0.7)
    return f"did you mean {meant[0]}? {listing}" if meant else listing[0].lower() + listing[1:]


_FEW = 5


FUNCTIONS: dict[str, Function] = {
    **{name: Function(comparison, 2, 2) for name in ("=", "<>", "<", "<=", ">", ">=")},
    "and": Function(boolean, 1, None),
    "or": Function(boolean, 1, None),
    "not": Function(boolean, 1, 1),
    "in": Function(membership, 2, None),
    "is null": Function(any_to_boolean, 1, 1),
    "like": Function(typed(BOOLEAN, "string"), 2, 2),
    "+": Function(addition, 2, 2),
    "-": Function(addition, 2, 2),
    "*": Function(multiplication, 2, 2),
    "/": Function(division, 2, 2),
    "%": Function(arithmetic, 2, 2),
    "neg": Function(negation, 1, 1),
    "case": Function(case, 3, None),
    "coalesce": Function(of_common_type, 1, None),
    "nullif": Function(nullif, 2, 2),
    "greatest": Function(of_common_type, 2, None),
    "least": Function(of_common_type, 2, None),
    # numbers
    "abs": Function(absolute, 1, 1),
    "ceil": Function(numeric(LONG), 1, 1),
    "floor": Function(numeric(LONG), 1, 1),
    "sign": Function(numeric(DOUBLE), 1, 1),
    "round": Function(numeric(None), 1, 2),
    "exp": Function(numeric(DOUBLE), 1, 1),
    "ln": Function(numeric(DOUBLE), 1, 1),
    "sqrt": Function(numeric(DOUBLE), 1, 1),
    "power": Function(numeric(DOUBLE), 2, 2),
    # strings
    "lower": Function(typed(STRING, "string"), 1, 1),
    "upper": Function(typed(STRING, "string"), 1, 1),
    "trim": Function(typed(STRING, "string"), 1, 1),
    "ltrim": Function(typed(STRING, "string"), 1, 1),
    "rtrim": Function(typed(STRING, "string"), 1, 1),
    "reverse": Function(typed(STRING, "string"), 1, 1),
    "concat": Function(typed(STRING, "string"), 1, None),
    "replace": Function(typed(STRING, "string"), 3, 3),
    "substring": Function(typed(STRING, "string", "long"), 2, 3),
    "length": Function(typed(INT, "string"), 1, 1),
    "startswith": Function(typed(BOOLEAN, "string"), 2, 2),
    "endswith": Function(typed(BOOLEAN, "string"), 2, 2),
    "contains": Function(typed(BOOLEAN, "string"), 2, 2),
    "levenshtein": Function(typed(INT, "string"), 2, 2),
    # time
    **{
        part: Function(typed(INT, "time"), 1, 1)
        for part in ("year", "month", "day", "hour", "minute", "second")
    },
    "add_months": Function(typed(DATE, "time", "long"), 2, 2),
    "unix_micros": Function(typed(LONG, "timestamp"), 1, 1),
}
