"""Comparisons, conditions, choices and arithmetic: what is written with signs and keywords, and what chooses."""

from __future__ import annotations

from collections.abc import Sequence

from weft.logical.expr.builtin.entry import Function, define
from weft.logical.expr.conversion import INT, NULL, coerce, literal, wider
from weft.logical.expr.expression import Expr
from weft.logical.expr.rules import (
    addition,
    any_to_boolean,
    arithmetic,
    boolean,
    case,
    comparison,
    division,
    membership,
    mismatch,
    multiplication,
    negation,
    nullif,
    of_common_type,
)

__all__ = ["ARITHMETIC", "COMPARISONS", "CONDITIONS"]


def _if_known(_function: str, args: Sequence[Expr]) -> Expr:
    known, value, otherwise = args
    return case("case", (boolean("not", [any_to_boolean("is null", [known])]), value, otherwise))


def _zero_if_null(function: str, args: Sequence[Expr]) -> Expr:
    (number,) = args if args[0].type != NULL else (coerce(args[0], INT),)
    if not number.type.is_numeric:
        raise mismatch(function, args, "it needs a number")
    type_ = wider(number.type, INT)
    return of_common_type("coalesce", (coerce(number, type_), coerce(literal(0), type_)))


def _is_null(function: str, args: Sequence[Expr]) -> Expr:
    missing = any_to_boolean("is null", args)
    return missing if function == "isnull" else boolean("not", [missing])


COMPARISONS: tuple[Function, ...] = (
    define(
        "=",
        (comparison, 2, 2),
        "x = y",
        "Equal. NULL is equal to nothing, NaN to NaN; a text is compared as what it is compared with.",
        "1 = 1.0 → True",
        "NULL = 1 → None",
        "7 = '7' → True",
    ),
    define("<>", (comparison, 2, 2), "x <> y, x != y", "Not equal.", "'a' <> 'b' → True"),
    define(
        "<",
        (comparison, 2, 2),
        "x < y",
        "Less. NaN is greater than any number.",
        "2 < 10 → True",
        "'2' < '10' → False",
    ),
    define(
        "<=",
        (comparison, 2, 2),
        "x <= y",
        "Less or equal; `x BETWEEN a AND b` is `a <= x AND x <= b`.",
        "2 <= 2 → True",
        "5 BETWEEN 1 AND 5 → True",
    ),
    define(">", (comparison, 2, 2), "x > y", "Greater.", "2 > 10 → False"),
    define(">=", (comparison, 2, 2), "x >= y", "Greater or equal.", "2 >= 2 → True"),
    define(
        "is null",
        (any_to_boolean, 1, 1),
        "x IS NULL, x IS NOT NULL",
        "Whether there is no value.",
        "NULL IS NULL → True",
        "1 IS NOT NULL → True",
        strict=False,
    ),
    define(
        "in",
        (membership, 2, None),
        "x IN (a, b, …)",
        "Whether a value is one of some.",
        "2 IN (1, 2) → True",
        "3 NOT IN (1, 2) → True",
        strict=False,
    ),
    define(
        "like",
        "string, string -> boolean",
        "x LIKE pattern",
        "Whether a text has a form: `%` stands for any characters, `_` for one.",
        "'weft' LIKE 'w%t' → True",
        "'weft' LIKE '_' → False",
    ),
)

CONDITIONS: tuple[Function, ...] = (
    define(
        "and",
        (boolean, 1, None),
        "p AND q",
        "Both; false if one is, whatever the other.",
        "TRUE AND FALSE → False",
        "NULL AND FALSE → False",
        strict=False,
    ),
    define(
        "or",
        (boolean, 1, None),
        "p OR q",
        "One of them; true if one is, whatever the other.",
        "FALSE OR TRUE → True",
        "NULL OR TRUE → True",
        strict=False,
    ),
    define("not", (boolean, 1, 1), "NOT p", "The opposite.", "NOT FALSE → True"),
    define(
        "case",
        (case, 3, None),
        "CASE WHEN p THEN x … ELSE y END",
        "The first value whose condition is true.",
        "CASE WHEN 1 > 2 THEN 'a' WHEN 2 > 1 THEN 'b' ELSE 'c' END → b",
        strict=False,
    ),
    define(
        "coalesce",
        (of_common_type, 1, None),
        "coalesce(x, y, …)",
        "The first that is not NULL.",
        "coalesce(NULL, 7) → 7",
        also="ifnull nvl",
        strict=False,
    ),
    define(
        "nullif",
        (nullif, 2, 2),
        "nullif(x, y)",
        "NULL if both are equal, else the first.",
        "nullif(1, 1) → None",
        "nullif(1, 2) → 1",
        strict=False,
    ),
    define(
        "nvl2",
        (_if_known, 3, 3),
        "nvl2(x, y, z)",
        "y where x is not NULL, else z.",
        "nvl2(NULL, 1, 2) → 2",
        strict=False,
        rewritten=True,
    ),
    define(
        "isnull",
        (_is_null, 1, 1),
        "isnull(x)",
        "As `x IS NULL`.",
        "isnull(1) → False",
        strict=False,
        rewritten=True,
    ),
    define(
        "isnotnull",
        (_is_null, 1, 1),
        "isnotnull(x)",
        "As `x IS NOT NULL`.",
        "isnotnull(1) → True",
        strict=False,
        rewritten=True,
    ),
    define(
        "zeroifnull",
        (_zero_if_null, 1, 1),
        "zeroifnull(x)",
        "The number, or 0 where it is NULL.",
        "zeroifnull(NULL) → 0",
        strict=False,
        rewritten=True,
    ),
    define(
        "nullifzero",
        (lambda _name, args: nullif("nullif", (*args, literal(0))), 1, 1),
        "nullifzero(x)",
        "The number, or NULL where it is 0.",
        "nullifzero(0) → None",
        strict=False,
        rewritten=True,
    ),
    define(
        "greatest",
        (of_common_type, 2, None),
        "greatest(x, y, …)",
        "The greatest that is not NULL.",
        "greatest(1, NULL, 3) → 3",
        strict=False,
    ),
    define(
        "least",
        (of_common_type, 2, None),
        "least(x, y, …)",
        "The least that is not NULL.",
        "least(1, NULL, 3) → 1",
        strict=False,
    ),
)

ARITHMETIC: tuple[Function, ...] = (
    define(
        "+",
        (addition, 2, 2),
        "x + y",
        "Sum; also a time and an interval. NULL where it does not fit its type.",
        "1 + 2 → 3",
        "DATE '2024-05-31' + INTERVAL '1' DAY → 2024-06-01",
        also="try_add",
    ),
    define("-", (addition, 2, 2), "x - y", "Difference; also of times.", "1 - 2 → -1", also="try_subtract"),
    define("*", (multiplication, 2, 2), "x * y", "Product.", "6 * 7 → 42", also="try_multiply"),
    define(
        "/",
        (division, 2, 2),
        "x / y",
        "Quotient, a double or a decimal; NULL where y is 0.",
        "7 / 2 → 3.5",
        "1 / 0 → None",
        also="try_divide",
    ),
    define(
        "%",
        (arithmetic, 2, 2),
        "x % y",
        "Remainder, with the sign of x; NULL where y is 0.",
        "7 % 3 → 1",
        "-7 % 3 → -1",
        also="mod try_mod",
    ),
    define("neg", (negation, 1, 1), "-x", "The negative.", "-(3) → -3", also="negative"),
)
