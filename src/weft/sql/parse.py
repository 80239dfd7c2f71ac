"""Reads a text into a syntax tree, and finds the windows in it.

Guarantees: whatever the text, the outcome is a tree or a `SqlError`. The windows are CQL's brackets after a
stream's name, `FROM videos [RANGE 10 MINUTES] AS v`, which sqlglot cannot read: their tokens are taken out
before it reads the rest, so that every position still is one of the user's text. What sqlglot would let pass (a
comma with nothing after it, ON without a condition, a parenthesis never closed) is an error here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from sqlglot import Token, TokenType, exp
from sqlglot.errors import ParseError, SqlglotError, TokenError

from weft.errors import QueryError, SqlError
from weft.logical.query.limits import DEFAULT_LIMITS, Limits
from weft.sql.dialect import WeftSql
from weft.sql.quotes import mark_names
from weft.sql.source import Piece, Source, Span

__all__ = ["Bracket", "Parsed", "parse_fragment", "parse_select"]

_DIALECT = WeftSql()
_CLOSER = {TokenType.L_PAREN: TokenType.R_PAREN, TokenType.L_BRACKET: TokenType.R_BRACKET}
_MOST_BARE_JOINS = 8
_WINDOW_WORDS = ("RANGE", "ROWS", "UNBOUNDED")


@dataclass(frozen=True, slots=True)
class Bracket:
    """``[...]`` in the text: most likely a window."""

    source: Source
    span: Span

    @property
    def words(self) -> str:
        """What stands inside, as written."""
        return self.source.text[self.span[0] + 1 : self.span[1] - 1].strip()

    def error(self, message: str, hint: str | None = None) -> SqlError:
        """An error about this bracket."""
        return self.source.error(self.span, message, hint)

    def misplaced(self) -> SqlError:
        """The error for a bracket that follows neither a stream's name nor a sub-select."""
        if self.words.upper().startswith(_WINDOW_WORDS):
            return self.error(
                "a window stands right after the name of a stream in FROM",
                "write FROM videos [RANGE 10 MINUTES] AS v",
            )
        return self.error("arrays and access with [ ] are not supported")


@dataclass(frozen=True, slots=True)
class Parsed:
    """A SELECT statement, and its brackets by the position at which the word before each of them ends."""

    select: Piece
    brackets: dict[int, Bracket]


def parse_select(text: str, limits: Limits = DEFAULT_LIMITS) -> Parsed:
    """The syntax tree of exactly one SELECT statement."""
    source = _scan(text, limits)
    _check_statement(source)
    kept = tuple(token for token in source.tokens if token.token_type is not TokenType.SEMICOLON)
    brackets, rest = _cut_brackets(replace(source, tokens=kept))
    _check_neighbours(rest)
    _check_joins(rest)
    return Parsed(Piece(_tree(rest, None), rest), brackets)


def parse_fragment(text: str) -> Piece:
    """The syntax tree of one expression, with or without a name (``lower(w.name) AS n``)."""
    source = _scan(text)
    if not source.tokens:
        raise source.error(source.whole, "there is nothing here", "write an expression")
    for token in source.tokens:
        if token.token_type is TokenType.SEMICOLON:
            raise source.error(_at(token), "a single expression is wanted here")
    brackets, rest = _cut_brackets(source)
    for bracket in brackets.values():
        raise bracket.misplaced()
    _check_neighbours(rest)
    _check_joins(rest)
    return Piece(_tree(rest, exp.Expr), rest)


def _scan(text: str, limits: Limits = DEFAULT_LIMITS) -> Source:
    """The text cut into tokens, its parentheses in pairs."""
    _check_size(Source(text, limits=limits), "characters", len(text), "characters")
    if not text.isprintable() and any(0xD800 <= ord(char) < 0xE000 for char in text):
        raise Source("").error((0, 0), "the text is not valid Unicode: it contains half a surrogate pair")
    try:
        source = Source(text, mark_names(text, _DIALECT.tokenize(text)), limits)
    except TokenError as error:
        end = min(error.end or len(text), len(text))
        raise Source(text).error(
            _unclosed(text, end), "cannot read the text from here", "is a quote or a comment never closed?"
        ) from None
    _check_size(source, "words", len(source.tokens), "words and signs")
    _check_pairs(source)
    return source


def _check_size(source: Source, name: str, count: int, units: str) -> None:
    try:
        source.limits.check(name, count, f"the text has {count:,} {units}")
    except QueryError as error:
        raise source.error(source.whole, error.message, error.hint) from None


def _unclosed(text: str, end: int) -> Span:
    """Where the quote or comment begins that is never closed: the text before it can be read."""
    candidates = (start for start in range(end - 1, -1, -1) if text[start] in "'\"`/")
    for start in islice(candidates, 100):
        if _is_readable(text[:start]):
            return start, start + 1
    return max(0, end - 1), end


def _is_readable(text: str) -> bool:
    try:
        _DIALECT.tokenize(text)
    except SqlglotError:
        return False
    return True


def _check_pairs(source: Source) -> None:
    opened: list[Token] = []
    for token in source.tokens:
        if token.token_type in _CLOSER:
            opened.append(token)
        elif token.token_type in _CLOSER.values():
            if not opened or _CLOSER[opened[-1].token_type] is not token.token_type:
                raise source.error(_at(token), f"nothing is open that {token.text} could close")
            opened.pop()
    if opened:
        raise source.error(_at(opened[-1]), f"this {opened[-1].text} is never closed")


def _check_statement(source: Source) -> None:
    if not source.tokens:
        raise source.error(source.whole, "there is no query", "write SELECT … FROM …")
    first = source.tokens[0]
    if first.token_type not in (TokenType.SELECT, TokenType.WITH):
        word = source.text_of(_at(first))
        raise source.error(
            _at(first), f"a query starts with SELECT, not with {word}", "write SELECT … FROM …"
        )
    ended = False
    for token in source.tokens:
        if token.token_type is TokenType.PIPE_GT:
            raise source.error(_at(token), "|> (the pipe syntax) is not supported", _FLAT)
        if ended and token.token_type is not TokenType.SEMICOLON:
            raise source.error(_at(token), "there is more than one statement", "submit them one by one")
        ended = ended or token.token_type is TokenType.SEMICOLON


_FLAT = "join the streams in one SELECT"


def _cut_brackets(source: Source) -> tuple[dict[int, Bracket], Source]:
    """The brackets, and the text without their tokens."""
    brackets: dict[int, Bracket] = {}
    kept: list[Token] = []
    pending = iter(source.tokens)
    for token in pending:
        if token.token_type is not TokenType.L_BRACKET:
            kept.append(token)
            continue
        bracket = _bracket(source, token, pending)
        before = kept[-1] if kept else token
        ends = _is_name(before) or before.token_type is TokenType.R_PAREN
        if not ends or before.end + 1 in brackets:
            raise bracket.misplaced()
        brackets[before.end + 1] = bracket
    return brackets, replace(source, tokens=tuple(kept))


def _bracket(source: Source, first: Token, rest: Iterator[Token]) -> Bracket:
    depth, last = 1, first
    while depth:  # brackets are in pairs, as `_scan` has seen
        last = next(rest)
        depth += {TokenType.L_BRACKET: 1, TokenType.R_BRACKET: -1}.get(last.token_type, 0)
    return Bracket(source, (first.start, last.end + 1))


def _is_name(token: Token) -> bool:
    if token.token_type in (TokenType.IDENTIFIER, TokenType.STRING):
        return token.token_type is TokenType.IDENTIFIER
    return token.text.isidentifier() and token.token_type not in _OPEN


# Words and signs that need something after them …
_OPEN = frozenset(
    (
        *(TokenType.COMMA, TokenType.SELECT, TokenType.FROM, TokenType.WHERE, TokenType.JOIN, TokenType.ON),
        *(TokenType.USING, TokenType.AND, TokenType.OR, TokenType.NOT, TokenType.BETWEEN, TokenType.IN),
        *(TokenType.LIKE, TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE),
        *(TokenType.GTE, TokenType.PLUS, TokenType.DASH, TokenType.SLASH, TokenType.MOD, TokenType.DPIPE),
        *(TokenType.CASE, TokenType.WHEN, TokenType.THEN, TokenType.ELSE),
    )
)
# … and those that cannot begin anything. None is the end of the text.
_SHUT = frozenset(
    (
        *(None, TokenType.COMMA, TokenType.R_PAREN, TokenType.FROM, TokenType.WHERE, TokenType.JOIN),
        *(TokenType.ON, TokenType.AND, TokenType.OR, TokenType.THEN, TokenType.ELSE, TokenType.END),
        *(TokenType.GROUP_BY, TokenType.ORDER_BY, TokenType.HAVING, TokenType.LIMIT),
    )
)


def _check_neighbours(source: Source) -> None:
    kinds = [*(token.token_type for token in source.tokens), None, None]
    for index, token in enumerate(source.tokens):
        kind, then = kinds[index + 1 : index + 3]
        loose = kind in _SHUT or (kind is TokenType.DOT and then is not TokenType.NUMBER)
        if token.token_type in _OPEN and loose:
            raise source.error(_at(token), f"something is missing after {token.text}")
        if token.token_type is TokenType.L_PAREN and kind is TokenType.COMMA:
            raise source.error(_at(token), "something is missing after (")


def _check_joins(source: Source) -> None:
    """Refuse long runs of JOIN without ON: sqlglot tries every way to pair them with what follows."""
    pending = 0
    for token, before in zip(source.tokens[1:], source.tokens, strict=False):
        if token.token_type is TokenType.JOIN and before.token_type is not TokenType.CROSS:
            pending += 1
        elif token.token_type in (TokenType.ON, TokenType.USING):
            pending = max(0, pending - 1)
        if pending > _MOST_BARE_JOINS:
            hint = "give each its ON, or write commas and put the conditions in WHERE"
            raise source.error(_at(token), f"more than {_MOST_BARE_JOINS} JOINs without ON", hint)


def _tree(source: Source, into: type[exp.Expr] | None) -> exp.Expr:
    """What sqlglot makes of the tokens: one statement, or one node of a kind."""
    parser = _DIALECT.parser(error_message_context=len(source.text))
    tokens = list(source.tokens)
    try:
        trees = parser.parse_into(into, tokens, source.text) if into else parser.parse(tokens, source.text)
    except ParseError as error:
        raise _syntax_error(source, error) from None
    except RecursionError:
        raise source.error(source.whole, "the text is nested too deeply", "use fewer parentheses") from None
    except (SqlglotError, ValueError, TypeError, AttributeError, IndexError, KeyError):
        # sqlglot stumbles over some malformed texts without saying where.
        raise source.error(source.whole, "cannot read this") from None
    if len(trees) != 1 or trees[0] is None:
        raise source.error(source.whole, "cannot read this")
    return trees[0]


def _syntax_error(source: Source, error: ParseError) -> SqlError:
    details = error.errors[0] if error.errors else {}
    start = len(details.get("start_context") or "")
    span = (start, start + len(details.get("highlight") or ""))
    what = source.text_of(span)
    wanted = _WANTED.get(str(details.get("description")))
    if wanted:
        return source.error(span, f"{wanted} is missing near {what}")
    return source.error(span, f"cannot make sense of {what}" if what else "the text ends too early")


# What is missing, by what sqlglot says it expects.
_WANTED = {"Expecting )": ")", "Expected END after CASE": "END", "Expected AS after CAST": "AS"}
_WANTED |= {"Expected TYPE after CAST": "a type"}


def _at(token: Token) -> Span:
    return token.start, token.end + 1
