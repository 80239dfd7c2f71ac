"""Properties of the parts of a graph that follow from its queries.

Guarantees: lowering writes these properties into a graph and validation derives them again, so a graph with others is
refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from weft.logical.expr.expression import Call, Column, Expr, aliases, columns
from weft.logical.outer.outer import Closing
from weft.logical.outer.waiting import spans
from weft.logical.query.horizon import retention, time_bounds
from weft.logical.query.query import Query
from weft.plan.join_plan import Names
from weft.plan.physical.rules import ProbeRule, Rule
from weft.plan.routing import Equality, equalities

__all__ = [
    "closed_retention",
    "columns_of",
    "counts_unwanted",
    "filters_of",
    "indexes_of",
    "probe_conditions",
    "retention_of",
    "widest_retention",
]


def filters_of(query: Query, alias: str) -> tuple[Expr, ...]:
    """The filters of a query that concern this input alone."""
    return tuple(f for f in query.filters if aliases(f) == {alias})


def counts_unwanted(query: Query) -> bool:
    """Whether a query counts tuples that its filters reject, since an input is counted per key before filters."""
    return any(input_.counted_per and filters_of(query, input_.alias) for input_ in query.inputs)


def columns_of(queries: Sequence[Query], alias: str, others: Iterable[Expr] = ()) -> tuple[Column, ...]:
    """The columns of an input that any of the queries, or any of the other expressions, reads.

    The others are conditions that close queries, and the values by which stores are partitioned, perhaps for a query
    that has since stopped.
    """
    readers = [query for query in queries if alias in query.aliases]
    read = {column for query in readers for column in query.columns_of(alias)}
    read.update(column for expr in others for column in columns(expr))
    input_ = readers[0].input(alias)
    return tuple(column for column in (*input_.columns, *input_.unnamed) if column in read)


def probe_conditions(
    query: Query, known: frozenset[str], store: frozenset[str]
) -> tuple[tuple[Equality, ...], tuple[Expr, ...]]:
    """The equalities that a probe looks up by, and all other predicates that can be checked there and not before."""
    lookups = equalities(query, known, store)
    sides = {frozenset((equality.probe, equality.stored)) for equality in lookups}
    found = [
        predicate
        for predicate in (*query.predicates, *query.residuals)
        if aliases(predicate) <= known | store
        and not aliases(predicate) <= known
        and not aliases(predicate) <= store
    ]
    return lookups, tuple(predicate for predicate in found if not _looked_up(predicate, sides))


def _looked_up(predicate: Expr, sides: set[frozenset[Expr]]) -> bool:
    """Whether a predicate is one of the equalities between these sides."""
    return isinstance(predicate, Call) and predicate.function == "=" and frozenset(predicate.args) in sides


def indexes_of(rules: Iterable[Rule], store: str) -> tuple[Expr, ...]:
    """The expressions that probes look a store up by, in the order of the probes."""
    probes = [rule for rule in rules if isinstance(rule, ProbeRule) and rule.store == store]
    return tuple(dict.fromkeys(equality.stored for probe in probes for equality in probe.equalities))


def retention_of(query: Query, names: Names) -> tuple[timedelta | None, ...]:
    """For each input of a store, how much later than its tuple a partner outside of the store can be."""
    others, bounds = frozenset(query.aliases) - set(names), time_bounds(query)
    return tuple(retention(query, alias, bounds, others) for alias in names)


def closed_retention(query: Query, closing: Closing, names: Names) -> tuple[timedelta | None, ...]:
    """The retention of an input's store from which a query is closed: how long after its time a tuple is of use."""
    found = spans(query, closing.tree)
    return tuple(found[alias] for alias in names)


def widest_retention(
    queries: Mapping[str, Query], closings: Mapping[str, Closing], names: Names
) -> tuple[timedelta | None, ...]:
    """For each input of a store, the longest retention that any of the queries, or of those closed from it, needs."""
    every = [retention_of(q, names) for n, q in queries.items() if n not in closings or closings[n].walked]
    every += [closed_retention(queries[name], closing, names) for name, closing in closings.items()]
    found = list(zip(*every, strict=True))
    return tuple(None if None in spans else max(s for s in spans if s is not None) for spans in found)
