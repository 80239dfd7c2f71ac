"""Turns a syntax tree into a `Statement`.

Guarantees: every clause and every part of FROM is either taken over or refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from weft.logical.query_limits import DEFAULT_LIMITS, Limits
from weft.logical.window import UNBOUNDED
from weft.sql.parse import Bracket, parse_select
from weft.sql.reject import refuse_arguments, unsupported
from weft.sql.source import Piece, Source
from weft.sql.statement import Item, JoinRef, Name, Relation, Statement, StreamRef, streams
from weft.sql.windows import read_bracket

__all__ = ["read_item", "read_statement"]

# The kinds of joins by the words before JOIN, which sqlglot calls side and kind.
_KINDS = {("", ""): "inner", ("", "INNER"): "inner", ("", "CROSS"): "cross"}
_KINDS |= {(side, kind): side.lower() for side in ("LEFT", "RIGHT", "FULL") for kind in ("", "OUTER")}
_KINDS |= {(side, kind): kind.lower() for side in ("", "LEFT") for kind in ("SEMI", "ANTI")}


def read_statement(text: str, limits: Limits = DEFAULT_LIMITS) -> Statement:
    """The query that a text states."""
    parsed = parse_select(text, limits)
    select, source = parsed.select.node, parsed.select.source
    if not isinstance(select, exp.Select):
        raise unsupported(source, select)
    refuse_arguments(source, select, "expressions", "from_", "joins", "where")
    origin = select.args.get("from_")
    if not isinstance(origin, exp.From):
        raise source.error(source.whole, "the query has no FROM", "name the streams to join after FROM")
    refuse_arguments(source, origin, "this")
    reader = _FromReader(source, parsed.brackets)
    relations = reader.relations(origin.this, select.args.get("joins") or ())
    windowed = {ref.name.span[1] for relation in relations for ref in streams(relation)}
    for position, bracket in parsed.brackets.items():
        if position not in windowed:
            raise bracket.misplaced()
    items = tuple(read_item(Piece(node, source)) for node in select.expressions)
    return Statement(items, relations, _conditions(source, select.args.get("where")), source)


def _conditions(source: Source, where: exp.Expr | None) -> tuple[Piece, ...]:
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


def _name(source: Source, identifier: exp.Expr) -> Name:
    name = Name(identifier.name, source, source.span(identifier))
    if not isinstance(identifier, exp.Identifier):
        raise unsupported(source, identifier)
    if not name.text:
        raise name.error("a name cannot be empty")
    return name


@dataclass(frozen=True, slots=True)
class _FromReader:
    """Reads FROM, with the brackets that follow its streams' names."""

    source: Source
    brackets: Mapping[int, Bracket]

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
        if method or (side, kind) not in _KINDS:
            words = " ".join(word for word in (method, side, kind.removesuffix("_JOIN")) if word)
            hint = "write USING (column)" if method == "NATURAL" else None
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

    def _relation(self, node: exp.Expr) -> Relation:
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table | exp.Subquery):
            return self._nested(node)
        if not isinstance(node, exp.Table):
            raise unsupported(self.source, node)
        if node.args.get("db"):
            raise self.source.error(
                self.source.span(node.args["db"]), "a stream's name has no dots", "write the name alone"
            )
        refuse_arguments(self.source, node, "this", "alias", "joins")
        if not isinstance(node.this, exp.Identifier):
            raise unsupported(self.source, node.this)
        return self._joined(self._stream(node), node)

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

    def _stream(self, table: exp.Table) -> StreamRef:
        name = _name(self.source, table.this)
        bracket = self.brackets.get(name.span[1])
        window, per = read_bracket(bracket) if bracket else (UNBOUNDED, ())
        return StreamRef(name, self._alias(table.args.get("alias")), window, per)

    def _alias(self, alias: exp.Expr | None) -> Name | None:
        if alias is None:
            return None
        refuse_arguments(self.source, alias, "this")
        return _name(self.source, alias.this)
