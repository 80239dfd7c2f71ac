"""Results as they come, as server-sent events.

Guarantees: a reader gets every result once, in order, or is told how many it missed because it was too slow; what it
has not read yet is held nowhere but in the query's own bounded memory. However often a query has results, readers are
woken ten times a second at most, and readers that are equally far share what is looked up and written for them. A
stream ends with an event that says why: the query stopped, or the service does.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from weft.errors import WeftError
from weft.service.hub.hub import SessionHub
from weft.service.hub.refusals import BusyError, NotReadyError
from weft.service.hub.results import ResultsPage

__all__ = ["LiveResults"]

PAUSE = 0.1  # seconds between two wake-ups
BEAT = 15.0  # seconds after which a silent stream shows that it lives
LOOK = 1.0  # seconds between two looks whether a query still runs
PAGE = 500  # results of an event
SHARED = 8  # so many pages are kept for readers that come to them later


@dataclass
class _Topic:
    """The readers of a query; ``changed`` is set, and replaced, when there is something new for them."""

    name: str
    readers: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    pending: bool = field(default=False, init=False)
    ended: str = field(default="", init=False)
    pages: dict[tuple[int, str], ResultsPage] = field(default_factory=dict, init=False)
    written: dict[tuple[object, ...], bytes] = field(default_factory=dict, init=False)
    unsubscribe: Callable[[], None] = lambda: None
    watch: asyncio.Task[None] | None = None

    def fire(self) -> None:
        """Wake all readers."""
        self.pending = False
        self.pages.clear()
        self.changed.set()
        self.changed = asyncio.Event()

    def page(self, hub: SessionHub, after: int, origin: str) -> ResultsPage:
        """The page after a result, looked up once between two wake-ups for all readers that are equally far."""
        found = self.pages.get((after, origin))
        if found is None:
            if len(self.pages) >= SHARED:
                self.pages.pop(next(iter(self.pages)))
            found = self.pages[after, origin] = hub.results(self.name, after, PAGE, origin=origin)
        return found

    def event(self, page: ResultsPage) -> bytes:
        """A page as an event, written once for all readers that are equally far."""
        key = (page.origin, page.first, page.last, page.missed, page.restarted)
        if key not in self.written:
            if len(self.written) >= SHARED:
                self.written.pop(next(iter(self.written)))
            head = f"id: {page.origin}:{page.last}\nevent: results\ndata: ".encode()
            self.written[key] = b"".join([head, page.json, b"\n\n"])
        return self.written[key]


class LiveResults:
    """Who follows results live: at most so many readers, and so many of ``each`` client, for one event loop."""

    def __init__(self, hub: SessionHub, most: int, each: int) -> None:
        self._hub, self._most, self._each = hub, most, each
        self._clients: Counter[str] = Counter()
        self._topics: dict[str, _Topic] = {}
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def readers(self) -> int:
        """How many follow."""
        return sum(topic.readers for topic in self._topics.values())

    def open(self, name: str, after: int, origin: str | None, client: str = "") -> AsyncIterator[bytes]:
        """The events of a query from a result on; refused at once if it has none, or if there are too many readers."""
        first = self._hub.results(name, after, PAGE, origin=origin)
        if self._closed or self.readers >= self._most:
            raise NotReadyError("too many follow results live already", hint="try again later")
        if self._clients[client] >= self._each:
            raise BusyError(
                f"this client follows results live {self._each} times already", hint="end one of them first"
            )
        return self._events(name, first, client)

    async def _events(self, name: str, page: ResultsPage, client: str) -> AsyncIterator[bytes]:
        topic = self._join(name)
        self._clients[client] += 1
        try:
            yield b"retry: 1000\n\n"
            if _is_empty(page):  # results may have come before the topic was told of any
                page = self._hub.results(name, page.last, PAGE, origin=page.origin)
            while True:
                changed = topic.changed
                if not _is_empty(page):
                    yield topic.event(page)
                elif topic.ended:
                    yield _end(topic.ended)
                    return
                else:
                    try:
                        await asyncio.wait_for(changed.wait(), BEAT)
                    except asyncio.TimeoutError:
                        yield b": alive\n\n"
                try:
                    page = topic.page(self._hub, page.last, page.origin)
                except WeftError as error:
                    yield _end(error.message)
                    return
        finally:
            self._leave(topic)
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]

    def _join(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = _Topic(name)
            loop = self._loop = asyncio.get_running_loop()
            made = topic

            def tell() -> None:
                if not made.pending:
                    made.pending = True
                    loop.call_soon_threadsafe(loop.call_later, PAUSE, made.fire)

            topic.unsubscribe = self._hub.subscribe(name, tell)
            topic.watch = asyncio.ensure_future(self._watch(topic))
        topic.readers += 1
        return topic

    def _leave(self, topic: _Topic) -> None:
        topic.readers -= 1
        if not topic.readers:
            self._topics.pop(topic.name, None)
            topic.unsubscribe()
            if topic.watch is not None:
                topic.watch.cancel()

    async def _watch(self, topic: _Topic) -> None:
        """Wake the readers of a query that no longer runs."""
        while not topic.ended:
            await asyncio.sleep(LOOK)
            topic.ended = await asyncio.to_thread(self._end_of, topic.name)
        topic.fire()

    def _end_of(self, name: str) -> str:
        """Why a query has no more results; empty if it may have some."""
        health, query = self._hub.health(), self._hub.query(name)
        if query.status == "stopped":
            return query.reason or "the query stopped"
        return "" if health.ready else f"the session is {health.state}"

    def close_soon(self) -> None:
        """From another thread: end all streams, and open no more."""
        self._closed = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self.close)

    def close(self) -> None:
        """End all streams, and open no more."""
        self._closed = True
        for topic in list(self._topics.values()):
            topic.ended = topic.ended or "the service stops"
            topic.fire()


def _is_empty(page: ResultsPage) -> bool:
    """Whether a page has nothing to tell."""
    return not (page.table.num_rows or page.missed or page.restarted)


def _end(reason: str) -> bytes:
    return f"event: end\ndata: {json.dumps({'reason': reason}, ensure_ascii=False)}\n\n".encode()
