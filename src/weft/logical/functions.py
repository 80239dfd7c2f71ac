"""The functions and operators of the expression language, with their types.

Guarantees: `call` gives a typed expression in normal form or a `QueryError`; both sides of a comparison have one type,
by explicit casts, so that an equality is transitive and needs no rule at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from difflib import get_close_matches

from weft.errors import QueryError
from weft.logical.expr import BOOLEAN, Call, Expr, Literal, Value, make_call, to_sql
from weft.logical.schema import DataType

__all__ = ["FUNCTIONS", "call", "cast", "coerce", "literal", "named_functions", "similar_functions"]

INT, LONG, DOUBLE = DataType("int"), DataType("long"), DataType("double")
STRING, DATE, TIMESTAMP = DataType("string"), DataType("date"), DataType("timestamp")
INTERVAL, NULL = DataType("interval"), DataType("null")

_INT_BITS = {"byte": 8, "short": 16, "int": 32, "long": 64}
_MOST_DIGITS = 38
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
            raise QueryError(f"{value} does not fit in 64 bits")
        return Literal(value, INT if _fits(value, INT) else LONG)
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        raise QueryError(f"{value} is not a constant", hint=f"write CAST('{value}' AS DOUBLE)")
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        raise QueryError("a string with half a surrogate pair is not a constant")
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = _in_utc(value)
    if isinstance(value, timedelta) and abs(value) > timedelta(days=100_000):
        raise QueryError(f"an interval of {value.days} days makes no sense")
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
    """The expression as another type; itself where it already is, and a constant where a text names a time."""
    if expr.type == to:
        return expr
    if isinstance(expr, Literal) and isinstance(expr.value, str) and to.is_time:
        return _time_literal(expr.value, to)
    castable = to.name == "string" or expr.type.name in ("string", "null")
    numbers = (expr.type.is_numeric or expr.type == BOOLEAN) and (to.is_numeric or to == BOOLEAN)
    times = expr.type.is_time and to.is_time
    if not (castable or numbers or times) or INTERVAL in (expr.type, to) or to == NULL:
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
    return cast(expr, to)


def _time_literal(text: str, to: DataType) -> Literal:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise QueryError(f"{text!r} is not a {to}", hint="write it as in '2024-03-01 12:30:00'") from None
    return literal(moment.date() if to == DATE else moment)


def common_type(left: Expr, right: Expr) -> DataType | None:
    """The type in which two expressions compare, or None where they do not."""
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
    return _wider(left.type, right.type)


def _wider(one: DataType, other: DataType) -> DataType:
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


Rule = Callable[[str, Sequence[Expr]], Expr]
_KEYWORDS = ("and", "or", "not", "in", "like", "neg", "case")


@dataclass(frozen=True, slots=True)
class Function:
    """How many arguments a function takes (``most`` None: any number) and how it is typed."""

    rule: Rule
    least: int
    most: int | None


def call(function: str, *args: Expr) -> Expr:
    """A typed call in normal form.

    >>> str(call("=", call("lower", literal("A")), literal("a")))
    "LOWER('A') = 'a'"
    """
    known = FUNCTIONS.get(function)
    if known is None:
        raise QueryError(f"there is no function {function}", hint=similar_functions(function))
    if len(args) < known.least or (known.most is not None and len(args) > known.most):
        raise QueryError(f"{function} takes {_count(known)}, not {len(args)}: {function}({_texts(args)})")
    return known.rule(function, args)


def _count(function: Function) -> str:
    if function.most is None:
        return f"{function.least} arguments or more"
    if function.least == function.most:
        return f"{function.least} argument{'' if function.least == 1 else 's'}"
    return f"{function.least} to {function.most} arguments"


def named_functions() -> list[str]:
    """What is called by name, as in LOWER(x); the others are operators."""
    return [name for name in FUNCTIONS if name.isidentifier() and name not in _KEYWORDS]


def similar_functions(name: str, more: Iterable[str] = ()) -> str:
    """A hint with the few functions, built in and ``more``, whose names are most like this one.

    >>> similar_functions("lowr")
    'did you mean lower? There are lower, power, floor, hour and 31 more'
    """
    known = [*named_functions(), *more]
    close = get_close_matches(name.lower(), known, n=_FEW, cutoff=0.5)
    shown = close or sorted(known)[:_FEW]
    listing = f"There are {', '.join(shown)} and {len(known) - len(shown)} more"
    return f"did you mean {close[0]}? {listing}" if close else listing[0].lower() + listing[1:]


_FEW = 5


def _texts(args: Sequence[Expr]) -> str:
    return ", ".join(map(to_sql, args))


def _mismatch(function: str, args: Sequence[Expr], hint: str | None = None) -> QueryError:
    kinds = " and ".join(str(arg.type) for arg in args) if args else "nothing"
    return QueryError(f"{function} does not work on {kinds}: {_texts(args)}", hint=hint)


def _comparison(function: str, args: Sequence[Expr]) -> Expr:
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


def _in(function: str, args: Sequence[Expr]) -> Expr:
    needle, *options = args
    if all(isinstance(option, Literal) for option in options):
        return make_call(function, _same_type(args, "IN"), BOOLEAN)
    return make_call("or", (_comparison("=", (needle, option)) for option in options), BOOLEAN)


def _boolean(function: str, args: Sequence[Expr]) -> Expr:
    if any(arg.type not in (BOOLEAN, NULL) for arg in args):
        raise _mismatch(function.upper(), args, "it joins conditions, which are TRUE or FALSE")
    return make_call(function, (coerce(arg, BOOLEAN) for arg in args), BOOLEAN)


def _any_to_boolean(function: str, args: Sequence[Expr]) -> Expr:
    return make_call(function, args, BOOLEAN)


def _add(function: str, args: Sequence[Expr]) -> Expr:
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
    return _arithmetic(function, args)


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


def _arithmetic(function: str, args: Sequence[Expr]) -> Expr:
    if {"null"} & {arg.type.name for arg in args} or not all(arg.type.is_numeric for arg in args):
        raise _mismatch(function, args, "it needs numbers")
    type_ = _wider(args[0].type, args[1].type)
    return make_call(function, args, _decimal_result(function, args) if type_.name == "decimal" else type_)


def _decimal_result(function: str, args: Sequence[Expr]) -> DataType:
    """The type of decimal arithmetic by Spark's rules."""
    (p1, s1), (p2, s2) = ((type_.precision, type_.scale) for type_ in map(_as_decimal, args))
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


def _as_decimal(expr: Expr) -> DataType:
    if expr.type.name == "decimal":
        return expr.type
    if isinstance(expr, Literal):
        return DataType("decimal", len(str(expr.value).lstrip("-")))
    return DataType("decimal", _INT_DIGITS[expr.type.name])


def _times(function: str, args: Sequence[Expr]) -> Expr:
    if {arg.type.name for arg in args} >= {"interval"} and any(a.type.is_integer for a in args):
        return make_call(function, args, INTERVAL)
    return _arithmetic(function, args)


def _divide(function: str, args: Sequence[Expr]) -> Expr:
    quotient = _arithmetic(function, args)
    exact = quotient.type.name == "decimal"
    return quotient if exact else make_call(function, args, DOUBLE)


def _negate(function: str, args: Sequence[Expr]) -> Expr:
    (operand,) = args
    value = operand.value if isinstance(operand, Literal) else None
    if isinstance(value, int | float | timedelta) and not isinstance(value, bool):
        return literal(-value)
    if not (operand.type.is_numeric or operand.type == INTERVAL):
        raise _mismatch("-", args, "it needs a number")
    return make_call(function, args, operand.type)


def _case(function: str, args: Sequence[Expr]) -> Expr:
    conditions, values = args[:-1:2], (*args[1::2], args[-1])
    if any(condition.type not in (BOOLEAN, NULL) for condition in conditions):
        raise _mismatch("WHEN", conditions, "it needs a condition")
    *results, otherwise = _same_type(values, "CASE")
    pairs = [part for pair in zip(conditions, results, strict=True) for part in pair]
    return make_call(function, (*pairs, otherwise), otherwise.type)


def _common(function: str, args: Sequence[Expr]) -> Expr:
    same = _same_type(args, function)
    return make_call(function, same, same[0].type)


def _nullif(function: str, args: Sequence[Expr]) -> Expr:
    """NULLIF has the type of its first argument, whatever that is compared with, as in Spark."""
    same, given = _same_type(args, function), args[0]
    if given.type in (same[0].type, NULL):
        return make_call(function, same, same[0].type)
    return _case("case", (_comparison("=", args), literal(None), given))


def _numeric(result: DataType | None) -> Rule:
    def rule(function: str, args: Sequence[Expr]) -> Expr:
        if not all(arg.type.is_numeric for arg in args):
            raise _mismatch(function, args, "it needs numbers")
        return make_call(function, args, result or args[0].type)

    return rule


def _absolute(function: str, args: Sequence[Expr]) -> Expr:
    (operand,) = args
    if isinstance(operand, Literal) and isinstance(operand.value, timedelta):
        return literal(abs(operand.value))
    if operand.type == INTERVAL:
        return make_call(function, args, INTERVAL)
    return _numeric(None)(function, args)


def _typed(result: DataType, *parameters: str) -> Rule:
    """Arguments of fixed kinds; the last parameter stands for all that follow."""

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


FUNCTIONS: dict[str, Function] = {
    **{name: Function(_comparison, 2, 2) for name in ("=", "<>", "<", "<=", ">", ">=")},
    "and": Function(_boolean, 1, None),
    "or": Function(_boolean, 1, None),
    "not": Function(_boolean, 1, 1),
    "in": Function(_in, 2, None),
    "is null": Function(_any_to_boolean, 1, 1),
    "like": Function(_typed(BOOLEAN, "string"), 2, 2),
    "+": Function(_add, 2, 2),
    "-": Function(_add, 2, 2),
    "*": Function(_times, 2, 2),
    "/": Function(_divide, 2, 2),
    "%": Function(_arithmetic, 2, 2),
    "neg": Function(_negate, 1, 1),
    "case": Function(_case, 3, None),
    "coalesce": Function(_common, 1, None),
    "nullif": Function(_nullif, 2, 2),
    "greatest": Function(_common, 2, None),
    "least": Function(_common, 2, None),
    # numbers
    "abs": Function(_absolute, 1, 1),
    "ceil": Function(_numeric(LONG), 1, 1),
    "floor": Function(_numeric(LONG), 1, 1),
    "sign": Function(_numeric(DOUBLE), 1, 1),
    "round": Function(_numeric(None), 1, 2),
    "exp": Function(_numeric(DOUBLE), 1, 1),
    "ln": Function(_numeric(DOUBLE), 1, 1),
    "sqrt": Function(_numeric(DOUBLE), 1, 1),
    "power": Function(_numeric(DOUBLE), 2, 2),
    # strings
    "lower": Function(_typed(STRING, "string"), 1, 1),
    "upper": Function(_typed(STRING, "string"), 1, 1),
    "trim": Function(_typed(STRING, "string"), 1, 1),
    "ltrim": Function(_typed(STRING, "string"), 1, 1),
    "rtrim": Function(_typed(STRING, "string"), 1, 1),
    "reverse": Function(_typed(STRING, "string"), 1, 1),
    "concat": Function(_typed(STRING, "string"), 1, None),
    "replace": Function(_typed(STRING, "string"), 3, 3),
    "substring": Function(_typed(STRING, "string", "long"), 2, 3),
    "length": Function(_typed(INT, "string"), 1, 1),
    "startswith": Function(_typed(BOOLEAN, "string"), 2, 2),
    "endswith": Function(_typed(BOOLEAN, "string"), 2, 2),
    "contains": Function(_typed(BOOLEAN, "string"), 2, 2),
    "levenshtein": Function(_typed(INT, "string"), 2, 2),
    # time
    **{
        part: Function(_typed(INT, "time"), 1, 1)
        for part in ("year", "month", "day", "hour", "minute", "second")
    },
    "add_months": Function(_typed(DATE, "time", "long"), 2, 2),
    "unix_micros": Function(_typed(LONG, "timestamp"), 1, 1),
}
