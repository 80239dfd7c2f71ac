"""Where the tuples of a graph are, edge by edge.

Guarantees: lowering takes its edges from here and validation derives them again, so a graph with other edges is
refused. What `schedule.py` says of one query holds for all queries that share a step, since they join alike up to
there. A query that does not join on the value by which a store is partitioned treats the store as scattered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from weft.logical.expr.expression import Expr, Literal
from weft.logical.query.query import Query
from weft.plan.join_plan import Layout, Names
from weft.plan.routing import Routing
from weft.plan.schedule import (
    ALL,
    GROUP_BY,
    LOCAL,
    NO_KEY,
    SHUFFLE,
    SPAN,
    ProbePlace,
    Spread,
    start,
    step,
    store_edge,
)

__all__ = [
    "EdgeChoice",
    "Home",
    "TuplePlace",
    "entry_edge",
    "first_step",
    "is_foreign",
    "keeps_nulls",
    "next_step",
    "storing_edge",
]

# Stands for a key by which no tuple is placed.
_ELSEWHERE = -2


@dataclass(frozen=True, slots=True)
class TuplePlace:
    """Where matches are: their hop, and the value that decided their task; a ``heavy`` one may be in any task."""

    hop: int
    by: Expr | None
    heavy: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EdgeChoice:
    """An edge to take: its kind, its hop, the values it may group by, and the edge it rides on; it leads to ``at``.

    A span ends at the value ``until``. Tuples with a value of ``heavy`` are routed apart (see `Edge`).
    """

    kind: str
    hop: int
    by: tuple[Expr | None, ...]
    rides: str | None
    at: TuplePlace
    until: Expr | None = None
    heavy: tuple[Literal, ...] = ()


@dataclass(frozen=True, slots=True)
class Home:
    """A store of an input, with the edge by which the input's own tuples reach it."""

    edge: str
    layout: Layout


@lru_cache(maxsize=1024)
def _routing(query: Query) -> Routing:
    return Routing(query)


def _spread(query: Query, layout: Layout) -> Spread:
    """A layout as routing sees it; partitioned by a value that the query does not join on, it counts as scattered."""
    spread = _routing(query).spread(layout)
    return Spread("scattered") if spread.kind == "partitioned" and spread.key == NO_KEY else spread


def _key(query: Query, by: Expr | None) -> int:
    found = NO_KEY if by is None else _routing(query).number(by)
    return _ELSEWHERE if found == NO_KEY else found


def is_foreign(query: Query, layout: Layout) -> bool:
    """Whether a store is partitioned by a value that a query does not join on, so that tuples with NULL matter."""
    return layout.by is not None and _routing(query).number(layout.by) == NO_KEY


def keeps_nulls(queries: Iterable[Query], layout: Layout, past: bool) -> bool:
    """Whether tuples with NULL for the partitioning value are stored: a query joins on another, or may (``past``)."""
    return past or any(is_foreign(query, layout) for query in queries)


def entry_edge(layout: Layout) -> EdgeChoice:
    """The edge of an arriving tuple into a store of its input."""
    kind = {"partitioned": GROUP_BY, "scattered": SHUFFLE, "replicated": ALL}[layout.kind]
    by = layout.by if kind == GROUP_BY else None
    return EdgeChoice(kind, 1, (by,), None, TuplePlace(1, layout.by), heavy=layout.heavy)


def first_step(query: Query, alias: str, homes: Iterable[Home], target: Layout, complete: int) -> EdgeChoice:
    """The edge of an arriving tuple to the first store it probes; it rides on one that stores, if that leads there."""
    spread, known = _spread(query, target), frozenset({alias})
    routable = _is_routable(query, spread, known)
    for home in homes:
        place = start(_spread(query, home.layout))
        kind, there = step(place, spread, complete, routable)
        if kind == LOCAL and not is_foreign(query, home.layout):
            at = TuplePlace(there.hop, home.layout.by, there.heavy)
            sent = target.heavy or (home.layout.heavy and target.kind != "replicated")
            by = _routing(query).ways(spread.key, known) if sent else (None,)
            return EdgeChoice(LOCAL, there.hop, by, home.edge, at, heavy=target.heavy)
    kind, there = step(ProbePlace(0, _ELSEWHERE, True), spread, complete, routable)
    return _sent(query, kind, there.hop, known, target)


def next_step(query: Query, known: Names, at: TuplePlace, target: Layout, complete: int) -> EdgeChoice:
    """The edge of matches to the next store they probe."""
    spread = _spread(query, target)
    routable = _is_routable(query, spread, frozenset(known))
    kind, there = step(ProbePlace(at.hop, _key(query, at.by), False, at.heavy), spread, complete, routable)
    if kind == LOCAL:
        return EdgeChoice(LOCAL, there.hop, (None,), None, TuplePlace(there.hop, at.by, there.heavy))
    return _sent(query, kind, there.hop, frozenset(known), target)


def _is_routable(query: Query, spread: Spread, known: frozenset[str]) -> bool:
    routing = _routing(query)
    return bool(routing.ways(spread.key, known)) or routing.span(spread.key, known) is not None


def _sent(query: Query, kind: str, hop: int, known: frozenset[str], target: Layout) -> EdgeChoice:
    routing, spread = _routing(query), _spread(query, target)
    key, at = spread.key, TuplePlace(hop, target.by, spread.heavy)
    if kind == GROUP_BY:
        return EdgeChoice(kind, hop, routing.ways(key, known), None, at, heavy=target.heavy)
    span = routing.span(key, known) if kind == SPAN else None
    if span is not None:
        return EdgeChoice(kind, hop, (span.first,), None, at, span.last)
    return EdgeChoice(kind, hop, (None,), None, TuplePlace(hop, None) if kind == SHUFFLE else at)


def storing_edge(query: Query, at: TuplePlace, layout: Layout) -> EdgeChoice:
    """The edge of matches into the store that keeps them."""
    known = _routing(query).spread(layout)
    spread = known._replace(key=_key(query, layout.by) if layout.by is not None else NO_KEY)
    here = _key(query, at.by)
    place = ProbePlace(at.hop, _ELSEWHERE - 1 if here == _ELSEWHERE else here, False, at.heavy)
    kind, hop = store_edge(place, spread)
    sent = kind == GROUP_BY
    there = TuplePlace(hop, layout.by, spread.heavy)
    return EdgeChoice(
        kind, hop, (layout.by if sent else None,), None, there, heavy=layout.heavy if sent else ()
    )
