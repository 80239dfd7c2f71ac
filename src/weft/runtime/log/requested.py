"""The queries that were asked for while a session ran, kept from the moment that their author is told so.

Guarantees: a query that was acknowledged is begun by the batch that is planned next, by this session or by a later one,
whenever the process dies. An entry says which batch was planned last when the query was asked for: once a later one is
planned, its plan has the query, and the entry counts no more. It can be used from any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.errors import StateError
from weft.runtime.log.ownership import Ownership
from weft.runtime.log.record import read_record, write_record
from weft.runtime.state.segment_file import RESTORE
from weft.storage.storage import Storage

__all__ = ["RequestedQueries"]

_NAME = "requested.json"


class RequestedQueries:
    """The entry ``requested.json`` of a log: by name, a request as plain data and the batch it was asked for after."""

    def __init__(self, storage: Storage, ownership: Ownership) -> None:
        self._storage, self._ownership = storage, ownership

    def write(self, name: str, request: Mapping[str, Any], planned: int) -> None:
        """Record that a query was asked for, when ``planned`` was the last batch that had been planned."""
        with self._ownership.held():
            waiting = {other: one for other, one in self._read().items() if one["after"] >= planned}
            waiting[name] = {"after": planned, "request": request}
            write_record(self._storage, _NAME, waiting)
            self._ownership.note("requests")

    def waiting(self, planned: int) -> dict[str, Mapping[str, Any]]:
        """The queries that no plan has yet, where ``planned`` is the last batch that is planned."""
        found = self._read()
        return {name: one["request"] for name, one in found.items() if one["after"] >= planned}

    def _read(self) -> dict[str, Any]:
        found = read_record(self._storage, _NAME)
        if found is None and self._ownership.has("requests"):
            raise StateError(
                f"{self._storage.locate(_NAME)} is missing, which says which queries were asked for",
                hint=RESTORE,
            )
        return found or {}
