"""The application: every operation under `/api/v1`, described by OpenAPI.

Guarantees: it says what `SessionHub` says. Every error is a problem document. Its description is at
`/api/v1/openapi.json`; no page that loads scripts from elsewhere is served.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI

import weft
from weft.service.api.problems import Problem, handle_problems
from weft.service.api.queries import queries_router
from weft.service.api.reading import reading_router
from weft.service.hub.hub import SessionHub

__all__ = ["PREFIX", "make_app"]

PREFIX = "/api/v1"


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


def make_app(hub: SessionHub) -> FastAPI:
    """The application over a hub."""
    app = _App(
        title="Weft",
        version=weft.__version__,
        description="Streams, queries and plans of a running session.",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    handle_problems(app)
    every = APIRouter(prefix=PREFIX)
    every.include_router(reading_router(hub))
    every.include_router(queries_router(hub))
    app.include_router(every)
    return app
