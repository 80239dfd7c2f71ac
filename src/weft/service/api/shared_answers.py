"""Answers that many ask for at the same time, such as those that dashboards show, are worked out once for all.

Guarantees: an answer is at most a fifth of a second old, and never older than the last change of a query or stream. Who
asks while an answer is being worked out gets that one. Only answers to questions that everybody may ask are shared,
after the guard has let the request pass. So many are kept at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

__all__ = ["SharedAnswers"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

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
