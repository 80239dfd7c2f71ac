"""`weft explain`: the plans of a pipeline's queries, and statistics of its file that no query uses.

Guarantees: queries are planned as `weft run` plans them. A figure of the file is reported if and only if no query of
the pipeline asks for it; what a query asks for is what `stats.estimate` looks up of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import combinations

from weft.errors import ConfigError, WeftError, nearest
from weft.logical.expr.expression import BOOLEAN, Call, Expr, columns, make_call
from weft.logical.query.horizon import is_time_bound
from weft.logical.query.query import Query
from weft.plan.physical.graph import CODEC
from weft.plan.show.shared import shared_text
from weft.runtime.observe.analysis import Analysis, analyse_checkpoint
from weft.service.pipeline import Pipeline
from weft.session.planned_query import PlannedQuery
from weft.session.session import Session
from weft.stats.statistics import predicate_name

__all__ = ["analysis_of", "notes_on", "plan_queries", "plans_json", "plans_text", "unused_statistics"]


def plan_queries(pipeline: Pipeline, only: str | None) -> list[PlannedQuery]:
    """The queries that are to be shown, planned as `weft run` plans them: together with all others that are valid."""
    if only is not None and only not in pipeline.queries:
        raise ConfigError(f"the pipeline has no query {only!r}", hint=nearest(only, pipeline.queries))
    shown = []
    for name in pipeline.queries:
        try:
            planned = pipeline.plan(name, pipeline.sink(name))
        except WeftError:
            if only in (None, name):
                raise
        else:
            shown += [planned] if only in (None, name) else []
    return shown


def analysis_of(pipeline: Pipeline, only: str | None) -> Analysis:
    """Where the time and memory of the last batches went, as the pipeline's checkpoint has it; it is only read."""
    if pipeline.checkpoint is None:
        raise ConfigError("the pipeline has no checkpoint", hint="add checkpoint: DIRECTORY, and run it")
    analysis = analyse_checkpoint(pipeline.checkpoint)
    names = [bill.query for bill in analysis.bills]
    if only is not None and only not in names:
        raise ConfigError(f"no query {only!r} has run lately", hint=nearest(only, names))
    return analysis if only is None else analysis.of(only)


def plans_json(planned: PlannedQuery | list[PlannedQuery]) -> str:
    """An object for one query, an array of them for several; a graph is as `PhysicalGraph.to_json` has it."""

    def encoded(query: PlannedQuery) -> dict[str, object]:
        return {"name": query.name, "strategy": query.strategy, "graph": CODEC.encode(query.graph)}

    content = [encoded(query) for query in planned] if isinstance(planned, list) else encoded(planned)
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def plans_text(pipeline: Pipeline, planned: list[PlannedQuery], compare: bool) -> str:
    """The plans of queries for people to read, with that of all together where there are several."""
    session, graph = pipeline.session, pipeline.session.shared_graph
    parts = [shared_text(graph)] if graph is not None and len(planned) > 1 else []
    parts += [part for query in planned for part in _plan_parts(session, query, compare)]
    hop = session.options.weights.hop
    return "\n".join([*parts, f"cost: seconds of work per second of stream; a hop counts {hop:g}"])


def _plan_parts(session: Session, planned: PlannedQuery, compare: bool) -> list[str]:
    return [planned.explain(), session.compare(planned.query)] if compare else [planned.explain()]


def notes_on(pipeline: Pipeline) -> list[str]:
    """What the author of a file may want to know, though nothing is wrong: statistics that no query uses."""
    try:
        return unused_statistics(pipeline)
    except WeftError:  # a query that was not asked for is wrong: what it would use is not known
        return []


def unused_statistics(pipeline: Pipeline) -> list[str]:
    """One line for each selectivity, distinct count and heavy value that no query of the file asks for."""
    queries = [pipeline.parse(name) for name in pipeline.queries]
    asked = [(query, predicate) for query in queries for predicate in _predicates(query)]
    names = {predicate_name(query, predicate) for query, predicate in asked}
    compared = {column for query, predicate in asked for column in _compared(query, predicate)}
    statistics, file = pipeline.session.statistics, pipeline.file
    notes = [
        f"{file}, statistics.selectivity: no query uses the predicate {name}"
        for name in statistics.selectivities
        if name not in names
    ]
    return notes + [
        f"{file}, streams.{stream}.statistics.{name}: no query compares {column} for equality"
        for stream, figures in statistics.streams.items()
        for name, columns_ in (("distinct", figures.distinct), ("heavy", figures.heavy))
        for column in columns_
        if (stream, column) not in compared
    ]


def _predicates(query: Query) -> Iterator[Expr]:
    """All that a selectivity can be given for; bounds on event times are part of the windows."""
    for key in query.keys:
        for pair in combinations(key.members, 2):
            yield make_call("=", pair, BOOLEAN)
    outer = query.outer.conditions if query.outer is not None else ()
    yield from _parts(expr for expr in (*query.conditions, *outer) if not is_time_bound(query, expr))


def _parts(exprs: Iterable[Expr]) -> Iterator[Expr]:
    for expr in exprs:
        yield expr
        if isinstance(expr, Call) and expr.function in ("and", "or", "not"):
            yield from _parts(expr.args)


def _compared(query: Query, predicate: Expr) -> Iterator[tuple[str, str]]:
    """The columns, by stream, whose distinct counts tell a predicate's selectivity."""
    if isinstance(predicate, Call) and predicate.function in ("=", "<>", "in"):
        for column in columns(predicate):
            yield query.input(column.alias).stream.name, column.name
