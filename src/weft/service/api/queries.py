"""Queries: listed, planned, created, stopped, explained, and their results page by page."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import PlainTextResponse

from weft.service.api.models import ResultsBody
from weft.service.api.problems import PROBLEMS
from weft.service.api.reading import TEXT
from weft.service.api.replies import reply
from weft.service.hub.hub import SessionHub
from weft.service.hub.values import QueryInfo

__all__ = ["queries_router"]

Name = Annotated[str, Path(max_length=200, description="The name of a query.")]


def queries_router(hub: SessionHub) -> APIRouter:
    """The operations on queries."""
    router = APIRouter(prefix="/queries", tags=["queries"], responses=PROBLEMS)

    @router.get("", response_model=tuple[QueryInfo, ...])
    def queries() -> Response:
        """All queries, oldest first, stopped ones too."""
        return reply(tuple[QueryInfo, ...], hub.queries())

    @router.get("/{name}", response_model=QueryInfo)
    def query(name: Name) -> Response:
        """A query, and how it gets on."""
        return reply(QueryInfo, hub.query(name))

    @router.get("/{name}/explain", response_class=PlainTextResponse, responses=TEXT)
    def explain(name: Name) -> Response:
        """The plan of a query as text."""
        return PlainTextResponse(hub.explain(name))

    @router.get("/{name}/graph", response_model=dict[str, Any])
    def graph(name: Name) -> Response:
        """The plan of a query as data: the graph that answers it."""
        return reply(dict[str, Any], hub.graph_of(name))

    @router.get("/{name}/results", response_model=ResultsBody)
    def results(
        name: Name,
        after: Annotated[
            int, Query(ge=-1, le=2**62, description="Results after this number; -1: none but those to come.")
        ] = 0,
        limit: Annotated[int, Query(ge=1, le=1000, description="At most so many.")] = 100,
        origin: Annotated[str | None, Query(max_length=64, description="What the last page had.")] = None,
    ) -> Response:
        """Results of a query that the service keeps, after a number; how many are gone is said."""
        page = hub.results(name, after, limit, origin=origin)
        return Response(page.json, media_type="application/json")

    return router
