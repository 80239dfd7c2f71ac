"""What stands in the brackets after a stream's name, and in the builder's ``window``.

Guarantees: a window that makes no sense is refused with the three forms there are.
"""

from __future__ import annotations

from datetime import timedelta

from weft.errors import QueryError, SqlError
from weft.logical.window import UNBOUNDED, Range, Rows, Unbounded, Window, parse_duration
from weft.sql.parse import Bracket

__all__ = ["WindowLike", "parse_window", "read_bracket"]

# What the builder accepts: "10 minutes", "1000 rows", "unbounded", a duration, a number of rows, a window.
WindowLike = str | timedelta | int | Window

_FORMS = "write [RANGE 10 MINUTES], [ROWS 1000] or [UNBOUNDED]"
_FORMS_TEXT = 'write "10 minutes", "1000 rows" or "unbounded"'


def read_bracket(bracket: Bracket) -> Window:
    """The window that ``[RANGE 10 MINUTES]``, ``[ROWS 1000]`` or ``[UNBOUNDED]`` stands for."""
    kind, rest = (*bracket.words.split(None, 1), "", "")[:2]
    try:
        match kind.upper():
            case "RANGE":
                return Range(parse_duration(rest))
            case "ROWS":
                return _rows(rest)
            case "UNBOUNDED" if not rest:
                return UNBOUNDED
    except QueryError as error:
        raise bracket.error(error.message, error.hint) from None
    raise bracket.error(f"cannot read the window [{' '.join(bracket.words.split())}]", _FORMS)


def parse_window(given: WindowLike | None) -> Window:
    """The window that a value stands for.

    >>> print(parse_window("10 minutes"), parse_window(1000), parse_window(timedelta(hours=1)), sep=", ")
    RANGE 10 MINUTES, ROWS 1000, RANGE 1 HOUR
    """
    match given:
        case None:
            return UNBOUNDED
        case bool():
            raise QueryError(f"a window cannot be {given}", hint=_FORMS_TEXT)
        case int():
            return Rows(given)
        case timedelta():
            return Range(given)
        case str():
            return _from_text(given)
        case Range() | Rows() | Unbounded():
            return given
    raise QueryError(f"a window cannot be {given!r}", hint=_FORMS_TEXT)


def _from_text(text: str) -> Window:
    words = text.strip()
    if words.lower() == "unbounded":
        return UNBOUNDED
    try:
        if words.lower().endswith(("rows", "row")):
            return _rows(words[: words.lower().rindex("row")])
        return Range(parse_duration(words))
    except QueryError as error:
        raise SqlError(error.message, text=text, start=0, end=len(text), hint=_FORMS_TEXT) from None


def _rows(text: str) -> Rows:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise QueryError(f"cannot read {digits!r} as a number of rows", hint="write it as in ROWS 1000")
    return Rows(int(digits))
