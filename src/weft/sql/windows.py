"""What stands in the brackets after a stream's name, and in the builder's ``window``.

Guarantees: a window that makes no sense is refused with the forms there are. The columns that a window counts per are
names here, each with its place; `bind` looks them up.
"""

from __future__ import annotations

import re
from datetime import timedelta

from sqlglot import Token, TokenType

from weft.errors import QueryError, SqlError
from weft.logical.query.window import UNBOUNDED, Range, Rows, Unbounded, Window
from weft.logical.times import parse_duration
from weft.sql.parse import Bracket
from weft.sql.source import Span
from weft.sql.statement import Name

__all__ = ["WindowLike", "parse_window", "read_bracket"]

# What the builder accepts: "10 minutes", "1000 rows", "10 rows per symbol", "unbounded", a duration, a number of
# rows, a window.
WindowLike = str | timedelta | int | Window

_FORMS = "write [RANGE 10 MINUTES], [ROWS 1000], [ROWS 10 PER symbol] or [UNBOUNDED]"
_FORMS_TEXT = 'write "10 minutes", "1000 rows", "10 rows per symbol" or "unbounded"'
_ROWS_TEXT = re.compile(r"(.*?)\brows?(?:\s+per\b(.*))?", re.IGNORECASE | re.DOTALL)


def read_bracket(bracket: Bracket) -> tuple[Window, tuple[Name, ...]]:
    """The window that ``[RANGE 10 MINUTES]``, ``[ROWS 1000]`` or ``[UNBOUNDED]`` stands for, and what it counts per."""
    tokens = [token for token in bracket.source.tokens if bracket.span[0] < token.start < bracket.span[1] - 1]
    place = next((i for i, token in enumerate(tokens) if _is_per(token)), len(tokens))
    end = tokens[place].start if place < len(tokens) else bracket.span[1] - 1
    words = bracket.source.text[bracket.span[0] + 1 : end]
    kind, rest = (*words.split(None, 1), "", "")[:2]
    per = _listed(bracket, tokens[place:]) if kind.upper() == "ROWS" else ()
    if place < len(tokens) and kind.upper() in ("RANGE", "UNBOUNDED"):
        raise _wrong(bracket, tokens[place], *_only_rows(kind.upper()))
    try:
        match kind.upper():
            case "RANGE":
                return Range(parse_duration(rest)), ()
            case "ROWS":
                return _rows(rest), per
            case "UNBOUNDED" if not rest:
                return UNBOUNDED, ()
    except QueryError as error:
        raise bracket.error(error.message, error.hint) from None
    raise bracket.error(f"cannot read the window [{' '.join(bracket.words.split())}]", _FORMS)


def _is_per(token: Token) -> bool:
    quoted = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
    return not quoted and token.text.upper() == "PER"


def _listed(bracket: Bracket, tokens: list[Token]) -> tuple[Name, ...]:
    """The names after PER, with commas between them."""
    if not tokens:
        return ()
    names, commas = tokens[1::2], tokens[2::2]
    for token in names:
        if not _is_column(token):
            raise _wrong(bracket, token, f"{token.text} is no column", "write the name of a column")
    for token in commas:
        if token.token_type is not TokenType.COMMA:
            raise _wrong(
                bracket, token, "PER takes columns of the stream", "write their names alone, with commas"
            )
    if len(names) == len(commas):
        raise _wrong(bracket, tokens[-1], f"a column is missing after {tokens[-1].text}", _FORMS)
    return tuple(Name(token.text, bracket.source, _at(token)) for token in names)


def _is_column(token: Token) -> bool:
    plain = token.text.isidentifier() and token.token_type is not TokenType.STRING
    return plain or (token.token_type is TokenType.IDENTIFIER and bool(token.text))


def _wrong(bracket: Bracket, token: Token, message: str, hint: str) -> SqlError:
    return bracket.source.error(_at(token), message, hint)


def _at(token: Token) -> Span:
    return token.start, token.end + 1


def _only_rows(kind: str) -> tuple[str, str]:
    return f"a window of {kind} is the same for every key", "leave out PER, or count with ROWS 10 PER symbol"


def parse_window(given: WindowLike | None) -> Window:
    """The window that a value stands for.

    >>> print(parse_window("10 minutes"), parse_window(1000), parse_window("10 rows per symbol"), sep=", ")
    RANGE 10 MINUTES, ROWS 1000, ROWS 10 PER symbol
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
        counted = _ROWS_TEXT.fullmatch(words)
        if counted:
            return Rows(_rows(counted[1]).count, _named(counted[2]))
        if re.search(r"\bper\b", words, re.IGNORECASE):
            raise QueryError(_only_rows("RANGE")[0])
        return Range(parse_duration(words))
    except QueryError as error:
        raise SqlError(error.message, text=text, start=0, end=len(text), hint=_FORMS_TEXT) from None


def _named(listed: str | None) -> tuple[str, ...]:
    if listed is None:
        return ()
    names = {name.strip() for name in listed.split(",")}
    if "" in names:
        raise QueryError("a column is missing after per")
    return tuple(sorted(names))


def _rows(text: str) -> Rows:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise QueryError(f"cannot read {digits!r} as a number of rows", hint="write it as in ROWS 1000")
    return Rows(int(digits))
