"""The application: every operation under `/api/v1`, described by OpenAPI.

Guarantees: it says what `SessionHub` says. Every error is a problem document. Its description is at
`/api/v1/openapi.json`; no page that loads scripts from elsewhere is served. A request by a method that the description
does not have is answered with 405 and the methods there are, one for something of the API that does not exist with 404,
both as problem documents, whatever is mounted beside the API.

Answers that many ask for at the same time, such as those that dashboards show, are worked out once for all: an answer
is at most a fifth of a second old, and never older than the last change of a query or stream. Who asks while an answer
is being worked out gets that one. Only answers to questions that everybody may ask are shared, after the guard has let
the request pass, and a bounded number of them is kept.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import PlainTextResponse

import weft
from weft.service.api.guard import Guard, GuardSettings
from weft.service.api.live import LiveResults
from weft.service.api.metrics import MEDIA, Metrics
from weft.service.api.problems import PROBLEMS, Problem, handle_problems, problem_response
from weft.service.api.queries import queries_router
from weft.service.api.sessions import session_router
from weft.service.hub.hub import SessionHub

__all__ = ["PREFIX", "KnownMethods", "Service", "SharedAnswers", "make_service"]


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


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

LOOKS = frozenset(("GET", "HEAD"))
OF_PAGE = "/_nicegui"  # what the page itself talks to


class KnownMethods:
    """Stands before an application, and lets pass what it knows."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or say which would."""
        if scope["type"] == "http":
            method, path = scope["method"], scope["path"]
            known = self._known(path)
            if not known:
                await problem_response(404, f"{method} {path}: there is nothing")(scope, receive, send)
                return
            if method not in known:
                headers = {"Allow": ", ".join(sorted(known))}
                refused = problem_response(405, f"{method} is not supported here", headers=headers)
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _known(self, path: str) -> frozenset[str]:
        """The methods by which a path can be asked for; none if there is nothing."""
        if not path.startswith("/api/") and path != "/metrics":
            return LOOKS | {"POST"} if path.startswith(OF_PAGE) else LOOKS
        if path == self._app.openapi_url:
            return LOOKS
        return frozenset().union(*(methods for form, methods in self._forms if form.fullmatch(path)))

    @cached_property
    def _forms(self) -> list[tuple[re.Pattern[str], frozenset[str]]]:
        """The forms that paths have in the description, each with its methods."""
        found = self._app.openapi()["paths"].items()
        return [
            (
                re.compile(re.sub(r"\\\{[^}]*\\\}", "[^/]+", re.escape(template))),
                frozenset(method.upper() for method in methods),
            )
            for template, methods in found
        ]


Message = MutableMapping[str, Any]

FRESH = 0.2  # seconds for which an answer is given again
KEPT = 64
NAMES = (
    *("overview", "streams", "queries", "batches", "graph", "explain", "plan-history", "statistics"),
    *("state", "dead-letters"),
)
PATHS = frozenset(("/metrics", *(f"/api/v1/{name}" for name in NAMES)))


@dataclass(frozen=True, slots=True)
class _Answer:
    """What an application answered, when it was asked, and the error if it failed."""

    messages: tuple[Message, ...]
    at: float
    error: Exception | None = None

    @property
    def can_be_given_again(self) -> bool:
        return self.error is None and bool(self.messages) and self.messages[0].get("status") == 200


class SharedAnswers:
    """Stands before an application; ``changes`` is how often something that answers depend on was changed."""

    def __init__(
        self, app: Any, changes: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app, self._changes, self._clock = app, changes, clock
        self._answers: dict[tuple[object, ...], asyncio.Future[_Answer]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with what was just answered, or let it pass."""
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] not in PATHS:
            await self._app(scope, receive, send)
            return
        key = scope["path"], scope.get("query_string", b""), self._changes()
        known = self._answers.get(key)
        if known is None or (known.done() and not self._is_fresh(known)):
            known = self._ask(key, scope, receive)
        answer = await asyncio.shield(known)
        for message in answer.messages:
            await send(message)
        if answer.error is not None:
            raise answer.error

    def _is_fresh(self, known: asyncio.Future[_Answer]) -> bool:
        if known.cancelled():
            return False
        answer = known.result()
        return answer.can_be_given_again and self._clock() - answer.at < FRESH

    def _ask(self, key: tuple[object, ...], scope: Scope, receive: Receive) -> asyncio.Future[_Answer]:
        """Have an answer worked out, for all who ask from now on."""
        while len(self._answers) >= KEPT:
            self._answers.pop(next(iter(self._answers)))
        self._answers.pop(key, None)
        made = self._answers[key] = asyncio.ensure_future(self._answer(scope, receive))
        return made

    async def _answer(self, scope: Scope, receive: Receive) -> _Answer:
        began, messages = self._clock(), list[Message]()

        async def collect(message: Message) -> None:
            messages.append(message)

        error: Exception | None = None
        try:
            await self._app(scope, receive, collect)
        except Exception as failure:  # those who wait are told, as if each had asked alone
            error = failure
        return _Answer(tuple(messages), began, error)
