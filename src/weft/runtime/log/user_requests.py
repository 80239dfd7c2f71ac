"""What users ask for between two batches: queries that begin, queries that stop, watermarks that are set.

Guarantees: what is asked for is in the log before the asker is told so, and takes effect with the next batch that is
planned, by this session or by a later one, whenever the process dies. The entries are:

    requested.json    by query, its request and the batch that was planned last when it was asked for: once a later one
                      is planned, its plan has the query, and the request counts no more
    stops.json        by query, why it was stopped, and its fingerprint, since another may get its name one day; it is
                      there until a query of that name is to run again
    resets.json       by stream, the time that its watermark is to be, and when that was asked for; it is there until
                      the plan of a batch has it

``weft.json`` says whether a query was ever asked for or stopped; if so, and the entry is missing, that is an error.
Queries may be asked for and stopped from any thread; who sets watermarks holds the log.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft.errors import StateError
from weft.runtime.log.entries import read_record, write_record
from weft.runtime.log.ownership import Ownership
from weft.runtime.state.segment_file import RESTORE
from weft.storage.storage import Storage

__all__ = ["Reset", "UserRequests"]

_QUERIES, _STOPS, _RESETS = "requested.json", "stops.json", "resets.json"
_ASK_AGAIN = "delete it, and ask again for the watermarks that are to be set"


@dataclass(frozen=True, slots=True)
class Reset:
    """The time that a stream's watermark is to be, and when that was asked for, both in microseconds since 1970."""

    to: int
    asked: int


class UserRequests:
    """The entries of a log that keep what users have asked for."""

    def __init__(self, storage: Storage, ownership: Ownership) -> None:
        self._storage, self._ownership = storage, ownership

    def write_query(self, name: str, request: Mapping[str, Any], planned: int) -> None:
        """Record that a query is to begin, asked for when ``planned`` was the last batch that had been planned."""
        with self._ownership.held():
            waiting = {other: one for other, one in self._queries().items() if one["after"] >= planned}
            waiting[name] = {"after": planned, "request": request}
            write_record(self._storage, _QUERIES, waiting)
            self._ownership.note("requests")

    def waiting_queries(self, planned: int) -> dict[str, Mapping[str, Any]]:
        """The queries that no plan has yet, as plain data; ``planned`` is the last batch that is planned."""
        return {name: one["request"] for name, one in self._queries().items() if one["after"] >= planned}

    def _queries(self) -> dict[str, Any]:
        return self._read(_QUERIES, "requests", "which queries were asked for")

    def stops(self) -> dict[str, tuple[str, str]]:
        """The queries that were ever asked to stop, each with the reason and its fingerprint.

        Some of them may still be running, until the next batch.
        """
        entries = self._read(_STOPS, "stops", "which queries were stopped")
        return {name: (reason, fingerprint) for name, (reason, fingerprint) in entries.items()}

    def write_stop(self, name: str, reason: str, fingerprint: str) -> None:
        """Record that a query is to stop."""
        with self._ownership.held():
            write_record(self._storage, _STOPS, {**self.stops(), name: (reason, fingerprint)})
            self._ownership.note("stops")

    def forget_stop(self, name: str) -> None:
        """Delete the record of a stop, because a query of that name is to run again."""
        with self._ownership.held():
            stops = self.stops()
            if stops.pop(name, None) is not None:
                write_record(self._storage, _STOPS, stops)

    def _read(self, entry: str, flag: str, what: str) -> dict[str, Any]:
        """The content of an entry; an error if it is missing though ``weft.json`` says by a flag that there was one."""
        content: dict[str, Any] | None = read_record(self._storage, entry)
        if content is None and self._ownership.has(flag):
            raise StateError(
                f"{self._storage.locate(entry)} is missing, which says {what}",
                hint=RESTORE,
            )
        return content or {}

    def resets(self) -> dict[str, Reset]:
        """The watermarks that are to be set, by stream."""
        content = read_record(self._storage, _RESETS, _ASK_AGAIN) or {}
        return {stream: Reset(*pair) for stream, pair in content.items()}

    def write_reset(self, stream: str, to: int) -> Reset:
        """Record that a stream's watermark is to be another time from the next batch on."""
        reset = Reset(to, time.time_ns() // 1000)
        self._write_resets({**self.resets(), stream: reset})
        return reset

    def forget_resets(self, done: Mapping[str, int]) -> None:
        """Delete what a plan has taken up: ``done`` says when each was asked for; what was asked for since stays."""
        asked = self.resets()
        left = {stream: reset for stream, reset in asked.items() if done.get(stream) != reset.asked}
        if not left:
            self._storage.delete(_RESETS)
        elif left != asked:
            self._write_resets(left)

    def _write_resets(self, resets: Mapping[str, Reset]) -> None:
        write_record(
            self._storage, _RESETS, {stream: [reset.to, reset.asked] for stream, reset in resets.items()}
        )
