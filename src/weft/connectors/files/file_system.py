"""The few things sinks do to a file system.

Guarantees: each function is one step that happens or does not, so a crash falls between two of them. What was
written and moved survives a loss of power, as far as the file system keeps its promises.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = [
    "ParquetFile",
    "make_directory",
    "move",
    "names_in",
    "remove",
    "set_aside",
    "try_writing",
    "write_parquet",
    "write_text",
]

_TRIED = 1 << 16  # bytes
_ROW_GROUP = 1 << 25  # bytes in memory that all row groups but the last have at least


def make_directory(path: Path) -> None:
    """See to it that a directory exists."""
    path.mkdir(parents=True, exist_ok=True)


def write_parquet(path: Path, table: pa.Table, compression: str) -> None:
    """Write a file, which is complete only when this returns."""
    file = ParquetFile(path, compression)
    try:
        file.write(table)
        file.close()
    except BaseException:
        file.abort()
        raise


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
        remove(self._path)


def _texts(schema: pa.Schema) -> list[str]:
    """The columns worth a dictionary; of numbers it makes files larger, and takes longer than all the rest."""
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    return [field.name for field in schema if any(kind(field.type) for kind in kinds)]


def write_text(path: Path, text: str) -> None:
    """Write a small file at once."""
    partial = path.with_name(f".{path.name}.tmp")
    with partial.open("w", encoding="utf-8") as out:
        out.write(text)
        _flush(out.fileno())
    partial.replace(path)


def try_writing(directory: Path) -> None:
    """Write a small file and remove it; an `OSError` tells what is in the way, a full disk among others."""
    with tempfile.NamedTemporaryFile(prefix=".try-", dir=directory) as out:
        out.write(bytes(_TRIED))
        out.flush()
        _flush(out.fileno())


def move(source: Path, target: Path) -> None:
    """Rename a file or a directory, at once; the target must not be there."""
    source.rename(target)
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def set_aside(source: Path, target: Path) -> None:
    """Rename a directory at once, if it is there; after a loss of power it may have its old name again."""
    with suppress(FileNotFoundError):
        source.rename(target)


def flush(path: Path) -> None:
    """See to it that a file survives a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _flush(descriptor)
    finally:
        os.close(descriptor)


def names_in(path: Path) -> set[str]:
    """The files of a directory, which need not be there."""
    try:
        return set(os.listdir(path))
    except FileNotFoundError:
        return set()


def remove(path: Path) -> None:
    """Delete a file or a directory with all it holds; it need not be there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _flush(descriptor: int) -> None:
    os.fsync(descriptor)
