"""What a table is read from: files, a table of Arrow's, a DataFrame that is no stream.

Guarantees: as `weft.ports.table` asks. All files of a folder together are a version: it is another as soon as a file
comes, goes or changes. A record that cannot be read is an error, never left out: a table that lacks a row would give
other results.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from weft.connectors.files.parts import FileStatus, parts_of
from weft.connectors.files.source import FilesSource
from weft.connectors.formats.conform import weft_type
from weft.connectors.formats.parquet import decode_table
from weft.connectors.formats.records import Decoded, SourceFile, Target
from weft.connectors.frames.source import frame_schema
from weft.errors import SourceError
from weft.logical.schema import Field, Schema
from weft.ports.source import Part
from weft.storage.objects import ObjectStatus

__all__ = [
    "ArrowTable",
    "FilesTable",
    "FrameTable",
    "arrow_schema",
    "conformed",
]

_PART_BYTES = 256 << 20  # of rows that are read at once


@dataclass(frozen=True, slots=True)
class ArrowTable:
    """A table in memory, which never becomes another."""

    table: pa.Table
    schema: Schema

    def columns(self) -> Schema:
        """The columns."""
        return self.schema

    def version(self) -> str:
        """The one there is."""
        return "given"

    def read(self, version: str) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Its rows."""
        yield conformed(self.table, self.schema, "the table")

    def count(self) -> int | None:
        """How many rows it has."""
        return int(self.table.num_rows)


@dataclass(frozen=True, slots=True)
class FilesTable:
    """All files of a folder, as `weft.files` describes them."""

    files: FilesSource

    def __post_init__(self) -> None:
        rules = self.files.rules
        if self.files.max_files_per_batch is not None or rules.archive is not None or rules.clean is not None:
            raise SourceError(
                f"files: {self.files.path} is a table, of which all files are read and none is cleaned away",
                hint="leave out max_files_per_batch, clean and archive",
            )

    def columns(self) -> Schema | None:
        """The columns."""
        return self.files.schema

    def version(self) -> str:
        """A hash of the names, sizes and times of all files, or of the names and tags of all objects."""
        return _digest(self._files())

    def _files(self) -> dict[str, FileStatus | ObjectStatus]:
        objects = self.files.objects
        statuses: dict[str, FileStatus | ObjectStatus] = {}
        if objects is not None:
            statuses = {objects.locate(status.name): status for status in objects.look()}
        if not statuses and (not os.path.exists(self.files.root) if objects is None else objects.is_empty()):
            raise SourceError(
                f"files: there is no {self.files.root} to read a table from", hint="make it, or name another"
            )
        if objects is not None:
            return statuses
        for path in self.files.paths():
            try:
                statuses[path] = FileStatus.read(path)
            except OSError:
                continue  # it has just gone
        return statuses

    def read(self, version: str) -> Iterator[pa.RecordBatch]:
        """The rows of all files; an error if they are others than those of the version."""
        statuses = self._files()
        if _digest(statuses) != version:
            raise self._changed()
        if self.files.schema is None:
            raise SourceError(f"files: the schema of {self.files.path} is not known yet")
        yield _nothing(self.files.schema)
        for path, status in sorted(statuses.items()):
            for part in self._parts(path, status) if status.size else ():
                yield _sound(self._read(part, version)).batch
        if _digest(self._files()) != version:
            raise self._changed()

    def _parts(self, path: str, status: FileStatus | ObjectStatus) -> list[Part]:
        if isinstance(status, ObjectStatus):
            objects = self.files.objects
            return [] if objects is None else [objects.part(status)]
        parts = parts_of(path, self.files.format, status, _PART_BYTES)
        if parts is None:
            raise self._changed()
        return parts

    def _read(self, part: Part, version: str) -> Decoded:
        try:
            return self.files.read("table", part)
        except SourceError:
            if _digest(self._files()) != version:
                raise self._changed() from None
            raise

    def _changed(self) -> SourceError:
        return SourceError(
            f"files: {self.files.root} changes while it is read as a table",
            hint="write files under a hidden name, then rename them; in an object store, do not replace objects",
        )

    def count(self) -> int | None:
        """How many rows the files say that they have."""
        try:
            of_files = [self._parts(path, status) for path, status in self._files().items()]
        except (SourceError, OSError):
            return None
        parts: list[Part] = [part for some in of_files for part in some]
        counts = [part.rows for part in parts if part.rows is not None]
        return sum(counts) if len(counts) == len(parts) else None


@dataclass(frozen=True, slots=True)
class FrameTable:
    """A DataFrame of Spark's that is no stream; whether its rows are others is known once they are collected."""

    frame: Any
    schema: Schema
    looks: list[int]

    @classmethod
    def of(cls, frame: Any) -> FrameTable:
        """The table of a DataFrame, whose schema is taken over."""
        return cls(frame, frame_schema(frame), [0])

    def columns(self) -> Schema:
        """The columns."""
        return self.schema

    def version(self) -> str:
        """Another one every time: the rows must be collected to be compared."""
        self.looks[0] += 1
        return f"collected {self.looks[0]}"

    def read(self, version: str) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """The rows, collected in the driver."""
        yield conformed(self.frame.toArrow(), self.schema, "the DataFrame")

    def count(self) -> int | None:
        """Not known."""
        return None


def conformed(table: pa.Table, schema: Schema, name: str) -> pa.RecordBatch:
    """The declared columns of a table, in their types."""
    file = SourceFile("table", name, b"")
    target = Target(schema)
    return _sound(decode_table(file, target, table)).batch


def _sound(rows: Decoded) -> Decoded:
    if rows.bad:
        raise SourceError(
            f"a table cannot be read: {rows.bad[0]}", hint="repair the record: no row of a table is left out"
        )
    return rows


def _nothing(schema: Schema) -> pa.RecordBatch:
    """No rows, with the declared columns."""
    empty = pa.table({field.name: pa.nulls(0) for field in schema})
    return conformed(empty, schema, "no file")


def arrow_schema(columns: pa.Schema, name: str) -> Schema:
    """The columns of an Arrow table; one of a type that no column can have is refused by name."""
    fields = []
    for field in columns:
        type_ = weft_type(field.type)
        if type_ is None:
            raise SourceError(
                f"{name}: column {field.name} has type {field.type}, which no column can have here",
                hint="cast it, or leave it out",
            )
        fields.append(Field(field.name, type_))
    return Schema(tuple(fields))


def _digest(statuses: Mapping[str, FileStatus | ObjectStatus]) -> str:
    """A text that is another whenever a file comes, goes or changes."""
    told = "\n".join(f"{path}\0{status}" for path, status in sorted(statuses.items()))
    return hashlib.blake2b(told.encode(errors="surrogateescape"), digest_size=8).hexdigest()
