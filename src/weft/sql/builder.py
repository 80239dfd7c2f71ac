"""Queries built call by call: the same values as those that SQL gives.

Guarantees: a `Builder` never changes, each call gives a new one. A text is read by the call it is given to, and
names are looked up by `build`. The calls read like the SQL they stand for: `from_` is a comma in FROM, and
`join` joins onto the `from_` before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.errors import QueryError, SqlError, nearest
from weft.logical.catalog import Catalog
from weft.logical.query.join_tree import ASOF
from weft.logical.query.limits import DEFAULT_LIMITS, Limits
from weft.logical.query.query import Query
from weft.sql.bind import bind
from weft.sql.read import read_fragment, read_item, read_sort_item, read_statement
from weft.sql.source import Piece, SqlText
from weft.sql.statement import (
    Item,
    JoinRef,
    Name,
    Relation,
    SelectRef,
    SortItem,
    Statement,
    StreamRef,
    leaves,
)
from weft.sql.windows import WindowLike, parse_window

__all__ = ["Builder", "from_", "parse_statement", "select"]

_KINDS = ("inner", "left", "right", "full", "semi", "anti", "mark", *ASOF, "cross")


def select(*items: str) -> Builder:
    """Begin a query with what it gives: ``items`` are expressions, each with a name where that is not clear.

    >>> query = select("v.vid", "lower(w.name) AS n").from_("videos", alias="v", window="10 minutes")
    >>> query = query.from_("views", alias="w", window=1000).where("v.vid = w.vid")
    """
    return Builder().select(*items)


def from_(stream: str | Builder, *, alias: str | None = None, window: WindowLike | None = None) -> Builder:
    """Begin a query with a stream, the name of a query, or a query of its own; the query calls it by its ``alias``.

    ``window`` is a time, as in "10 minutes", a number of rows, or what stands in the brackets of SQL.
    """
    return Builder().from_(stream, alias=alias, window=window)


@dataclass(frozen=True, slots=True, repr=False)
class Builder:
    """A query that is not finished; every call gives a new one with something added."""

    items: tuple[Item, ...] = ()
    relations: tuple[Relation, ...] = ()
    conditions: tuple[Piece, ...] = ()
    crossed: bool = False
    more: tuple[Builder, ...] = ()  # branches of UNION ALL after this one
    keys: tuple[Piece, ...] = ()
    filters: tuple[Piece, ...] = ()  # conditions on groups
    once: bool = False  # whether every row is wanted once
    sorted_by: tuple[SortItem, ...] = ()
    most: int | None = None  # rows that are wanted; None: all
    skipped: int = 0  # rows before the first that is wanted

    def __repr__(self) -> str:
        items = ", ".join(item.value.source.text for item in self.items)
        where = " AND ".join(piece.source.text for piece in self.conditions)
        names = ", ".join(ref.called.text for relation in self.relations for ref in leaves(relation))
        by, having = (", ".join(piece.source.text for piece in some) for some in (self.keys, self.filters))
        given = "SELECT DISTINCT" if self.once else "SELECT"
        order = ", ".join(item.value.source.text for item in self.sorted_by)
        clauses = (
            *((given, items), ("FROM", names), ("WHERE", where), ("GROUP BY", by), ("HAVING", having)),
            *(("ORDER BY", order), ("LIMIT", "" if self.most is None else str(self.most))),
            ("OFFSET", str(self.skipped or "")),
        )
        return f"<Builder {' '.join(f'{word} {text}' for word, text in clauses if text)}>"

    def select(self, *items: str) -> Builder:
        """Give these columns too: expressions, perhaps with AS, or ``*`` or ``v.*``."""
        read = tuple(read_item(_fragment("select", item)) for item in items)
        return replace(self, items=(*self.items, *read))

    def from_(
        self, stream: str | Builder, *, alias: str | None = None, window: WindowLike | None = None
    ) -> Builder:
        """Read a stream or the results of a query, under another name perhaps, through a window."""
        read = (
            _sub_select(stream, alias, window)
            if isinstance(stream, Builder)
            else _stream(stream, alias, window)
        )
        return replace(self, relations=(*self.relations, read))

    def union_all(self, other: Builder) -> Builder:
        """The rows of this query and those of another, with as many columns of the same types."""
        if not isinstance(other, Builder):
            raise QueryError(f"union_all takes a query, not {other!r}", hint="begin it with weft.select")
        return replace(self, more=(*self.more, other))

    def where(self, *conditions: str) -> Builder:
        """Keep only what fulfils these conditions too."""
        return replace(
            self, conditions=(*self.conditions, *(_fragment("where", text) for text in conditions))
        )

    def group_by(self, *keys: str) -> Builder:
        """Give groups of the rows with the same keys: expressions, or a window, as in ``window(ts, '10 minutes')``."""
        return replace(self, keys=(*self.keys, *(_fragment("group_by", text) for text in keys)))

    def having(self, *conditions: str) -> Builder:
        """Keep only groups that fulfil these conditions too."""
        return replace(self, filters=(*self.filters, *(_fragment("having", text) for text in conditions)))

    def distinct(self) -> Builder:
        """Give every row once."""
        return replace(self, once=True)

    def order_by(self, *keys: str) -> Builder:
        """Sort the rows by these expressions, too, each perhaps with DESC or NULLS LAST; the input has to end.

        A key is a column of the result, its place (``"1"``), or any expression. What a union gives is sorted as a
        whole.
        """
        read = tuple(read_sort_item(_text("order_by", key)) for key in keys)
        return replace(self, sorted_by=(*self.sorted_by, *read))

    def limit(self, count: int, *, offset: int = 0) -> Builder:
        """Give at most ``count`` rows, after the first ``offset``; the input has to end."""
        return replace(self, most=_count("limit", count), skipped=_count("offset", offset))

    def join(
        self,
        stream: str | Builder,
        *,
        on: str | None = None,
        using: str | tuple[str, ...] = (),
        alias: str | None = None,
        window: WindowLike | None = None,
        kind: str = "inner",
    ) -> Builder:
        """Join a stream, a query, or several streams joined already, onto what the last `from_` gave.

        ``kind`` is inner, left, right, full, semi, anti, mark (rows of the left side, each once, and whether the other
        has a partner: ``b.$present``), cross, or asof, asof left, asof right and asof full.
        """
        if _text("kind", kind) not in _KINDS:
            raise QueryError(f"there is no join {kind!r}", hint=nearest(kind, _KINDS))
        if not self.relations:
            raise QueryError("there is nothing to join onto", hint="call from_ before join")
        *before, left = self.relations
        right = (
            _nested(stream, alias, window) if isinstance(stream, Builder) else _stream(stream, alias, window)
        )
        names = using if isinstance(using, tuple | list) else (using,)
        condition = _fragment("on", on) if on is not None else None
        joined = JoinRef(kind, left, right, condition, tuple(_name("using", name) for name in names))
        return replace(self, relations=(*before, joined))

    def cross(self) -> Builder:
        """Accept that nothing joins some of the streams: every pair is wanted."""
        return replace(self, crossed=True)

    @property
    def statement(self) -> Statement:
        """The calls so far, as SQL would say them."""
        texts = ", ".join(item.value.source.text for item in self.items)
        return Statement(
            self.items,
            self.relations,
            self.conditions,
            SqlText(texts),
            self.crossed,
            "call .cross()",
            group=self.keys,
            having=self.filters,
            distinct=self.once,
            order=self.sorted_by,
            limit=self.most,
            offset=self.skipped,
        )

    def build(self, catalog: Catalog, limits: Limits = DEFAULT_LIMITS) -> Query:
        """The query, with all names looked up; ``limits`` holds for it as a whole, the default limits for each text."""
        return bind(parse_statement(self), catalog, limits=limits)[0]


def parse_statement(text: str | Builder, limits: Limits = DEFAULT_LIMITS) -> Statement:
    """The statement that SQL makes, or the calls of a builder; none of its names has been looked up yet."""
    if not isinstance(text, Builder):
        return read_statement(text, limits)
    if not text.items:
        raise QueryError("the query selects nothing", hint='select("*") gives all')
    if not text.relations:
        raise QueryError("the query reads no stream", hint="call from_")
    if not text.more:
        return text.statement
    plain = replace(text, sorted_by=(), most=None, skipped=0)
    united = Statement.united(_branches(plain))
    return replace(united, order=text.sorted_by, limit=text.most, offset=text.skipped)


def _fragment(call: str, text: str) -> Piece:
    return read_fragment(_text(call, text))


def _name(call: str, text: str) -> Name:
    return Name.plain(_text(call, text))


def _text(call: str, given: object) -> str:
    if not isinstance(given, str):
        raise QueryError(
            f"{call} takes a text, not {given!r}", hint="write it in quotes, as it stands in SQL"
        )
    return given


def _count(call: str, given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise QueryError(f"{call} takes a number of rows, not {given!r}", hint="0 or more rows can be wanted")
    return given


def _stream(name: str, alias: str | None, window: WindowLike | None) -> StreamRef:
    stream = _name("a stream", name)
    if isinstance(alias, str) and not alias:
        raise SqlError("a name cannot be empty", text=name, start=0, end=len(name))
    return StreamRef(stream, _name("alias", alias) if alias is not None else None, parse_window(window))


def _sub_select(inner: Builder, alias: str | None, window: WindowLike | None) -> SelectRef:
    """A query as an input; more of them where it is a union."""
    branches = _branches(inner)
    place = Name("subquery", branches[0].source, branches[0].source.whole)
    called = place if alias is None else _name("alias", alias)
    if not called.text:
        raise place.error("a name cannot be empty")
    return SelectRef(branches, called, place, parse_window(window))


def _branches(builder: Builder) -> tuple[Statement, ...]:
    if not builder.items:
        raise QueryError("a query that is an input selects nothing", hint='select("*") gives all')
    if not builder.relations:
        raise QueryError("a query that is an input reads no stream", hint="call from_")
    if builder.crossed:
        raise QueryError(
            "a query that is an input cannot be crossed", hint="call .cross() on the whole query"
        )
    if builder.sorted_by or builder.most is not None:
        raise QueryError(
            "a query that is an input cannot be sorted or cut: its rows have no order",
            hint="call .order_by and .limit on the whole query",
        )
    nested = (branch for one in builder.more for branch in _branches(one))
    return builder.statement, *nested


def _nested(inner: Builder, alias: str | None, window: WindowLike | None) -> Relation:
    if inner.items:
        return _sub_select(inner, alias, window)
    grouped = inner.keys or inner.filters or inner.once or inner.sorted_by or inner.most is not None
    if inner.conditions or inner.crossed or grouped or len(inner.relations) != 1:
        raise QueryError(
            "only from_ and join can be joined as one", hint="select makes it a query of its own"
        )
    if alias is not None or window is not None:
        raise QueryError("several streams joined already have no alias and no window of their own")
    return inner.relations[0]
