"""Functions of numbers and of bits."""

from __future__ import annotations

from collections.abc import Sequence

from weft.logical.expr.builtin.entry import Function, define
from weft.logical.expr.conversion import DOUBLE, LONG, literal
from weft.logical.expr.expression import Expr, Literal, make_call
from weft.logical.expr.rules import TypingRule, absolute, arithmetic, fitted, mismatch, numeric
from weft.logical.schema import DataType

__all__ = ["BITS", "NUMBERS"]

_MOST_DIGITS = 38


def _to_whole(function: str, args: Sequence[Expr]) -> Expr:
    """CEIL and FLOOR give a whole number: a decimal of a decimal, else 64 bits."""
    found = numeric(LONG)(function, args)
    given = args[0].type
    if given.name != "decimal":
        return found
    digits = min(given.precision - given.scale + 1, _MOST_DIGITS)
    return make_call(function, args, DataType("decimal", digits, 0))


def _rounded(function: str, args: Sequence[Expr]) -> Expr:
    """ROUND keeps the type of a number; a decimal gets as many digits as Spark gives it."""
    found = numeric(None)(function, args)
    given, places = args[0].type, args[1] if len(args) > 1 else literal(0)
    if given.name != "decimal" or not isinstance(places, Literal) or not isinstance(places.value, int):
        return found
    whole, count = given.precision - given.scale + 1, max(-400, min(places.value, 400))
    scale = min(given.scale, max(count, 0))
    precision = max(whole, 1 - count) if count < 0 else whole + scale
    return make_call(function, args, DataType("decimal", min(precision, _MOST_DIGITS), scale))


def _constant(value: float) -> tuple[TypingRule, int, int]:
    return lambda _function, _args: literal(value), 0, 0


def _integers(function: str, args: Sequence[Expr]) -> Expr:
    """An operator on the bits of whole numbers, of the wider type."""
    if not all(arg.type.is_integer or arg.type.name == "null" for arg in args):
        raise mismatch(function, args, "it needs whole numbers")
    if len(args) == 1:
        return make_call(function, (fitted(args[0], "integer") or args[0],), args[0].type)
    found = arithmetic("+", args)
    return make_call(function, getattr(found, "args", args), found.type)


def _shifted(function: str, args: Sequence[Expr]) -> Expr:
    """A shift of 64 bits if the number is that wide, else of 32."""
    if not all(arg.type.is_integer or arg.type.name == "null" for arg in args):
        raise mismatch(function, args, "it needs whole numbers")
    type_ = LONG if args[0].type == LONG else DataType("int")
    return make_call(function, args, type_)


def _unless_nan(function: str, args: Sequence[Expr]) -> Expr:
    numbers = [number for arg in args if (number := fitted(arg, "double")) is not None]
    if len(numbers) < len(args):
        raise mismatch(function, args, "it needs numbers")
    return make_call(function, numbers, DOUBLE)


def _simple(name: str, text: str, *examples: str, takes: str = "double -> double") -> Function:
    parameters = ", ".join("xyz"[: takes.partition("->")[0].count(",") + 1])
    return define(name, takes, f"{name}({parameters})", text, *examples)


NUMBERS: tuple[Function, ...] = (
    define("abs", (absolute, 1, 1), "abs(x)", "The absolute value.", "abs(-3) → 3"),
    define(
        "ceil",
        (_to_whole, 1, 1),
        "ceil(x)",
        "The least whole number that is not less.",
        "ceil(1.2) → 2",
        "ceil(-1.2) → -1",
        also="ceiling",
    ),
    define(
        "floor",
        (_to_whole, 1, 1),
        "floor(x)",
        "The greatest whole number that is not greater.",
        "floor(1.8) → 1",
    ),
    define("sign", (numeric(DOUBLE), 1, 1), "sign(x)", "1, 0 or -1.", "sign(-2) → -1.0", also="signum"),
    define(
        "round",
        (_rounded, 1, 2),
        "round(x), round(x, places)",
        "Rounded, halves away from 0.",
        "round(2.5) → 3.0",
        "round(1.255, 2) → 1.26",
        "round(1234, -2) → 1200",
    ),
    _simple("rint", "The nearest whole number, as a double; of two the even one.", "rint(2.5) → 2.0"),
    define("exp", (numeric(DOUBLE), 1, 1), "exp(x)", "e to the power of x.", "exp(0) → 1.0"),
    _simple("expm1", "exp(x) - 1, exact also near 0.", "expm1(0) → 0.0"),
    define(
        "ln",
        (numeric(DOUBLE), 1, 1),
        "ln(x)",
        "The natural logarithm; NULL where there is none.",
        "ln(1) → 0.0",
        "ln(-1) → None",
    ),
    define(
        "log",
        "double, double -> double",
        "log(base, x)",
        "The logarithm to a base.",
        "log(10, 1000) → 2.9999999999999996",
        "log(2, 0) → None",
    ),
    _simple("log2", "The logarithm to base 2.", "log2(8) → 3.0"),
    _simple("log10", "The logarithm to base 10.", "log10(1000) → 3.0"),
    _simple("log1p", "ln(1 + x), exact also near 0.", "log1p(0) → 0.0", "log1p(-1) → None"),
    define("sqrt", (numeric(DOUBLE), 1, 1), "sqrt(x)", "The square root.", "sqrt(9) → 3.0"),
    _simple("cbrt", "The cube root.", "cbrt(27) → 3.0"),
    define(
        "power",
        (numeric(DOUBLE), 2, 2),
        "power(x, y)",
        "x to the power of y.",
        "power(2, 10) → 1024.0",
        also="pow",
    ),
    _simple("hypot", "The square root of x² + y².", "hypot(3, 4) → 5.0", takes="double, double -> double"),
    _simple("sin", "The sine.", "sin(0) → 0.0"),
    _simple("cos", "The cosine.", "cos(0) → 1.0"),
    _simple("tan", "The tangent.", "tan(0) → 0.0"),
    _simple("cot", "The cotangent.", "round(cot(1), 6) → 0.642093"),
    _simple("sec", "1 / cos(x).", "sec(0) → 1.0"),
    _simple("csc", "1 / sin(x).", "round(csc(1), 6) → 1.188395"),
    _simple("asin", "The angle whose sine is x; NaN where there is none.", "asin(0) → 0.0", "asin(2) → nan"),
    _simple("acos", "The angle whose cosine is x; NaN where there is none.", "acos(1) → 0.0"),
    _simple("atan", "The angle whose tangent is x.", "atan(0) → 0.0"),
    _simple(
        "atan2",
        "The angle of the point at (y, x): its second coordinate comes first.",
        "atan2(0, 1) → 0.0",
        takes="double, double -> double",
    ),
    _simple("sinh", "The hyperbolic sine.", "sinh(0) → 0.0"),
    _simple("cosh", "The hyperbolic cosine.", "cosh(0) → 1.0"),
    _simple("tanh", "The hyperbolic tangent.", "tanh(0) → 0.0"),
    _simple("asinh", "The inverse of the hyperbolic sine.", "asinh(0) → 0.0"),
    _simple("acosh", "The inverse of the hyperbolic cosine.", "acosh(1) → 0.0"),
    _simple("atanh", "The inverse of the hyperbolic tangent.", "atanh(0) → 0.0"),
    _simple("degrees", "An angle in degrees.", "degrees(0) → 0.0"),
    _simple("radians", "An angle in radians.", "radians(180) → 3.141592653589793"),
    define("pi", _constant(3.141592653589793), "pi()", "π.", "pi() → 3.141592653589793", rewritten=True),
    define(
        "e", _constant(2.718281828459045), "e()", "Euler's number.", "e() → 2.718281828459045", rewritten=True
    ),
    define(
        "factorial",
        "int -> long",
        "factorial(n)",
        "1 · 2 · … · n, of 0 to 20.",
        "factorial(5) → 120",
        "factorial(21) → None",
    ),
    define(
        "div",
        "integer, integer -> long",
        "x DIV y, div(x, y)",
        "The whole part of the quotient of whole numbers; NULL where y is 0.",
        "7 DIV 2 → 3",
        "-7 DIV 2 → -3",
        "1 DIV 0 → None",
    ),
    define(
        "pmod",
        (arithmetic, 2, 2),
        "pmod(x, y)",
        "The remainder, not negative where y is positive; NULL where y is 0.",
        "pmod(-7, 3) → 2",
    ),
    define(
        "width_bucket",
        "double, double, double, long -> long",
        "width_bucket(x, low, high, n)",
        "In which of n parts of equal width a number lies, from 1; 0 and n + 1 are outside.",
        "width_bucket(5.3, 0.2, 10.6, 5) → 3",
    ),
    define(
        "isnan",
        "double -> boolean",
        "isnan(x)",
        "Whether a number is NaN; false for NULL.",
        "isnan(CAST('NaN' AS DOUBLE)) → True",
        "isnan(NULL) → False",
        strict=False,
    ),
    define(
        "nanvl",
        (_unless_nan, 2, 2),
        "nanvl(x, y)",
        "The first, or the second where the first is NaN.",
        "nanvl(CAST('NaN' AS DOUBLE), 7) → 7.0",
        strict=False,
    ),
)

BITS: tuple[Function, ...] = (
    define("&", (_integers, 2, 2), "x & y", "The bits that both have.", "12 & 10 → 8"),
    define("|", (_integers, 2, 2), "x | y", "The bits that one of them has.", "12 | 10 → 14"),
    define("^", (_integers, 2, 2), "x ^ y", "The bits that only one of them has.", "12 ^ 10 → 6"),
    define("~", (_integers, 1, 1), "~x", "The other bits.", "~(0) → -1"),
    define(
        "shiftleft",
        (_shifted, 2, 2),
        "shiftleft(x, n)",
        "Moved by n bits to the left.",
        "shiftleft(2, 3) → 16",
    ),
    define(
        "shiftright",
        (_shifted, 2, 2),
        "shiftright(x, n)",
        "Moved by n bits to the right; the sign stays.",
        "shiftright(-16, 2) → -4",
    ),
    define(
        "shiftrightunsigned",
        (_shifted, 2, 2),
        "shiftrightunsigned(x, n)",
        "Moved by n bits to the right; zeros come in.",
        "shiftrightunsigned(-1, 28) → 15",
    ),
    define(
        "bit_count", "integer -> int", "bit_count(x)", "How many bits are set, of 64.", "bit_count(7) → 3"
    ),
    define(
        "bit_get",
        "integer, int -> byte",
        "bit_get(x, n)",
        "The bit at a place from the right, from 0; NULL where there is no such place.",
        "bit_get(5, 2) → 1",
        also="getbit",
    ),
    define("bin", "long -> string", "bin(x)", "The digits in base 2.", "bin(5) → 101"),
    define(
        "hex_of_number",
        "long -> string",
        "hex_of_number(x)",
        "The digits of a whole number in base 16; `hex(x)` gives the same.",
        "hex_of_number(255) → FF",
    ),
)
