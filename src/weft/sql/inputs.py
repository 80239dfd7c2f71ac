"""The inputs that FROM names: streams, registered queries, and sub-selects.

Guarantees: every input has a name of its own, also beside those of the SELECTs around it. A sub-select or a registered
query is an input over a derived stream, one with UNION ALL over a union; `weft.logical.nested.flatten` unites what can
be united with the query around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from weft.errors import CatalogError, QueryError, nearest
from weft.logical.catalog import Catalog
from weft.logical.expr.expression import Expr, count_terms
from weft.logical.expr.functions import call
from weft.logical.nested.nested import derived_stream, union_stream
from weft.logical.outer.asof import misplaced_versions
from weft.logical.outer.tables import misplaced_table
from weft.logical.query.horizon import check_times as check_event_times
from weft.logical.query.limits import Limits
from weft.logical.query.query import Input, Query, connected
from weft.logical.query.window import UNBOUNDED, Rows, Window
from weft.logical.schema import Stream
from weft.sql.expressions import bind_expression
from weft.sql.scope import Named, Scope, Shown, called
from weft.sql.source import Piece
from weft.sql.statement import (
    CROSS_JOIN,
    SIDE,
    InputRef,
    JoinRef,
    Name,
    SelectRef,
    Statement,
    StreamRef,
    leaves,
)

__all__ = [
    "BoundInput",
    "InputBinder",
    "check_crosses",
    "check_lateral",
    "check_reading",
    "check_tables",
    "check_terms",
    "check_times",
    "column_names",
    "common_names",
    "free_alias",
    "not_after",
    "refs",
]


def refs(statement: Statement) -> Iterator[InputRef]:
    """What FROM names, in its order."""
    for relation in statement.relations:
        yield from leaves(relation)


class BoundInput(NamedTuple):
    """An input, and what FROM calls it."""

    input_: Input
    named: Named


def free_alias(name: str, taken: set[str]) -> str:
    """A name that is not in use, and is from now on: the one that is wanted, with a number where it is taken."""
    alias, number = name, 1
    while alias.lower() in taken:
        number += 1
        alias = f"{name}_{number}"
    taken.add(alias.lower())
    return alias


def column_names(ref: InputRef, given: Sequence[object]) -> tuple[str, ...]:
    """The names that AS lists for the columns; empty if it lists none."""
    if ref.columns and len(ref.columns) != len(given):
        raise ref.columns[-1].error(
            f"{ref.called.text} has {len(given)} columns, and {len(ref.columns)} names are listed",
            "list a name for each, or none",
        )
    return tuple(name.text for name in ref.columns)


def common_names(join: JoinRef, left: Sequence[Shown], right: Sequence[Shown]) -> tuple[Name, ...]:
    """The names that columns of both sides have, in the order of the left side."""
    (ref, *_) = leaves(join.right)
    names = {shown.name.lower() for shown in right}
    common = [shown.name for shown in left if shown.name.lower() in names]
    place = ref.called
    if not common and join.kind != "inner":
        raise place.error(
            f"no column of {place.text} has a name that one to its left has, too",
            f"write {join.kind.upper()} JOIN … ON, or ON TRUE if every pair is wanted",
        )
    return tuple(Name(name, place.source, place.span) for name in common)


@dataclass(frozen=True, slots=True)
class InputBinder:
    """Finds what FROM names; ``bind`` gives the query of a sub-select."""

    catalog: Catalog
    bind: Callable[[Statement], Query]

    def inputs(self, statement: Statement, taken: set[str] | None = None) -> dict[InputRef, BoundInput]:
        """The inputs, in the order of FROM, but for lateral sub-selects; ``taken`` are aliases that are in use."""
        inputs: dict[InputRef, BoundInput] = {}
        taken = set() if taken is None else taken
        names = set[str]()
        for ref in refs(statement):
            if isinstance(ref, SelectRef) and ref.lateral:
                name = ref.called.text
                stream = None
            else:
                stream = self._stream(ref) if isinstance(ref, StreamRef) else self._sub_select(ref)
                written = isinstance(ref, SelectRef) or ref.alias or stream.definition
                name = ref.called.text if written else stream.name
            if name.lower() in names:
                raise ref.called.error(f"two streams go by the name {name}", "name one with AS")
            names.add(name.lower())
            if stream is not None:
                input_ = Input(free_alias(name, taken), stream, _window(ref, stream))
                inputs[ref] = BoundInput(input_, called(input_, name, column_names(ref, input_.shown)))
        return inputs

    def _stream(self, ref: StreamRef) -> Stream:
        name = ref.name.text
        query = self.catalog.find_query(name)
        stream = self.catalog.find(name) if query is None else _derived(query, ref.name)
        if stream is None:
            hint = nearest(name, (*self.catalog.names, *self.catalog.query_names))
            raise ref.name.error(f"there is no stream {name}", hint)
        return stream

    def _sub_select(self, ref: SelectRef) -> Stream:
        for branch in ref.branches:
            _check_windows(branch)
        queries = [self.bind(branch) for branch in ref.branches]
        if len(queries) == 1:
            return _derived(queries[0], ref.place)
        for branch, query in zip(ref.branches, queries, strict=True):
            _check_branch(ref, branch, queries[0], query)
        try:
            return union_stream(queries)
        except (QueryError, CatalogError) as error:
            raise ref.place.error(error.message, error.hint) from None


def _derived(query: Query, place: Name) -> Stream:
    try:
        return derived_stream(query)
    except (QueryError, CatalogError) as error:
        raise place.error(error.message, error.hint) from None


def _check_windows(statement: Statement) -> None:
    """Refuse a window that says nothing: the only tuple of a result is always the newest."""
    found: Sequence[InputRef] = tuple(refs(statement))
    if len(found) == 1 and found[0].window != UNBOUNDED:
        only = found[0].called
        raise only.error(
            f"the window of {only.text} says nothing here: it is the only input of the sub-select",
            f"write it after the sub-select, as in (SELECT …) [{found[0].window}] AS d",
        )


def _check_branch(ref: SelectRef, branch: Statement, first: Query, query: Query) -> None:
    """Refuse a branch of a set operation with other columns than the first."""
    wanted, found = first.outputs, query.outputs
    if len(wanted) != len(found):
        counts = [sum(output.name != SIDE for output in one) for one in (wanted, found)]
        shown = ", ".join(output.name for output in wanted if output.name != SIDE)
        raise ref.place.error(
            f"one SELECT gives {counts[0]} columns, and another {counts[1]}",
            f"every SELECT gives as many columns as the first: {shown}",
        )
    for place, (one, other) in enumerate(zip(wanted, found, strict=True)):
        if one.expr.type != other.expr.type:
            exact = len(branch.items) == len(found)  # else * stands for several
            piece = branch.items[place].value if exact else ref.place
            raise piece.error(
                f"column {other.name} is a {other.expr.type}, but {one.name}, in its place in the first SELECT, "
                f"is a {one.expr.type}",
                f"make it one, as in CAST({other.name} AS {one.expr.type})",
            )


def _window(ref: InputRef, stream: Stream) -> Window:
    """The window of a stream, with the columns that it counts per; a table has none."""
    if stream.table and ref.window != UNBOUNDED:
        raise ref.called.error(
            f"{stream.name} is a table, and has no window: all of its rows are looked up",
            "leave out the window",
        )
    if not isinstance(ref.window, Rows):
        return ref.window
    names = set()
    shown = ref.called.text if stream.definition else stream.name
    for name in ref.per or map(Name.plain, ref.window.per):
        field = stream.schema.find(name.text)
        if field is None:
            hint = nearest(name.text, stream.shown)
            raise name.error(f"{shown} has no column {name.text} to count per", hint)
        names.add(field.name)
    return Rows(ref.window.count, tuple(sorted(names)))


def check_tables(statement: Statement, query: Query, inputs: Mapping[InputRef, BoundInput]) -> None:
    """Refuse a table, or versions, where they cannot stand, at their name."""
    misplaced = misplaced_versions(query) or misplaced_table(query)
    if misplaced is None:
        return
    named = [ref.called for ref, bound in inputs.items() if bound.input_.alias == misplaced.alias]
    if named:
        raise named[0].error(misplaced.message, misplaced.hint)
    raise statement.source.error(statement.source.whole, misplaced.message, misplaced.hint)


def check_lateral(join: JoinRef) -> None:
    """Refuse a join that keeps rows of a lateral sub-select which no row to its left has."""
    if join.kind not in ("inner", "cross", "left"):
        (ref, *_) = leaves(join.right)
        raise ref.called.error(
            f"{join.kind.upper()} JOIN LATERAL cannot be: its rows depend on those to its left",
            "write JOIN LATERAL or LEFT JOIN LATERAL",
        )


def check_reading(join: JoinRef, left: bool, right: bool) -> None:
    """Refuse a join that may keep rows without a partner, if a side reads nothing: its condition would be lost."""
    if join.kind not in ("inner", "cross") and not (left and right):
        (ref, *_) = leaves(join.right if left else join.left)
        raise ref.called.error(
            f"{ref.called.text} reads nothing, and is a side of a {join.kind.upper()} JOIN",
            "name a stream to its left, as in a LEFT JOIN LATERAL (SELECT 1 AS p) AS t ON t.p = a.k, or a table in its "
            "place",
        )


def not_after(versions: Input, asked: Piece, scope: Scope) -> Expr:
    """That a version is not after the time that FOR SYSTEM_TIME AS OF names."""
    time = versions.event_time
    if time is None:
        hint = "register it with event_time, or read a table without FOR SYSTEM_TIME"
        raise asked.error(f"{versions.alias} has no event time to tell its versions by", hint)
    return call("<=", time, bind_expression(asked, scope))


def check_terms(statement: Statement, exprs: Iterable[Expr], limits: Limits) -> None:
    """Refuse expressions that are larger together than the limits say."""
    count = count_terms(exprs)
    try:
        limits.check("terms", count, f"the expressions of the query have {count:,} terms")
    except QueryError as error:
        raise statement.source.error(statement.source.whole, error.message, error.hint) from None


def check_times(statement: Statement, query: Query) -> None:
    """Refuse conditions on event times that no tuples can fulfil."""
    try:
        check_event_times(query)
    except QueryError as error:
        if statement.where:
            raise statement.where[0].error(error.message, error.hint) from None
        raise statement.source.error(statement.source.whole, error.message, error.hint) from None


def check_crosses(
    statement: Statement,
    query: Query,
    inputs: Mapping[InputRef, BoundInput],
    crosses: Sequence[frozenset[str]],
    crossing: str,
) -> None:
    """Refuse a cross product that nobody asked for, at the first stream it concerns."""
    if statement.is_tree and crossing == CROSS_JOIN:  # CROSS JOIN would not keep rows without a partner
        crossing = "give cross=True"
    names = {ref: input_.alias for ref, (input_, _) in inputs.items()}
    first = next(iter(names.values()))
    reached = connected(first, (*query.edges, *crosses))
    for ref, name in names.items():
        if name not in reached:
            raise ref.called.error(
                f"cross product: nothing joins {name} with {', '.join(sorted(reached))}",
                f"add a predicate between them, or {crossing} if every pair is wanted",
            )
