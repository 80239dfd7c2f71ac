"""Results as a Delta table, written without Java by delta-rs.

Guarantees: a batch is one transaction of the table, so a reader sees all of it or nothing. The transaction carries the
checkpoint's identity and the batch's number (Delta's `txn` action); a batch whose number the table already has is not
added again, so every result is there once, whatever crashed before. The numbers of a checkpoint's batches only grow,
also when a query stops and another takes its name or its table: what a later query adds is never taken for a replay.

Tasks write files into the table's directory, where readers do not see them before the transaction names them. Files of
attempts that were lost stay unseen until the table is vacuumed, as with every writer of Delta tables. In an object
store the same holds: a transaction is an object that is put if absent, so of two writers one wins, without a lock.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from weft.connectors.common import Replays, as_table, check_columns, load_extra
from weft.connectors.delta.files import DeltaFile, DeltaPart, check_partition_columns, check_table, read_part
from weft.connectors.files.file_place import FilePlace
from weft.connectors.files.parquet_files import NamedPart, write_whole
from weft.connectors.files.places import place_at
from weft.errors import ConfigError, SinkError, StateError
from weft.logical.arguments import checked
from weft.ports.sink import ResultRows, is_hurried
from weft.storage.objects import delta_options, delta_reason
from weft.storage.paths import local_path
from weft.storage.uris import is_object_uri, normal_place

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = [
    "DeltaGroupSink",
    "DeltaSink",
    "to_delta",
]

_LOG = logging.getLogger("weft")
_FILES_TO_COMPACT = 32  # files that were added since the last compaction


@dataclass(slots=True)
class DeltaSink:
    """A Delta table on storage that driver and tasks reach under the same path, or by the same URI."""

    path: Path | str
    partition_by: tuple[str, ...] = ()
    compact: bool = False
    _application: str = field(default="", compare=False)  # who adds the batches, in Delta's words
    _schema: pa.Schema | None = field(default=None, compare=False)
    _files_added: int = field(default=0, compare=False)
    _replays: Replays = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._replays = Replays("to_delta", str(self.path))

    @property
    def schema(self) -> pa.Schema | None:
        """What results look like, once the sink is open."""
        return self._schema

    @property
    def exactly_once(self) -> bool:
        """True: a batch that the table has is not added again."""
        return True

    def keyed(self, keys: Sequence[str]) -> DeltaGroupSink:
        """The table with one row for each group, by the keys of GROUP BY; the driver merges what changed."""
        return DeltaGroupSink(self, tuple(keys))

    def open(self, schema: pa.Schema, owner: str | None = None) -> None:
        """Make the table, or refuse results that do not fit the one that is there."""
        check_columns("to_delta", schema, self.partition_by)
        check_partition_columns(schema, self.partition_by)
        self._application = f"weft-{owner or uuid.uuid4().hex}"
        self._schema = schema
        with self._naming("opened"):
            self._refuse_locks()
            self._place.prepare()
            if self._is_there():
                self._table()
            self._make(schema)

    @property
    def _place(self) -> FilePlace:
        return place_at(self.path)

    @property
    def _options(self) -> dict[str, str]:
        """How delta-rs is to use the place."""
        return delta_options(hurried=is_hurried()) if is_object_uri(self.path) else {}

    def _refuse_locks(self) -> None:
        """Refuse a store whose writers rely on a lock: none is taken."""
        if is_object_uri(self.path) and os.environ.get("AWS_S3_LOCKING_PROVIDER"):
            raise ConfigError(
                f"{self.path}: AWS_S3_LOCKING_PROVIDER is set, but tables are written without a lock",
                hint="unset it, if no writer of the table relies on that lock",
            )

    def _is_there(self) -> bool:
        place = self._place
        return bool(_module().DeltaTable.is_deltatable(place.uri, storage_options=self._options))

    @contextmanager
    def _naming(self, what: str) -> Iterator[None]:
        """Turn errors of the file system and of delta-rs into errors that say what was done to which table."""
        try:
            yield
        except OSError as error:
            raise SinkError(
                f"to_delta: {self.path} cannot be {what}: {delta_reason(error.strerror or error)}",
                hint="see to it that there is room, that the place answers, and that this user may write",
            ) from error
        except _module().exceptions.DeltaError as error:
            raise SinkError(
                f"to_delta: {self.path} cannot be {what}: {delta_reason(error)}",
                hint="look at what others do to the table; a batch is in it as a whole or not at all",
            ) from error
        except StateError as error:  # of an object store
            message = f"to_delta: {self.path} cannot be {what}: {error.message}"
            raise SinkError(message, hint=error.hint) from error

    def _make(self, schema: pa.Schema) -> None:
        """Make the table unless it is there, and try whether files can be written."""
        place = self._place
        if not self._is_there():
            if not place.is_empty():
                raise SinkError(
                    f"to_delta: {self.path} is not empty, and not a Delta table",
                    hint="write to a directory of its own",
                )
            _module().DeltaTable.create(
                place.uri,
                schema,
                mode="ignore",
                partition_by=list(self.partition_by),
                storage_options=self._options,
            )
        place.try_writing()

    def _table(self) -> DeltaTable:
        """The table as it is now; refused if results do not fit it, or do no longer."""
        place = self._place
        table: DeltaTable = _module().DeltaTable(place.uri, storage_options=self._options)
        if self._schema is not None:
            check_table(self.path, table, self._schema, self.partition_by)
        return table

    def recover(self, last_committed: int) -> None:
        """Batches that the checkpoint cannot have made are an error."""
        with self._naming("read"):
            self._replays.recover(last_committed, self._last_batch(self._table()))

    def _last_batch(self, table: DeltaTable) -> int:
        """The last batch of this checkpoint's that the table has; -1 without one."""
        version = table.transaction_version(self._application)
        return -1 if version is None else version

    def last_batch(self) -> int:
        """The last batch of this checkpoint's that the table has; -1 without one."""
        with self._naming("read"):
            return self._last_batch(self._table())

    def begin(self, batch_id: int) -> None:
        """Nothing is to be prepared: files of earlier attempts are in nobody's way."""

    def commit(self, batch_id: int, rows: ResultRows) -> None:
        """Add the rows as one file for each partition of the table."""
        name = self.write_part(batch_id, 0, as_table(rows, self._schema))
        self.commit_parts(batch_id, [name])

    def write_part(self, batch_id: int, partition: int, rows: ResultRows) -> str:
        """Write files under names that no other attempt has; readers do not see them before `commit_parts`."""
        return write_whole(self.open_part(batch_id, partition), as_table(rows, self._schema))

    def open_part(self, batch_id: int, partition: int) -> NamedPart:
        """Begin files like those of `write_part`, to which rows are added as they are found."""
        part = DeltaPart(self._place, batch_id, partition, self.partition_by)
        return NamedPart(part, lambda: self._naming(f"given batch {batch_id}"))

    def commit_parts(self, batch_id: int, names: Sequence[str]) -> None:
        """Add the files to the table in one transaction, unless the table has the batch; without files, do nothing."""
        added = [file for name in names for file in read_part(name)]
        if not added:
            return
        with self._naming(f"given batch {batch_id}"):
            table = self._table()
            if self._replays.is_there(batch_id, self._last_batch(table)):
                for file in added:
                    self._place.remove(file.path)
                return
            self._flush(batch_id, added)
            try:
                self._add(table, batch_id, added)
            except (OSError, _module().exceptions.DeltaError):
                if not self._has_added(added):
                    raise
        self._files_added += len(added)
        if self.compact and self._files_added >= _FILES_TO_COMPACT:
            self._compact()

    def _flush(self, batch_id: int, added: Sequence[DeltaFile]) -> None:
        for file in added:
            try:
                self._place.flush(file.path)
            except FileNotFoundError as error:
                raise SinkError(
                    f"to_delta: batch {batch_id} lacks its file {file.path}", hint="run the batch again"
                ) from error

    def _add(self, table: DeltaTable, batch_id: int, added: Sequence[DeltaFile]) -> None:
        """Commit the transaction; delta-rs refuses it if another one has added the batch meanwhile."""
        delta, now = _module(), int(time.time() * 1000)
        adds = [
            delta.transaction.AddAction(file.path, file.size, dict(file.values), now, True, file.statistics)
            for file in added
        ]
        batch = delta.transaction.Transaction(self._application, batch_id)
        table.create_write_transaction(
            adds,
            "append",
            table.schema(),
            list(self.partition_by),
            commit_properties=delta.CommitProperties(app_transactions=[batch]),
        )

    def _has_added(self, added: Sequence[DeltaFile]) -> bool:
        """Whether the table has these files after all: a store may have taken a transaction and its answer was lost."""
        with suppress(OSError, SinkError, _module().exceptions.DeltaError):
            paths = pa.table(self._table().get_add_actions())["path"].to_pylist()
            return {file.path for file in added} <= set(paths)
        return False

    def _compact(self) -> None:
        """Rewrite small files as larger ones, and delete what no version of the last days needs."""
        self._files_added = 0
        try:
            table = self._table()
            table.optimize.compact()
            table.vacuum(dry_run=False)
        except (OSError, _module().exceptions.DeltaError) as error:  # the results are there: it can wait
            _LOG.warning("to_delta: %s was not compacted: %s", self.path, delta_reason(error))

    def merge(self, batch_id: int, rows: pa.Table, keys: Sequence[str]) -> None:
        """Replace rows by those with the same keys and add the others, in one transaction, unless it is there."""
        with self._naming(f"given batch {batch_id}"):
            table = self._table()
            if self._replays.is_there(batch_id, self._last_batch(table)):
                return
            try:
                self._merge(table, batch_id, rows, keys)
            except (OSError, _module().exceptions.DeltaError):
                if (
                    self._last_batch(self._table()) < batch_id
                ):  # a store may have taken it, and its answer was lost
                    raise
        self._files_added += 1
        if self.compact and self._files_added >= _FILES_TO_COMPACT:
            self._compact()

    def _merge(self, table: DeltaTable, batch_id: int, rows: pa.Table, keys: Sequence[str]) -> None:
        batch = _module().transaction.Transaction(self._application, batch_id)
        same = [f"(now.{_quoted(name)} IS NOT DISTINCT FROM before.{_quoted(name)})" for name in keys]
        table.merge(
            rows,
            " AND ".join(same) or "true",
            source_alias="now",
            target_alias="before",
            commit_properties=_module().CommitProperties(app_transactions=[batch]),
        ).when_matched_update_all().when_not_matched_insert_all().execute()

    def describe(self) -> dict[str, object]:
        """What is needed to make it again."""
        form = {"partition_by": list(self.partition_by), "compact": self.compact}
        path = self.path if isinstance(self.path, str) else str(self.path.absolute())
        return {"kind": "delta", "path": path, **form}


@dataclass(slots=True)
class DeltaGroupSink:
    """A Delta table with one row for each group: a batch replaces those of the groups that it changed.

    It is merged by the driver, as Delta's MERGE: files with rows that are replaced are written anew.
    """

    table: DeltaSink
    keys: tuple[str, ...]

    @property
    def exactly_once(self) -> bool:
        """True: a batch that the table has is not merged again."""
        return True

    def open(self, schema: pa.Schema, owner: str | None = None) -> None:
        """Make the table, or refuse results that do not fit the one that is there."""
        self.table.open(schema, owner)

    def recover(self, last_committed: int) -> None:
        """Batches that the checkpoint cannot have made are an error."""
        self.table.recover(last_committed)

    def last_batch(self) -> int:
        """The last batch of this checkpoint's that the table has; -1 without one."""
        return self.table.last_batch()

    def begin(self, batch_id: int) -> None:
        """Nothing is to be prepared: a batch is merged as a whole or not at all."""

    def commit(self, batch_id: int, rows: ResultRows) -> None:
        """Merge the rows of a batch; one without rows leaves no trace."""
        groups = as_table(rows, self.table.schema)
        if groups.num_rows:
            self.table.merge(batch_id, groups, self.keys)

    def describe(self) -> dict[str, object]:
        """What is needed to make it again."""
        return {**self.table.describe(), "keys": list(self.keys)}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _module() -> Any:
    return load_extra("deltalake", "to_delta", "delta")


@checked(SinkError)
def to_delta(path: str | Path, *, partition_by: str | Sequence[str] = (), compact: bool = False) -> DeltaSink:
    """Results as a Delta table, each exactly once; `pip install "weft[delta]"`.

    The table is at ``path``, in folders by the columns ``partition_by``: in a directory, or in an object store, as in
    "s3://bucket/lake/trolls" (`weft[delta,objects]`). It is made if it is not there. With ``compact``, small files
    are rewritten as larger ones now and then, and files that no version of the last seven days needs are deleted.

    >>> to_delta("/lake/trolls", partition_by="country").partition_by
    ('country',)
    """
    if not str(path).strip():
        raise SinkError("to_delta: the path is empty")
    columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    if is_object_uri(path):
        return DeltaSink(normal_place(path), columns, compact)
    local = local_path(path)
    if local is None:
        raise SinkError(
            f"to_delta: {path} is neither a path of this machine's file system nor in an object store",
            hint="mount it, use s3://bucket/folder, or write with foreach_batch",
        )
    return DeltaSink(local, columns, compact)
