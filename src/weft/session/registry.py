"""What users have registered in a session: sources of streams, tables, functions, and queries with their sinks.

Guarantees: no two queries that have not stopped have the same name or the same sink.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from weft.adapting.planner import StartPlan
from weft.errors import CatalogError
from weft.logical.nested.nested import defined_streams, read_streams
from weft.logical.outer.group_closing import check_groups
from weft.logical.outer.waiting import check_closing
from weft.logical.query.query import Query
from weft.ports.sink import Sink
from weft.ports.source import Source
from weft.ports.table import RegisteredTable
from weft.runtime.queries.request import QueryRequest, is_inner
from weft.runtime.wire.functions import PackedFunction
from weft.session.planned_query import Owner, PlannedQuery
from weft.session.validation import check_free, check_readable, free_name

if TYPE_CHECKING:
    from weft.runtime.loop.loop import Loop

__all__ = ["Registered"]


@dataclass
class Registered:
    """The sources, tables and functions of a session, and its queries, oldest first; those with a sink have a request.

    A query that does not begin together with the others, since it has no sink or came while they ran, has a plan of
    its own in ``alone``.
    """

    sources: dict[str, Source] = field(default_factory=dict)
    tables: dict[str, RegisteredTable] = field(default_factory=dict)
    functions: dict[str, PackedFunction] = field(default_factory=dict)
    queries: dict[str, PlannedQuery] = field(default_factory=dict)
    requests: dict[str, QueryRequest] = field(default_factory=dict)
    sinks: dict[str, Sink] = field(default_factory=dict)
    alone: dict[str, StartPlan] = field(default_factory=dict)

    def free_name(
        self,
        name: str | None,
        sink: Sink | None,
        stopped: Collection[str],
        query_limit: int,
        streams: Collection[str],
    ) -> str:
        """A query's name, if it and its sink are free; one more query than there may be is refused."""
        chosen = free_name(name, [known for known in self.queries if known not in stopped], streams)
        if sink is not None:
            check_free(sink, self.sinks, stopped, query_limit)
        return chosen

    def definitions(self, stopped: Collection[str]) -> dict[str, Query]:
        """The queries that have not stopped, by name."""
        return {name: planned.query for name, planned in self.queries.items() if name not in stopped}

    def add(self, planned: PlannedQuery, request: QueryRequest, alone: StartPlan | None = None) -> None:
        """Take a query in under its name, with a plan of its own if it does not begin together with the others."""
        name = planned.name
        self.queries[name] = planned
        if planned.sink is not None:
            self.requests[name], self.sinks[name] = request, planned.sink
        self.alone.pop(name, None)
        if alone is not None:
            self.alone[name] = replace(alone, results={})

    def check_runnable(self, requests: Mapping[str, QueryRequest], *, ends: bool) -> None:
        """Refuse queries over streams without a source, and those that wait for an end of input that never comes."""
        for name, request in requests.items() if not ends else ():
            query = request.query.renamed(dict(request.names))
            check_closing(query, name)
            check_groups(query, name)
            for inner in (one for stream in defined_streams(query).values() for one in stream.definition):
                check_groups(inner, name)
            if query.sorting is not None:
                query.sorting.check_ends(name)
        check_readable(requests, {*self.sources, *self.tables})

    def check_unread(self, stream: str, stopped: Collection[str]) -> None:
        """Refuse to let go of a stream that a query reads which has not stopped."""
        for name, planned in list(self.queries.items()):
            if name not in stopped and any(one.name == stream for one in read_streams(planned.query)):
                raise CatalogError(f"query {name} reads stream {stream}", hint=f"stop query {name} first")

    def check_undefined(self, stream: str) -> None:
        """Refuse a stream under the name that the sub-select of a query has."""
        for name, planned in list(self.queries.items()):
            if stream in defined_streams(planned.query):
                raise CatalogError(
                    f"a sub-select of query {name} is already called {stream}", hint="choose another name"
                )

    def restore(self, loop: Loop, session: Owner, strategy: str) -> None:
        """Take in the queries that were asked for while an earlier run went on, and that run again now, or will."""
        for name, request in loop.known.items():
            if name not in self.queries and not is_inner(request):
                query = request.query.renamed(dict(request.names))
                order = request.ordering and request.ordering.renamed(dict(request.names))
                chosen = request.strategy or strategy
                self.add(PlannedQuery(name, query, chosen, session, loop.sinks[name], order), request)

    @property
    def starting(self) -> dict[str, QueryRequest]:
        """The queries that begin together when the session starts."""
        return {name: one for name, one in self.requests.items() if name not in self.alone}

    @property
    def runnable(self) -> Mapping[str, tuple[QueryRequest, Sink]]:
        """The queries that have a sink, each with it."""
        return {name: (request, self.sinks[name]) for name, request in self.requests.items()}
