"""Queries that come and go while a session runs (AJoin's changelog).

Guarantees: what is asked for between two batches takes effect together, with the next one; a request is refused at once
or kept until then. Safe to be used from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.runtime.asked import Asked

__all__ = ["Changelog", "Changes"]


@dataclass(frozen=True, slots=True)
class Changes:
    """Queries to begin, with their sinks, and queries to stop, with the reason."""

    begin: Mapping[str, tuple[Asked, Any]]
    stop: Mapping[str, str]

    def __bool__(self) -> bool:
        return bool(self.begin or self.stop)

    def known(self, names: Collection[str]) -> Changes:
        """Without the stops of queries that nobody knows."""
        return Changes(self.begin, {name: why for name, why in self.stop.items() if name in names})


@dataclass
class Changelog:
    """What has been asked for and is not in force yet."""

    _begin: dict[str, tuple[Asked, Any]] = field(default_factory=dict)
    _stop: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, name: str, asked: Asked, sink: Any) -> None:
        """Run a query from the next batch on."""
        with self._lock:
            self._begin[name] = (asked, sink)

    def stop(self, name: str, reason: str) -> None:
        """Run a query no longer; one that has not begun never will."""
        with self._lock:
            self._begin.pop(name, None)
            self._stop.setdefault(name, reason)

    def take(self) -> Changes:
        """All there is, once."""
        with self._lock:
            found = Changes(dict(self._begin), dict(self._stop))
            self._begin.clear()
            self._stop.clear()
            return found

    def stopping(self) -> tuple[str, ...]:
        """The queries that are to stop."""
        with self._lock:
            return tuple(self._stop)

    def waiting(self) -> tuple[str, ...]:
        """The queries that are to begin."""
        with self._lock:
            return tuple(self._begin)
