"""Results as an Iceberg table, written by PyIceberg.

Guarantees: a batch is one commit of the table, so a reader sees all of it or nothing. The commit also sets a property
of the table to the batch's number, under the checkpoint's identity; a batch whose number the property has reached is
not added again, so every result is there once, whatever crashed before. A property, unlike a snapshot's summary,
survives the expiry of snapshots. A commit that another writer was faster than is tried again on the newer table, and so
is one that found the catalog or the storage away, for a minute.

Iceberg has no whole numbers of 8 or 16 bits: `byte` and `short` are `int` there.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

import pyarrow as pa

from weft.connectors.common import Patience, Replays, SecretText, as_table, check_columns, load_extra
from weft.errors import SinkError, WeftError
from weft.logical.arguments import checked
from weft.ports.sink import ResultRows

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

__all__ = [
    "IcebergSink",
    "to_iceberg",
]

_PATIENCE = 60.0  # seconds for a commit that other writers are faster than, or a catalog that is away
_SECRET = re.compile(r"password|secret|token|credential|access-key", re.IGNORECASE)
_HELD_AS = {pa.int8(): pa.int32(), pa.int16(): pa.int32()}
_SAME_AS = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


@dataclass(slots=True)
class IcebergSink:
    """A table of a catalog: ``properties`` say how that is reached, or PyIceberg's own settings if there are none."""

    catalog: str
    table: str
    properties: tuple[tuple[str, SecretText], ...] = ()
    _application: str = field(default="", compare=False)
    _schema: pa.Schema | None = field(default=None, compare=False)
    _replays: Replays = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._replays = Replays("to_iceberg", self.table)

    @property
    def exactly_once(self) -> bool:
        """True: a batch that the table has is not added again."""
        return True

    def open(self, schema: pa.Schema, owner: str | None = None) -> None:
        """Make the table and its namespace, or refuse results that do not fit the table that is there."""
        check_columns("to_iceberg", schema)
        self._application, self._schema = f"weft.{owner or uuid.uuid4().hex}.batch", schema
        with self._naming("opened"):
            catalog = self._catalog()
            if catalog.table_exists(self.table):
                self._check(catalog.load_table(self.table), _held(schema))
                return
            namespace = self.table.rpartition(".")[0]
            catalog.create_namespace_if_not_exists(namespace)
            catalog.create_table_if_not_exists(self.table, _held(schema))

    @contextmanager
    def _naming(self, what: str) -> Iterator[None]:
        """Turn errors of the catalog and the storage into errors that name the table, and no secret."""
        try:
            yield
        except WeftError:
            raise
        except Exception as error:  # PyIceberg lets through those of every library below it
            said = f"{type(error).__name__}: {str(error).strip()}".split("\n")[0]
            for _, value in self.properties:
                said = value.hidden_in(said)
            raise SinkError(
                f"to_iceberg: {self.table} cannot be {what}: {said}",
                hint="see what the catalog says; a batch is in the table as a whole or not at all",
            ) from None

    def _catalog(self) -> Catalog:
        catalog: Catalog = load_extra("pyiceberg.catalog", "to_iceberg", "iceberg").load_catalog(
            self.catalog, **{name: value.read() for name, value in self.properties}
        )
        return catalog

    def _check(self, table: Table, schema: pa.Schema) -> None:
        """Refuse a table with other columns, or one whose columns need a value."""
        there = {other.name: other for other in table.schema().as_arrow()}
        kinds = {name: _SAME_AS.get(other.type, other.type) for name, other in there.items()}
        for column in schema:
            if kinds.get(column.name) != column.type:
                columns = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
                raise SinkError(
                    f"to_iceberg: the table {self.table} has no column {column.name} of type {column.type}",
                    hint=f"its columns are {columns}: fit the query to them, or write to another table",
                )
        for name, other in there.items():
            if name not in schema.names or not other.nullable:
                raise SinkError(
                    f"to_iceberg: the table {self.table} needs a value for {name}, results may have none",
                    hint="select it in the query, or write to another table",
                )

    def recover(self, last_committed: int) -> None:
        """Batches that the checkpoint cannot have made are an error."""
        with self._naming("read"):
            self._replays.recover(last_committed, self._last_batch(self._catalog().load_table(self.table)))

    def _last_batch(self, table: Table) -> int:
        """The last batch of this checkpoint's that the table has; -1 without one."""
        return int(table.properties.get(self._application, "-1"))

    def last_batch(self) -> int:
        """The last batch of this checkpoint's that the table has; -1 without one."""
        with self._naming("read"):
            return self._last_batch(self._catalog().load_table(self.table))

    def begin(self, batch_id: int) -> None:
        """Nothing is to be prepared: an attempt that did not commit has left nothing that is seen."""

    def commit(self, batch_id: int, rows: ResultRows) -> None:
        """Add the rows and set the property in one commit, unless the table has the batch; without rows, do nothing."""
        table = as_table(rows, self._schema)
        if not table.num_rows:
            return
        exceptions = load_extra("pyiceberg.exceptions", "to_iceberg", "iceberg")
        passing = (exceptions.CommitFailedException, exceptions.CommitStateUnknownException, *_outages())
        with self._naming(f"given batch {batch_id}"):
            for last_chance in Patience(_PATIENCE):
                try:
                    self._add_once(batch_id, table)
                except passing:
                    if last_chance:
                        raise
                    continue
                return

    def _add_once(self, batch_id: int, rows: pa.Table) -> None:
        """Add the rows to the table as it is now, unless it has the batch."""
        table = self._catalog().load_table(self.table)
        if not self._replays.is_there(batch_id, self._last_batch(table)):
            self._add(table, batch_id, rows.cast(_held(rows.schema).remove_metadata()))

    def _add(self, table: Table, batch_id: int, rows: pa.Table) -> None:
        """Commit, or fail if the table has changed: PyIceberg's own retries would not look whether it has the batch."""
        table.metadata.properties["commit.retry.num-retries"] = "0"  # of this copy only: it is not committed
        with table.transaction() as transaction:
            transaction.append(rows)
            transaction.set_properties({self._application: str(batch_id)})

    def describe(self) -> dict[str, object]:
        """What is needed to make it again; no secret."""
        properties = {name: value.reference for name, value in self.properties}
        return {"kind": "iceberg", "connection": self.catalog, "table": self.table, "properties": properties}


def _outages() -> tuple[type[Exception], ...]:
    """The errors of a catalog or a storage that may be there again soon."""
    exceptions = load_extra("pyiceberg.exceptions", "to_iceberg", "iceberg")
    errors = [exceptions.ServerError, exceptions.ServiceUnavailableError, OSError]
    with suppress(ImportError):
        errors.append(import_module("sqlalchemy.exc").OperationalError)
    return tuple(errors)


def _held(schema: pa.Schema) -> pa.Schema:
    """The columns as Iceberg holds them."""
    return pa.schema([(field.name, _HELD_AS.get(field.type, field.type)) for field in schema])


@checked(SinkError)
def to_iceberg(catalog: str | Mapping[str, str], table: str) -> IcebergSink:
    """Results as an Iceberg table, each exactly once; `pip install "weft[iceberg]"`.

    ``catalog`` is the name of a catalog in PyIceberg's own settings (`.pyiceberg.yaml`, `PYICEBERG_CATALOG__…`), or the
    properties of one. Passwords, tokens and keys among these are given as `env:NAME` or `file:PATH`. ``table`` has a
    namespace (`sales.trolls`); both are made if they are not there.

    >>> to_iceberg("lake", "sales.trolls").table
    'sales.trolls'
    """
    if not all(name.strip() for name in table.split(".")) or "." not in table:
        raise SinkError(f"to_iceberg: {table!r} is no name of a table", hint="as in sales.trolls")
    if isinstance(catalog, str):
        return IcebergSink(catalog, table)
    properties = []
    for name, value in sorted(catalog.items()):
        if _SECRET.search(name) and not value.startswith(("env:", "file:")):
            raise SinkError(
                f"to_iceberg: the catalog's {name} is written out, and would be in the checkpoint",
                hint='put it into the environment or a file, and give "env:NAME" or "file:PATH"',
            )
        kept = (
            value
            if not value.startswith("file:///") or _SECRET.search(name)
            else value.removeprefix("file://")
        )
        properties.append((name, SecretText(kept, "to_iceberg")))
    return IcebergSink("weft", table, tuple(properties))
