"""Turns a syntax tree into a `Statement`.

Guarantees: every clause and every part of FROM is either taken over or refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from weft.errors import SqlError
from weft.logical.query.limits import DEFAULT_LIMITS, Limits
from weft.logical.query.window import UNBOUNDED, Window
from weft.sql.parse import Bracket, parse_select
from weft.sql.reject import refuse_arguments, unsupported
from weft.sql.source import Piece, SqlText
from weft.sql.statement import (
    InputRef,
    Item,
    JoinRef,
    Name,
    Relation,
    SelectRef,
    Statement,
    StreamRef,
    leaves,
)
from weft.sql.windows import read_bracket

__all__ = ["TOO_DEEP", "read_item", "read_statement"]

# The error about a query that Python cannot follow to the bottom, and its remedy.
TOO_DEEP = ("the query is nested too deeply", "use fewer parentheses")

# The kinds of joins by the words before JOIN, which sqlglot calls side and kind.
_KINDS = {("", ""): "inner", ("", "INNER"): "inner", ("", "CROSS"): "cross"}
_KINDS |= {(side, kind): side.lower() for side in ("LEFT", "RIGHT", "FULL") for kind in ("", "OUTER")}
_KINDS |= {(side, kind): kind.lower() for side in ("", "LEFT") for kind in ("SEMI", "ANTI")}

_ASOF_HINT = (
    "write a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts, or a JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k; "
    "LEFT keeps rows without a version"
)


def read_statement(text: str, limits: Limits = DEFAULT_LIMITS) -> Statement:
    """The query that a text states."""
    windowed: set[int] = set()
    try:
        parsed = parse_select(text, limits)
        reader = _SelectReader(parsed.select.source, parsed.brackets, {}, windowed)
        statement = reader.select(parsed.select.node)
    except RecursionError:
        message, hint = TOO_DEEP
        raise SqlError(message, text=text, start=0, end=len(text), hint=hint) from None
    for position, bracket in parsed.brackets.items():
        if position not in windowed:
            raise bracket.misplaced()
    return statement


@dataclass(frozen=True, slots=True)
class _SelectReader:
    """Reads SELECTs, with the brackets that follow names and sub-selects.

    ``named`` are the sub-selects that WITH has given a name, by the name in lower case; ``windowed`` collects the
    positions of the brackets that were read.
    """

    source: SqlText
    brackets: Mapping[int, Bracket]
    named: Mapping[str, tuple[Statement, ...]]
    windowed: set[int]

    def select(self, node: exp.Expr) -> Statement:
        """One SELECT, with the WITH before it."""
        if not isinstance(node, exp.Select):
            raise unsupported(self.source, node)
        refuse_arguments(self.source, node, "expressions", "from_", "joins", "where", "with_")
        reader = self._with(node.args.get("with_"))
        origin = node.args.get("from_")
        if not isinstance(origin, exp.From):
            listed = self.source.span(*node.expressions) if node.expressions else self.source.whole
            after = listed[1], listed[1] + 1
            hint = "go on with the streams to join, as in FROM videos [RANGE 10 MINUTES] AS v"
            raise self.source.error(after, "FROM is missing here, after the columns", hint)
        refuse_arguments(self.source, origin, "this")
        relations = _FromReader(reader).relations(origin.this, node.args.get("joins") or ())
        items = tuple(read_item(Piece(one, self.source)) for one in node.expressions)
        where = _conditions(self.source, node.args.get("where"))
        return Statement(items, relations, where, self.source)

    def branches(self, node: exp.Expr) -> tuple[Statement, ...]:
        """The SELECTs of a sub-select, between which UNION ALL stands."""
        pending, found = [node], list[Statement]()
        while pending:
            first = pending.pop()
            if isinstance(first, exp.Subquery):
                refuse_arguments(self.source, first, "this")
                pending.append(first.this)
            elif isinstance(first, exp.Union):
                if first.args.get("distinct"):
                    raise unsupported(self.source, first)
                refuse_arguments(self.source, first, "this", "expression", "distinct")
                pending += (first.expression, first.this)
            else:
                found.append(self.select(first))
        return tuple(found)

    def _with(self, node: exp.Expr | None) -> _SelectReader:
        """A reader that knows what WITH names, too."""
        if node is None:
            return self
        if node.args.get("recursive"):
            hint = "a stream is never complete; leave out RECURSIVE, or say how often to join"
            raise self.source.error(self.source.span(node), "WITH RECURSIVE is not supported", hint)
        refuse_arguments(self.source, node, "expressions", "recursive")
        reader, mine = self, set[str]()
        for one in node.expressions:
            refuse_arguments(self.source, one, "this", "alias")
            alias = one.args["alias"]
            refuse_arguments(self.source, alias, "this")
            name = _name(self.source, alias.this)
            if name.text.lower() in mine:
                raise name.error(f"WITH names {name.text} twice", "choose another name")
            mine.add(name.text.lower())
            reader = replace(reader, named={**reader.named, name.text.lower(): reader.branches(one.this)})
        return reader

    def window(self, end: int) -> tuple[Window, tuple[Name, ...]]:
        """The window in the bracket after a position, if there is one."""
        bracket = self.brackets.get(end)
        self.windowed.add(end)
        return read_bracket(bracket) if bracket else (UNBOUNDED, ())


def _conditions(source: SqlText, where: exp.Expr | None) -> tuple[Piece, ...]:
    if where is None:
        return ()
    refuse_arguments(source, where, "this")
    return (Piece(where.this, source),)


def read_item(piece: Piece) -> Item:
    """An item of SELECT."""
    node = piece.node
    if not isinstance(node, exp.Alias):
        return Item(piece)
    refuse_arguments(piece.source, node, "this", "alias")
    alias = node.args["alias"]
    if not isinstance(alias, exp.Identifier):
        raise unsupported(piece.source, alias)
    return Item(Piece(node.this, piece.source), _name(piece.source, alias))


def _name(source: SqlText, identifier: exp.Expr) -> Name:
    name = Name(identifier.name, source, source.span(identifier))
    if not isinstance(identifier, exp.Identifier):
        raise unsupported(source, identifier)
    if not name.text:
        raise name.error("a name cannot be empty")
    return name


class _FromReader:
    """Reads FROM."""

    def __init__(self, reader: _SelectReader) -> None:
        self.reader, self.source = reader, reader.source
        self._unnamed = 0  # sub-selects so far

    def relations(self, first: exp.Expr, joins: Iterable[exp.Join]) -> tuple[Relation, ...]:
        """The parts between commas; a comma binds less tightly than JOIN."""
        parts = [self._relation(first)]
        for join in joins:
            if self._is_comma(join):
                parts.append(self._relation(join.this))
            else:
                parts[-1] = self._join(parts[-1], join)
        return tuple(parts)

    def _is_comma(self, join: exp.Join) -> bool:
        said = ("kind", "side", "method", "on", "using")
        if any(join.args.get(key) for key in said):
            return False
        refuse_arguments(self.source, join, "this")
        return True

    def _join(self, left: Relation, join: exp.Join) -> JoinRef:
        refuse_arguments(self.source, join, "this", "kind", "side", "method", "on", "using")
        method, side, kind = (join.args.get(key) or "" for key in ("method", "side", "kind"))
        if method == "ASOF" or join.this.args.get("version"):
            return self._asof(left, join, method, side, kind)
        if method or (side, kind) not in _KINDS:
            words = " ".join(word for word in (method, side, kind.removesuffix("_JOIN")) if word)
            hint = "write JOIN … USING, with the columns that both have" if method == "NATURAL" else None
            if not method and kind in ("SEMI", "ANTI"):
                hint = f"write {kind} JOIN, and the stream whose rows are wanted to its left"
            raise self.source.error(self.source.span(join), f"{words} JOIN is not supported", hint)
        on, using = join.args.get("on"), join.args.get("using") or ()
        if kind == "CROSS" and (on or using):
            raise self.source.error(self.source.span(join), "CROSS JOIN takes no condition", "write JOIN")
        return JoinRef(
            _KINDS[side, kind],
            left,
            self._relation(join.this),
            Piece(on, self.source) if on else None,
            tuple(_name(self.source, name) for name in using),
        )

    def _asof(self, left: Relation, join: exp.Join, method: str, side: str, kind: str) -> JoinRef:
        """A join with the latest version: ASOF JOIN, or FOR SYSTEM_TIME AS OF after the name of a stream."""
        version, source = join.this.args.get("version"), self.source
        if method not in ("", "ASOF") or side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER"):
            words = " ".join(word for word in (method, side, kind) if word)
            raise source.error(source.span(join), f"{words} JOIN is not supported here", _ASOF_HINT)
        if join.args.get("using"):
            raise source.error(source.span(join), "a join with the latest version takes no USING", _ASOF_HINT)
        as_of = None
        if version is not None:
            if method or version.args.get("kind") != "AS OF" or version.name != "TIMESTAMP":
                raise source.error(
                    source.span(version),
                    "which version is joined is told by a time, with FOR SYSTEM_TIME AS OF",
                    _ASOF_HINT,
                )
            as_of = Piece(version.args["expression"], source)
            join.this.set("version", None)
        on = join.args.get("on")
        right = self._relation(join.this)
        if on is None:
            (ref, *_) = leaves(right)
            raise ref.called.error("a join with the latest version needs a condition", _ASOF_HINT)
        return JoinRef("asof left" if side else "asof", left, right, Piece(on, source), as_of=as_of)

    def _relation(self, node: exp.Expr) -> Relation:
        if isinstance(node, exp.Subquery):
            return self._nested(node) if _is_join(node.this) else self._sub_select(node)
        if not isinstance(node, exp.Table):
            raise unsupported(self.source, node)
        if node.args.get("db"):
            raise self.source.error(
                self.source.span(node.args["db"]), "a stream's name has no dots", "write the name alone"
            )
        refuse_arguments(self.source, node, "this", "alias", "joins")
        if not isinstance(node.this, exp.Identifier):
            raise unsupported(self.source, node.this)
        return self._joined(self._named(node), node)

    def _nested(self, node: exp.Subquery) -> Relation:
        if node.args.get("alias"):
            raise self.source.error(
                self.source.span(node), "a join in parentheses cannot have a name", "name its streams instead"
            )
        refuse_arguments(self.source, node, "this", "joins")
        return self._joined(self._relation(node.this), node)

    def _joined(self, first: Relation, node: exp.Expr) -> Relation:
        """A relation with the joins that hang on it: ``b JOIN c ON …`` as one side of another join."""
        for join in node.args.get("joins") or ():
            comma = self._is_comma(join)
            first = JoinRef("inner", first, self._relation(join.this)) if comma else self._join(first, join)
        return first

    def _sub_select(self, node: exp.Subquery) -> Relation:
        refuse_arguments(self.source, node, "this", "alias", "joins")
        branches = self.reader.branches(node.this)
        self._unnamed += 1
        number = f"_{self._unnamed}" if self._unnamed > 1 else ""
        place = Name(f"subquery{number}", self.source, self.source.span(node.this))
        alias = self._alias(node.args.get("alias"))
        window, per = self.reader.window(node.meta.get("closing", -1))
        return self._joined(SelectRef(branches, alias or place, place, window, per), node)

    def _named(self, table: exp.Table) -> InputRef:
        name, alias = _name(self.source, table.this), self._alias(table.args.get("alias"))
        window, per = self.reader.window(name.span[1])
        branches = self.reader.named.get(name.text.lower())
        if branches is not None:
            return SelectRef(branches, alias or name, name, window, per)
        return StreamRef(name, alias, window, per)

    def _alias(self, alias: exp.Expr | None) -> Name | None:
        if alias is None:
            return None
        refuse_arguments(self.source, alias, "this")
        return _name(self.source, alias.this)


def _is_join(node: exp.Expr) -> bool:
    """Whether what stands in parentheses is part of FROM, and not a SELECT."""
    while isinstance(node, exp.Subquery):
        if node.args.get("alias") or node.args.get("joins"):
            return True
        node = node.this
    return isinstance(node, exp.Table)
