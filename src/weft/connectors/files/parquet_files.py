"""Parquet files that sinks write, portion by portion, and how two sets of them are compared.

Guarantees: a file is complete only when it is closed, and a part that is aborted leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from weft.connectors.files import file_system as files
from weft.ports.sink import PartWriter

__all__ = ["NamedPart", "ParquetFile", "hold_equal_rows", "write_whole"]

_ROW_GROUP = 1 << 25  # bytes in memory that all row groups but the last have at least
_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


class ParquetFile:
    """A file that is written portion by portion, and is complete only when it is closed.

    Small portions are collected and written together, so that row groups are not small.
    """

    def __init__(self, path: Path, compression: str) -> None:
        self._path, self._compression = path, compression
        self._waiting: list[pa.Table] = []
        self._bytes = 0
        self._out: BinaryIO | None = None
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: pa.Table) -> None:
        """Add rows, all of the same columns."""
        self._waiting.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= _ROW_GROUP:
            self._write_row_group()

    def _write_row_group(self) -> None:
        table = pa.concat_tables(self._waiting)
        self._waiting, self._bytes = [], 0
        if self._writer is None:
            self._out = self._path.open("wb")
            dictionaries = _texts(table.schema)
            self._writer = pq.ParquetWriter(
                self._out, table.schema, compression=self._compression, use_dictionary=dictionaries
            )
        self._writer.write_table(table)

    def close(self) -> None:
        """There are no more rows."""
        if self._waiting:
            self._write_row_group()
        if self._writer is not None and self._out is not None:
            self._writer.close()
            self._out.close()

    def abort(self) -> None:
        """Delete what is there."""
        self._waiting = []
        if self._out is not None:
            with suppress(Exception):  # as when the disk is full; the file is deleted anyway
                if self._writer is not None:
                    self._writer.close()
            with suppress(OSError):
                self._out.close()
        files.remove(self._path)


def _texts(schema: pa.Schema) -> list[str]:
    """The columns worth a dictionary; of numbers it makes files larger, and takes longer than all the rest."""
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    return [field.name for field in schema if any(kind(field.type) for kind in kinds)]


@dataclass(frozen=True, slots=True)
class NamedPart:
    """A part whose errors name its sink: ``naming`` is a context of the sink's that sees to that."""

    part: PartWriter
    naming: Callable[[], AbstractContextManager[None]]

    def write(self, rows: pa.RecordBatch) -> None:
        """Add results."""
        with self.naming():
            self.part.write(rows)

    def close(self) -> str:
        """There are no more results; gives the name for `commit_parts`."""
        with self.naming():
            return self.part.close()

    def abort(self) -> None:
        """Leave nothing behind."""
        with self.naming():
            self.part.abort()


def write_whole(part: PartWriter, rows: pa.Table) -> str:
    """Write all results of a part at once; gives the name for `commit_parts`, or leaves nothing behind."""
    try:
        for batch in rows.to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]:
            part.write(batch)
        return part.close()
    except BaseException:
        part.abort()
        raise


def hold_equal_rows(some: Sequence[Path], others: Sequence[Path], *, ordered: bool) -> bool:
    """Whether Parquet files have the rows of others; with ``ordered``, in the same order, with the same metadata.

    Rows are compared bit by bit and as often as they occur, however they are spread over files. Where a repeated batch
    was divided otherwise, since there were other tasks, metadata are not compared: what each file says of its own rows
    is right. A file that cannot be read is unlike any other.
    """
    try:
        if _count(some) != _count(others):
            return False
        rows, other_rows = _read(some), _read(others)
        alike = len(some) != len(others) or _metadata(some) == _metadata(others)
    except (OSError, pa.ArrowException):
        return False
    if ordered:
        return alike and bool(rows.equals(other_rows))
    return bool(rows.schema.equals(other_rows.schema) and _sorted(rows).equals(_sorted(other_rows)))


def _count(paths: Sequence[Path]) -> int:
    return sum(pq.read_metadata(path).num_rows for path in paths)


def _read(paths: Sequence[Path]) -> pa.Table:
    whole = pa.concat_tables([pq.ParquetFile(path).read() for path in sorted(paths)])
    columns = [_as_bits(whole.column(number)) for number in range(whole.num_columns)]
    return pa.table(columns, names=whole.schema.names)


def _metadata(paths: Sequence[Path]) -> list[dict[bytes, bytes] | None]:
    return [pq.read_schema(path).metadata for path in sorted(paths)]


def _as_bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floating-point numbers as whole ones of the same bits, so that NaN is like NaN and 0.0 unlike -0.0."""
    bits = _BITS.get(column.type)
    return column if bits is None else pa.chunked_array([chunk.view(bits) for chunk in column.chunks], bits)


def _sorted(table: pa.Table) -> pa.Table:
    """The rows in an order that depends on nothing but their values."""
    keys = [(field.name, "ascending") for field in table.schema if not pa.types.is_null(field.type)]
    return (table.sort_by(keys) if keys else table).combine_chunks()
