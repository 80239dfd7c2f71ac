"""The functions and operators of the expression language, with their types.

Guarantees: `call` gives a typed expression in normal form or a `QueryError`; both sides of a comparison have one type,
by explicit casts, so that an equality is transitive and needs no rule at run time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from weft.errors import QueryError
from weft.logical.expr.conversion import DATE, DOUBLE, INT, LONG, STRING
from weft.logical.expr.expression import BOOLEAN, Expr
from weft.logical.expr.typing_rules import (
    TypingRule,
    absolute,
    addition,
    any_to_boolean,
    arithmetic,
    boolean,
    case,
    comparison,
    division,
    membership,
    multiplication,
    negation,
    nullif,
    numeric,
    of_common_type,
    texts,
    typed,
)

__all__ = ["FUNCTIONS", "call", "named_functions", "similar_functions"]

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
