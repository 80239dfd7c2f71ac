"""Files that appear in a folder, or objects in a store, as a stream.

Guarantees: a description that exists is valid: its format, options and schema were checked when it was made, and
nothing was read or started. Only `resolve`, `first_files`, `count`, `open` and `read` touch files.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa

from weft.connectors.files.checks import open_file
from weft.connectors.files.cleaner import check_archive
from weft.connectors.files.cursor import FileCursor, FileRules
from weft.connectors.files.listing import Listing, name_matcher
from weft.connectors.files.object_files import ObjectCursor, ObjectFolder
from weft.connectors.files.parts import FORMATS, read_part
from weft.connectors.formats.conform import weft_type
from weft.connectors.formats.csv import CsvOptions
from weft.connectors.formats.parquet import DAMAGE, arrow_file_schema, parquet_schema
from weft.connectors.formats.records import Decoded, Target, check_readable
from weft.errors import SourceError, nearest
from weft.logical.arguments import checked
from weft.logical.schema import DataType, Field, Schema, SchemaLike, schema_of
from weft.logical.times import parse_duration
from weft.ports.source import Cursor, CursorContext, Part
from weft.storage.uris import is_object_uri, normal_place

__all__ = [
    "FilesSource",
    "files",
    "local_path",
]

_RULES = ("unfinished_after", "missing", "clean", "archive")
_COMMON = ("glob", "recursive", *_RULES)
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
    rules: FileRules = FileRules()  # noqa: RUF009
    enclosed: bool = False  # whether no symbolic link may lead out of the folder, whose path then has none

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise SourceError(f"files: unknown format {self.format!r}", hint=nearest(self.format, FORMATS))
        if not self.path.strip():
            raise SourceError(
                "files: the path is empty", hint='name a directory, as in files("parquet", "in")'
            )
        if not is_local(self.path) and not is_object_uri(self.path):
            raise SourceError(
                f"files: {self.path} is neither a path of this machine nor in an object store",
                hint="name a folder that the driver and all tasks see under the same path, or s3://bucket/folder",
            )
        if is_object_uri(self.path) and self.rules.clean is not None:
            raise SourceError(
                f"files: objects in {self.path} cannot be cleaned up",
                hint="leave clean out, and let the store delete old objects by a rule of its own",
            )
        if self.schema is None and self.format in ("json", "csv"):
            raise SourceError(
                f"files: {self.format} files in {self.path} do not tell their types",
                hint='give schema="vid long, ts timestamp"',
            )
        if self.schema is not None:
            check_readable("files", self.format, self.schema)
        if self.max_files_per_batch is not None and self.max_files_per_batch < 1:
            raise SourceError(
                f"files: max_files_per_batch is {self.max_files_per_batch}", hint="use 1 or more"
            )

    @property
    def root(self) -> str:
        """The folder (or the file) that is read, as an absolute path."""
        return self.path if self.objects is not None else local_path(self.path)

    @property
    def objects(self) -> ObjectFolder | None:
        """The objects that are read, if they are in an object store."""
        if not is_object_uri(self.path):
            return None
        return ObjectFolder(normal_place(self.path), self.format, self.glob, self.recursive)

    def open(self, context: CursorContext) -> Cursor:
        """The files of the folder that have been taken, and those that wait; the folder need not be there yet."""
        if (objects := self.objects) is not None:
            return ObjectCursor(context, objects, self.max_files_per_batch)
        listing, root = self._listing(), self.root
        if not os.path.exists(root) and re.search(r"[*?[{]", root):
            raise SourceError(
                f"{context.stream}: there is no folder {root}",
                hint='name the folder and give glob="*.parquet" for the names of its files',
            )
        if self.rules.archive is not None:
            check_archive(listing.root, self.rules.archive, recursive=self.recursive)
        return FileCursor(context, self.format, listing, self.rules, self.max_files_per_batch)

    def read(
        self,
        stream: str,
        part: Part,
        event_time: str | None = None,
        columns: Collection[str] | None = None,
        latest: int | None = None,
    ) -> Decoded:
        """The rows of a part; formats that store each column by itself are read in ``columns`` alone, if given."""
        if self.schema is None:
            raise SourceError(
                f"{stream}: the schema of {self.path} is not known yet", hint="call resolve() first"
            )
        target = Target.of(self.schema, event_time, columns, latest)
        if (objects := self.objects) is not None:
            return objects.read(stream, part, target, self.csv, self.rules.missing)
        return read_part(stream, part, self.format, target, self.csv, self.rules.missing, self._within)

    def count(self) -> int:
        """How many files there are."""
        return len(self.paths())

    def paths(self) -> list[str]:
        """The paths of all files that are there now, sorted."""
        if (objects := self.objects) is not None:
            return [objects.locate(status.name) for status in objects.look()]
        listing = self._listing()
        listing.refresh()
        return sorted(os.path.join(listing.root, name) for name in listing.names)

    def _listing(self) -> Listing:
        """The names of the files that are read; a path may also be that of a single file."""
        if os.path.isfile(self.root):
            folder, name = os.path.split(self.root)
            return Listing(folder, name.__eq__, within=self._within)
        return Listing(self.root, name_matcher(self.glob), recursive=self.recursive, within=self._within)

    @property
    def _within(self) -> str | None:
        return self.root if self.enclosed else None

    def first_files(self) -> Iterator[tuple[str, bytes]]:
        """The files that are not empty, by name, and their content."""
        for path in self.paths():
            content = self._content(path) if self.objects is None else self.objects.content(path)
            if content:
                yield path, content

    def _content(self, path: str) -> bytes:
        try:
            with open_file(path, self._within) as file:
                return file.read()
        except FileNotFoundError:  # it has just gone
            return b""
        except OSError as error:
            raise SourceError(
                f"files: {path} cannot be read: {error.strerror or error}", hint="make it readable"
            ) from None

    def resolve(self) -> FilesSource:
        """The same source with its schema, if need be that of the directory's first finished file."""
        return self if self.schema is not None else replace(self, schema=_infer(self))


@checked(SourceError)
def files(
    format: str,  # noqa: A002
    path: str | Path,
    *,
    schema: SchemaLike | None = None,
    max_files_per_batch: int | None = None,
    **options: Any,
) -> FilesSource:
    """Files as they appear in a directory, or objects as they appear in an object store.

    - ``format``: "parquet", "arrow" (IPC), "json" (a value on each line) or "csv" (with a header). Texts may be
      compressed: `.csv.gz`, `.json.zst`, `.csv.bz2`.
    - ``path``: the directory, or a URI as in "s3://bucket/in".
    - ``schema``: columns and their types, as in "vid long, ts timestamp"; Parquet and Arrow files know their own.
    - ``max_files_per_batch``: how many files a batch takes at most.
    - ``options``: for every format `glob` and `recursive`; `unfinished_after`, `missing`, `clean` and `archive` (see
      `FileRules`); for csv also `delimiter`, `quote`, `encoding` and `null`.

    >>> files("csv", "in", schema="vid long, ts timestamp", delimiter=";").csv.delimiter
    ';'
    """
    permitted = (*_COMMON, *_OPTIONS.get(format, ()))
    for name in options:
        if name not in permitted:
            offered = nearest(name, (*permitted, "schema", "max_files_per_batch"))
            raise SourceError(f"files: {format} has no option {name!r}", hint=offered)
    csv = (
        _csv({name: value for name, value in options.items() if name not in _COMMON})
        if format == "csv"
        else None
    )
    columns = None if schema is None else schema_of(schema)
    common = {name: options[name] for name in ("glob", "recursive") if name in options}
    place = str(path)
    if is_object_uri(place):
        place = normal_place(place)
    elif place.strip() and is_local(place):
        place = local_path(place)
    return FilesSource(format, place, columns, max_files_per_batch, csv, rules=_rules(options), **common)


def is_local(path: str) -> bool:
    """Whether a path is one of the file system that every task sees."""
    return path.startswith("file:") or not re.match(r"[A-Za-z][\w+.-]+:/", path)


def local_path(path: str) -> str:
    """A path, or a URI of a file, as an absolute path.

    >>> local_path("file:///in/a%20b"), local_path("/in/../out")
    ('/in/a b', '/out')
    """
    return os.path.abspath(unquote(urlparse(path).path) if path.startswith("file:") else path)


def _rules(options: Mapping[str, Any]) -> FileRules:
    rules = {name: options[name] for name in _RULES if name in options}
    after = rules.get("unfinished_after")
    if isinstance(after, str):
        rules["unfinished_after"] = parse_duration(after)
    elif after is not None and not isinstance(after, timedelta):
        raise SourceError(
            f"files: unfinished_after cannot be {after!r}", hint='use a text, as in "30 seconds"'
        )
    if rules.get("archive") is not None:
        rules["archive"] = local_path(os.fspath(rules["archive"]))
    return FileRules(**rules)


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
    for path, content in source.first_files():
        try:
            columns = read(content)
        except DAMAGE:
            damaged += 1
            continue
        return Schema(tuple(_field(field, path) for field in columns))
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
