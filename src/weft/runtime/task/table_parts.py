"""The rows of a table as parts that tasks read: blobs of the log.

Guarantees: what `write_table_parts` wrote, `read_table_part` reads back unchanged, wherever the table came from and
whatever has become of it since. Parts of different versions never share a blob, even if their rows are the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from weft.ports.source import Blobs, Part
from weft.runtime.log.checkpoint import Checkpoint
from weft.storage.storage import Storage

__all__ = ["TableRows", "is_table_part", "read_table_part", "write_table_parts"]

_BLOB = "table_blob"
PART_BYTES = 64 << 20  # of a part, about, before it is compressed


@dataclass(frozen=True, slots=True)
class TableRows:
    """The parts with the rows of a table, how many rows there are, and a digest that equal rows have in common."""

    parts: tuple[Part, ...]
    rows: int
    digest: str

    @property
    def blobs(self) -> list[str]:
        """The names of the blobs that the parts are in."""
        return [part.what[_BLOB] for part in self.parts]


def is_table_part(part: Part) -> bool:
    """Whether a part has rows of a table."""
    return _BLOB in part.what


def write_table_parts(blobs: Blobs, batches: Iterable[pa.RecordBatch], mark: str) -> TableRows:
    """Keep the rows of a table in a log; ``mark`` tells versions apart."""
    digest, parts = hashlib.blake2b(digest_size=12), list[Part]()
    for table in _portions(batches):
        plain = _encoded(table)
        digest.update(plain)
        name = blobs.put(_encoded(table, f"{mark} {len(parts)}"))
        parts.append(Part({_BLOB: name}, table.nbytes, table.num_rows))
    rows = sum(part.rows or 0 for part in parts)
    return TableRows(tuple(parts), rows, digest.hexdigest())


def _portions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in tables of about so many bytes as a part may have; one without rows if there are none."""
    waiting, size, schema, given = list[pa.RecordBatch](), 0, None, False
    for whole in batches:
        schema = whole.schema
        rows = max(1, whole.num_rows * PART_BYTES // max(1, whole.nbytes))
        for first in range(0, whole.num_rows, rows):
            waiting.append(whole.slice(first, rows))
            size += waiting[-1].nbytes
            if size >= PART_BYTES:
                yield pa.Table.from_batches(waiting)
                waiting, size, given = [], 0, True
    if schema is not None and (waiting or not given):
        yield pa.Table.from_batches(waiting, schema)


def _encoded(table: pa.Table, mark: str | None = None) -> bytes:
    schema = table.schema.with_metadata({"version": mark} if mark is not None else None)
    codec = "lz4" if mark is not None and pa.Codec.is_available("lz4") else None
    sink, options = pa.BufferOutputStream(), pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        writer.write_table(table.combine_chunks().cast(schema))
    return bytes(sink.getvalue())


def read_table_part(storage: Storage, part: Part, columns: Collection[str]) -> pa.RecordBatch:
    """The rows of a part, in the given columns alone."""
    with pa.ipc.open_stream(Checkpoint(storage).get(part.what[_BLOB])) as reader:
        table = reader.read_all()
    wanted = [name for name in table.schema.names if name in columns] or table.schema.names[:1]
    found = table.select(wanted).combine_chunks().to_batches()
    return found[0] if found else pa.RecordBatch.from_pylist([], schema=table.select(wanted).schema)
