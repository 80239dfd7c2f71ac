"""Delta tables as tables, read without Java by delta-rs.

Guarantees: as `weft.ports.table` asks: a version is one of the table's own, and is read as the table's log has it, so
files that are added meanwhile are not part of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from weft.connectors.tables.readers import arrow_schema, conformed
from weft.errors import ConfigError, SourceError
from weft.logical.arguments import checked
from weft.logical.schema import Schema, SchemaLike, schema_of
from weft.storage.objects import delta_options, delta_reason
from weft.storage.uris import is_object_uri, normal_place

__all__ = [
    "DeltaReader",
    "delta",
]


@dataclass(frozen=True, slots=True)
class DeltaReader:
    """A Delta table: its newest version at any time or, with a number, always that one."""

    path: str
    pinned: int | None = None
    declared: Schema | None = None
    _found: dict[str, Schema] = field(default_factory=dict, repr=False, compare=False)

    def columns(self) -> Schema:
        """The declared columns or, without, those of the table when it was first looked at."""
        if self.declared is not None:
            return self.declared
        if self.path not in self._found:
            schema = pa.schema(self._opened(self.pinned).schema().to_arrow())
            self._found[self.path] = arrow_schema(schema, f"delta: {self.path}")
        return self._found[self.path]

    def version(self) -> str:
        """The number of the version."""
        return str(self._opened(self.pinned).version())

    def read(self, version: str) -> Iterator[pa.RecordBatch]:
        """The rows of a version."""
        schema, name = self.columns(), f"version {version} of {self.path}"
        yield conformed(pa.table({field.name: pa.nulls(0) for field in schema}), schema, name)
        opened = self._opened(int(version))
        try:
            for batch in opened.to_pyarrow_dataset().to_batches(columns=list(schema.names)):
                yield conformed(pa.Table.from_batches([batch]), schema, name)
        except SourceError:
            raise
        except Exception as error:  # delta-rs and Arrow raise what they like
            raise SourceError(f"delta: {name} cannot be read: {delta_reason(error)}") from error

    def count(self) -> int | None:
        """How many rows the table's log says that there are."""
        try:
            files = self._opened(self.pinned).get_add_actions(flatten=True)
            counts = pa.table(files)["num_records"].to_pylist()
        except Exception:  # statistics are optional
            return None
        return None if None in counts else sum(counts)

    def _opened(self, version: int | None) -> Any:
        try:
            module = import_module("deltalake")
        except ImportError as error:
            raise SourceError(
                f"delta: deltalake cannot be imported: {error}", hint='pip install "weft[delta]"'
            ) from error
        try:
            options = delta_options() if is_object_uri(self.path) else None
            return module.DeltaTable(self.path, version=version, storage_options=options)
        except Exception as error:  # delta-rs has an error for every kind of storage
            hint = "name the directory or the URI of a Delta table, and a version that it still has"
            reason = delta_reason(error)
            raise SourceError(f"delta: {self.path} cannot be opened: {reason}", hint=hint) from error


@checked(SourceError)
def delta(path: str | Path, *, version: int | None = None, schema: SchemaLike | None = None) -> DeltaReader:
    """A Delta table for `Session.table`: its newest version whenever it is looked at, or always the one given.

    Its ``path`` is a directory, or in an object store, as in "s3://bucket/dim/customers". Without a schema, the columns
    are those of the table.
    """
    if version is not None and (isinstance(version, bool) or not isinstance(version, int) or version < 0):
        raise SourceError(f"delta: a version cannot be {version!r}", hint="use a number, 0 or more")
    text = str(path)
    if not text.strip():
        raise SourceError("delta: the path is empty", hint='name a directory, as in delta("dim/customers")')
    columns = None if schema is None else schema_of(schema)
    try:
        return DeltaReader(normal_place(text), version, columns)
    except ConfigError as error:
        raise SourceError(f"delta: {error.message}", hint=error.hint) from None
