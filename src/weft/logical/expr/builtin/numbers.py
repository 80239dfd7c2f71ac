"""Functions of numbers."""

from __future__ import annotations

from weft.logical.expr.builtin.entry import Function, define
from weft.logical.expr.conversion import DOUBLE, LONG
from weft.logical.expr.rules import absolute, numeric

__all__ = ["NUMBERS"]

NUMBERS: tuple[Function, ...] = (
    define("abs", (absolute, 1, 1), "abs(x)", "The absolute value.", "abs(-3) → 3"),
    define(
        "ceil",
        (numeric(LONG), 1, 1),
        "ceil(x)",
        "The least whole number that is not less.",
        "ceil(1.2) → 2",
        "ceil(-1.2) → -1",
        also="ceiling",
    ),
    define(
        "floor",
        (numeric(LONG), 1, 1),
        "floor(x)",
        "The greatest whole number that is not greater.",
        "floor(1.8) → 1",
    ),
    define("sign", (numeric(DOUBLE), 1, 1), "sign(x)", "1, 0 or -1.", "sign(-2) → -1.0", also="signum"),
    define(
        "round",
        (numeric(None), 1, 2),
        "round(x), round(x, places)",
        "Rounded, halves away from 0.",
        "round(2.5) → 3.0",
        "round(1.255, 2) → 1.26",
        "round(1234, -2) → 1200",
    ),
    define("exp", (numeric(DOUBLE), 1, 1), "exp(x)", "e to the power of x.", "exp(0) → 1.0"),
    define(
        "ln",
        (numeric(DOUBLE), 1, 1),
        "ln(x)",
        "The natural logarithm; NULL where there is none.",
        "ln(1) → 0.0",
        "ln(-1) → None",
    ),
    define("sqrt", (numeric(DOUBLE), 1, 1), "sqrt(x)", "The square root.", "sqrt(9) → 3.0"),
    define(
        "power",
        (numeric(DOUBLE), 2, 2),
        "power(x, y)",
        "x to the power of y.",
        "power(2, 10) → 1024.0",
        also="pow",
    ),
)
