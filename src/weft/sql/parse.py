"""Reads a text into a syntax tree, and finds the windows in it.

Guarantees: whatever the text, the outcome is a tree or a `SqlError`. The windows are CQL's brackets after a
stream's name, `FROM videos [RANGE 10 MINUTES] AS v`, which sqlglot cannot read: their tokens are taken out
before it reads the rest, so that every position still is one of the user's text. What sqlglot would let pass (a
comma with nothing after it, ON without a condition, a parenthesis never closed) is an error here.

The text is read as Spark's SQL, with nothing rewritten (`WeftSql`): a function call stays a name with arguments, since
`weft.logical.expr.functions` decides what there is; a comma in FROM can be told from JOIN; nothing is read as an opaque
command; every node knows its last word's position.

Backticks always quote a name, and single quotes a text. What stands in double quotes is a name wherever only a name can
stand: beside a dot, after a name, AS, FROM and JOIN, before a window, in USING and after PER; elsewhere it is a text,
as in Spark (`mark_names`). A quote inside such a name is written twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import ClassVar, TypeVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.parsers.spark import SparkParser

from weft.errors import QueryError, SqlError
from weft.logical.query.limits import DEFAULT_LIMITS, Limits
from weft.sql.source import Piece, Span, SqlText, mark_names

__all__ = [
    "Bracket",
    "Parsed",
    "WeftSql",
    "parse_bracketed",
    "parse_fragment",
    "parse_select",
]


Node = TypeVar("Node", bound=exp.Expr)

# Functions that are written with keywords between their arguments, and so cannot be read as plain calls.
_KEYWORD_CALLS = ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "OVERLAY", "SUBSTRING", "TRIM")


class WeftParser(SparkParser):
    """Spark's parser without its functions."""

    FUNCTIONS: ClassVar = {}
    ARRAY_CONSTRUCTORS: ClassVar = {}  # else array(1, 2)[0] would be read as the list [0]
    FUNCTION_PARSERS: ClassVar = {name: SparkParser.FUNCTION_PARSERS[name] for name in _KEYWORD_CALLS}
    JOINS_HAVE_EQUAL_PRECEDENCE = False
    NO_PAREN_IF_COMMANDS = False

    def _parse_subquery(self, this: exp.Expr | None, parse_alias: bool = True) -> exp.Subquery | None:
        """Keep where the parenthesis closes, which a window may follow."""
        closing = self._prev
        found = super()._parse_subquery(this, parse_alias)
        if found is not None and closing is not None:
            found.meta["closing"] = closing.end + 1
        return found

    def _parse_join_parts(self) -> tuple[Token | None, Token | None, Token | None]:
        """Read LEFT MARK JOIN, too, as which a query says whether rows have a partner."""
        method, side, kind = super()._parse_join_parts()
        if side is not None and kind is None and self._match_text_seq("MARK"):
            kind = self._prev
        return method, side, kind

    def expression(
        self, instance: Node, token: Token | None = None, comments: list[str] | None = None
    ) -> Node:
        """Keep the position of the last token read, where the parser itself keeps none."""
        if token is None and not instance.meta.get("end"):
            token = self._prev
        return super().expression(instance, token, comments)


class WeftSql(Spark):
    """The dialect that `weft.sql.parse` reads."""

    class Tokenizer(Spark.Tokenizer):
        """Spark's tokenizer, in which no word makes the rest of the text an opaque command."""

        COMMANDS: ClassVar = set()
        KEYWORDS: ClassVar = {**Spark.Tokenizer.KEYWORDS, "MATCH_CONDITION": TokenType.MATCH_CONDITION}

    Parser = WeftParser

    def to_json_path(self, path: exp.Expr | None) -> exp.Expr | None:
        """Leave paths into JSON alone: `get_json_object` reads them itself, and sqlglot could log."""
        return path


_DIALECT = WeftSql()
_CLOSER = {TokenType.L_PAREN: TokenType.R_PAREN, TokenType.L_BRACKET: TokenType.R_BRACKET}
_MOST_BARE_JOINS = 8
_WITHOUT_ON = (TokenType.CROSS, TokenType.NATURAL)
_JOIN_WORDS = frozenset(
    (
        *(TokenType.LEFT, TokenType.RIGHT, TokenType.FULL, TokenType.OUTER, TokenType.INNER),
        *(TokenType.SEMI, TokenType.ANTI, TokenType.JOIN),
    )
)
_WINDOW_WORDS = ("RANGE", "ROWS", "UNBOUNDED")


@dataclass(frozen=True, slots=True)
class Bracket:
    """``[...]`` in the text: most likely a window."""

    source: SqlText
    span: Span

    @property
    def words(self) -> str:
        """What stands inside, as written."""
        return self.source.text[self.span[0] + 1 : self.span[1] - 1].strip()

    def error(self, message: str, hint: str | None = None) -> SqlError:
        """An error about this bracket."""
        return self.source.error(self.span, message, hint)

    @property
    def is_window(self) -> bool:
        """Whether it begins as a window does."""
        return self.words.upper().startswith(_WINDOW_WORDS)

    def misplaced(self) -> SqlError:
        """The error for a bracket that follows neither a stream's name nor a sub-select, nor anything else."""
        if self.is_window:
            return self.error(
                "a window stands right after the name of a stream in FROM",
                "write FROM videos [RANGE 10 MINUTES] AS v",
            )
        return self.error("[ ] stands right after a list or a map", "write x[0], and array(1, 2) for a list")


@dataclass(frozen=True, slots=True)
class Parsed:
    """A SELECT or an expression, and its brackets by the position at which the word before each of them ends."""

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
    return parse_bracketed(text).select


def parse_bracketed(text: str, into: type[exp.Expr] = exp.Expr) -> Parsed:
    """The syntax tree of one expression, or a key of ORDER BY, and the brackets in it, of a sub-select."""
    source = _scan(text)
    if not source.tokens:
        raise source.error(source.whole, "there is nothing here", "write an expression")
    for token in source.tokens:
        if token.token_type is TokenType.SEMICOLON:
            raise source.error(_at(token), "a single expression is wanted here")
    brackets, rest = _cut_brackets(source)
    _check_neighbours(rest)
    _check_joins(rest)
    return Parsed(Piece(_tree(rest, into), rest), brackets)


def _scan(text: str, limits: Limits = DEFAULT_LIMITS) -> SqlText:
    """The text cut into tokens, its parentheses in pairs."""
    _check_size(SqlText(text, limits=limits), "characters", len(text), "characters")
    if not text.isprintable() and any(0xD800 <= ord(char) < 0xE000 for char in text):
        raise SqlText("").error((0, 0), "the text is not valid Unicode: it contains half a surrogate pair")
    try:
        tokens = _with_window_names(_DIALECT.tokenize(text))
        source = SqlText(text, mark_names(text, tokens), limits)
    except TokenError as error:
        end = min(error.end or len(text), len(text))
        raise SqlText(text).error(
            _unclosed(text, end), "cannot read the text from here", "is a quote or a comment never closed?"
        ) from None
    _check_size(source, "words", len(source.tokens), "words and signs")
    _check_pairs(source)
    return source


def _with_window_names(tokens: list[Token]) -> list[Token]:
    """The tokens, in which WINDOW is a name where it is called or has a part: ``window(ts, …)``, ``window.start``."""
    after = (TokenType.L_PAREN, TokenType.DOT)
    found = []
    for token, following in zip(tokens, [*tokens[1:], None], strict=False):
        if token.token_type is TokenType.WINDOW and following is not None and following.token_type in after:
            token = Token(TokenType.VAR, token.text, token.line, token.col, token.start, token.end, [])
        found.append(token)
    return found


def _check_size(source: SqlText, name: str, count: int, units: str) -> None:
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


def _check_pairs(source: SqlText) -> None:
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


def _check_statement(source: SqlText) -> None:
    if not source.tokens:
        raise source.error(source.whole, "there is no query", "write SELECT … FROM …")
    first = source.tokens[0]
    if first.token_type not in (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN):
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


def _cut_brackets(source: SqlText) -> tuple[dict[int, Bracket], SqlText]:
    """The brackets in FROM, which are windows, and the text without their tokens; others reach into a list or map."""
    brackets: dict[int, Bracket] = {}
    kept: list[Token] = []
    around: list[bool] = []  # whether FROM lists its inputs outside of the parentheses that are open
    listing = False  # whether it does here
    pending = iter(source.tokens)
    for token in pending:
        kind, before = token.token_type, kept[-1] if kept else token
        if kind is TokenType.L_PAREN:
            around.append(listing)
            listing = listing and not _is_name(before)
        elif kind is TokenType.R_PAREN:
            listing = around.pop()
        elif kind in _CLAUSES:
            listing = _CLAUSES[kind]
        if kind is not TokenType.L_BRACKET:
            kept.append(token)
            continue
        bracket = _bracket(source, token, pending)
        ends = _is_name(before) or before.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET)
        if not ends or before.end + 1 in brackets or (not listing and bracket.is_window):
            raise bracket.misplaced()
        if listing:
            brackets[before.end + 1] = bracket
        else:
            kept += (one for one in source.tokens if token.start <= one.start < bracket.span[1])
    return brackets, replace(source, tokens=tuple(kept))


# Whether inputs are listed after a word, which windows may follow.
_CLAUSES = {
    **dict.fromkeys((TokenType.FROM, TokenType.JOIN), True),
    **dict.fromkeys((TokenType.SELECT, TokenType.WHERE, TokenType.ON, TokenType.USING), False),
    **dict.fromkeys(
        (TokenType.MATCH_CONDITION, TokenType.ORDER_BY, TokenType.GROUP_BY, TokenType.HAVING), False
    ),
}


def _bracket(source: SqlText, first: Token, rest: Iterator[Token]) -> Bracket:
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


def _check_neighbours(source: SqlText) -> None:
    kinds = [*(token.token_type for token in source.tokens), None, None]
    for index, token in enumerate(source.tokens):
        kind, then = kinds[index + 1 : index + 3]
        loose = kind in _SHUT or (kind is TokenType.DOT and then is not TokenType.NUMBER)
        if token.token_type in _OPEN and loose:
            raise source.error(
                _at(token), f"something is missing after {token.text}", _as_name(source, index)
            )
        if token.token_type is TokenType.L_PAREN and kind is TokenType.COMMA:
            raise source.error(_at(token), "something is missing after (")


def _as_name(source: SqlText, index: int) -> str | None:
    """What to write if a word that begins or ends a clause is meant as a name; None if it can hardly be."""
    before = source.tokens[index - 1].token_type if index else None
    after, word = [token.token_type for token in source.tokens[index + 1 : index + 3]], None
    if before in (TokenType.DOT, TokenType.ALIAS, TokenType.SELECT, TokenType.COMMA):
        word = source.tokens[index].text
    elif len(after) == 2 and after[1] in (TokenType.FROM, TokenType.COMMA, TokenType.EQ):
        word = source.tokens[index + 1].text
    if word is None or not word.isidentifier():
        return None
    return f"if {word} is the name of a column, write `{word}`"


def _check_joins(source: SqlText) -> None:
    """Refuse long runs of JOIN without ON: sqlglot tries every way to pair them with what follows."""
    pending = 0
    says_how = False  # whether CROSS or NATURAL says how to join, and nothing else may
    for token in source.tokens:
        says_how = token.token_type in _WITHOUT_ON or (says_how and token.token_type in _JOIN_WORDS)
        if token.token_type is TokenType.JOIN and not says_how:
            pending += 1
        elif token.token_type in (TokenType.ON, TokenType.USING):
            pending = max(0, pending - 1)
        if pending > _MOST_BARE_JOINS:
            hint = "give each its ON, or write commas and put the conditions in WHERE"
            raise source.error(_at(token), f"more than {_MOST_BARE_JOINS} JOINs without ON", hint)


def _tree(source: SqlText, into: type[exp.Expr] | None) -> exp.Expr:
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


def _syntax_error(source: SqlText, error: ParseError) -> SqlError:
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
