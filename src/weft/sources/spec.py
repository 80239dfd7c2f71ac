"""What a stream is read from.

Guarantees: a description that exists is valid: its format, options and schema were checked when it was made, and
nothing was read or started. Only `resolve` and `load` touch files or Spark.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.fs as pafs

from weft.errors import SourceError, nearest
from weft.logical.schema import DataType, Field, Schema
from weft.sources.conform import weft_type
from weft.sources.csv_records import CsvOptions
from weft.sources.decode import FORMATS, decode, is_unfinished
from weft.sources.frames import DataFrameSource
from weft.sources.parquet import DAMAGE, arrow_file_schema, parquet_schema
from weft.sources.rate import RateSource
from weft.sources.records import Decoded, SourceFile, Target

__all__ = ["BINARY_FILES", "FilesSource", "Source", "files", "is_local"]

# The rows of Spark's binaryFile format: the bytes of one file in each.
BINARY_FILES = "path string, modificationTime timestamp, length long, content binary"

_COMMON = ("glob", "recursive")
_OPTIONS = {"parquet": (), "arrow": (), "json": (), "csv": ("delimiter", "quote", "encoding", "null")}


@dataclass(frozen=True, slots=True)
class FilesSource:
    """Files that appear in a directory. Without a schema, that of the first file is meant: see `resolve`."""

    format: str
    path: str
    schema: Schema | None = None
    max_files_per_batch: int | None = None
    csv: CsvOptions | None = None
    glob: str | None = None
    recursive: bool = False

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise SourceError(f"files: unknown format {self.format!r}", hint=nearest(self.format, FORMATS))
        if not self.path.strip():
            raise SourceError(
                "files: the path is empty", hint='name a directory, as in files("parquet", "in")'
            )
        if self.schema is None and self.format in ("json", "csv"):
            raise SourceError(
                f"files: {self.format} files in {self.path} do not tell their types",
                hint='give schema="vid long, ts timestamp"',
            )
        if self.max_files_per_batch is not None and self.max_files_per_batch < 1:
            raise SourceError(
                f"files: max_files_per_batch is {self.max_files_per_batch}", hint="use 1 or more"
            )

    def reader_options(self) -> dict[str, str]:
        """The options of Spark's file source that this description stands for."""
        options: dict[str, str] = {}
        if self.max_files_per_batch is not None:
            options["maxFilesPerTrigger"] = str(self.max_files_per_batch)
        if self.glob is not None:
            options["pathGlobFilter"] = self.glob
        if self.recursive:
            options["recursiveFileLookup"] = "true"
        return options

    def load(self, reader: Any) -> Any:
        """A streaming DataFrame of (path, content), each row to be decoded by `decode`.

        A file that tasks reach under its path they read themselves: the bytes need not pass through the JVM.
        """
        binary = reader.format("binaryFile").schema(BINARY_FILES)
        found = binary.options(**self.reader_options()).load(self.path)
        content = "CAST(NULL AS BINARY) AS content" if is_local(self.path) else "content"
        return found.selectExpr("path", content)

    def decode(
        self,
        name: str,
        path: str,
        content: bytes | None,
        event_time: str | None = None,
        columns: Collection[str] | None = None,
    ) -> Decoded | None:
        """The rows of one file for the stream of that name; None if the file is not finished.

        Formats that keep columns apart are read in the given ones alone, if any are given.
        """
        content = _read(name, path) if content is None else content
        if is_unfinished(path, len(content)):
            return None
        if self.schema is None:
            raise SourceError(
                f"{name}: the schema of {self.path} is not known yet", hint="call resolve() first"
            )
        target = Target(self.schema, event_time, None if columns is None else frozenset(columns))
        return decode(SourceFile(name, path, content), self.format, target, self.csv)

    def count(self) -> int | None:
        """How many files there are; None if that cannot be told without asking somebody else."""
        if not is_local(self.path):
            return None
        root = Path(unquote(urlparse(self.path).path) if self.path.startswith("file:") else self.path)
        found = root.rglob(self.glob or "*") if self.recursive else root.glob(self.glob or "*")
        return sum(1 for file in found if file.is_file() and not file.name.startswith((".", "_")))

    def resolve(self) -> FilesSource:
        """The same source with its schema, if need be that of the directory's first finished file."""
        return self if self.schema is not None else replace(self, schema=_infer(self))


def files(
    format: str,  # noqa: A002
    path: str,
    *,
    schema: Schema | str | None = None,
    max_files_per_batch: int | None = None,
    **options: Any,
) -> FilesSource:
    """Files as they appear in a directory: parquet, arrow (IPC), json (lines) or csv (with a header).

    Every format takes `glob` and `recursive`; csv also `delimiter`, `quote`, `encoding` and `null`.

    >>> files("csv", "in", schema="vid long, ts timestamp", delimiter=";").csv.delimiter
    ';'
    """
    known = (*_COMMON, *_OPTIONS.get(format, ()))
    for name in options:
        if name not in known:
            offered = nearest(name, (*known, "schema", "max_files_per_batch"))
            raise SourceError(f"files: {format} has no option {name!r}", hint=offered)
    csv = (
        _csv({name: value for name, value in options.items() if name not in _COMMON})
        if format == "csv"
        else None
    )
    columns = Schema.parse(schema) if isinstance(schema, str) else schema
    common = {name: options[name] for name in _COMMON if name in options}
    return FilesSource(format, str(path), columns, max_files_per_batch, csv, **common)


def is_local(path: str) -> bool:
    """Whether a path is one of the file system that every task sees."""
    return path.startswith("file:") or not re.match(r"[A-Za-z][\w+.-]+:/", path)


def _read(name: str, path: str) -> bytes:
    """The bytes of a file, given as Spark names it."""
    try:
        return Path(re.sub(r"^file:(//(?=/))?", "", path)).read_bytes()
    except OSError as error:
        raise SourceError(
            f"{name}: file {path} cannot be read: {error.strerror}",
            hint="put it back: its batch is not done, and files may go only afterwards",
        ) from None


def _csv(options: Mapping[str, Any]) -> CsvOptions:
    made = CsvOptions(**options)
    for name, value, least in (("delimiter", made.delimiter, 1), ("quote", made.quote, 0)):
        if not (isinstance(value, str) and least <= len(value) <= 1 and value.isascii()) or value in (
            "\r",
            "\n",
        ):
            raise SourceError(f"files: csv {name} is {value!r}", hint="it must be one ASCII character")
    if made.delimiter == made.quote:
        raise SourceError(f"files: csv delimiter and quote are both {made.quote!r}")
    try:
        codecs.lookup(made.encoding)
    except LookupError as error:
        raise SourceError(f"files: {error}", hint="for example utf-8, latin-1 or cp1252") from None
    return made


def _infer(source: FilesSource) -> Schema:
    read = parquet_schema if source.format == "parquet" else arrow_file_schema
    damaged = 0
    for path, content in _first_files(source):
        try:
            found = read(content)
        except DAMAGE:
            damaged += 1
            continue
        return Schema(tuple(_field(field, path) for field in found))
    skipped = f" ({damaged} could not be read)" if damaged else ""
    raise SourceError(
        f"files: no {source.format} file in {source.path} to take the schema from{skipped}",
        hint='put one there, or give schema="vid long, ts timestamp"',
    )


def _field(field: pa.Field, path: str) -> Field:
    type_: DataType | None = weft_type(field.type)
    if type_ is None:
        raise SourceError(
            f"files: {path}: column {field.name} has type {field.type}, which no column can have here",
            hint="give schema= with the columns you need",
        )
    return Field(field.name, type_)


def _first_files(source: FilesSource) -> Iterator[tuple[str, bytes]]:
    """The finished files of a directory, by name, and their content."""
    system, root = _file_system(source.path)
    selector = pafs.FileSelector(root, recursive=source.recursive, allow_not_found=True)
    infos = [system.get_file_info(root)]
    if infos[0].type != pafs.FileType.File:
        infos = sorted(system.get_file_info(selector), key=lambda info: str(info.path))
    for info in infos:
        if info.type == pafs.FileType.File and not is_unfinished(info.path, info.size):
            with system.open_input_file(info.path) as stream:
                yield info.path, stream.read()


def _file_system(path: str) -> tuple[Any, str]:
    """The file system of a path or URI, and the path there."""
    if is_local(path):
        return pafs.LocalFileSystem(), unquote(urlparse(path).path) if path.startswith("file:") else path
    try:
        system, root = pafs.FileSystem.from_uri(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SourceError(f"files: cannot look into {path}: {error}", hint="give schema=") from None
    return system, root


Source: TypeAlias = FilesSource | RateSource | DataFrameSource
