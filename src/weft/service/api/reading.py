"""What can be read of a session: its health, streams, graph, plans, batches, statistics, dead letters and state."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse

from weft.service.api.problems import PROBLEMS, problem_response
from weft.service.api.replies import reply
from weft.service.hub.hub import SessionHub
from weft.service.hub.values import (
    BatchInfo,
    FigureInfo,
    GraphInfo,
    Health,
    Overview,
    PlanChangeInfo,
    StreamInfo,
)

__all__ = ["reading_router"]

TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}


def reading_router(hub: SessionHub) -> APIRouter:
    """The operations that change nothing."""
    router = APIRouter(responses=PROBLEMS)

    @router.get("/health/live", tags=["health"], response_model=dict[str, str])
    async def live() -> Response:
        """Whether the service answers."""
        return reply(dict[str, str], {"status": "live"})

    @router.get("/health/ready", tags=["health"], response_model=dict[str, str])
    def ready() -> Response:
        """Whether the session runs; if not, 503, and `/health` says why."""
        health = hub.health()
        if not health.ready:
            return problem_response(503, f"the session is {health.state}", headers={"Retry-After": "1"})
        return reply(dict[str, str], {"status": "ready"})

    @router.get("/health", tags=["health"], response_model=Health)
    def health() -> Response:
        """The state of the session; if it failed, why."""
        return reply(Health, hub.health())

    @router.get("/overview", tags=["session"], response_model=Overview)
    def overview() -> Response:
        """The session at a moment: health, figures, streams, queries, stores."""
        return reply(Overview, hub.overview())

    @router.get("/streams", tags=["streams"], response_model=tuple[StreamInfo, ...])
    def streams() -> Response:
        """All streams, by name."""
        return reply(tuple[StreamInfo, ...], hub.streams())

    @router.get("/streams/{name}", tags=["streams"], response_model=StreamInfo)
    def stream(name: str) -> Response:
        """A stream."""
        return reply(StreamInfo, hub.stream(name))

    @router.get("/graph", tags=["plans"], response_model=GraphInfo)
    def graph() -> Response:
        """The graph that all queries run by together, with what its parts did in the last batch."""
        return reply(GraphInfo, hub.graph())

    @router.get("/explain", tags=["plans"], response_class=PlainTextResponse, responses=TEXT)
    def explain() -> Response:
        """The plans of all queries as text: what is expected of every step, and what was observed."""
        return PlainTextResponse(hub.explain())

    @router.get("/plan-history", tags=["plans"], response_model=tuple[PlanChangeInfo, ...])
    def plan_history() -> Response:
        """Every change of the plan because the data changed, oldest first."""
        return reply(tuple[PlanChangeInfo, ...], hub.plan_history())

    @router.get("/batches", tags=["session"], response_model=tuple[BatchInfo, ...])
    def batches(
        after: Annotated[int, Query(ge=-1, le=2**62, description="Only batches after this number.")] = -1,
        limit: Annotated[int, Query(ge=1, le=1000, description="At most so many, the last ones.")] = 100,
    ) -> Response:
        """The last batches, oldest first: how long each took, what came in and what went out."""
        return reply(tuple[BatchInfo, ...], hub.batches(after, limit))

    @router.get("/statistics", tags=["plans"], response_model=tuple[FigureInfo, ...])
    def statistics() -> Response:
        """What is known of every stream and predicate: value, source, age and evidence."""
        return reply(tuple[FigureInfo, ...], hub.statistics())

    return router
