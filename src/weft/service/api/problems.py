"""Errors as problem documents (RFC 9457).

Guarantees: whatever goes wrong, the answer is one JSON object with a title, a status and a detail; an error about a
query's text has the place, the excerpt with its caret and the hint as fields of their own. Nothing internal is told: of
an error that is not Weft's, only that there was one, with a number under which the log has it.
"""

from __future__ import annotations

import json
import logging
import secrets
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from weft.errors import CatalogError, QueryError, SqlError, WeftError
from weft.service.hub.refusals import BusyError, ConflictError, ForbiddenError, NotFoundError, NotReadyError

__all__ = ["PROBLEMS", "Problem", "handle_problems", "problem_of", "problem_response"]

_LOG = logging.getLogger("weft")

MEDIA = "application/problem+json"

TITLES = {
    400: "the request cannot be read",
    401: "a token is needed",
    403: "not allowed",
    404: "not found",
    405: "this method is not supported here",
    406: "not acceptable",
    409: "in conflict with what is there",
    413: "the request is too large",
    415: "the request is not JSON",
    421: "addressed to another host",
    422: "the request makes no sense",
    429: "too many requests",
    500: "an error of the service",
    503: "the session does not run",
}

_STATUS: tuple[tuple[type[WeftError], int], ...] = (
    (NotFoundError, 404),
    (ConflictError, 409),
    (ForbiddenError, 403),
    (NotReadyError, 503),
    (BusyError, 429),
)


class Problem(BaseModel):
    """What went wrong, and what would be right; ``excerpt`` shows a query's text with a caret under the culprit."""

    type: str
    title: str
    status: int
    detail: str
    stage: str | None = None
    hint: str | None = None
    excerpt: list[str] | None = None
    line: int | None = None
    start: int | None = None
    end: int | None = None
    errors: list[dict[str, Any]] | None = None


def _described(*statuses: int) -> dict[int | str, dict[str, Any]]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {"description": TITLES[status], "content": {MEDIA: {"schema": schema}}} for status in statuses
    }


# What every operation may answer; others are named where they can happen.
PROBLEMS = _described(400, 401, 403, 404, 405, 409, 413, 415, 421, 422, 429, 500, 503)


def problem_response(status: int, detail: str, **more: Any) -> Response:
    """An answer that says what is wrong."""
    headers = more.pop("headers", None)
    found = {"type": more.pop("type", "about:blank"), "title": TITLES.get(status, "error"), "status": status}
    body = {**found, "detail": detail, **{name: value for name, value in more.items() if value is not None}}
    content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    return Response(content, status, headers, MEDIA)


def problem_of(error: WeftError) -> Response:
    """An error of Weft's as an answer."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 422)
    more: dict[str, Any] = {"stage": error.stage, "hint": error.hint}
    if isinstance(error, SqlError):
        more |= {"excerpt": error.excerpt(), "line": error.line, "start": error.start, "end": error.end}
    headers = {"Retry-After": "1"} if status in (429, 503) else None
    kind = type(error).__name__ if isinstance(error, SqlError | QueryError | CatalogError) else error.stage
    return problem_response(status, error.message, type=f"urn:weft:{kind.lower()}", headers=headers, **more)


def handle_problems(app: FastAPI) -> None:
    """Have an application answer every error with a problem document."""

    @app.exception_handler(WeftError)
    async def weft_error(request: Request, error: WeftError) -> Response:  # noqa: ARG001
        return problem_of(error)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:  # noqa: ARG001
        found = [_shown(one) for one in error.errors()]
        is_json = any(one["kind"] == "json_invalid" for one in found)
        detail = "; ".join(f"{one['place']}: {one['message']}" for one in found[:5])
        return problem_response(400 if is_json else 422, detail, type="urn:weft:request", errors=found)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        detail = f"{request.method} {request.url.path}: {error.detail}"
        return problem_response(error.status_code, detail, headers=error.headers)

    @app.exception_handler(Exception)
    async def internal(request: Request, error: Exception) -> Response:
        number = secrets.token_hex(4)
        _LOG.error("request %s failed (%s %s)", number, request.method, request.url.path, exc_info=error)
        return problem_response(500, f"the service failed; its log says why under {number}")


def _shown(error: Any) -> dict[str, Any]:
    """Which part of a request is wrong, and why, without what it contained."""
    place = ".".join(str(part) for part in error["loc"])
    return {"place": place, "message": str(error["msg"]), "kind": str(error["type"])}
