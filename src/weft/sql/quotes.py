"""Names in double quotes.

Guarantees: backticks always quote a name, and single quotes a text. What stands in double quotes is a name wherever
only a name can stand: beside a dot, after a name, AS, FROM and JOIN, before a window, in USING and after PER; elsewhere
it is a text, as in Spark. A quote inside such a name is written twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Token, TokenType

__all__ = ["is_double_quoted", "mark_names"]

_BEFORE = (
    TokenType.DOT,
    TokenType.ALIAS,
    TokenType.FROM,
    TokenType.JOIN,
    TokenType.VAR,
    TokenType.IDENTIFIER,
)
_AFTER = (TokenType.DOT, TokenType.L_BRACKET)
_IN_LIST = (TokenType.STRING, TokenType.IDENTIFIER, TokenType.COMMA, TokenType.VAR)
_BRACKETS = {TokenType.L_BRACKET: 1, TokenType.R_BRACKET: -1}


def is_double_quoted(text: str, token: Token) -> bool:
    """Whether a token is in double quotes."""
    return token.token_type is TokenType.STRING and text[token.start] == '"'


def mark_names(text: str, tokens: Sequence[Token]) -> tuple[Token, ...]:
    """The tokens of a text, in which those in double quotes that stand where only a name can are identifiers."""
    if '"' not in text:
        return tuple(tokens)
    found: list[Token] = []
    listing = False  # whether names are listed here: those of USING, or of a window's PER
    inside = 0  # how many brackets are open
    place = 0
    while place < len(tokens):
        token, end = tokens[place], _end_of_quoted(text, tokens, place)
        if end > place:
            after = tokens[end].token_type if end < len(tokens) else None
            before = found[-1].token_type if found else None
            named = listing or before in _BEFORE or after in _AFTER
            found += [_name(text, tokens[place:end])] if named else tokens[place:end]
            place = end
            continue
        inside += _BRACKETS.get(token.token_type, 0)
        begins = _begins_list(token, found[-1] if found else None, inside > 0)
        listing = begins or (listing and token.token_type in _IN_LIST)
        found.append(token)
        place += 1
    return tuple(found)


def _end_of_quoted(text: str, tokens: Sequence[Token], place: int) -> int:
    """The place after the tokens in double quotes that stand here with nothing between them, as in ``"a""b"``."""
    end = place
    while end < len(tokens) and is_double_quoted(text, tokens[end]):
        if end > place and tokens[end].start != tokens[end - 1].end + 1:
            break
        end += 1
    return end


def _begins_list(token: Token, before: Token | None, in_brackets: bool) -> bool:
    """Whether a list of names follows a token."""
    if token.token_type is TokenType.L_PAREN:
        return before is not None and before.token_type is TokenType.USING
    return in_brackets and token.token_type is not TokenType.IDENTIFIER and token.text.upper() == "PER"


def _name(text: str, tokens: Sequence[Token]) -> Token:
    first, last = tokens[0], tokens[-1]
    written = text[first.start + 1 : last.end].replace('""', '"')
    return Token(
        TokenType.IDENTIFIER, written, first.line, first.col, first.start, last.end, list(first.comments)
    )
