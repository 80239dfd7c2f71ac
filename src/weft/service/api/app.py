"""The application: every operation under `/api/v1`, described by OpenAPI.

Guarantees: it says what `SessionHub` says. Every error is a problem document. Its description is at
`/api/v1/openapi.json`; no page that loads scripts from elsewhere is served.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import PlainTextResponse

import weft
from weft.service.api.guard import Guard, GuardSettings
from weft.service.api.live import LiveResults
from weft.service.api.methods import KnownMethods
from weft.service.api.metrics import Metrics
from weft.service.api.openmetrics import MEDIA
from weft.service.api.problems import PROBLEMS, Problem, handle_problems
from weft.service.api.queries import queries_router
from weft.service.api.sessions import session_router
from weft.service.api.shared_answers import SharedAnswers
from weft.service.hub.hub import SessionHub

__all__ = ["PREFIX", "Service", "make_service"]

PREFIX = "/api/v1"
_METRICS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/openmetrics-text": {"schema": {"type": "string"}}}},
    **PROBLEMS,
}


class _App(FastAPI):
    """An application whose description has the problem document once, for all operations."""

    def openapi(self) -> dict[str, Any]:
        """The description."""
        if self.openapi_schema is None:
            found = super().openapi()
            schemas = found.setdefault("components", {}).setdefault("schemas", {})
            schemas["Problem"] = Problem.model_json_schema()
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
        return super().openapi()


@dataclass(frozen=True, slots=True)
class Service:
    """The application as it is served, behind its guard; ``app`` is what a page is mounted into."""

    app: FastAPI
    guarded: Guard
    live: LiveResults
    metrics: Metrics


def make_service(hub: SessionHub, settings: GuardSettings | None = None) -> Service:
    """The application over a hub, guarded as the settings say."""
    app = _App(
        title="Weft",
        version=weft.__version__,
        description="Streams, queries and plans of a running session.",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    settings, serving = settings or GuardSettings(), hub.pipeline.serving
    each = serving.live_readers if settings.tokens is None else serving.live_readers_each
    live = LiveResults(hub, serving.live_readers, each)  # without tokens, all clients are this machine
    metrics = Metrics(hub, lambda: live.readers)
    handle_problems(app)
    every = APIRouter(prefix=PREFIX)
    every.include_router(session_router(hub))
    every.include_router(queries_router(hub, live))
    app.include_router(every)

    @app.get("/metrics", tags=["health"], response_class=PlainTextResponse, responses=_METRICS)
    def scrape() -> Response:
        """All metrics, as OpenMetrics writes them, for Prometheus."""
        return Response(metrics.text(), media_type=MEDIA)

    shared = SharedAnswers(KnownMethods(app), lambda: hub.changes)
    return Service(app, Guard(shared, settings, metrics.request), live, metrics)
