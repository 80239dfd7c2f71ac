"""Any streaming DataFrame as a source; slower than files, whose bytes tasks read themselves.

Guarantees: the DataFrame's columns are taken over, and one of a type that no column can have here is refused by name
before anything starts. Its rows pass from the JVM to Python once, where they become Arrow files (see `frame_query`);
from then on they are treated as a file's are.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from weft.connectors.files.parts import read_part
from weft.connectors.formats.records import Decoded, Target
from weft.connectors.frames.frame_query import FrameCursor
from weft.errors import SourceError
from weft.logical.schema import DataType, Field, Schema, parse_type
from weft.ports.source import Part, Place

__all__ = ["DataFrameSource", "dataframe", "frame_schema"]


@dataclass(frozen=True, slots=True)
class DataFrameSource:
    """Any streaming DataFrame."""

    frame: Any
    schema: Schema

    def open(self, place: Place) -> FrameCursor:
        """Start a query that writes the rows to files in the place's folder, which the tasks must see too."""
        return FrameCursor(self.frame, place)

    def read(
        self,
        stream: str,
        part: Part,
        event_time: str | None = None,
        columns: Collection[str] | None = None,
        latest: int | None = None,
    ) -> Decoded:
        """The rows of a file that the query wrote; the given columns alone, if any are given."""
        target = Target.of(self.schema, event_time, columns, latest)
        return read_part(stream, part, "arrow", target, None, "error")

    def __reduce__(self) -> tuple[Any, ...]:
        return DataFrameSource, (None, self.schema)  # tasks read; the DataFrame stays in the driver


def dataframe(frame: Any) -> DataFrameSource:
    """A streaming DataFrame as a source; its schema is taken over."""
    if not getattr(frame, "isStreaming", False):
        raise SourceError(
            "dataframe: this is not a streaming DataFrame",
            hint="make it with spark.readStream, not spark.read",
        )
    return DataFrameSource(frame, frame_schema(frame))


def frame_schema(frame: Any) -> Schema:
    """The columns of a DataFrame."""
    fields = [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]
    return Schema(tuple(Field(name, _spark_type(name, kind)) for name, kind in fields))


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
