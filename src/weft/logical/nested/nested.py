"""Queries as inputs of queries: derived streams and unions.

Guarantees: a row of a derived stream is a result of its query, and its time is the latest time of the result's tuples;
a row of a union is a row of one of its branches, with the time that it has there. Groups of a query with aggregates are
rows once they are complete, with the time that they wait for. The time is one of the columns that
the queries select, where that can be proven, and else a column of its own, which ``SELECT *`` does not show. A stream
is named after its definition, so that equal definitions are one stream, whatever their aliases.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from weft.errors import CatalogError, QueryError
from weft.logical.expr.expression import Expr, substituted
from weft.logical.expr.functions import call
from weft.logical.outer.group_closing import group_time
from weft.logical.outer.outer import core_and_closing
from weft.logical.query.canonical import canonical
from weft.logical.query.grouping import APPEND
from weft.logical.query.horizon import time_bounds
from weft.logical.query.query import Input, Output, Query, make_query
from weft.logical.schema import ROW_TIME, DataType, Field, Schema, Stream

__all__ = [
    "defined_streams",
    "derived_stream",
    "inner_queries",
    "latest_time",
    "read_streams",
    "settled",
    "union_stream",
]

_TIMESTAMP = DataType("timestamp")


def derived_stream(query: Query) -> Stream:
    """The stream of a query's results, a table if it reads tables alone; `settled` gives equal definitions equal names.

    >>> from weft.logical.query.query import Input, Output, make_query
    >>> a = Input("a", Stream("a", Schema.parse("k long, ts timestamp"), "ts"))
    >>> stream = derived_stream(make_query([a], [], [Output("k", a.column("k"))]))
    >>> print(stream.schema, stream.event_time, stream.hidden, sep="; ")
    k long, _time timestamp; _time; _time
    """
    if query.sorting is not None:
        raise QueryError(
            "a query with ORDER BY or LIMIT cannot be read as a stream",
            hint="make it a query of its own, whose sink another session reads",
        )
    if query.grouping is not None and query.grouping.mode != APPEND:
        query = replace(
            query, grouping=replace(query.grouping, mode=APPEND)
        )  # what other queries read is final
    if not query.driving:
        schema = _schema(query.outputs, hidden=False)
        return Stream(f"derived_{_digest([query])}", schema, definition=(query,), table=True)
    if len(query.inputs) == 1:  # whose window says nothing
        plain = [Input(i.alias, i.stream) for i in query.inputs]
        query = make_query(plain, query.terms(), query.projection, grouping=query.grouping)
    shown = _latest_output(query) if query.grouping is None else _group_output(query)
    late = "join" if any(stream.late == "join" for stream in read_streams(query)) else "drop"
    schema = _schema(query.outputs, hidden=shown is None)
    return Stream(f"derived_{_digest([query])}", schema, shown or ROW_TIME, late=late, definition=(query,))


def settled(query: Query) -> Query:
    """The query with its derived streams under the names that equal definitions have in common."""
    inputs = [_settled(input_) if input_.stream.is_derived else input_ for input_ in query.inputs]
    return replace(query, inputs=tuple(inputs))


def _settled(input_: Input) -> Input:
    (query,) = input_.stream.definition
    common = canonical(settled(query)).query
    name = f"derived_{_digest([common])}"
    return replace(input_, stream=replace(input_.stream, name=name, definition=(common,)))


def union_stream(branches: Sequence[Query]) -> Stream:
    """The stream of the results of several queries together; the columns have the names that the first gives them."""
    if len(branches) < 2:
        raise QueryError("a union has two branches or more")
    for branch in branches:
        if not branch.driving:
            raise QueryError(
                f"UNION ALL takes streams, and {', '.join(branch.aliases)} is a table",
                hint="make one table of both, or join the stream with each and unite the results",
            )
    flat = [_under_names_of(branches[0], query) for branch in branches for query in _members(branch)]
    common = tuple(sorted((canonical(query).query for query in flat), key=str))
    inputs = [query.inputs[0] for query in common]
    late = "join" if any(input_.stream.late == "join" for input_ in inputs) else "drop"
    shown = _common_output(common)
    schema = _schema(common[0].projection, hidden=shown is None)
    return Stream(f"union_{_digest(common)}", schema, shown or ROW_TIME, late=late, definition=common)


def read_streams(query: Query) -> Iterator[Stream]:
    """The streams that a query reads from sources, its own and those of its derived streams and unions; repeated."""
    for input_ in query.inputs:
        if not input_.stream.definition:
            yield input_.stream
        for inner in input_.stream.definition:
            yield from read_streams(inner)


def defined_streams(query: Query) -> dict[str, Stream]:
    """The derived streams and unions that must run for a query, by name: those that others read come first."""
    found: dict[str, Stream] = {}
    for input_ in query.inputs:
        for inner in input_.stream.definition:
            found |= defined_streams(inner)
        if input_.stream.definition:
            found[input_.stream.name] = input_.stream
    return found


def inner_queries(stream: Stream) -> dict[str, Query]:
    """The queries whose results are the tuples of a derived stream or union, by name, with the time of each result."""
    found: dict[str, Query] = {}
    for number, query in enumerate(stream.definition):
        name = stream.name if stream.is_derived else f"{stream.name}_{number}"
        found[name] = _with_time(query) if stream.hidden else query
    return found


def _with_time(query: Query) -> Query:
    """A query that gives the time of each result, too."""
    if query.grouping is None:
        outputs = (*query.projection, Output(ROW_TIME, _latest(_timed(query))))
        return make_query(query.inputs, query.terms(), outputs, outer=query.outer, cross=True)
    shown = (*query.grouping.outputs, Output(ROW_TIME, _time_of_groups(query)))
    return replace(query, grouping=replace(query.grouping, outputs=shown))


def _time_of_groups(query: Query) -> Expr:
    core, closing = core_and_closing(query)
    found = group_time(core, None if closing is None else closing.tree)
    if found is None:
        raise QueryError(
            "groups can be an input once they are complete, and these never are: a row may come at any time for each",
            hint="group by a window of event time, as in GROUP BY window(ts, '10 minutes'), or by a time that no tuple "
            "of a row is later than; rows that are wanted once have such a time among their columns",
        )
    return found.expr


def _group_output(query: Query) -> str | None:
    """The name of a column that is the time of groups, if one is."""
    time = _time_of_groups(query)
    return next((output.name for output in query.outputs if output.expr == time), None)


def latest_time(query: Query) -> Expr | None:
    """The latest of the event times of a result's tuples, those that it has; None if some input has none."""
    inputs = _timed(query)
    if any(input_.event_time is None for input_ in inputs):
        return None
    return _latest(inputs)


def _timed(query: Query) -> list[Input]:
    """The inputs that a result has tuples of, but for tables, whose rows have no time."""
    return [query.input(alias) for alias in query.visible if alias in query.driving]


def _latest(inputs: Sequence[Input]) -> Expr:
    times = [input_.time for input_ in inputs]
    return times[0] if len(times) == 1 else call("greatest", *times)


def _latest_output(query: Query) -> str | None:
    """The name of a column that is the latest of the times of a result's tuples, if one is for sure."""
    if query.outer is not None:
        return None  # tuples may be missing
    bounds = time_bounds(query)
    latest = {
        input_.event_time
        for input_ in query.inputs
        if all(bounds.get((o, input_.alias), timedelta.max) <= timedelta(0) for o in _others(query, input_))
    }
    wanted = {time for time in (*latest, latest_time(query)) if time is not None}
    return next((output.name for output in query.projection if output.expr in wanted), None)


def _others(query: Query, input_: Input) -> list[str]:
    return [alias for alias in query.aliases if alias != input_.alias]


def _common_output(branches: Sequence[Query]) -> str | None:
    """The name of a column that is the event time in every branch."""
    for place, output in enumerate(branches[0].projection):
        if all(branch.projection[place].expr == branch.inputs[0].event_time for branch in branches):
            return output.name
    return None


def _members(branch: Query) -> Iterator[Query]:
    """A branch as queries of one input each that is no union: a join becomes a derived stream."""
    if len(branch.inputs) > 1 or branch.grouping is not None:
        input_ = _settled(Input("d", derived_stream(branch)))
        yield make_query([input_], [], [Output(column.name, column) for column in input_.shown])
        return
    (input_,) = branch.inputs
    if not input_.stream.is_union:
        yield make_query([Input(input_.alias, input_.stream)], branch.terms(), branch.projection)
        return
    for member in input_.stream.definition:
        yield _composed(branch, member)


def _composed(branch: Query, member: Query) -> Query:
    """A query over a union, over one of the union's members instead."""
    given = dict(zip(branch.inputs[0].stream.schema.names, member.projection, strict=False))
    exprs = {name: output.expr for name, output in given.items()}
    (inner,) = member.inputs
    if branch.inputs[0].stream.hidden:
        exprs[ROW_TIME] = inner.time
    replaced = {branch.aliases[0]: exprs}
    return make_query(
        member.inputs,
        (*member.terms(), *(substituted(term, replaced) for term in branch.terms())),
        (Output(output.name, substituted(output.expr, replaced)) for output in branch.projection),
    )


def _under_names_of(first: Query, query: Query) -> Query:
    names = [output.name for output in first.outputs]
    outputs = [Output(name, output.expr) for name, output in zip(names, query.projection, strict=True)]
    return make_query(query.inputs, query.terms(), outputs, outer=query.outer, cross=True)


def _schema(projection: Sequence[Output], *, hidden: bool) -> Schema:
    for output in projection:
        if output.name.lower() == ROW_TIME and hidden:
            raise CatalogError(
                f"a sub-select cannot give a column {output.name}: that is the time of its rows",
                hint="give it another name with AS",
            )
    fields = tuple(Field(output.name, output.expr.type) for output in projection)
    return Schema((*fields, Field(ROW_TIME, _TIMESTAMP)) if hidden else fields)


def _digest(queries: Sequence[Query]) -> str:
    text = " UNION ALL ".join(map(str, queries))
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
