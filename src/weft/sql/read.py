"""Turns a syntax tree into a `Statement`.

Guarantees: every clause and every part of FROM is either taken over or refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sqlglot import exp

from weft.errors import SqlError
from weft.logical.query.limits import DEFAULT_LIMITS, Limits
from weft.logical.query.window import UNBOUNDED, Window
from weft.sql.parse import Bracket, Parsed, parse_bracketed, parse_select
from weft.sql.reject import refuse_arguments, unsupported
from weft.sql.source import Piece, SqlText
from weft.sql.statement import (
    InputRef,
    Item,
    JoinRef,
    Name,
    Relation,
    SelectRef,
    SortItem,
    Statement,
    StreamRef,
    column_list,
    leaves,
    side_has_row,
)
from weft.sql.windows import read_bracket

__all__ = ["TOO_DEEP", "read_fragment", "read_item", "read_sort_item", "read_statement"]

# The error about a query that Python cannot follow to the bottom, and its remedy.
TOO_DEEP = ("the query is nested too deeply", "use fewer parentheses")

# The kinds of joins by the words before JOIN, which sqlglot calls side and kind.
_KINDS = {("", ""): "inner", ("", "INNER"): "inner", ("", "CROSS"): "cross"}
_KINDS |= {(side, kind): side.lower() for side in ("LEFT", "RIGHT", "FULL") for kind in ("", "OUTER")}
_KINDS |= {(side, kind): kind.lower() for side in ("", "LEFT") for kind in ("SEMI", "ANTI")}
_KINDS["LEFT", "MARK"] = "mark"

# The kinds of ASOF joins, and of those with FOR SYSTEM_TIME. To ask whether there is a version, any of them will do.
_ASOF = {("", kind): "asof" for kind in ("", "INNER")}
_ASOF |= {
    (side, kind): f"asof {side.lower()}" for side in ("LEFT", "RIGHT", "FULL") for kind in ("", "OUTER")
}
_ASOF |= {(side, kind): kind.lower() for side in ("", "LEFT") for kind in ("SEMI", "ANTI")}
_VERSIONED = {words: kind for words, kind in _ASOF.items() if kind in ("asof", "asof left")}

_ASOF_HINT = (
    "write a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts, or a JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k; "
    "LEFT keeps rows without a version"
)


def read_statement(text: str, limits: Limits = DEFAULT_LIMITS) -> Statement:
    """The query that a text states."""
    return _read(text, lambda: parse_select(text, limits), lambda reader, node: reader.whole(node))


def read_fragment(text: str) -> Piece:
    """One expression, with or without a name, and the sub-selects in it."""
    return _read(text, lambda: parse_bracketed(text), lambda reader, node: reader.piece(node))


def read_sort_item(text: str) -> SortItem:
    """One key of ORDER BY, with or without DESC and NULLS LAST."""
    return _read(
        text, lambda: parse_bracketed(text, exp.Ordered), lambda reader, node: reader.sort_item(node)
    )


Read = TypeVar("Read")


def _read(text: str, parse: Callable[[], Parsed], read: Callable[[_SelectReader, exp.Expr], Read]) -> Read:
    """What a reader makes of a text, in which every bracket must be a window."""
    windowed: set[int] = set()
    try:
        parsed = parse()
        made = read(_SelectReader(parsed.select.source, parsed.brackets, {}, windowed), parsed.select.node)
    except RecursionError:
        message, hint = TOO_DEEP
        raise SqlError(message, text=text, start=0, end=len(text), hint=hint) from None
    for position, bracket in parsed.brackets.items():
        if position not in windowed:
            raise bracket.misplaced()
    return made


@dataclass(frozen=True, slots=True)
class _SelectReader:
    """Reads SELECTs, with the brackets that follow names and sub-selects.

    ``named`` are the sub-selects that WITH has given a name, by the name in lower case, with the names of their columns
    where it lists them; ``windowed`` collects the positions of the brackets that were read.
    """

    source: SqlText
    brackets: Mapping[int, Bracket]
    named: Mapping[str, tuple[tuple[Statement, ...], tuple[Name, ...]]]
    windowed: set[int]

    def whole(self, node: exp.Expr) -> Statement:
        """The statement of a whole text, which alone may say in which order its rows are wanted, and how many."""
        order, limit, offset = (node.args.get(key) for key in ("order", "limit", "offset"))
        for key in ("order", "limit", "offset"):
            node.set(key, None)
        return replace(
            Statement.united(self.branches(node)),
            order=self._order(order) if order is not None else (),
            limit=self._count(limit, exp.Limit) if limit is not None else None,
            offset=self._count(offset, exp.Offset) if offset is not None else 0,
        )

    def _order(self, node: exp.Expr) -> tuple[SortItem, ...]:
        refuse_arguments(self.source, node, "expressions")
        return tuple(map(self.sort_item, node.expressions))

    def sort_item(self, node: exp.Expr) -> SortItem:
        """One key of ORDER BY."""
        if not isinstance(node, exp.Ordered):
            raise unsupported(self.source, node)
        refuse_arguments(self.source, node, "this", "desc", "nulls_first")
        descending, nulls_first = bool(node.args.get("desc")), bool(node.args.get("nulls_first"))
        return SortItem(self.piece(node.this), descending, nulls_first)

    def _count(self, node: exp.Expr, kind: type[exp.Expr]) -> int:
        """The number of rows that LIMIT or OFFSET says."""
        word = kind.__name__.upper()
        number = node.args.get("expression")
        plain = isinstance(node, kind) and isinstance(number, exp.Literal) and not number.is_string
        if number is None or not plain or not number.name.isdigit():
            hint = f"write {word} and a number, as in {word} 10"
            raise self.source.error(self.source.span(node), f"{word} takes a whole number of rows", hint)
        refuse_arguments(self.source, node, "expression")
        return int(number.name)

    def select(self, node: exp.Expr, *, reading: bool = True) -> Statement:
        """One SELECT, with the WITH before it; unless it must be ``reading`` something, it may lack FROM."""
        if not isinstance(node, exp.Select):
            raise unsupported(self.source, node)
        understood = ("expressions", "from_", "joins", "where", "with_", "group", "having", "distinct")
        refuse_arguments(self.source, node, *understood)
        reader = self._with(node.args.get("with_"))
        origin = node.args.get("from_")
        if origin is None and not reading:
            return Statement(
                reader.items(node), (), reader.conditions(node), self.source, **reader.groups(node)
            )
        if not isinstance(origin, exp.From):
            listed = self.source.span(*node.expressions) if node.expressions else self.source.whole
            after = listed[1], listed[1] + 1
            hint = "go on with the streams to join, as in FROM videos [RANGE 10 MINUTES] AS v"
            raise self.source.error(after, "FROM is missing here, after the columns", hint)
        refuse_arguments(self.source, origin, "this")
        relations = _FromReader(reader).relations(origin.this, node.args.get("joins") or ())
        return Statement(
            reader.items(node), relations, reader.conditions(node), self.source, **reader.groups(node)
        )

    def groups(self, node: exp.Select) -> dict[str, Any]:
        """What a SELECT says of groups: GROUP BY, HAVING and DISTINCT."""
        group, having, distinct = (node.args.get(key) for key in ("group", "having", "distinct"))
        if group is not None:
            refuse_arguments(self.source, group, "expressions")
        if having is not None:
            refuse_arguments(self.source, having, "this")
        if distinct is not None:
            refuse_arguments(self.source, distinct)
        return {
            "group": tuple(map(self.piece, group.expressions)) if group is not None else (),
            "having": (self.piece(having.this),) if having is not None else (),
            "distinct": distinct is not None,
        }

    def items(self, node: exp.Select) -> tuple[Item, ...]:
        """What a SELECT gives."""
        return tuple(read_item(self.piece(item)) for item in node.expressions)

    def conditions(self, node: exp.Select) -> tuple[Piece, ...]:
        """What stands after WHERE."""
        where = node.args.get("where")
        if where is None:
            return ()
        refuse_arguments(self.source, where, "this")
        return (self.piece(where.this),)

    def piece(self, node: exp.Expr) -> Piece:
        """An expression with its sub-selects."""
        inner = (part for part in node.walk(prune=lambda part: isinstance(part, exp.Query)))
        selects = {
            id(part): self.branches(part, reading=False) for part in inner if isinstance(part, exp.Query)
        }
        return Piece(node, self.source, selects)

    def branches(self, node: exp.Expr, *, reading: bool = True) -> tuple[Statement, ...]:
        """The SELECTs between which UNION ALL stands, or the only one; WITH before them holds for all."""
        pending, found = [(node, self)], list[Statement]()
        while pending:
            first, reader = pending.pop()
            if isinstance(first, exp.Subquery):
                refuse_arguments(self.source, first, "this", "with_")
                pending.append((first.this, reader._with(first.args.get("with_"))))
            elif isinstance(first, exp.Union) and not first.args.get("distinct"):
                refuse_arguments(self.source, first, "this", "expression", "distinct", "with_")
                inner = reader._with(first.args.get("with_"))
                pending += ((first.expression, inner), (first.this, inner))
            elif isinstance(first, exp.SetOperation):
                found.append(reader._once(first))
            else:
                found.append(reader.select(first, reading=reading))
        return tuple(found)

    def _once(self, node: exp.SetOperation) -> Statement:
        """UNION, INTERSECT or EXCEPT: rows that some SELECTs give and others do not, each once.

        So it matters only which of the SELECTs below have a row, not how often: all are read as one, and DISTINCT and
        ALL below say nothing.
        """
        found = list[Statement]()
        wanted = self._presence(node, found)
        if wanted.find(exp.And) is None:
            return replace(Statement.united(tuple(found)), distinct=True)
        return Statement.wanted_once(tuple(found), Piece(wanted, self.source))

    def _presence(self, node: exp.Expr, found: list[Statement]) -> exp.Expr:
        """Whether a row is wanted, by which of the SELECTs ``found`` below have it."""
        if isinstance(node, exp.Subquery):
            refuse_arguments(self.source, node, "this", "with_")
            return self._with(node.args.get("with_"))._presence(node.this, found)
        if isinstance(node, exp.SetOperation):
            if not isinstance(node, exp.Union) and not node.args.get("distinct"):
                raise unsupported(self.source, node)
            refuse_arguments(self.source, node, "this", "expression", "distinct", "with_")
            reader = self._with(node.args.get("with_"))
            left, right = (reader._presence(side, found) for side in (node.this, node.expression))
            if isinstance(node, exp.Union):
                return exp.Or(this=left, expression=right)
            right = right if isinstance(node, exp.Intersect) else exp.Not(this=right)
            return exp.And(this=left, expression=right)
        found.append(replace(self.select(node), distinct=False))
        return side_has_row(len(found) - 1)

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
            refuse_arguments(self.source, alias, "this", "columns")
            name = Name.of(self.source, alias.this)
            if name.text.lower() in mine:
                raise name.error(f"WITH names {name.text} twice", "choose another name")
            mine.add(name.text.lower())
            select = reader.branches(one.this), column_list(self.source, alias)
            reader = replace(reader, named={**reader.named, name.text.lower(): select})
        return reader

    def window(self, end: int) -> tuple[Window, tuple[Name, ...]]:
        """The window in the bracket after a position, if there is one."""
        bracket = self.brackets.get(end)
        self.windowed.add(end)
        return read_bracket(bracket) if bracket else (UNBOUNDED, ())


def read_item(piece: Piece) -> Item:
    """An item of SELECT."""
    node = piece.node
    if not isinstance(node, exp.Alias):
        return Item(piece)
    refuse_arguments(piece.source, node, "this", "alias")
    alias = node.args["alias"]
    if not isinstance(alias, exp.Identifier):
        raise unsupported(piece.source, alias)
    return Item(replace(piece, node=node.this), Name.of(piece.source, alias))


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
        said = ("kind", "side", "method", "on", "using", "match_condition")
        if any(join.args.get(key) for key in said):
            return False
        refuse_arguments(self.source, join, "this")
        return True

    def _join(self, left: Relation, join: exp.Join) -> JoinRef:
        versioned = ("match_condition",) if join.args.get("method") == "ASOF" else ()
        refuse_arguments(self.source, join, "this", "kind", "side", "method", "on", "using", *versioned)
        method, side, kind = (join.args.get(key) or "" for key in ("method", "side", "kind"))
        if method == "ASOF" or join.this.args.get("version"):
            return self._asof(left, join, method, side, kind)
        natural = method == "NATURAL"
        if (method and not natural) or (side, kind) not in _KINDS:
            words = " ".join(word for word in (method, side, kind.removesuffix("_JOIN")) if word)
            hint = None
            if not method and kind in ("SEMI", "ANTI"):
                hint = f"write {kind} JOIN, and the stream whose rows are wanted to its left"
            raise self.source.error(self.source.span(join), f"{words} JOIN is not supported", hint)
        on, using = join.args.get("on"), join.args.get("using") or ()
        if kind == "CROSS" and (on or using):
            raise self.source.error(self.source.span(join), "CROSS JOIN takes no condition", "write JOIN")
        if natural and (on or using or kind == "CROSS"):
            message = "NATURAL JOIN takes no condition: it joins on the columns whose names both sides have"
            raise self.source.error(self.source.span(join), message, "leave out NATURAL, or the condition")
        return JoinRef(
            _KINDS[side, kind],
            left,
            self._relation(join.this),
            self.reader.piece(on) if on else None,
            tuple(Name.of(self.source, name) for name in using),
            natural=natural,
        )

    def _asof(self, left: Relation, join: exp.Join, method: str, side: str, kind: str) -> JoinRef:
        """A join with one version of several: ASOF JOIN, or FOR SYSTEM_TIME AS OF after the name of a stream."""
        version, source = join.this.args.get("version"), self.source
        joined = _ASOF.get((side, kind)) if method else _VERSIONED.get((side, kind))
        if joined is None or (method and method != "ASOF"):
            words = " ".join(word for word in (method, side, kind) if word)
            raise source.error(source.span(join), f"{words} JOIN is not supported here", _ASOF_HINT)
        as_of = None
        if version is not None:
            if method or version.args.get("kind") != "AS OF" or version.name != "TIMESTAMP":
                raise source.error(
                    source.span(version),
                    "which version is joined is told by a time, with FOR SYSTEM_TIME AS OF",
                    _ASOF_HINT,
                )
            as_of = self.reader.piece(version.args["expression"])
            join.this.set("version", None)
        on, match, using = (join.args.get(key) for key in ("on", "match_condition", "using"))
        right = self._relation(join.this)
        if on is None and match is None and not using:
            (ref, *_) = leaves(right)
            raise ref.called.error("a join with one version of several needs a condition", _ASOF_HINT)
        return JoinRef(
            joined,
            left,
            right,
            self.reader.piece(on) if on else None,
            tuple(Name.of(source, name) for name in using or ()),
            as_of,
            match=self.reader.piece(match) if match else None,
            ordered=as_of is None and match is None,
        )

    def _relation(self, node: exp.Expr) -> Relation:
        if isinstance(node, exp.Subquery):
            return self._nested(node) if _is_join(node.this) else self._sub_select(node)
        if isinstance(node, exp.Lateral) and isinstance(node.this, exp.Subquery):
            return self._lateral(node)
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
        branches, place = self.reader.branches(node.this), self._place(node)
        alias, columns = self._alias(node.args.get("alias"))
        window, per = self.reader.window(node.meta.get("closing", -1))
        return self._joined(SelectRef(branches, alias or place, place, window, per, columns), node)

    def _lateral(self, node: exp.Lateral) -> Relation:
        refuse_arguments(self.source, node, "this", "alias", "view", "outer", "ordinality", "joins")
        refuse_arguments(self.source, node.this, "this", "alias")
        branches, place = self.reader.branches(node.this.this, reading=False), self._place(node.this)
        alias, columns = self._alias(node.args.get("alias"))
        return self._joined(SelectRef(branches, alias or place, place, columns=columns, lateral=True), node)

    def _place(self, node: exp.Expr) -> Name:
        """The name of a sub-select without one, and where it stands."""
        self._unnamed += 1
        number = f"_{self._unnamed}" if self._unnamed > 1 else ""
        return Name(f"subquery{number}", self.source, self.source.span(node.this))

    def _named(self, table: exp.Table) -> InputRef:
        name, (alias, columns) = Name.of(self.source, table.this), self._alias(table.args.get("alias"))
        window, per = self.reader.window(name.span[1])
        select = self.reader.named.get(name.text.lower())
        if select is not None:
            branches, listed = select
            return SelectRef(branches, alias or name, name, window, per, columns or listed)
        return StreamRef(name, alias, window, per, columns)

    def _alias(self, alias: exp.Expr | None) -> tuple[Name | None, tuple[Name, ...]]:
        """A name after AS, and those that it lists for the columns."""
        if alias is None:
            return None, ()
        refuse_arguments(self.source, alias, "this", "columns")
        return Name.of(self.source, alias.this), column_list(self.source, alias)


def _is_join(node: exp.Expr) -> bool:
    """Whether what stands in parentheses is part of FROM, and not a SELECT."""
    while isinstance(node, exp.Subquery):
        if node.args.get("alias") or node.args.get("joins"):
            return True
        node = node.this
    return isinstance(node, exp.Table)
