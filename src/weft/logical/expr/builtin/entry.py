"""What an entry of the functions says: names, types, and what the page of functions shows.

Guarantees: a function is defined by one entry here and one kernel of the same name (`weft.kernels.expr`); tests hold
both sets equal, run every example, and compare every function with Spark.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.logical.expr.rules import CallTypes, TypingRule

__all__ = ["Function", "define"]


@dataclass(frozen=True, slots=True)
class Function:
    """A function or operator.

    It takes ``least`` to ``most`` arguments (None: any number), which ``rule`` types. Users also call it by its
    ``synonyms``. The page shows how it is written (``form``), what it does, and examples: expressions and their values
    as Python prints them, in UTC, NULL as None. A ``strict`` function is NULL where an argument is. Functions that a
    ``signature`` types are drawn at random from it, and those with other rules by hand. A function that is
    ``rewritten`` becomes other functions when it is bound, and has no kernel of its own.
    """

    name: str
    rule: TypingRule
    least: int
    most: int | None
    form: str
    text: str
    examples: tuple[tuple[str, str], ...]
    synonyms: tuple[str, ...] = ()
    strict: bool = True
    signature: CallTypes | None = None
    rewritten: bool = False


def define(
    name: str,
    takes: str | tuple[TypingRule, int, int | None],
    form: str,
    text: str,
    *examples: str,
    also: str = "",
    strict: bool = True,
    rewritten: bool = False,
) -> Function:
    """An entry from texts: its signature (see `CallTypes.parse`), examples as ``expression → value``, its synonyms.

    >>> define("cbrt", "double -> double", "cbrt(x)", "The cube root.", "cbrt(27) → 3.0").examples
    (('cbrt(27)', '3.0'),)
    """
    signature = None
    if isinstance(takes, str):
        signature = CallTypes.parse(takes)
        takes = (signature.rule, signature.least, signature.most)
    pairs = (example.rsplit(" → ", 1) for example in examples)
    shown = tuple((sql, value) for sql, value in pairs)
    return Function(name, *takes, form, text, shown, tuple(also.split()), strict, signature, rewritten)
