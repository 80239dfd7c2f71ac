"""Tables in memory as a source, for tests and for the local executor.

Guarantees: tables come in the order in which they were offered, each once; they may be offered by any thread. They are
kept until the batch that read them is committed, and live in this process alone: pickled and unpickled here, a source
is the same one; anywhere else it is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc

from weft.connectors.formats.parquet import decode_table
from weft.connectors.formats.records import Decoded, SourceFile, Target
from weft.errors import SourceError
from weft.kernels.expr.arrow import TIMESTAMP
from weft.logical.schema import SchemaLike, schema_of
from weft.ports.source import CursorContext, Offer, Part

__all__ = [
    "TableSource",
]

_LIVE: WeakValueDictionary[int, TableSource] = WeakValueDictionary()
_NUMBERS = count()


class TableSource:
    """A queue of tables."""

    def __init__(self, schema: SchemaLike) -> None:
        self.schema = schema_of(schema)
        self._lock = threading.Lock()
        self._tables: dict[int, pa.Table] = {}
        self._arrived: dict[int, int | None] = {}
        self._end = 0
        self._number = next(_NUMBERS)
        _LIVE[self._number] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return _living, (self._number,)

    def offer(self, table: pa.Table | pa.RecordBatch, arrived: int | None = None) -> None:
        """Add a table at the end; its columns must be those of the schema, in any order.

        ``arrived`` is when it came, in microseconds since 1970; if not given, when the batch that takes it begins.
        """
        found = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
        with self._lock:
            self._tables[self._end], self._arrived[self._end] = found, arrived
            self._end += 1

    def open(self, context: CursorContext) -> TableCursor:
        """Go on behind the tables that were taken."""
        return TableCursor(self, context)

    def read(
        self,
        stream: str,
        part: Part,
        event_time: str | None = None,
        columns: Collection[str] | None = None,
        latest: int | None = None,
    ) -> Decoded:
        """The rows of a table."""
        number = part.what["table"]
        with self._lock:
            table = self._tables.get(number)
        if table is None:
            raise SourceError(f"{stream}: table {number} is not in the memory of this process")
        target = Target.of(self.schema, event_time, columns, latest)
        return decode_table(SourceFile(stream, f"table {number}", b""), target.needed(), table)

    def waiting(self, position: int) -> list[tuple[int, pa.Table]]:
        """The tables from a number on, with their numbers."""
        with self._lock:
            return [(at, self._tables[at]) for at in range(position, self._end) if at in self._tables]

    def arrived(self, number: int) -> tuple[int, int] | None:
        """When the table of that number came; None if nobody said it."""
        when = self._arrived.get(number)
        return None if when is None else (when, when)

    def drop(self, numbers: Collection[int]) -> None:
        """Forget tables."""
        with self._lock:
            for number in numbers:
                self._tables.pop(number, None)
                self._arrived.pop(number, None)


def _living(number: int) -> TableSource:
    source = _LIVE.get(number)
    if source is None:
        raise SourceError(
            "tables in memory can be read in the process that holds them alone",
            hint="write them to files and use weft.files",
        )
    return source


class TableCursor:
    """The number of the next table."""

    def __init__(self, source: TableSource, context: CursorContext) -> None:
        self._source, self._most_bytes, self._event_time = source, context.most_bytes, context.event_time
        self._position = int(context.state.get("position", 0))
        self._parts: dict[int, Part] = {}  # of the tables that wait, so that each is looked at once

    def look(self, now: float) -> Offer:  # noqa: ARG002
        """The tables that were not taken."""
        waiting, room = self._source.waiting(self._position), self._most_bytes
        self._parts = {
            number: self._parts.get(number)
            or replace(_part(number, table, self._event_time), arrived=self._source.arrived(number))
            for number, table in waiting
        }
        offered = list[Part]()
        for part in self._parts.values():
            if offered and part.bytes > room:
                break
            offered.append(part)
            room -= part.bytes
        return Offer(tuple(offered), backlog=(len(waiting), sum(part.bytes for part in self._parts.values())))

    def take(self, parts: Sequence[Part]) -> None:
        """Go on behind these tables, which are the first that were offered."""
        for number in sorted(int(part.what["table"]) for part in parts):
            if number != self._position:
                raise ValueError(f"table {self._position} was passed over")
            self._position += 1

    def state(self) -> dict[str, Any]:
        """The number of the next table."""
        return {"position": self._position, "blobs": []}

    def release(self, parts: Sequence[Part]) -> None:
        """Forget tables that were read."""
        self._source.drop([part.what["table"] for part in parts])

    def catch_up(self) -> None:
        """Do nothing: the next look sees what was offered."""

    def close(self) -> None:
        """Do nothing: nothing is open."""


def _part(number: int, table: pa.Table, event_time: str | None) -> Part:
    """The part that a table is; it is read by a task, so a table that has no such times is no error here."""
    place = -1 if event_time is None else table.schema.get_field_index(event_time)
    found = {"min": None, "max": None}
    if place >= 0 and pa.types.is_timestamp(table.schema.field(place).type):
        times = pc.min_max(table.column(place).cast(TIMESTAMP, safe=False))
        found = {end: times[end].value for end in found}
    return Part({"table": number}, table.nbytes, table.num_rows, found["min"], newest=found["max"])
