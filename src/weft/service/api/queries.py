"""Queries: listed, planned, created, stopped, explained, and their results page by page."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

from weft.service.api.live import LiveResults
from weft.service.api.models import PlanBody, QueryBody, ResultsBody, reply
from weft.service.api.problems import PROBLEMS
from weft.service.api.sessions import TEXT
from weft.service.hub.hub import SessionHub
from weft.service.hub.values import NewQuery, PlanInfo, QueryInfo, QueryLineage

__all__ = ["queries_router"]

EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
}
Name = Annotated[str, Path(max_length=200, description="The name of a query.")]


PLANNING = 64  # threads that wait for plans

T = TypeVar("T")


def _client(request: Request) -> str:
    """By what the client of a request is told from others, as the guard has found."""
    return str(getattr(request.state, "client", ""))


async def _note_disconnect(request: Request, gone: threading.Event) -> None:
    """Wait until the client of a request, all of which has come, is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    gone.set()


def queries_router(hub: SessionHub, live: LiveResults) -> APIRouter:
    """The operations on queries."""
    router = APIRouter(prefix="/queries", tags=["queries"], responses=PROBLEMS)
    planning = ThreadPoolExecutor(
        PLANNING, "weft-plan"
    )  # its own, so that whoever waits here takes no other's place

    async def in_lane(
        act: Callable[[NewQuery, str, threading.Event], T], new: NewQuery, request: Request
    ) -> T:
        """Do what takes a plan, for the client of a request, which is noticed if it goes meanwhile."""
        gone, loop = threading.Event(), asyncio.get_running_loop()
        leaving = asyncio.ensure_future(_note_disconnect(request, gone))
        try:
            return await loop.run_in_executor(planning, act, new, _client(request), gone)
        finally:
            leaving.cancel()

    @router.get("", response_model=tuple[QueryInfo, ...])
    def queries() -> Response:
        """All queries, oldest first, stopped ones too."""
        return reply(tuple[QueryInfo, ...], hub.queries())

    @router.post("", status_code=201, response_model=QueryInfo)
    async def create(body: QueryBody, request: Request) -> Response:
        """Run a query from the next batch on; it joins new tuples with what is stored.

        It is planned as `POST /queries/plan` plans it: one at a time for each token, and for some seconds at most.
        """
        return reply(QueryInfo, await in_lane(hub.create, body.query(), request), 201)

    @router.post("/plan", response_model=PlanInfo)
    async def plan(body: PlanBody, request: Request) -> Response:
        """The plan that a query would get now, and what it would share with those that run; nothing changes.

        One plan is worked out at a time for each token; it is given up after some seconds, or when the client goes.
        """
        return reply(PlanInfo, await in_lane(hub.plan, body.query(), request))

    @router.delete("/{name}", status_code=202, response_model=QueryInfo)
    def stop(name: Name) -> Response:
        """Run a query no longer, from the next batch on; one that has stopped stays so."""
        return reply(QueryInfo, hub.stop_query(name), 202)

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

    @router.get("/{name}/lineage", response_model=QueryLineage)
    def lineage(name: Name) -> Response:
        """Where every column of a query's results comes from, and where they go, as OpenLineage names it."""
        return reply(QueryLineage, hub.lineage(name))

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

    @router.get("/{name}/results/live", response_class=StreamingResponse, responses=EVENTS)
    async def follow(
        request: Request,
        name: Name,
        after: Annotated[
            int, Query(ge=-1, le=2**62, description="Results after this number; -1: none but those to come.")
        ] = -1,
        origin: Annotated[str | None, Query(max_length=64, description="What the last event had.")] = None,
        last_event_id: Annotated[str | None, Header(max_length=100)] = None,
    ) -> Response:
        """Results of a query as they come: server-sent events `results`, each a page, and `end`, which says why."""
        if last_event_id is not None and last_event_id.rpartition(":")[2].isdecimal():
            origin, _, number = last_event_id.rpartition(":")
            after = int(number)
        events = live.open(name, after, origin, _client(request))
        return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    return router
