"""Any streaming DataFrame as a source: the row path, slower than the bytes path.

Guarantees: the DataFrame's columns are taken over, and one of a type that no column can have here is refused by name
before anything starts. Its rows pass from the JVM to Python once, where they become bytes like those of an Arrow file;
from then on they are treated as a file's are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from weft.errors import SourceError
from weft.logical.schema import DataType, Field, Schema, parse_type
from weft.sources.parquet import decode_arrow
from weft.sources.records import Decoded, SourceFile, Target

__all__ = ["DataFrameSource", "dataframe", "pack"]

PACKED = "path string, content binary"


@dataclass(frozen=True, slots=True)
class DataFrameSource:
    """Any streaming DataFrame."""

    frame: Any
    schema: Schema

    def load(self, reader: Any) -> Any:  # noqa: ARG002
        """A streaming DataFrame of (path, content), each row to be decoded by `decode`."""
        return self.frame.mapInArrow(pack, PACKED)

    def decode(
        self,
        name: str,
        path: str,
        content: bytes,
        event_time: str | None = None,
        columns: Collection[str] | None = None,
    ) -> Decoded:
        """The rows of one packed batch for the stream of that name; the given columns alone, if any are given."""
        target = Target(self.schema, event_time, None if columns is None else frozenset(columns))
        return decode_arrow(SourceFile(name, path, content), target)

    def __reduce__(self) -> tuple[Any, ...]:
        return DataFrameSource, (None, self.schema)  # tasks decode; the DataFrame stays in the driver


def dataframe(frame: Any) -> DataFrameSource:
    """A streaming DataFrame as a source; its schema is taken over."""
    if not getattr(frame, "isStreaming", False):
        raise SourceError(
            "dataframe: this is not a streaming DataFrame",
            hint="make it with spark.readStream, not spark.read",
        )
    fields = [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]
    return DataFrameSource(
        frame, Schema(tuple(Field(name, _spark_type(name, kind)) for name, kind in fields))
    )


_FROM_SPARK = re.compile(
    r"tinyint|smallint|int|bigint|float|double|decimal\(\d+,\d+\)|string|binary|boolean|date|timestamp"
)


def _spark_type(name: str, kind: str) -> DataType:
    if not _FROM_SPARK.fullmatch(kind):
        raise SourceError(
            f"dataframe: column {name} has type {kind}, which no column can have here",
            hint="cast it, or drop it with select",
        )
    return parse_type(kind)


def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Every batch of rows as one row of bytes: an Arrow stream."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        content = pa.array([sink.getvalue().to_pybytes()], pa.binary())
        yield pa.record_batch({"path": pa.array(["dataframe"]), "content": content})
