"""Queries that come and go while a session runs (AJoin's changelog).

Guarantees: what is asked for between two batches takes effect together, with the next one; a request is refused at once
or kept until then. Safe to be used from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from weft.runtime.queries.request import QueryRequest

__all__ = ["Changelog", "Changes"]


@dataclass(frozen=True, slots=True)
class Changes:
    """Queries to begin, and queries to stop, with the reason; ``dropped`` are those of them that had not begun."""

    begin: Mapping[str, QueryRequest]
    stop: Mapping[str, str]
    dropped: Mapping[str, QueryRequest] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.begin or self.stop)


@dataclass
class Changelog:
    """What has been asked for and is not in force yet."""

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
        """Run a query no longer; one that has not begun never will."""
        with self._lock:
            dropped = self._begin.pop(name, None)
            if dropped is not None:
                self._dropped[name] = dropped
            self._stop.setdefault(name, reason)

    def take(self) -> Changes:
        """All there is, once."""
        with self._lock:
            found = Changes(dict(self._begin), dict(self._stop), dict(self._dropped))
            self._taken = dict(self._begin)
            for waiting in (self._begin, self._stop, self._dropped):
                waiting.clear()
            return found

    def request(self, name: str) -> QueryRequest | None:
        """The query of a name that is to begin, if there is one; also with the batch that is being planned."""
        with self._lock:
            return self._begin.get(name) or self._taken.get(name)

    def stopping(self) -> tuple[str, ...]:
        """The queries that are to stop."""
        with self._lock:
            return tuple(self._stop)

    def waiting(self) -> tuple[str, ...]:
        """The queries that are to begin."""
        with self._lock:
            return tuple(self._begin)
