"""Any streaming DataFrame as a source; slower than files, whose bytes tasks read themselves.

Guarantees: the DataFrame's columns are taken over, and one of a type that no column can have here is refused by name
before anything starts. Its rows pass from the JVM to Python once, where a small streaming query of its own writes them
to Arrow files; from then on they are treated as a file's are. The rows of each of Spark's batches become one folder of
files, which is there as a whole or not at all: tasks write elsewhere, and the files of the attempts that count are put
in place by one rename. A batch that Spark runs again because it could not note its end finds its folder and is skipped,
so that every row is written once. Spark's checkpoint lies beside the files; if either was lost, the numbers of batches
do not follow each other, and that is an error instead of rows that come twice or never. Files are deleted once they
were read and their batch is committed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from weft.connectors.files.cursor import FileCursor, FileRules
from weft.connectors.files.listing import Listing, name_matcher
from weft.connectors.files.parts import read_part
from weft.connectors.formats.records import Decoded, Target
from weft.errors import SourceError, WeftError
from weft.logical.schema import DataType, Field, Schema, parse_type
from weft.ports.source import CursorContext, Offer, Part

__all__ = [
    "DataFrameSource",
    "FrameCursor",
    "FrameFolder",
    "dataframe",
    "frame_schema",
    "write_arrow_files",
]


_WRITTEN = "file string"
_FILE_BYTES = 64 << 20  # of rows, after which a task begins another file


@dataclass(frozen=True, slots=True)
class FrameFolder:
    """The folder that the batches of a DataFrame are written to."""

    root: Path

    @property
    def complete_batches(self) -> Path:
        """The folder of the batches that are complete."""
        return self.root / "arrow"

    @property
    def checkpoint(self) -> Path:
        """The folder of Spark's own checkpoint of the query."""
        return self.root / "spark"

    def batches(self) -> list[int]:
        """The numbers of the batches that were written, in order; the last one stays even when it was read."""
        matches = (re.fullmatch(r"batch-(\d+)", entry.name) for entry in self.complete_batches.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def batch(self, number: int) -> Path:
        """The folder of a batch."""
        return self.complete_batches / f"batch-{number:012d}"

    def write_batch(self, frame: Any, number: int) -> None:
        """Write a batch, unless it is there already."""
        self.complete_batches.mkdir(parents=True, exist_ok=True)
        before = self.batches()
        last = before[-1] if before else -1
        if number == last:
            return
        if number != last + 1:
            raise SourceError(
                f"Spark begins batch {number} of the DataFrame after batch {last} was put down: parts of {self.root} "
                "were lost",
                hint="restore it from a copy of the checkpoint, or begin with another checkpoint",
            )
        writing, ready = self.root / "writing", self.root / "ready"
        for folder in (writing, ready):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        for row in frame.mapInArrow(_TaskWriter(str(writing)), _WRITTEN).collect():
            os.rename(writing / row[0], ready / row[0])
        _flush(ready)
        os.rename(ready, self.batch(number))
        _flush(self.complete_batches)
        for old in before:
            with contextlib.suppress(OSError):  # it is not empty: there are files that wait to be read
                self.batch(old).rmdir()


def _flush(folder: Path) -> None:
    """Make sure that the names in a folder survive a crash of the machine."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@dataclass(frozen=True, slots=True)
class _TaskWriter:
    """What a task does with its rows: it writes them as files, and tells their names when all are written."""

    folder: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = (0, 0) if context is None else (context.partitionId(), context.taskAttemptId())
        names = list(write_arrow_files(batches, self.folder, "part-{:05d}-{}".format(*task)))
        yield pa.record_batch({"file": pa.array(names, pa.string())})


def write_arrow_files(batches: Iterator[pa.RecordBatch], folder: str, prefix: str) -> Iterator[str]:
    """Write rows into files of bounded size; gives the name of each when it is complete."""
    filled = (batch for batch in batches if batch.num_rows)
    number, batch = 0, next(filled, None)
    while batch is not None:
        name = f"{prefix}-{number:03d}.arrow"
        with open(os.path.join(folder, name), "xb") as file:
            size, writer = 0, pa.ipc.new_file(file, batch.schema)
            while batch is not None and size < _FILE_BYTES:
                writer.write_batch(batch)
                size += batch.nbytes
                batch = next(filled, None)
            writer.close()
            file.flush()
            os.fsync(file.fileno())
        yield name
        number += 1


class FrameCursor:
    """The query that writes a DataFrame to files, and those of its files that have been taken."""

    def __init__(self, frame: Any, context: CursorContext) -> None:
        self._stream, self._folder = context.stream, FrameFolder(context.folder.absolute())
        self._folder.complete_batches.mkdir(parents=True, exist_ok=True)
        self._failure: SourceError | None = None
        listing = Listing(str(self._folder.complete_batches), name_matcher(None), recursive=True)
        here = replace(context, state={**context.state, "folder": listing.root})  # a checkpoint may be moved
        self._files = FileCursor(here, "arrow", listing, FileRules(clean="delete"))
        name = f"weft: {context.stream} [{zlib.crc32(str(self._folder.root).encode()):08x}]"
        self._query = (
            frame.writeStream.queryName(name)
            .option("checkpointLocation", str(self._folder.checkpoint))
            .foreachBatch(self._write_batch)
            .start()
        )

    def _write_batch(self, frame: Any, number: int) -> None:
        try:
            self._folder.write_batch(frame, number)
        except WeftError as error:
            self._failure = SourceError(f"{self._stream}: {error.message}", hint=error.hint)
            raise
        except Exception as error:  # it ends the query; Spark would hide it in a trace
            self._failure = self._ended(_first_lines(str(error)))
            raise

    def look(self, now: float) -> Offer:
        """The files that were written and not taken; a `SourceError` if the query has failed."""
        self._raise_if_ended()
        return self._files.look(now)

    def _raise_if_ended(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._query.isActive:
            return
        error = self._query.exception()
        told = "it was stopped" if error is None else _first_lines(str(error))
        self._failure = self._ended(told)
        raise self._failure

    def _ended(self, why: str) -> SourceError:
        return SourceError(
            f"{self._stream}: Spark's query that reads the DataFrame has ended: {why}",
            hint="correct the DataFrame or its source and start the session again: nothing is lost",
        )

    def take(self, parts: Sequence[Part]) -> None:
        """Never offer these files again."""
        self._files.take(parts)

    def state(self) -> dict[str, Any]:
        """The files that were taken."""
        return self._files.state()

    def release(self, parts: Sequence[Part]) -> None:
        """Delete files that were read."""
        self._files.release(parts)

    def catch_up(self) -> None:
        """Wait until the query has written all that its sources have; if it fails, the next look says so."""
        with contextlib.suppress(Exception):
            self._query.processAllAvailable()
        self._files.catch_up()

    def close(self) -> None:
        """Stop the query, unless Spark itself has ended."""
        with contextlib.suppress(Exception):
            self._query.stop()


def _first_lines(text: str) -> str:
    """The beginning of a message of Spark's, which may have many lines."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[:3])[:500]


@dataclass(frozen=True, slots=True)
class DataFrameSource:
    """Any streaming DataFrame."""

    frame: Any
    schema: Schema

    def open(self, context: CursorContext) -> FrameCursor:
        """Start a query that writes the rows to files in the context's folder, which the tasks must see too."""
        return FrameCursor(self.frame, context)

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
    r"(?:(?:array|map|struct)<.*>)"
    r"|tinyint|smallint|int|bigint|float|double|decimal\(\d+,\d+\)|string|binary|boolean|date|timestamp"
)


def _spark_type(name: str, kind: str) -> DataType:
    if not _FROM_SPARK.fullmatch(kind):
        raise SourceError(
            f"dataframe: column {name} has type {kind}, which no column can have here",
            hint="cast it, or drop it with select",
        )
    return parse_type(kind)
