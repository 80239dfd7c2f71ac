"""Queries that come and go while a session runs (AJoin's changelog).

Guarantees: all changes that are asked for between two batches take effect together, with the next one. It can be used
from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from weft.runtime.queries.request import QueryRequest

__all__ = ["Changelog", "Changes"]


@dataclass(frozen=True, slots=True)
class Changes:
    """Queries to begin, and queries to stop with the reason; ``dropped`` are queries to stop that had not begun."""

    begin: Mapping[str, QueryRequest]
    stop: Mapping[str, str]
    dropped: Mapping[str, QueryRequest] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.begin or self.stop)


@dataclass
class Changelog:
    """The changes that have been asked for and wait for the next batch."""

    _begin: dict[str, QueryRequest] = field(default_factory=dict)
    _stop: dict[str, str] = field(default_factory=dict)
    _dropped: dict[str, QueryRequest] = field(default_factory=dict)
    _taken: dict[str, QueryRequest] = field(default_factory=dict)  # begin with the batch being planned
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, name: str, request: QueryRequest) -> None:
        """Run a query from the next batch on."""
        with self._lock:
            self._begin[name] = request
            self._dropped.pop(name, None)

    def stop(self, name: str, reason: str) -> None:
        """Stop a query with the next batch; one that has not begun will not begin."""
        with self._lock:
            dropped = self._begin.pop(name, None)
            if dropped is not None:
                self._dropped[name] = dropped
            self._stop.setdefault(name, reason)

    def take(self) -> Changes:
        """Take all changes that wait, so that the batch being planned makes them."""
        with self._lock:
            found = Changes(dict(self._begin), dict(self._stop), dict(self._dropped))
            self._taken = dict(self._begin)
            for waiting in (self._begin, self._stop, self._dropped):
                waiting.clear()
            return found

    def settle(self) -> None:
        """Note that the batch that took the last changes is planned: its queries run."""
        with self._lock:
            self._taken = {}

    def request(self, name: str) -> QueryRequest | None:
        """The query of a name that is to begin, with the next batch or with the one being planned; None if none is."""
        with self._lock:
            return self._begin.get(name) or self._taken.get(name)

    def stopping(self) -> tuple[str, ...]:
        """The names of the queries that are to stop."""
        with self._lock:
            return tuple(self._stop)

    def waiting(self) -> tuple[str, ...]:
        """The names of the queries that are to begin."""
        with self._lock:
            return tuple(self._begin)
