"""Results as a Delta table, written without Java by delta-rs.

Guarantees: a batch is one transaction of the table, so a reader sees all of it or nothing. The transaction carries the
checkpoint's identity and the batch's number (Delta's `txn` action); a batch whose number the table already has is not
added again, so every result is there once, whatever crashed before. The numbers of a checkpoint's batches only grow,
also when a query stops and another takes its name or its table: what a later query adds is never taken for a replay.

Tasks write files into the table's directory, where readers do not see them before the transaction names them. Files of
attempts that were lost stay unseen until the table is vacuumed, as with every writer of Delta tables.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from weft.errors import SinkError
from weft.paths import local_path
from weft.ports.sink import Rows
from weft.sinks import files
from weft.sinks.delta_checks import check_partition_columns, check_table
from weft.sinks.delta_files import DeltaFile, DeltaPart, read_part
from weft.sinks.extras import check_columns, load_extra
from weft.sinks.rows import as_table

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["DeltaSink", "to_delta"]

_FILES_TO_COMPACT = 32  # files that were added since the last compaction
_ELSEWHERE = "write to another table, or continue with the checkpoint that this one was written by"


@dataclass(slots=True)
class DeltaSink:
    """A Delta table on storage that driver and tasks reach under the same path."""

    path: Path
    partition_by: tuple[str, ...] = ()
    compact: bool = False
    _application: str = field(default="", compare=False)  # who adds the batches, in Delta's words
    _schema: pa.Schema | None = field(default=None, compare=False)
    _files_added: int = field(default=0, compare=False)

    @property
    def exactly_once(self) -> bool:
        """True: a batch that the table has is not added again."""
        return True

    def open(self, schema: pa.Schema, owner: str | None = None) -> None:
        """Make the table, or refuse results that do not fit the one that is there."""
        check_columns("to_delta", schema, self.partition_by)
        check_partition_columns(schema, self.partition_by)
        self._application = f"weft-{owner or uuid.uuid4().hex}"
        self._schema = schema
        if _module().DeltaTable.is_deltatable(str(self.path)):
            check_table(self.path, self._table(), schema, self.partition_by)
        try:
            self._make(schema)
        except OSError as error:
            raise SinkError(
                f"to_delta: {self.path} cannot be written: {error.strerror or error}",
                hint="make room or give permission there, or write to another directory",
            ) from error

    def _make(self, schema: pa.Schema) -> None:
        """Make the table unless it is there, and try whether files can be written."""
        files.make_directory(self.path)
        if not _module().DeltaTable.is_deltatable(str(self.path)):
            if files.names_in(self.path):
                raise SinkError(
                    f"to_delta: {self.path} is not empty, and not a Delta table",
                    hint="write to a directory of its own",
                )
            _module().DeltaTable.create(
                str(self.path), schema, mode="ignore", partition_by=list(self.partition_by)
            )
        files.try_writing(self.path)

    def _table(self) -> DeltaTable:
        """The table as it is now."""
        table: DeltaTable = _module().DeltaTable(str(self.path))
        return table

    def recover(self, last_committed: int) -> None:
        """Batches that the checkpoint cannot have made are an error."""
        last = self._last_batch(self._table())
        if last > last_committed + 1:
            raise SinkError(
                f"to_delta: {self.path} has batch {last}, but the checkpoint ends with {last_committed}",
                hint=_ELSEWHERE,
            )

    def _last_batch(self, table: DeltaTable) -> int:
        """The last batch of this checkpoint's that the table has; -1 without one."""
        found = table.transaction_version(self._application)
        return -1 if found is None else found

    def begin(self, batch_id: int) -> None:
        """Nothing is to be prepared: files of earlier attempts are in nobody's way."""

    def commit(self, batch_id: int, rows: Rows) -> None:
        """Add the rows as one file for each partition of the table."""
        name = self.write_part(batch_id, 0, as_table(rows, self._schema))
        self.commit_parts(batch_id, [name])

    def write_part(self, batch_id: int, partition: int, rows: Rows) -> str:
        """Write files under names that no other attempt has; readers do not see them before `commit_parts`."""
        part = self.open_part(batch_id, partition)
        try:
            part.write(as_table(rows, self._schema))
            return part.close()
        except BaseException:
            part.abort()
            raise

    def open_part(self, batch_id: int, partition: int) -> DeltaPart:
        """Begin files like those of `write_part`, to which rows are added as they are found."""
        return DeltaPart(self.path, batch_id, partition, self.partition_by)

    def commit_parts(self, batch_id: int, names: Sequence[str]) -> None:
        """Add the files to the table in one transaction, unless the table has the batch; without files, do nothing."""
        added = [file for name in names for file in read_part(name)]
        table = self._table()
        if self._last_batch(table) >= batch_id:
            for file in added:
                files.remove(self.path / file.path)
            return
        if added:
            self._flush(batch_id, added)
            self._add(table, batch_id, added)
            self._files_added += len(added)
        if self.compact and self._files_added >= _FILES_TO_COMPACT:
            self._compact()

    def _flush(self, batch_id: int, added: Sequence[DeltaFile]) -> None:
        for file in added:
            try:
                files.flush(self.path / file.path)
            except FileNotFoundError as error:
                raise SinkError(
                    f"to_delta: batch {batch_id} lacks its file {file.path}", hint="run the batch again"
                ) from error

    def _add(self, table: DeltaTable, batch_id: int, added: Sequence[DeltaFile]) -> None:
        """Commit the transaction; delta-rs refuses it if another one has added the batch meanwhile."""
        delta, now = _module(), int(time.time() * 1000)
        adds = [
            delta.transaction.AddAction(one.path, one.size, dict(one.values), now, True, one.statistics)
            for one in added
        ]
        batch = delta.transaction.Transaction(self._application, batch_id)
        try:
            table.create_write_transaction(
                adds,
                "append",
                table.schema(),
                list(self.partition_by),
                commit_properties=delta.CommitProperties(app_transactions=[batch]),
            )
        except delta.exceptions.DeltaError as error:
            why = str(error).split("\n")[0]
            raise SinkError(
                f"to_delta: batch {batch_id} was not added to {self.path}: {why}",
                hint="start again: no result is lost",
            ) from error

    def _compact(self) -> None:
        """Rewrite small files as larger ones, and delete what no version of the last days needs."""
        table = self._table()
        table.optimize.compact()
        table.vacuum(dry_run=False)
        self._files_added = 0

    def describe(self) -> dict[str, object]:
        """What is needed to make it again."""
        form = {"partition_by": list(self.partition_by), "compact": self.compact}
        return {"kind": "delta", "path": str(self.path.absolute()), **form}


def _module() -> Any:
    return load_extra("deltalake", "to_delta", "delta")


def to_delta(path: str | Path, *, partition_by: Sequence[str] = (), compact: bool = False) -> DeltaSink:
    """Results as a Delta table, each exactly once; `pip install "weft[delta]"`.

    The table is made if it is not there. With ``compact``, small files are rewritten as larger ones now and then, and
    files that no version of the last seven days needs are deleted.

    >>> to_delta("/lake/trolls", partition_by="country").partition_by
    ('country',)
    """
    if not str(path).strip():
        raise SinkError("to_delta: the path is empty")
    local = local_path(path)
    if local is None:
        raise SinkError(
            f"to_delta: {path} is not a path of this machine's file system",
            hint="mount it, or write with foreach_batch",
        )
    columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    return DeltaSink(local, columns, compact)
