"""A session as a whole: its health, streams, graph, plans, batches, statistics, dead letters and state."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import PlainTextResponse

from weft.service.api.models import StreamBody, WatermarkBody, reply
from weft.service.api.problems import PROBLEMS, problem_response
from weft.service.hub.hub import SessionHub
from weft.service.hub.values import (
    BatchInfo,
    DeadLetterInfo,
    FigureInfo,
    GraphInfo,
    Health,
    Overview,
    PlanChangeInfo,
    StreamInfo,
)

__all__ = ["session_router"]

TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
LINES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}}
}


def session_router(hub: SessionHub) -> APIRouter:
    """The operations on everything but queries."""
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

    @router.post("/streams", status_code=201, tags=["streams"], response_model=StreamInfo)
    def add(body: StreamBody) -> Response:
        """Follow one more stream from the next batch on, if the operator's file allows its source."""
        return reply(StreamInfo, hub.add_stream(body.stream()), 201)

    @router.delete("/streams/{name}", status_code=202, tags=["streams"], response_model=StreamInfo)
    def remove(name: str) -> Response:
        """Follow a stream no longer that was added and that no query reads."""
        return reply(StreamInfo, hub.remove_stream(name), 202)

    @router.put("/streams/{name}/watermark", status_code=202, tags=["streams"], response_model=StreamInfo)
    def set_watermark(name: str, body: WatermarkBody) -> Response:
        """Set a watermark that a record with a wrong time has moved, from the next batch on."""
        return reply(StreamInfo, hub.set_watermark(name, body.to), 202)

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

    @router.get("/state", tags=["session"], response_model=dict[str, Any])
    def state() -> Response:
        """What the checkpoint holds after the last committed batch; times in microseconds since 1970."""
        return reply(dict[str, Any], hub.state())

    @router.get("/dead-letters", tags=["dead letters"], response_model=tuple[DeadLetterInfo, ...])
    def dead_letters() -> Response:
        """The batches that had bad records, oldest first."""
        return reply(tuple[DeadLetterInfo, ...], hub.dead_letters())

    @router.get("/dead-letters/{batch}", tags=["dead letters"], response_class=Response, responses=LINES)
    def dead_letter(batch: Annotated[int, Path(ge=0, lt=10**12)]) -> Response:
        """The bad records of a batch, as lines of JSON."""
        named = {"Content-Disposition": f'attachment; filename="batch-{batch:012d}.jsonl"'}
        return Response(hub.dead_letter(batch), media_type="application/x-ndjson", headers=named)

    return router
