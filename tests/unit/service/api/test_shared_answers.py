"""Answers that many ask for are worked out once, and are never older than a moment or than the last change."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from weft.service.api.app import FRESH, KEPT, SharedAnswers

Message = MutableMapping[str, Any]


class Asked:
    """An application that numbers its answers, and takes a while for each."""

    def __init__(self) -> None:
        self.times, self.status, self.now, self.changes = 0, 200, 100.0, 0
        self.error: Exception | None = None
        self.shared = SharedAnswers(self, lambda: self.changes, lambda: self.now)

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:  # noqa: ARG002
        self.times += 1
        number = self.times
        await asyncio.sleep(0.01)
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": f"{scope['path']} {number}".encode()})
        if self.error is not None:
            raise self.error

    async def ask(self, path: str = "/api/v1/overview", method: str = "GET", query: bytes = b"") -> str:
        """The answer as a text."""
        found = list[Message]()

        async def send(message: Message) -> None:
            found.append(message)

        async def receive() -> Message:
            return {"type": "http.disconnect"}

        scope = {"type": "http", "method": method, "path": path, "query_string": query}
        await self.shared(scope, receive, send)
        assert [one["type"] for one in found] == ["http.response.start", "http.response.body"]
        return str(found[1]["body"].decode())


def test_many_who_ask_at_once_share_an_answer() -> None:
    """Fifty dashboards would cost fifty times as much as one."""

    async def story(app: Asked) -> None:
        assert set(await asyncio.gather(*(app.ask() for _ in range(50)))) == {"/api/v1/overview 1"}
        assert await app.ask() == "/api/v1/overview 1"
        assert await app.ask("/metrics") == "/metrics 2"
        assert await app.ask(query=b"limit=3") == "/api/v1/overview 3"

    asyncio.run(story(Asked()))


def test_an_answer_is_no_older_than_a_moment_or_a_change() -> None:
    """Who has just stopped a query must not see it run."""

    async def story(app: Asked) -> None:
        assert await app.ask() == "/api/v1/overview 1"
        app.changes += 1
        assert await app.ask() == "/api/v1/overview 2"
        app.now += FRESH
        assert await app.ask() == "/api/v1/overview 3"
        under_way = asyncio.create_task(app.ask("/api/v1/queries"))
        await asyncio.sleep(0)
        app.changes += 1
        assert await app.ask("/api/v1/queries") == "/api/v1/queries 5"
        assert await under_way == "/api/v1/queries 4"

    asyncio.run(story(Asked()))


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/api/v1/health/ready", "GET"),
        ("/api/v1/queries", "POST"),
        ("/api/v1/queries/q", "GET"),
        ("/", "GET"),
    ],
)
def test_what_is_each_ones_own_is_not_shared(path: str, method: str) -> None:
    async def story(app: Asked) -> None:
        answers = await asyncio.gather(*(app.ask(path, method) for _ in range(3)))
        assert set(answers) == {f"{path} {number}" for number in (1, 2, 3)}

    asyncio.run(story(Asked()))


def test_failures_are_told_to_all_who_wait_and_not_kept() -> None:
    async def story(app: Asked) -> None:
        app.status = 503
        assert await app.ask() == "/api/v1/overview 1"
        assert await app.ask() == "/api/v1/overview 2"
        app.error = RuntimeError("broken")
        found = await asyncio.gather(*(app.ask() for _ in range(3)), return_exceptions=True)
        assert found == [app.error] * 3
        assert app.times == 3
        app.error, app.status = None, 200
        assert await app.ask() == "/api/v1/overview 4"

    asyncio.run(story(Asked()))


def test_who_goes_away_takes_the_answer_from_nobody() -> None:
    async def story(app: Asked) -> None:
        first, second = asyncio.create_task(app.ask()), asyncio.create_task(app.ask())
        await asyncio.sleep(0)
        first.cancel()
        assert await second == "/api/v1/overview 1"

    asyncio.run(story(Asked()))


def test_answers_are_bounded() -> None:
    async def story(app: Asked) -> None:
        for number in range(2 * KEPT):
            await app.ask(query=f"after={number}".encode())
        assert len(app.shared._answers) == KEPT

    asyncio.run(story(Asked()))
