"""By which methods what can be asked for: those that the description has, and for the page those that look.

Guarantees: a request by any other method is answered with 405 and the methods there are, one for something of the API
that does not exist with 404, both as problem documents, whatever is mounted beside the API.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cached_property
from typing import Any

from fastapi import FastAPI

from weft.service.api.problems import problem_response

__all__ = ["KnownMethods"]

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
