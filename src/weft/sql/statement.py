"""A query as written: what SQL and the builder have in common before names are looked up.

Guarantees: only what Weft supports can be said here. Every part keeps the text it came from, for errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from weft.errors import SqlError
from weft.logical.query.join_tree import LACKS_LEFT, LACKS_RIGHT
from weft.logical.query.window import UNBOUNDED, Window
from weft.sql.reject import unsupported
from weft.sql.source import Piece, Span, SqlText

__all__ = [
    "CROSS_JOIN",
    "SIDE",
    "InputRef",
    "Item",
    "JoinRef",
    "Name",
    "Relation",
    "SelectRef",
    "SortItem",
    "Statement",
    "StreamRef",
    "column_list",
    "leaves",
    "side_has_row",
]


@dataclass(frozen=True, slots=True)
class Name:
    """A word and the place where it stands."""

    text: str
    source: SqlText
    span: Span

    @classmethod
    def plain(cls, text: str) -> Name:
        """A name that is a text of its own, as the builder takes them."""
        return cls(text, SqlText(text), (0, len(text)))

    @classmethod
    def of(cls, source: SqlText, identifier: exp.Expr) -> Name:
        """The name that an identifier is."""
        name = cls(identifier.name, source, source.span(identifier))
        if not isinstance(identifier, exp.Identifier):
            raise unsupported(source, identifier)
        if not name.text:
            raise name.error("a name cannot be empty")
        return name

    def error(self, message: str, hint: str | None = None) -> SqlError:
        """An error about this name."""
        return self.source.error(self.span, message, hint)


def column_list(source: SqlText, alias: exp.Expr) -> tuple[Name, ...]:
    """The names of columns that an alias lists."""
    names = tuple(Name.of(source, column) for column in alias.args.get("columns") or ())
    for place, name in enumerate(names):
        if any(name.text.lower() == other.text.lower() for other in names[:place]):
            raise name.error(f"two columns are called {name.text}", "choose another name")
    return names


@dataclass(frozen=True, slots=True)
class StreamRef:
    """A stream in FROM."""

    name: Name
    alias: Name | None = None
    window: Window = UNBOUNDED
    per: tuple[Name, ...] = ()  # the columns that the window counts per, as written
    columns: tuple[Name, ...] = ()  # the names that its columns have here, where AS lists them

    @property
    def called(self) -> Name:
        """The name by which the query refers to the stream: its alias if it has one."""
        return self.alias or self.name


@dataclass(frozen=True, slots=True, eq=False)
class SelectRef:
    """A sub-select in FROM, or the name that WITH gave one; between several branches, UNION ALL is said.

    ``called`` is the name by which the query refers to it, and ``place`` is where it stands. ``columns`` are the names
    that its columns have here, where AS lists them. If it is ``lateral``, it sees what stands before it in FROM.
    """

    branches: tuple[Statement, ...]
    called: Name
    place: Name
    window: Window = UNBOUNDED
    per: tuple[Name, ...] = ()
    columns: tuple[Name, ...] = ()
    lateral: bool = False


InputRef = StreamRef | SelectRef


@dataclass(frozen=True, slots=True)
class JoinRef:
    """A join in FROM: inner, left, right, full, semi, anti, mark, cross, asof, asof left, asof right or asof full.

    ``as_of`` is the time at which a version is asked for, where FOR SYSTEM_TIME says it, and ``match`` what
    MATCH_CONDITION says. If it is ``natural``, it joins on the columns whose names both sides have. If it is
    ``ordered``, the last column of USING must not be larger on the right side than on the left.
    """

    kind: str
    left: Relation
    right: Relation
    on: Piece | None = None
    using: tuple[Name, ...] = ()
    as_of: Piece | None = None
    natural: bool = False
    match: Piece | None = None
    ordered: bool = False


Relation = InputRef | JoinRef


SIDE = "_side"  # the column that says from which SELECT of a set operation a row is

# What the author of SQL has to do to accept a cross product.
CROSS_JOIN = "say CROSS JOIN"


@dataclass(frozen=True, slots=True)
class Item:
    """An expression to select, perhaps with a name."""

    value: Piece
    alias: Name | None = None


@dataclass(frozen=True, slots=True)
class SortItem:
    """An expression to sort by."""

    value: Piece
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Statement:
    """SELECT items FROM relations (between which commas stand) WHERE all of the conditions.

    A sub-select that reads nothing has no relations.
    ``cross`` says that its author accepts a cross product of the whole; if it does not, an error about one says what
    the author has to do to accept it (``crossing``). If it is ``plain``, ``*`` gives columns under their own names.
    ``group`` is what stands after GROUP BY and ``having`` after HAVING; of a ``distinct`` one, a row is wanted once.
    A ``sided`` one groups by all that it reads, but for the last column, which says from which SELECT a row is.
    ``order`` is what stands after ORDER BY; at most ``limit`` rows are wanted (None: all), after the first ``offset``.
    """

    items: tuple[Item, ...]
    relations: tuple[Relation, ...]
    where: tuple[Piece, ...]
    source: SqlText
    cross: bool = False
    crossing: str = CROSS_JOIN
    plain: bool = False
    group: tuple[Piece, ...] = ()
    having: tuple[Piece, ...] = ()
    distinct: bool = False
    order: tuple[SortItem, ...] = ()
    limit: int | None = None
    offset: int = 0
    sided: bool = False

    @classmethod
    def united(cls, branches: tuple[Statement, ...]) -> Statement:
        """The rows of several SELECTs, between which UNION ALL stands, as one that reads them all."""
        (first, *more) = branches
        if not more:
            return first
        place = Name("united", first.source, first.source.whole)
        everything = Item(Piece(exp.Star(), first.source))
        cross, crossing = any(one.cross for one in branches), first.crossing
        relation = SelectRef(branches, place, place)
        return cls((everything,), (relation,), (), first.source, cross, crossing, plain=True)

    @classmethod
    def wanted_once(cls, branches: tuple[Statement, ...], wanted: Piece) -> Statement:
        """The rows of several SELECTs for which a condition over `side_has_row` holds, each once."""
        tagged = []
        for place, one in enumerate(branches):
            number = Piece(exp.Literal.number(place), one.source)
            tagged.append(
                replace(one, items=(*one.items, Item(number, Name(SIDE, one.source, one.source.whole))))
            )
        return replace(cls.united(tuple(tagged)), having=(wanted,), sided=True)

    @property
    def is_outer(self) -> bool:
        """Whether any join is an outer join, and so pads rows with NULLs."""
        return any(join.kind in (*LACKS_LEFT, *LACKS_RIGHT) for join in self._joins())

    @property
    def is_tree(self) -> bool:
        """Whether the places of the joins matter: not all of them are inner joins."""
        return any(join.kind not in ("inner", "cross") for join in self._joins())

    def _joins(self) -> Iterator[JoinRef]:
        pending = list(self.relations)
        while pending:
            relation = pending.pop()
            if isinstance(relation, JoinRef):
                yield relation
                pending += (relation.left, relation.right)


def side_has_row(place: int) -> exp.Expr:
    """Whether the SELECT at a place among those of `Statement.wanted_once` has a row."""
    test = exp.EQ(this=exp.column(SIDE), expression=exp.Literal.number(place))
    return exp.Anonymous(this="bool_or", expressions=[test])


def leaves(relation: Relation) -> Iterator[InputRef]:
    """The streams and sub-selects of a relation, as written."""
    pending = [relation]
    while pending:
        first = pending.pop()
        if isinstance(first, JoinRef):
            pending += (first.right, first.left)
        else:
            yield first
