"""How a query is wanted: what its author says besides its text.

Guarantees: a query whose text and wishes do not go together is refused before anything has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from weft.connectors.sink_descriptions import sink_for
from weft.logical.catalog import Catalog
from weft.logical.outer.waiting import limit_waiting
from weft.logical.query.query import Query
from weft.optimizer.space import Options, check_inputs
from weft.ports.sink import Sink
from weft.runtime.queries.request import QueryRequest
from weft.session.planned_query import Owner, PlannedQuery
from weft.session.registry import request_of
from weft.session.validation import check_backfill, duration_of, options_for, ordering_for
from weft.sql.builder import Builder

__all__ = ["Wishes"]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the keywords of `Session.query` say, apart from the name."""

    sink: Sink | None = None
    strategy: str | None = None
    backfill: bool = False
    emit_unmatched_after: timedelta | str | None = None
    order: str = "none"
    precision: int | None = None

    def request(
        self, name: str, text: str | Builder, parsed: Query, catalog: Catalog, options: Options, owner: Owner
    ) -> tuple[PlannedQuery, QueryRequest]:
        """A query of that name as it is wanted, by the options of its session, and the request that it becomes."""
        options = options_for(options, self.strategy)
        if self.backfill:
            check_backfill(parsed)
        if self.emit_unmatched_after is not None:
            wait = duration_of(self.emit_unmatched_after, "emit_unmatched_after")
            parsed = limit_waiting(parsed, wait)
        check_inputs(parsed, options)
        ordering = ordering_for(text, parsed, catalog, self.order, self.precision, backfill=self.backfill)
        sink = sink_for(self.sink, ordering)
        planned = PlannedQuery(name, parsed, options.strategy, owner, sink, ordering)
        return planned, request_of(planned, self.strategy, self.backfill)
