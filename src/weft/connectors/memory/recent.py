"""The last results of a query in the driver's memory, numbered, for readers that come and go.

Guarantees: never more than so many rows and bytes are kept, except that the last row always is; who asks for results
that are gone is told how many. Results are numbered from 1 in the order of their batches, each batch once, however
often it was committed in this process. Nothing outlives the process: a sink that is made again has another ``origin``,
and its numbers begin anew. Safe to read while a query runs.
"""

from __future__ import annotations

import logging
import secrets
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from weft.connectors.common import as_table
from weft.errors import SinkError
from weft.logical.arguments import checked
from weft.ports.sink import ResultRows

__all__ = [
    "RecentPage",
    "RecentSink",
    "to_recent",
]

_LOG = logging.getLogger("weft")

ROWS, BYTES = 10_000, 64 << 20


@dataclass(frozen=True, slots=True)
class RecentPage:
    """Results after a number, ``last`` being that of the last one in ``table``; ``missed`` are those already gone.

    ``newest`` is the number of the newest result there is, and ``origin`` tells sinks apart whose numbers begin anew.
    """

    table: pa.Table
    last: int
    missed: int
    newest: int
    origin: str


@dataclass(frozen=True, slots=True)
class _Kept:
    """The rows of a batch that are kept; ``last`` is the number of the last of them."""

    batch: int
    table: pa.Table
    last: int
    size: int

    @property
    def first(self) -> int:
        return self.last - int(self.table.num_rows) + 1


class RecentSink:
    """Keeps the last results, at most so many ``rows`` and ``bytes``."""

    exactly_once = True

    def __init__(self, rows: int = ROWS, bytes: int = BYTES) -> None:  # noqa: A002
        for what, limit in (("rows", rows), ("bytes", bytes)):
            if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
                raise SinkError(
                    f"to_recent: {what} cannot be {limit!r}", hint="use a whole number, 1 or more"
                )
        self.rows, self.bytes = rows, bytes
        self.origin = secrets.token_hex(4)
        self._schema: pa.Schema | None = None
        self._kept: deque[_Kept] = deque()
        self._size = 0
        self._newest = 0
        self._last_batch = -1
        self._lock = threading.Lock()
        self._told: dict[object, Callable[[], None]] = {}

    def open(self, schema: pa.Schema, owner: str | None = None) -> None:  # noqa: ARG002
        """Learn what an empty result looks like."""
        if self._schema is not None and not self._schema.equals(schema):
            raise SinkError(
                "to_recent: this sink already holds other columns", hint="make one sink for each query"
            )
        self._schema = schema

    def recover(self, last_committed: int) -> None:
        """Forget batches that will come again."""
        with self._lock:
            while self._kept and self._kept[-1].batch > last_committed:
                gone = self._kept.pop()
                self._newest, self._size = gone.first - 1, self._size - gone.size
            self._last_batch = min(self._last_batch, last_committed)

    def begin(self, batch_id: int) -> None:
        """Nothing to prepare."""

    def commit(self, batch_id: int, rows: ResultRows) -> None:
        """Keep the last rows of a batch, and let go of the oldest ones beyond the limits."""
        with self._lock:
            if batch_id <= self._last_batch:
                return  # the same rows again
            self._last_batch = batch_id
            table = as_table(rows, self._schema)
            if not table.num_rows:
                return
            self._newest += table.num_rows
            last = self._newest_of(table)
            if (
                last.num_rows < table.num_rows
            ):  # numbers have no gap: what was before the part that is gone goes too
                self._kept.clear()
                self._size = 0
            self._kept.append(_Kept(batch_id, last, self._newest, last.nbytes))
            self._size += last.nbytes
            self._let_go()
            told = list(self._told.values())
        for tell in told:
            try:
                tell()
            except Exception as error:  # a reader's trouble must not stop the query
                _LOG.warning("a reader of results failed: %s", error)

    def _newest_of(self, table: pa.Table) -> pa.Table:
        """The rows of a batch that fit, copied unless they are most of it, so that the others can be freed."""
        each = max(1, table.nbytes // table.num_rows)
        fit = max(1, min(self.rows, self.bytes // each))
        if table.num_rows <= fit:
            return table
        last = table.slice(table.num_rows - fit)
        return last.take(pa.array(np.arange(fit)))

    def _let_go(self) -> None:
        """Let go of the oldest batches; what that takes does not grow with how many are kept."""
        while len(self._kept) > 1 and (
            self._newest - self._kept[0].first + 1 > self.rows or self._size > self.bytes
        ):
            self._size -= self._kept.popleft().size

    def describe(self) -> dict[str, object]:
        """What is needed to make it again, empty."""
        return {"kind": "recent", "rows": self.rows, "bytes": self.bytes}

    def page(self, after: int = 0, most: int = 1000, size: int | None = None) -> RecentPage:
        """At most so many results after a number, the oldest first; a negative number means none but those to come.

        If they have more than ``size`` bytes, there are about as many as have so many, and one at least.
        """
        with self._lock:
            kept, newest = list(self._kept), self._newest
        after = min(newest, after if after >= 0 else newest)
        oldest = kept[0].first if kept else newest + 1
        start = max(after + 1, oldest)
        parts, room, place = [], most, bisect_left(kept, start, key=lambda batch: batch.last)
        while room > 0 and place < len(kept):
            part = kept[place].table.slice(max(0, start - kept[place].first), room)
            parts.append(part)
            room, place = room - part.num_rows, place + 1
        table = pa.concat_tables(parts) if parts else self._nothing()
        if size is not None and table.nbytes > size:
            table = table.slice(0, max(1, table.num_rows * size // table.nbytes))
        return RecentPage(table, start - 1 + table.num_rows, start - 1 - after, newest, self.origin)

    def results(self) -> pa.Table:
        """All rows that are kept."""
        return self.page(0, self._newest + 1).table

    def clear(self) -> None:
        """Let go of all rows; their numbers stay taken."""
        with self._lock:
            self._kept.clear()
            self._size = 0

    def _nothing(self) -> pa.Table:
        return pa.table({}) if self._schema is None else self._schema.empty_table()

    def subscribe(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Call a function whenever there are new results, from the thread that commits them; returns how to end that.

        The function must return at once, since the query waits for it.
        """
        key = object()
        with self._lock:
            self._told[key] = tell

        def end() -> None:
            with self._lock:
                self._told.pop(key, None)

        return end


@checked(SinkError)
def to_recent(rows: int = ROWS, bytes: int = BYTES) -> RecentSink:  # noqa: A002
    """The last results in memory, at most so many rows and bytes, for `page()` and `results()`.

    >>> to_recent(rows=100).page().newest
    0
    """
    return RecentSink(rows, bytes)
