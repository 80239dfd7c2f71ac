"""The order of predicates, by which probes choose what to search by: the most selective ones come first.

Guarantees: the two bounds of a band count with the selectivity of the band, not with their own. Predicates of a running
graph keep their order, since the stored tuples were sorted by it.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.logical.expr.expression import Expr
from weft.logical.query.query import Query
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.rules import ProbeRule
from weft.stats.estimate import Estimator
from weft.stats.statistics import Statistics

__all__ = ["rank_predicates"]


def rank_predicates(
    queries: Iterable[Query], statistics: Statistics, running: PhysicalGraph | None = None
) -> tuple[Expr, ...]:
    """The predicates between inputs of some queries, the one most worth searching by first."""
    found: dict[Expr, float] = {}
    for query in queries:
        for predicate in query.predicates:
            found.setdefault(predicate, statistics.selectivity(query, predicate))
        for band in Estimator(query, statistics).bands:
            for bound in (band.low, band.high):
                found[bound.predicate] = statistics.band(query, band)
    rules = () if running is None else (r for r in running.rules if isinstance(r, ProbeRule))
    before = dict.fromkeys(predicate for rule in rules for predicate in rule.predicates)
    return (*before, *(p for p in sorted(found, key=lambda p: (found[p], str(p))) if p not in before))
