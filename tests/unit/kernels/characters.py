"""Texts with every character of Unicode, and every function of texts over them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.kernels.expressions import column
from weft.logical.expr.conversion import cast, literal
from weft.logical.expr.expression import Expr
from weft.logical.expr.functions import call
from weft.logical.schema import parse_type

TEXT = column("string", "c0")
# Where a character stands in a text: it may count as a letter there, end a word, or surround a number.
PLACES = ("{}", "a{}b", "1{}", "{}1", "{}Σ", "aΣ{}", "aΣ{}b", "{}Σb")
NUMBERS = ("int", "double", "boolean", "date", "decimal(5,2)")


def characters() -> list[str]:
    """Every character of Unicode, assigned or not."""
    return [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]


def cases() -> list[Expr]:
    """The functions whose result depends on what a character is."""
    return [call("lower", TEXT), call("upper", TEXT), *(cast(TEXT, parse_type(kind)) for kind in NUMBERS)]


def counts() -> list[Expr]:
    """The functions that count, cut or compare characters."""
    found = [call(name, TEXT) for name in ("trim", "ltrim", "rtrim", "reverse", "length")]
    found += [call("substring", TEXT, literal(2)), call("substring", TEXT, literal(-2), literal(1))]
    found += [call("like", TEXT, literal(pattern)) for pattern in ("_", "a_", "a_b")]
    found += [call("levenshtein", TEXT, literal("ab")), call("concat", TEXT, TEXT)]
    found += [
        call("replace", TEXT, literal("b"), literal("é")),
        call("replace", literal("abc"), TEXT, literal("é")),
    ]
    return found + [call(name, TEXT, literal("b")) for name in ("startswith", "contains", "endswith")]


def sample(every: Sequence[str]) -> list[str]:
    """A few characters of every kind: those that are special in some alphabet, and some of each plane."""
    return [*"aAßİıΣςſǅǆΐﬁﬅẞ ẛÅÅ\u0000\u0085\u00a0\u2028\ufeff٣３½𝟘𐐀𐐨🙂", *every[::9973]]
