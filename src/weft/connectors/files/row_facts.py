"""How many rows a file has, and the oldest time among them, as far as it tells without its rows being read.

Guarantees: of a Parquet file the footer alone is read, of an Arrow file or stream the few hundred bytes in front of
each of its record batches; never a column. Texts do not tell. A file that makes no sense here is no error: a task that
reads it says what is wrong with it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from weft.connectors.formats.parquet import DAMAGE

__all__ = ["RowFacts", "arrow_facts", "parquet_facts", "parquet_footer"]

_MOST_MESSAGES = 1024  # of an Arrow file that are followed; with more, its rows are not known
_RECORD_BATCH = 3  # the kind of a message, by the format
_PER_MICROSECOND = {"milliseconds": (1000, 1), "microseconds": (1, 1), "nanoseconds": (1, 1000)}


@dataclass(frozen=True, slots=True)
class RowFacts:
    """How many rows there are, and a time in microseconds that none is older than; None: that is not known."""

    rows: int | None = None
    oldest: int | None = None


def parquet_footer(file: BinaryIO, size: int, tail: bytes) -> Any:
    """The metadata of a Parquet file, whose last bytes have been read already; None if there are none to be read."""
    try:
        (length,) = struct.unpack("<I", tail[-8:-4])
        if length + 8 > len(tail):
            file.seek(max(0, size - length - 8))
            tail = file.read(length + 8)
        return pq.read_metadata(pa.BufferReader(b"PAR1" + tail[-length - 8 :]))
    except (*DAMAGE, struct.error):
        return None


def parquet_facts(metadata: Any, groups: Iterable[int], event_time: str | None) -> RowFacts:
    """What the metadata of a Parquet file say of some of its row groups."""
    chosen = [metadata.row_group(group) for group in groups]
    rows = sum(group.num_rows for group in chosen)
    names = [metadata.schema.column(place).path for place in range(metadata.num_columns)]
    if event_time not in names:
        return RowFacts(rows)
    place = names.index(event_time)
    factors = _factors(metadata.schema.column(place))
    if factors is None:
        return RowFacts(rows)
    found = [group.column(place).statistics for group in chosen if group.num_rows]
    if not found or not all(one is not None and one.has_min_max for one in found):
        return RowFacts(rows)
    return RowFacts(rows, min(one.min_raw for one in found) * factors[0] // factors[1])


def _factors(column: Any) -> tuple[int, int] | None:
    """By what the numbers in a column are multiplied and divided to be microseconds; None if they are no times."""
    kind = json.loads(column.logical_type.to_json())
    is_time = kind.get("Type") == "Timestamp" and column.physical_type == "INT64"
    return _PER_MICROSECOND.get(kind["timeUnit"]) if is_time else None


def arrow_facts(file: BinaryIO, size: int) -> RowFacts:
    """What an Arrow file or stream says: the lengths of its record batches, one after the other."""
    file.seek(0)
    at, rows = (8 if file.read(6) == b"ARROW1" else 0), 0
    for _ in range(_MOST_MESSAGES):
        file.seek(at)
        head = file.read(8)
        skip = 8 if head[:4] == b"\xff\xff\xff\xff" else 4  # old streams begin with the length
        if len(head) < skip:
            return RowFacts(rows) if at == size and not head else RowFacts()
        (length,) = struct.unpack("<i", head[skip - 4 : skip])
        if length == 0:
            return RowFacts(rows)
        file.seek(at + skip)
        found = _message(file.read(length)) if 0 < length <= size else None
        if found is None:
            return RowFacts()
        rows += found[0]
        at += skip + length + found[1]
    return RowFacts()


def _message(message: bytes) -> tuple[int, int] | None:
    """The rows of a message, which is a FlatBuffer, and the length of its body; None if it is none."""
    try:
        (root,) = struct.unpack_from("<I", message)
        body = _field(message, root, 3, "<q") or 0
        if _field(message, root, 1, "<B") != _RECORD_BATCH:
            return (0, body) if body >= 0 else None
        place = _place(message, root, 2)
        header = place + struct.unpack_from("<I", message, place)[0]
        rows = _field(message, header, 0, "<q") or 0
    except struct.error:
        return None
    return (rows, body) if rows >= 0 and body >= 0 else None


def _place(message: bytes, table: int, number: int) -> int:
    """Where a field of a table is in a FlatBuffer; 0 if it has its default."""
    fields = table - struct.unpack_from("<i", message, table)[0]
    (known,) = struct.unpack_from("<H", message, fields)
    offset = struct.unpack_from("<H", message, fields + 4 + 2 * number)[0] if known > 4 + 2 * number else 0
    return table + int(offset) if offset else 0


def _field(message: bytes, table: int, number: int, kind: str) -> int | None:
    place = _place(message, table, number)
    return int(struct.unpack_from(kind, message, place)[0]) if place else None
