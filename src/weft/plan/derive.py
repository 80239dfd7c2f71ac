"""What follows from queries about the parts of their graph.

Guarantees: lowering writes these into a graph and validation derives them again, so a graph cannot say otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from weft.logical.expr import Call, Column, Expr, aliases, columns
from weft.logical.horizon import retention, time_bounds
from weft.logical.outer import Closing
from weft.logical.query import Query
from weft.logical.waiting import spans
from weft.plan.join_plan import Names
from weft.plan.routing import Equality, equalities
from weft.plan.rules import ProbeRule, Rule

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
    """What tuples of an input must satisfy by themselves."""
    return tuple(f for f in query.filters if aliases(f) == {alias})


def counts_unwanted(query: Query) -> bool:
    """Whether tuples that a query does not want count all the same: of an input counted per key, before its filters."""
    return any(input_.counted_per and filters_of(query, input_.alias) for input_ in query.inputs)


def columns_of(queries: Sequence[Query], alias: str, others: Iterable[Expr] = ()) -> tuple[Column, ...]:
    """The columns of an input that any of the queries reads, or another expression: of what closes a query, or of
    what a store is partitioned by, even if the query for which it is so has gone.
    """
    readers = [query for query in queries if alias in query.aliases]
    read = {column for query in readers for column in query.columns_of(alias)}
    read.update(column for expr in others for column in columns(expr))
    input_ = readers[0].input(alias)
    return tuple(column for column in (*input_.columns, input_.present) if column in read)


def probe_conditions(
    query: Query, known: frozenset[str], store: frozenset[str]
) -> tuple[tuple[Equality, ...], tuple[Expr, ...]]:
    """What a probe checks: the equalities it looks up by, and all else that can be checked there first."""
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
    """What a store is looked up by, in the order in which probes ask."""
    probes = [rule for rule in rules if isinstance(rule, ProbeRule) and rule.store == store]
    return tuple(dict.fromkeys(equality.stored for probe in probes for equality in probe.equalities))


def retention_of(query: Query, names: Names) -> tuple[timedelta | None, ...]:
    """Per input of a store: how much later than its tuple a partner outside can be."""
    others, bounds = frozenset(query.aliases) - set(names), time_bounds(query)
    return tuple(retention(query, alias, bounds, others) for alias in names)


def closed_retention(query: Query, closing: Closing, names: Names) -> tuple[timedelta | None, ...]:
    """The same for an input's store from which a query is closed: how long after its tuple it is of use there."""
    found = spans(query, closing.tree)
    return tuple(found[alias] for alias in names)


def widest_retention(
    queries: Mapping[str, Query], closings: Mapping[str, Closing], names: Names
) -> tuple[timedelta | None, ...]:
    """The same for the most demanding of some queries; some of them are closed from the store."""
    every = [retention_of(q, names) for n, q in queries.items() if n not in closings or closings[n].walked]
    every += [closed_retention(queries[name], closing, names) for name, closing in closings.items()]
    found = list(zip(*every, strict=True))
    return tuple(None if None in spans else max(s for s in spans if s is not None) for spans in found)
