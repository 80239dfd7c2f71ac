"""When a group is complete: no row that is still to come can fall into it (design, D15).

Guarantees: what `closing_span` says is proven by the windows of the join, by its conditions on times and by the
watermarks. A query's clock is the least watermark of its streams; the last tuple of a row that is still to come is at
or after it, and windows and conditions say how much older the row's other tuples can be. Where nothing is proven, a
group is complete when the input ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from weft.errors import QueryError
from weft.logical.expr.expression import Call, Column, Expr, Literal
from weft.logical.outer.outer import core_and_closing
from weft.logical.outer.waiting import spans
from weft.logical.query.grouping import APPEND
from weft.logical.query.horizon import retention
from weft.logical.query.join_tree import Join
from weft.logical.query.query import Query

__all__ = ["check_groups", "closing_span"]

_NONE = timedelta(0)


def closing_span(query: Query, tree: Join | None) -> timedelta | None:
    """How far the query's clock must be past the end of a window until its groups are complete; None: for ever.

    ``query`` is the core of a query with outer joins, whose tree of joins is ``tree``.
    """
    window = None if query.grouping is None else query.grouping.window
    if window is None:
        return None
    time = next(output.expr for output in query.projection if output.name == window.column)
    found = _behind(query, tree, time)
    return None if found is None else max(found, _NONE)


def _behind(query: Query, tree: Join | None, expr: Expr) -> timedelta | None:
    """By how much at most a time of a row that is still to come is behind the query's clock; None: without limit."""
    if isinstance(expr, Column):
        if expr != query.input(expr.alias).time:
            return None
        return retention(query, expr.alias) if tree is None else spans(query, tree)[expr.alias]
    if not isinstance(expr, Call):
        return None
    if expr.function in ("greatest", "coalesce"):
        known = [_behind(query, tree, arg) for arg in expr.args]
        sure = [one for one in known if one is not None]
        if expr.function == "greatest" and tree is None:
            return min(sure, default=None)
        return max(sure) if len(sure) == len(known) else None
    return next(_shifted(query, tree, expr), None)


def _shifted(query: Query, tree: Join | None, expr: Call) -> Iterator[timedelta | None]:
    """The same for a time plus or minus a constant."""
    if expr.function not in ("+", "-") or len(expr.args) != 2:
        return
    time, shift = expr.args
    if isinstance(shift, Literal) and isinstance(shift.value, timedelta):
        base = _behind(query, tree, time)
        if base is not None:
            yield base - shift.value if expr.function == "+" else base + shift.value


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
    if closing_span(core, None if closing is None else closing.tree) is None:
        raise QueryError(
            f"the groups of query {name} would never be complete: a row may come at any time for each of them",
            hint="group by a window of event time, as in GROUP BY window(ts, '10 minutes'), and bound the join by "
            'windows or times; or query with mode="update"; if the input ends, use session.run_available()',
        )
