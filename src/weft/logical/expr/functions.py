"""The functions and operators of the expression language, and their calls.

Guarantees: `call` gives a typed expression in normal form, or a `QueryError` that names the function and its arguments
and says what would do. Every function stands in one section of one module of `builtin`.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from weft.errors import QueryError
from weft.logical.expr.builtin.entry import Function
from weft.logical.expr.builtin.hashes import HASHES
from weft.logical.expr.builtin.json import JSON
from weft.logical.expr.builtin.lists import LISTS
from weft.logical.expr.builtin.nested import NESTED
from weft.logical.expr.builtin.numbers import BITS, NUMBERS
from weft.logical.expr.builtin.operators import ARITHMETIC, COMPARISONS, CONDITIONS
from weft.logical.expr.builtin.texts import PATTERNS, TEXTS
from weft.logical.expr.builtin.times import TIMES
from weft.logical.expr.expression import Expr
from weft.logical.expr.rules import texts

__all__ = ["FUNCTIONS", "SECTIONS", "SYNONYMS", "call", "is_built_in", "named_functions", "similar_functions"]

SECTIONS: dict[str, tuple[Function, ...]] = {
    "Comparisons": COMPARISONS,
    "Conditions and choices": CONDITIONS,
    "Arithmetic": ARITHMETIC,
    "Numbers": NUMBERS,
    "Bits": BITS,
    "Texts": TEXTS,
    "Patterns": PATTERNS,
    "Digests": HASHES,
    "JSON": JSON,
    "Dates and times": TIMES,
    "Lists, maps and structs": NESTED,
    "Functions of lists": LISTS,
}
FUNCTIONS: dict[str, Function] = {entry.name: entry for section in SECTIONS.values() for entry in section}
SYNONYMS: dict[str, str] = {synonym: entry.name for entry in FUNCTIONS.values() for synonym in entry.synonyms}

_KEYWORDS = ("and", "or", "not", "in", "like", "neg", "case")


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


def is_built_in(name: str) -> bool:
    """Whether a name in small letters calls a function of this language, by its own name or by a synonym."""
    return name in SYNONYMS or (name in FUNCTIONS and name.isidentifier() and name not in _KEYWORDS)


def similar_functions(name: str, more: Iterable[str] = ()) -> str:
    """A hint with the few functions, built in and ``more``, whose names are most like this one.

    >>> similar_functions("lowr").startswith("did you mean lower? There are lower, ")
    True
    >>> similar_functions("quark", ["quart"]).startswith("did you mean quart?")
    True
    """
    known = [*named_functions(), *more]
    close = get_close_matches(name.lower(), known, n=_FEW, cutoff=0.5)
    shown = close or sorted(known)[:_FEW]
    listing = f"There are {', '.join(shown)} and {len(known) - len(shown)} more"
    meant = get_close_matches(name.lower(), close, n=1, cutoff=0.7)
    return f"did you mean {meant[0]}? {listing}" if meant else listing[0].lower() + listing[1:]


_FEW = 5
