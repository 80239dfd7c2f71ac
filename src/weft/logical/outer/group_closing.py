"""When a group is complete: no row that is still to come can fall into it (design, D15).

Guarantees: what `group_ends` says is proven by the windows of the join, by its conditions on times and by the
watermarks. A query's clock is the least watermark of its streams; a row that is still to come has a tuple at or after
it. So a group is complete when the clock has passed, for each input, the latest time that a tuple of it can have in the
group. Windows and conditions say how much later than a window or a key of the group that is: `b.ts <= a.expires` says
it of b in groups by `a.expires`. Where nothing is proven, or late tuples are joined, a group is complete when the input
ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import permutations
from typing import NamedTuple

from weft.errors import QueryError, nearest
from weft.logical.expr.bands import read_band, read_term
from weft.logical.expr.conversion import literal
from weft.logical.expr.expression import Call, Column, Expr, Literal, aliases
from weft.logical.expr.functions import call
from weft.logical.outer.outer import always, core_and_closing
from weft.logical.outer.waiting import spans
from weft.logical.query.grouping import APPEND, FIRST, GROUP, MODES, UPDATE, WINDOW_END, Grouping
from weft.logical.query.join_tree import Join
from weft.logical.query.query import Query
from weft.logical.query.window import Range

__all__ = ["GroupEnd", "GroupTime", "check_groups", "group_ends", "group_time"]

# By input: how much later than a time of a row its tuple can be; absent: without limit.
_Later = Mapping[str, timedelta]

_NONE = timedelta(0)
_FARTHEST = timedelta(
    days=10_000_000
)  # beyond what times can be apart; contradictory bounds add up without end


class GroupEnd(NamedTuple):
    """A time after which a group has no more tuples of an input.

    ``column`` is the one of the join that says it, a key or the time of the window, whose end is meant. The last tuple
    is at most ``after`` later.
    """

    column: str
    after: timedelta


def group_ends(query: Query, tree: Join | None) -> tuple[tuple[GroupEnd, ...], ...] | None:
    """What the clock must have passed until a group is complete: of each item, the earliest; None: it never is.

    ``query`` is the core of a query with outer joins, whose tree of joins is ``tree``.
    """
    if query.grouping is None or not query.driving:
        return None
    if any(input_.stream.late == "join" and not input_.stream.table for input_ in query.inputs):
        return None  # a late tuple may come for any group
    known = {name: _later(query, tree, expr) for name, expr in _times(query, tree, query.grouping)}
    every = dict.fromkeys(
        tuple(GroupEnd(name, later[alias]) for name, later in known.items() if alias in later)
        for alias in query.driving
    )
    return None if () in every else tuple(one for one in every if not any(_sooner(one, o) for o in every))


class GroupTime(NamedTuple):
    """The time of a group as a tuple of a stream: over columns of the group, and how long after it the group leaves."""

    expr: Expr
    lag: timedelta


def group_time(query: Query, tree: Join | None) -> GroupTime | None:
    """The time of a query's groups where they are an input of another: what they wait for; None if that has no end.

    That is the end of the window, or the key, if there is one such time alone, and else the last time that one of a
    group's tuples can have. ``query`` and ``tree`` are those of `group_ends`.
    """
    ends = group_ends(query, tree)
    if ends is None or query.grouping is None or query.grouping.mode == FIRST:
        return None
    window = None if query.grouping.window is None else query.grouping.window.column
    if len(ends) == len(ends[0]) == 1:
        return GroupTime(_group_column(ends[0][0].column, window), ends[0][0].after)
    items = [[_moved(end, window) for end in some] for some in ends]
    earliest = [some[0] if len(some) == 1 else call("least", *some) for some in items]
    return GroupTime(earliest[0] if len(earliest) == 1 else call("greatest", *earliest), _NONE)


def _group_column(name: str, window: str | None) -> Expr:
    return WINDOW_END if name == window else Column(GROUP, name, WINDOW_END.type)


def _moved(end: GroupEnd, window: str | None) -> Expr:
    time = _group_column(end.column, window)
    if not end.after:
        return time
    return call("+" if end.after > _NONE else "-", time, literal(abs(end.after)))


def _sooner(one: Sequence[GroupEnd], other: Sequence[GroupEnd]) -> bool:
    """Whether an item is passed whenever another is, which is not the same."""
    after = dict(other)
    same = [end.column for end in one] == list(after)
    return same and one != other and all(end.after <= after[end.column] for end in one)


def _times(query: Query, tree: Join | None, grouping: Grouping) -> Iterator[tuple[str, Expr]]:
    """The times by which rows are grouped, none of them NULL, with the names that they have in the projection."""
    window = None if grouping.window is None else grouping.window.column
    sure = query.aliases if tree is None else always(tree)
    for output in query.projection:
        is_key = output.name in grouping.keys and output.expr.type.name == "timestamp"
        if output.name == window or (is_key and aliases(output.expr) & set(sure)):
            yield output.name, output.expr


def _later(query: Query, tree: Join | None, expr: Expr) -> _Later:
    """By input, how much later than a time of a row its tuple can be."""
    if isinstance(expr, Column):
        return _later_than_column(query, expr) if tree is None else _later_in_tree(query, tree, expr)
    if not isinstance(expr, Call):
        return {}
    if expr.function in ("greatest", "coalesce"):
        known = [_later(query, tree, arg) for arg in expr.args]
        if expr.function == "greatest" and tree is None:  # no time of an inner join is missing
            every = {alias for later in known for alias in later}
            return {alias: min(later[alias] for later in known if alias in later) for alias in every}
        common = set.intersection(*(set(later) for later in known))
        return {alias: max(later[alias] for later in known) for alias in common}
    if expr.function in ("+", "-") and len(expr.args) == 2:
        return _later_than_shifted(query, tree, expr)
    return {}


def _later_than_shifted(query: Query, tree: Join | None, expr: Call) -> _Later:
    """The same for a time plus or minus a constant."""
    time, shift = expr.args
    if not isinstance(shift, Literal) or not isinstance(shift.value, timedelta):
        return {}
    by = shift.value if expr.function == "+" else -shift.value
    return {alias: after - by for alias, after in _later(query, tree, time).items()}


def _later_in_tree(query: Query, tree: Join, column: Column) -> _Later:
    """The same for a column of a tree of joins: what is known there is about the times of tuples alone."""
    if column.alias not in query.driving or column != query.input(column.alias).time:
        return {}
    span = spans(query, tree)[column.alias]
    return {} if span is None else dict.fromkeys(query.driving, span)


def _later_than_column(query: Query, column: Column) -> _Later:
    """The same for a column of an inner join: along what windows and conditions say, the shortest way to each input."""
    found = {column: _NONE}
    stated = dict(_stated(query))
    for _ in range(len(stated) + 1):
        for (late, early), bound in stated.items():
            if early in found:
                through = max(found[early] + bound, -_FARTHEST)
                found[late] = min(through, found.get(late, through))
    times = {alias: query.input(alias).time for alias in query.driving}
    return {alias: found[time] for alias, time in times.items() if time in found}


def _stated(query: Query) -> Iterator[tuple[tuple[Column, Column], timedelta]]:
    """By how much one time column can exceed another in a row."""
    stated: dict[tuple[Column, Column], timedelta] = {}
    for pair, bound in _every_bound(query):
        stated[pair] = min(bound, stated.get(pair, bound))
    yield from stated.items()


def _every_bound(query: Query) -> Iterator[tuple[tuple[Column, Column], timedelta]]:
    for input_ in query.inputs:
        if isinstance(input_.window, Range):
            others = (alias for alias in query.driving if alias != input_.alias)
            yield from (((query.input(o).time, input_.time), input_.window.duration) for o in others)
    for predicate in query.predicates:
        if isinstance(predicate, Call) and predicate.function in ("<", "<="):
            band = read_band(*predicate.args)
            if band:
                yield (band[0], band[1]), band[2]
    for key in query.keys:
        terms = [term for member in key.members if (term := read_term(member))]
        for (one, by), (other, shift) in permutations(terms, 2):
            yield (one, other), shift - by


def check_groups(query: Query, name: str) -> None:
    """Refuse a query whose groups would never be complete, if its streams do not end."""
    grouping = query.grouping
    if grouping is None:
        return
    late = [i.stream.name for i in query.inputs if i.stream.late == "join" and not i.stream.table]
    if late and grouping.mode == APPEND:
        raise QueryError(
            f"stream {late[0]} joins late tuples, which could belong to groups of query {name} that have left",
            hint='register it with late="drop", or query with mode="update"',
        )
    if grouping.mode != APPEND:
        return
    core, closing = core_and_closing(query)
    if group_ends(core, None if closing is None else closing.tree) is None:
        raise QueryError(
            f"the groups of query {name} would never be complete: a row may come at any time for each of them",
            hint="group by a window of event time, as in GROUP BY window(ts, '10 minutes'), or by a time that no tuple "
            "of a row is later than, and bound the join by windows or times; or query with "
            'mode="update"; if the input ends, use session.run_available()',
        )


def with_mode(query: Query, mode: str) -> Query:
    """A query whose groups leave as a mode says; only a query with aggregates can have another than the default."""
    if mode not in MODES:
        raise QueryError(f"there is no mode {mode!r}", hint=nearest(str(mode), MODES))
    if query.grouping is None or query.grouping.mode == FIRST:
        if mode == UPDATE:
            raise QueryError(
                "the results of this query never change, so there is nothing to update",
                hint="leave out mode, or aggregate with GROUP BY",
            )
        return query
    return replace(query, grouping=replace(query.grouping, mode=mode))
