"""Parquet files and Arrow IPC files and streams.

Guarantees: only declared columns are read, and of those only the needed ones, though all must be there. A file that is
cut off or damaged is set aside as a whole: the format has no records that could be saved one by one. Nothing of a file
is used before all of it was found sound.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from weft.connectors.formats.columns import assemble, locate_bad_rows, whole_file
from weft.connectors.formats.conform import check_types, conform
from weft.connectors.formats.records import Decoded, SourceFile, Target
from weft.logical.schema import Schema
from weft.ports.source import Part

__all__ = [
    "DAMAGE",
    "arrow_file_schema",
    "decode_arrow",
    "decode_parquet",
    "decode_parquet_file",
    "decode_table",
    "parquet_schema",
    "rows_of_table",
]

DAMAGE = (
    pa.ArrowException,
    OSError,
    ValueError,
    UnicodeDecodeError,
)  # what pyarrow raises on bytes that make no sense
Read = Callable[[Sequence[int]], pa.Table]  # the columns at these places


def decode_parquet(file: SourceFile, target: Target) -> Decoded:
    """The rows of a Parquet file."""
    try:
        reader = _parquet(file.content)
        schema = reader.schema_arrow
    except DAMAGE as error:
        return whole_file(file, target.needed(), f"not a readable Parquet file: {error}")

    def read(places: Sequence[int]) -> pa.Table:
        return reader.read(columns=[schema.names[place] for place in places], use_threads=False)

    return _decode(file, target, schema, read, "Parquet")


def decode_parquet_file(
    file: SourceFile, opened: BinaryIO, target: Target, first: int = 0, count: int | None = None
) -> Decoded:
    """So many row groups (None: all) from the first on of a Parquet file, which is not read into memory as a whole.

    It is read through the file that is ``opened``, whatever there is under its path by now.
    """
    try:
        reader = pq.ParquetFile(opened, **_CHECKED)
        return _decode_row_groups(file, target, reader, first, count)
    except DAMAGE as error:
        _raise_if_from_the_system(error)
        return whole_file(file, target.needed(), f"not a readable Parquet file: {error}")


def _decode_row_groups(
    file: SourceFile, target: Target, reader: Any, first: int, count: int | None
) -> Decoded:
    schema, metadata = reader.schema_arrow, reader.metadata
    groups = range(first, metadata.num_row_groups if count is None else first + count)

    def read(places: Sequence[int]) -> pa.Table:
        names = [schema.names[place] for place in places]
        return reader.read_row_groups(list(groups), columns=names, use_threads=False)

    before = sum(metadata.row_group(group).num_rows for group in range(first))
    return _decode(file, target, schema, read, "Parquet", before)


def _raise_if_from_the_system(error: BaseException) -> None:
    """Raise errors of the file system again: they do not mean that the file is damaged, and it may be read later."""
    if isinstance(error, OSError) and error.errno is not None:
        raise error


_CHECKED = {"page_checksum_verification": True}


def _parquet(content: bytes) -> Any:
    return pq.ParquetFile(pa.BufferReader(content), **_CHECKED)


def parquet_schema(content: bytes) -> pa.Schema:
    """The columns of a Parquet file."""
    return _parquet(content).schema_arrow


def decode_arrow(file: SourceFile, target: Target) -> Decoded:
    """The rows of an Arrow IPC file or stream."""
    try:
        schema = arrow_file_schema(file.content)
    except DAMAGE as error:
        return whole_file(file, target.needed(), f"not a readable Arrow file: {error}")

    def read(places: Sequence[int]) -> pa.Table:
        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=sorted(places))
        with _arrow(file.content, options) as reader:
            table = reader.read_all()
        table.validate(full=True)  # offsets from outside are not to be trusted
        return table

    return _decode(file, target, schema, read, "Arrow")


def _arrow(content: bytes, options: pa.ipc.IpcReadOptions | None = None) -> Any:
    is_file = content[:6] == b"ARROW1"
    return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(pa.BufferReader(content), options=options)


def arrow_file_schema(content: bytes) -> pa.Schema:
    """The columns of an Arrow IPC file or stream."""
    with _arrow(content) as reader:
        return reader.schema


def _decode(
    file: SourceFile, target: Target, schema: pa.Schema, read: Read, name: str, before: int = 0
) -> Decoded:
    check_types(schema, target, file)
    needed = target.needed()
    try:
        table = read(check_types(schema, needed, file))
    except DAMAGE as error:
        _raise_if_from_the_system(error)
        return whole_file(file, needed, f"not a readable {name} file: {error}")
    return decode_table(file, needed, table, before)


def decode_table(
    file: SourceFile, target: Target, table: pa.Table | pa.RecordBatch, before: int = 0
) -> Decoded:
    """The rows of a table as the declared columns; ``before`` is how many rows come before them in the file."""
    places = check_types(table.schema, target, file)
    fields = target.schema.fields
    columns = [conform(table.column(place), field.type) for place, field in zip(places, fields, strict=True)]
    made = assemble(columns, target)
    return locate_bad_rows(
        file,
        made,
        made.reasons,
        lambda rows: [_place(table, places, target.schema, row, before) for row in rows],
    )


def rows_of_table(
    table: pa.Table,
    schema: Schema,
    stream: str,
    part: Part,
    event_time: str | None = None,
    columns: Collection[str] | None = None,
    latest: int | None = None,
) -> Decoded:
    """The rows of a table as `weft.ports.source.Source.read` is to give them, which takes the same arguments.

    Columns must fit those of the schema, as a Parquet file's must: else this is a `SourceError`. Rows with a value that
    its type cannot hold, without an event time, or with one after ``latest`` are set aside.
    """
    target = Target.of(schema, event_time, columns, latest)
    return decode_table(SourceFile(stream, part.place, b""), target.needed(), table)


def _place(
    table: pa.Table | pa.RecordBatch, places: Sequence[int], schema: Schema, row: int, before: int
) -> dict[str, Any]:
    values = {
        name: _shown(table.column(place)[row]) for name, place in zip(schema.names, places, strict=True)
    }
    return {"row": before + row + 1, "raw": json.dumps(values, ensure_ascii=False, default=str).encode()}


def _shown(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):  # a text that is no UTF-8, a time that Python does not know
        return repr(scalar.cast(pa.binary()).as_py()) if pa.types.is_string(scalar.type) else scalar.value
