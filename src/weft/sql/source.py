"""A text, its tokens, which of them are names, and where in it a node of the syntax tree stands.

Guarantees: `SqlText.span` never fails and never points outside the text. sqlglot keeps positions for names,
literals and the last word of most nodes; a node's span is that of all it contains, plus the words that open and
close it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import Token, TokenType, exp

from weft.errors import SqlError, WeftError
from weft.logical.query.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from weft.sql.statement import Statement

__all__ = ["Piece", "Span", "SqlText", "bare_node", "mark_names", "name_unit", "operands_of"]

# Half open: text[start:end].
Span = tuple[int, int]

_CAST = (frozenset({"(", "DATE", "TIMESTAMP"}), frozenset({"CAST", "TRY_CAST"}))
_JOIN = (
    frozenset({"JOIN"}),
    frozenset({"OUTER", "INNER", "CROSS", "SEMI", "ANTI"}),
    frozenset({"LEFT", "RIGHT", "FULL"}),
    frozenset({"NATURAL"}),
)
_QUERY = (frozenset({"DISTINCT"}), frozenset({"SELECT"}))
# The words before a node's first child that belong to it, from the inside out; each may be missing.
_OPENERS: dict[type[exp.Expr], tuple[frozenset[str], ...]] = {
    exp.Paren: (frozenset({"("}),),
    exp.Tuple: (frozenset({"("}),),
    exp.Subquery: (frozenset({"("}),),
    exp.Exists: (frozenset({"("}), frozenset({"EXISTS"})),
    exp.Select: _QUERY,
    exp.Not: (frozenset({"NOT"}),),
    exp.Neg: (frozenset({"-"}),),
    exp.Case: (frozenset({"WHEN", "CASE"}), frozenset({"CASE"})),
    exp.If: (frozenset({"("}), frozenset({"IF"})),
    exp.Cast: _CAST,
    exp.TryCast: _CAST,
    exp.Extract: (frozenset({"("}), frozenset({"EXTRACT"})),
    exp.Parameter: (frozenset({"{"}), frozenset({"$", "@"})),
    exp.Placeholder: (frozenset({":"}),),
    exp.Join: _JOIN,
}
_DEPTH = {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}


@dataclass(frozen=True, slots=True)
class SqlText:
    """What a user wrote, as text and as tokens, and how large it may be."""

    text: str
    tokens: tuple[Token, ...] = ()
    limits: Limits = DEFAULT_LIMITS

    def error(self, span: Span, message: str, hint: str | None = None) -> SqlError:
        """An error with a caret under the span."""
        return SqlError(message, text=self.text, start=span[0], end=span[1], hint=hint)

    def blame(self, node: exp.Expr, error: WeftError) -> SqlError:
        """The same error, with a caret under the node."""
        return self.error(self.span(node), error.message, error.hint)

    @property
    def whole(self) -> Span:
        """The text without the blanks around it."""
        return len(self.text) - len(self.text.lstrip()), len(self.text.rstrip())

    def text_of(self, span: Span, limit: int = 40) -> str:
        """The text of a span on one line, cut where it is longer than ``limit``."""
        words = " ".join(self.text[slice(*span)].split())
        return words if len(words) <= limit else words[: limit - 1] + "…"

    def span(self, *nodes: exp.Expr) -> Span:
        """From the first character of the nodes to the last; the whole text if their places are not known."""
        return _union(found for node in nodes if (found := self._span(node))) or self.whole

    def _span(self, node: exp.Expr) -> Span | None:
        spans: dict[int, Span] = {}
        for part in reversed(list(node.walk())):  # children come before their parents
            inner = [spans[id(child)] for child in part.iter_expressions() if id(child) in spans]
            known = _union([*inner, *_position(part)])
            if known:
                spans[id(part)] = self._widen(part, known)
        return spans.get(id(node))

    def _widen(self, node: exp.Expr, span: Span) -> Span:
        first, last = self._index(span[0]), self._index(span[1] - 1)
        if isinstance(node, exp.Interval):
            first = self._back_to(TokenType.INTERVAL, first)
        for words in _OPENERS.get(type(node), ()):
            if first > 0 and self._word(first - 1) in words:
                first -= 1
        if isinstance(node, exp.Anonymous) and self._type(last + 1) is TokenType.L_PAREN:
            last += 1
        if not isinstance(node, exp.Binary):  # whose operands are closed already
            last = self._closing(first, last)
        if isinstance(node, exp.Case) and self._type(last + 1) is TokenType.END:
            last += 1
        return min(span[0], self.tokens[first].start), max(span[1], self.tokens[last].end + 1)

    def _index(self, position: int) -> int:
        """The token at a position, or the next one."""
        index = bisect_left(self.tokens, position, key=lambda token: token.end)
        return min(index, len(self.tokens) - 1)

    def _type(self, index: int) -> TokenType | None:
        return self.tokens[index].token_type if 0 <= index < len(self.tokens) else None

    def _word(self, index: int) -> str:
        """A token as a keyword; nothing if it is quoted."""
        token = self.tokens[index]
        return "" if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) else token.text.upper()

    def _back_to(self, kind: TokenType, index: int) -> int:
        found = next((i for i in range(index, -1, -1) if self.tokens[i].token_type is kind), index)
        return found if index - found <= 4 else index

    def _closing(self, first: int, last: int) -> int:
        """The token that closes what the tokens from first to last open."""
        depth = 0
        for index in range(first, len(self.tokens)):
            depth += _DEPTH.get(self.tokens[index].token_type, 0)
            if index >= last and depth <= 0:
                return index
        return last

    def close_span(self, span: Span) -> Span:
        """The span, up to the parenthesis that closes what is open at its end."""
        last = self._closing(self._index(span[0]), self._index(span[1] - 1))
        return span[0], max(span[1], self.tokens[last].end + 1)

    def clause(self, word: str) -> Span | None:
        """Where a keyword stands outside all parentheses; the last place, should there be several."""
        depth, found = 0, None
        for index, token in enumerate(self.tokens):
            depth += _DEPTH.get(token.token_type, 0)
            if depth == 0 and self._word(index).split()[:1] == [word]:
                found = (token.start, token.end + 1)
        return found

    def has_between(self, kind: TokenType, left: exp.Expr, right: exp.Expr) -> bool:
        """Whether such a token stands between two nodes, as far as their places are known."""
        before, after = self._span(left), self._span(right)
        if before is None or after is None:
            return True
        return any(token.token_type is kind and before[1] <= token.start < after[0] for token in self.tokens)


@dataclass(frozen=True, slots=True)
class Piece:
    """An expression of the syntax tree and the text it was read from.

    ``selects`` has its sub-selects by the identity of their nodes: the statements between which UNION ALL stands.
    """

    node: exp.Expr
    source: SqlText
    selects: Mapping[int, tuple[Statement, ...]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def span(self) -> Span:
        """Where the expression stands in its text."""
        return self.source.span(self.node)

    def error(self, message: str, hint: str | None = None) -> SqlError:
        """An error about this expression."""
        return self.source.error(self.span, message, hint)


def _position(node: exp.Expr) -> list[Span]:
    start, end = node.meta.get("start"), node.meta.get("end")
    return [(start, end + 1)] if isinstance(start, int) and isinstance(end, int) else []


def _union(spans: Iterable[Span]) -> Span | None:
    known = list(spans)
    return (min(s for s, _ in known), max(e for _, e in known)) if known else None


def bare_node(node: exp.Expr) -> exp.Expr:
    """A node without the parentheses around it."""
    while isinstance(node, exp.Paren) and isinstance(node.this, exp.Expr):
        node = node.this
    return node


def operands_of(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """The operands of a chain of one operator, left to right."""
    flat, pending = [], [node]
    while pending:
        inner = pending.pop()
        bare = bare_node(inner)
        if type(bare) is kind:
            pending += (bare.args["expression"], bare.args["this"])
        else:
            flat.append(inner)
    return flat


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


_WITH_UNIT = {"timestampadd": "timestampadd", "date_add": "timestampadd", "dateadd": "timestampadd"}
_WITH_UNIT |= {"timestampdiff": "timestampdiff", "datediff": "timestampdiff"}


def name_unit(name: str, args: list[exp.Expr]) -> tuple[str, list[exp.Expr]]:
    """A call whose first of three arguments is a bare word, as in dateadd(HOUR, 1, t), with that word as a text."""
    if len(args) == 3 and name in _WITH_UNIT and isinstance(args[0], exp.Column | exp.Var):
        return _WITH_UNIT[name], [exp.Literal.string(args[0].name), *args[1:]]
    return name, args
