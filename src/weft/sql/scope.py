"""Which column a name means.

Guarantees: names are found upper or lower case, and come out in the catalog's spelling; a name that means
nothing, or more than one thing, is an error that lists what there is. A sub-select sees what it reads itself first, and
then what the SELECT around it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sqlglot import exp

from weft.errors import QueryError, nearest
from weft.logical.expr.conversion import literal
from weft.logical.expr.expression import Column, Expr
from weft.logical.expr.functions import call
from weft.logical.expr.user_functions import UserFunction
from weft.logical.names import identifier
from weft.logical.query.query import PRESENT, Input
from weft.sql.source import Piece
from weft.sql.statement import Statement

__all__ = [
    "PROVENANCE",
    "Given",
    "GroupScope",
    "Inlined",
    "Merged",
    "Named",
    "Scope",
    "Shown",
    "SubSelects",
    "called",
    "using_first",
]

PROVENANCE = "provenance"

_TESTED = "a SEMI or ANTI JOIN asks whether its right side has a partner, and gives none of its columns"


@dataclass(frozen=True, slots=True)
class Given:
    """A column that a relation of FROM gives under a name of its own."""

    name: str
    alias: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class Inlined:
    """A name in FROM for expressions over the inputs of the query, which need not be called as the query calls them.

    ``columns`` are those that can be named, ``listed`` the names of those that ``*`` gives. ``present`` is NULL where
    an outer join finds no row of it; ``stream`` is what it stands for, if that is one stream.
    """

    alias: str
    columns: Mapping[str, Expr]
    listed: tuple[str, ...]
    present: Expr | None = None
    stream: str = ""

    @property
    def shown(self) -> tuple[Given, ...]:
        """The columns that ``SELECT *`` gives."""
        return tuple(Given(name, self.alias, self.columns[name]) for name in self.listed)


# What a name in FROM can stand for.
Named = Input | Inlined


def called(input_: Input, name: str, columns: Sequence[str] = ()) -> Named:
    """An input under the name by which FROM calls it, with other names for its columns where there are any."""
    if input_.alias == name and not columns:
        return input_
    names = columns or [column.name for column in input_.shown]
    given = dict(zip(names, input_.shown, strict=True))
    hidden = {} if columns else {c.name: c for c in (*input_.columns, *input_.unnamed) if c.name not in given}
    stream = "" if input_.stream.definition else input_.stream.name
    return Inlined(name, {**given, **hidden}, tuple(given), input_.present, stream)


def _find(named: Named, name: str) -> Expr | None:
    """The column of that name, upper or lower case."""
    if isinstance(named, Inlined):
        folded = name.lower()
        return next((expr for other, expr in named.columns.items() if other.lower() == folded), None)
    field = named.stream.schema.find(name)
    unnamed = next((column for column in named.unnamed if column.name == name), None)
    return unnamed if field is None else named.column(field.name)


def _has(named: Named, name: str) -> bool:
    """Whether a name that stands alone may mean a column of this relation."""
    return not name.startswith("$") and _find(named, name) is not None


def _names(named: Named) -> tuple[str, ...]:
    return named.listed if isinstance(named, Inlined) else named.stream.shown


class SubSelects(Protocol):
    """What becomes of the sub-selects in an expression."""

    def exists(self, branches: tuple[Statement, ...], scope: Scope) -> Expr:
        """Whether a sub-select gives a row."""

    def value(self, branches: tuple[Statement, ...], scope: Scope) -> Expr | None:
        """The value of a sub-select of one column that reads nothing; None if it is another."""

    def compared(
        self, operator: str, values: Sequence[Expr], branches: tuple[Statement, ...], scope: Scope
    ) -> Expr:
        """Whether a comparison holds with some row of a sub-select: TRUE, FALSE or NULL, as SQL says."""

    def holds_for_some(
        self, operator: str, values: Sequence[Expr], branches: tuple[Statement, ...], scope: Scope
    ) -> Expr:
        """Whether a comparison is TRUE for some row of a sub-select."""

    def fails_for_all(
        self, operator: str, values: Sequence[Expr], branches: tuple[Statement, ...], scope: Scope
    ) -> Expr:
        """Whether a comparison is FALSE for every row of a sub-select."""


class GroupScope(Protocol):
    """What becomes of the aggregates in an expression, and of the names of a group's window."""

    def aggregate(self, function: str, args: Sequence[Expr], condition: Expr | None, distinct: bool) -> Expr:
        """The value of an aggregate over arguments, of rows that fulfil a condition."""

    def edge(self, name: str, node: exp.Anonymous, piece: Piece) -> Expr:
        """The start or the end of the window of GROUP BY, by the call that names it."""

    def named_edge(self, names: Sequence[str]) -> Expr | None:
        """The start or the end of the window of GROUP BY, if a name means that."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The one column that USING makes of columns of several inputs."""

    name: str
    aliases: frozenset[str]
    expr: Expr

    def takes_in(self, other: Shown) -> bool:
        """Whether another column of FROM is one of those that this one stands for."""
        same = other.name.lower() == self.name
        return same and not self.aliases.isdisjoint(
            other.aliases if isinstance(other, Merged) else {other.alias}
        )


# A column that a part of FROM gives to ``SELECT *``.
Shown = Merged | Column | Given


def using_first(using: Sequence[Merged], others: Iterable[Shown]) -> tuple[Shown, ...]:
    """The columns of a join: first those of its USING, in the order in which it names them, then all others."""
    rest = (one for one in others if not any(merged.takes_in(one) for merged in using))
    return (*using, *rest)


@dataclass(frozen=True, slots=True)
class Scope:
    """The inputs that an expression may name.

    ``beyond`` are the other inputs of the query, which ON may also name as long as all joins are inner: its conditions
    are then one pool with those of WHERE. If some joins are not inner, the other inputs are ``hidden``; ``tested`` are
    those to the right of a semi or anti join below, which has no columns of them. Where outer joins pad rows with NULLs
    (``padded``), rows have a `provenance`. ``functions`` are those that users registered. ``shown`` are the columns
    that ``*`` gives, in their order. ``around`` is what the SELECT around a sub-select sees, and ``sub_selects`` takes
    the sub-selects of the expression. ``groups`` takes its aggregates, where there may be some. ``selected`` are
    columns of the result, by name in lower case, which ORDER BY may name before those of inputs.
    """

    inputs: tuple[Named, ...]
    merged: tuple[Merged, ...] = ()
    beyond: tuple[Named, ...] = ()
    hidden: tuple[Named, ...] = ()
    tested: tuple[Named, ...] = ()
    padded: bool = False
    functions: tuple[UserFunction, ...] = ()
    shown: tuple[Shown, ...] = ()
    around: Scope | None = None
    sub_selects: SubSelects | None = None
    groups: GroupScope | None = None
    selected: Mapping[str, Expr] = field(default_factory=dict)

    def input(self, name: str) -> Named:
        """The relation that goes by this name."""
        folded = name.lower()
        for named in (*self.inputs, *self.beyond):
            if named.alias.lower() == folded:
                return named
        if any(named.alias.lower() == folded for named in self.tested):
            raise QueryError(f"{name} cannot be seen here", hint=_TESTED)
        if any(named.alias.lower() == folded for named in self.hidden):
            raise QueryError(
                f"{name} cannot be seen here",
                hint="ON sees only the streams that its own join brings together",
            )
        if self.around is not None and any(named.alias.lower() == folded for named in self.around.reached()):
            return self.around.input(name)
        everywhere = tuple(self.reached())
        renamed = next((named.alias for named in everywhere if _stream(named).lower() == folded), None)
        hint = f"it goes by the name {renamed} here" if renamed else _listing(name, everywhere)
        raise QueryError(f"there is no {name} in FROM", hint=hint)

    def reached(self) -> Iterator[Named]:
        """All relations that can be named here, and those around that may be refused."""
        yield from (*self.inputs, *self.beyond)
        if self.around is not None:
            yield from (*self.around.reached(), *self.around.hidden, *self.around.tested)

    def function(self, name: str) -> UserFunction | None:
        """The function that a user registered under this name, if there is one."""
        folded = name.lower()
        return next((function for function in self.functions if function.name == folded), None)

    def column(self, table: str, name: str) -> Expr:
        """A column of the relation that goes by a name; of one that a mark join looks for, whether it is there."""
        marked = next((one for one in self.tested if one.alias.lower() == table.lower()), None)
        if name == PRESENT and isinstance(marked, Input):
            return marked.present
        return self.qualified(self.input(table), name)

    def qualified(self, named: Named, name: str) -> Expr:
        """A column of one relation."""
        column = _find(named, name)
        if column is None:
            hint = nearest(name, _names(named))
            raise QueryError(f"{named.alias} has no column {name}", hint=hint)
        return column

    def has_input(self, name: str) -> bool:
        """Whether a relation of FROM goes by this name, be it one that cannot be seen here."""
        known = (*self.reached(), *self.hidden, *self.tested)
        return any(named.alias.lower() == name.lower() for named in known)

    def has_column(self, name: str) -> bool:
        """Whether a relation that can be named here has a column of that name."""
        return any(_has(named, name) for named in self.reached())

    def unqualified(self, name: str) -> Expr:
        """The only column of that name."""
        if name.lower() in self.selected:
            return self.selected[name.lower()]
        for inputs in (self.inputs, self.beyond):
            candidates = self._candidates(name, inputs)
            if len(candidates) > 1:
                listing = " or ".join(sorted(candidates))
                raise QueryError(f"column {name} is ambiguous", hint=f"write {listing}")
            if candidates:
                return next(iter(candidates.values()))
        if self.padded and name.lower() == PROVENANCE:
            return provenance(self.inputs)
        if any(_has(named, name) for named in self.tested):
            raise QueryError(f"{name} cannot be seen here", hint=_TESTED)
        if self.around is not None and self.around.has_column(name):
            return self.around.unqualified(name)
        every = {column for named in self.reached() for column in _names(named)}
        raise QueryError(f"there is no column {name}", hint=nearest(name, every))

    def _candidates(self, name: str, inputs: Sequence[Named]) -> dict[str, Expr]:
        """The columns that a name may mean, by what to write for each."""
        having = [named for named in inputs if _has(named, name)]
        candidates: dict[str, Expr] = {}
        for merged in self.merged:
            if merged.name == name.lower() and any(named.alias in merged.aliases for named in having):
                having = [named for named in having if named.alias not in merged.aliases]
                candidates[str(merged.expr)] = merged.expr
        for named in having:
            expr = self.qualified(named, name)
            spelled = expr.name if isinstance(expr, Column) and isinstance(named, Input) else name
            candidates[f"{identifier(named.alias)}.{identifier(spelled)}"] = expr
        return candidates

    def merge_using(self, right: Scope, name: str, kind: str, operator: str = "=") -> tuple[Merged, Expr]:
        """The one column that USING makes of those of a name here and to the right, and how the two are compared."""
        sides = self.unqualified(name), right.unqualified(name)
        both = (*self.inputs, *right.inputs)
        owners = frozenset(named.alias for named in both if _has(named, name))
        return Merged(name.lower(), owners, _merge(kind, *sides)), call(operator, *sides)


def _stream(named: Named) -> str:
    return named.stream if isinstance(named, Inlined) else named.stream.name


def provenance(inputs: Iterable[Named]) -> Expr:
    """The names of those inputs that a row has a tuple of, as in ``'v, w'``."""
    parts = (
        call("case", named.present, literal(f", {named.alias}"), literal(""))
        for named in inputs
        if named.present is not None
    )
    return call("substring", call("concat", *parts), literal(len(", ") + 1))


def _merge(kind: str, left: Expr, right: Expr) -> Expr:
    """The value of a column after USING: whichever side is there."""
    if kind in ("full", "asof full"):
        return call("coalesce", left, right)
    return right if kind in ("right", "asof right") else left


def _listing(name: str, inputs: Sequence[Named]) -> str:
    return nearest(name, (input_.alias for input_ in inputs))
