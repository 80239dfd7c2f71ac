"""Statistics in a pipeline file that no query uses.

Guarantees: a figure is reported if and only if no query of the pipeline asks for it; what a query asks for is what
`stats.estimate` looks up of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

from weft.logical.expr.expression import BOOLEAN, Call, Expr, columns, make_call
from weft.logical.query.horizon import is_time_bound
from weft.logical.query.query import Query
from weft.service.pipeline import Pipeline
from weft.stats.statistics import predicate_name

__all__ = ["unused_statistics"]


def unused_statistics(pipeline: Pipeline) -> list[str]:
    """One line for each selectivity, distinct count and heavy value that no query of the file asks for."""
    queries = [pipeline.parse(name) for name in pipeline.queries]
    asked = [(query, predicate) for query in queries for predicate in _predicates(query)]
    names = {predicate_name(query, predicate) for query, predicate in asked}
    compared = {found for query, predicate in asked for found in _compared(query, predicate)}
    statistics, file = pipeline.session.statistics, pipeline.file
    notes = [
        f"{file}, statistics.selectivity: no query uses the predicate {name}"
        for name in statistics.selectivities
        if name not in names
    ]
    return notes + [
        f"{file}, streams.{stream}.statistics.{name}: no query compares {column} for equality"
        for stream, found in statistics.streams.items()
        for name, columns_ in (("distinct", found.distinct), ("heavy", found.heavy))
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
