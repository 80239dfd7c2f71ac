"""A query as its author asks for it: what its text means together with the keywords of `Session.query`.

Guarantees: a query whose text and keywords do not go together is refused before anything has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from weft.connectors.sink_descriptions import describe_sink
from weft.errors import QueryError
from weft.logical.catalog import Catalog
from weft.logical.nested.flatten import Note
from weft.logical.outer.group_closing import with_mode
from weft.logical.outer.waiting import limit_waiting
from weft.logical.query.canonical import canonical
from weft.logical.query.grouping import APPEND, UPDATE
from weft.logical.query.ordering import (
    EVENT,
    Ordering,
    check_ordering,
    check_sorting,
    leaves_by_time,
    ordering_of,
)
from weft.logical.query.query import Query
from weft.optimizer.space import check_inputs
from weft.ports.sink import Sink
from weft.runtime.queries.request import QueryRequest
from weft.session.planned_query import Owner, PlannedQuery
from weft.session.settings import Settings, TimeSpan
from weft.session.validation import check_backfill, duration_of, options_for
from weft.sql.bind import bind, input_order
from weft.sql.statement import Statement

__all__ = ["BoundQuery", "bind_query", "request_of"]


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A query with every name looked up, the strategy it is planned by, and the order its results leave in.

    ``notes`` say what became of its sub-selects.
    """

    query: Query
    strategy: str
    ordering: Ordering | None
    notes: tuple[Note, ...]

    @property
    def keys(self) -> tuple[str, ...] | None:
        """The columns by which later results replace earlier ones; None if results are only added."""
        grouping = self.query.grouping
        return grouping.shown_keys() if grouping is not None and grouping.mode == UPDATE else None

    def named(self, name: str, session: Owner, sink: Sink | None = None) -> PlannedQuery:
        """The query of a session, under a name, with a sink if it is to run."""
        return PlannedQuery(name, self.query, self.strategy, session, sink, self.ordering, self.notes)


def bind_query(
    statement: Statement,
    catalog: Catalog,
    settings: Settings,
    *,
    strategy: str | None = None,
    cross: bool = False,
    backfill: bool = False,
    emit_unmatched_after: timedelta | str | None = None,
    order: str = "none",
    precision: int | None = None,
    mode: str = APPEND,
) -> BoundQuery:
    """What a statement means with the streams and queries of a catalog; the keywords are those of `Session.query`."""
    options = options_for(settings.options, strategy)
    query, notes = bind(statement, catalog, cross=cross, limits=settings.limits)
    query = with_mode(query, mode)
    if backfill:
        check_backfill(query)
    if emit_unmatched_after is not None:
        query = limit_waiting(query, duration_of(emit_unmatched_after, "emit_unmatched_after"))
    check_inputs(query, options)
    ordering = ordering_of(order, precision)
    if query.sorting is not None:
        check_sorting(query, order)
        if leaves_by_time(query):
            query, ordering = replace(query, sorting=None, projection=query.shown), Ordering(EVENT)
    if ordering is not None and query.grouping is not None:
        raise QueryError(
            f"groups leave when they are complete, and not in the order {order!r}", hint="leave out order"
        )
    if ordering is not None:
        check_ordering(query, ordering, backfill=backfill)
        if ordering.is_inner:
            ordering = replace(ordering, inputs=input_order(statement, catalog))
    return BoundQuery(query, options.strategy, ordering, notes)


def request_of(
    planned: PlannedQuery,
    strategy: str | None = None,
    backfill: bool = False,
    latency: timedelta | str | None = None,
) -> QueryRequest:
    """What the runtime is asked for: a query under names that do not depend on its author's, who gets them back."""
    common = canonical(planned.query)
    ordering = planned.ordering and planned.ordering.renamed({old: new for new, old in common.names})
    sink = describe_sink(planned.sink) if planned.sink is not None else None
    target = None if latency is None else TimeSpan("latency").span(latency).total_seconds()
    return QueryRequest(common.query, common.names, strategy, backfill, sink, ordering, target)
