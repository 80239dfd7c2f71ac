"""Results as Parquet files.

Guarantees: the rows of batch N are the directory `batch=N`, which one rename puts in place: a reader sees all of a
batch or nothing of it. Committing N again leaves its files as they are if they hold the same rows, so that who knows
files by their names (Spark) sees each row once; otherwise it replaces them. So every batch is there once, whatever
crashed before. Tasks that nobody waits for any more, such as the slower of two attempts, may still write while their
batch is committed: its files are first taken out of their reach. A directory that belongs to another checkpoint, or is
ahead of its own by more than the batch that was interrupted, is refused rather than changed.

    out/batch=0/part-00000-….parquet        what readers see (pyarrow.dataset, spark.read.parquet)
    out/_weft/owner.json                    whose results these are
    out/_weft/pending/N/part-00003-….parquet    written by tasks, not yet committed
    out/_weft/ready/N/                      the same while it is committed, where no task writes
    out/_weft/replaced/N/                   what a repeated batch replaces

Spark shows N as a column `batch`; `batch_column` gives it another name.

Ordered results are a few files per batch, each a range of the order, and N has ten digits: read in the order of the
files' names, the rows are in order. A file has the punctuations of its range in the metadata of its schema, the last
one about its end (`weft.Punctuations.read`). A batch without rows has no file.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, overload

import pyarrow as pa

from weft.connectors.common import as_table
from weft.connectors.files import file_system as files
from weft.connectors.files.equal_rows import hold_equal_rows
from weft.errors import SinkError, nearest
from weft.logical.arguments import checked
from weft.ports.sink import ResultRows
from weft.storage.paths import local_path
from weft.storage.uris import is_object_uri, normal_place

if TYPE_CHECKING:
    from weft.connectors.files.parquet_objects import ObjectParquetSink

__all__ = [
    "ParquetPart",
    "ParquetSink",
    "check_form",
    "to_parquet",
]

_COMPRESSIONS = ("snappy", "zstd", "lz4", "gzip", "none")
_FORMAT = 1
_DIGITS = 10
_LEFTOVERS = ("pending", "ready", "replaced")


def check_form(compression: str, batch_column: str) -> None:
    """Refuse a compression that there is not, and a name that no folder can have."""
    if compression not in _COMPRESSIONS:
        raise SinkError(
            f"to_parquet: unknown compression {compression!r}", hint=nearest(compression, _COMPRESSIONS)
        )
    if not re.fullmatch(r"[A-Za-z]\w*", batch_column):
        raise SinkError(f"to_parquet: {batch_column!r} cannot be the name of the batches' column")


class ParquetPart:
    """A task's results of a batch, as they are found: a file of row groups that is complete when it is closed."""

    def __init__(self, path: Path, compression: str) -> None:
        self._path, self._file = path, files.ParquetFile(path, compression)

    def write(self, rows: pa.RecordBatch) -> None:
        """Add results."""
        self._file.write(pa.Table.from_batches([rows]))

    def close(self) -> str:
        """Complete the file; gives its name."""
        self._file.close()
        return self._path.name

    def abort(self) -> None:
        """Delete what is there."""
        self._file.abort()


@dataclass(frozen=True, slots=True)
class ParquetSink:
    """A directory of Parquet files on storage that driver and tasks reach under the same path."""

    path: Path
    compression: str = "snappy"
    batch_column: str = "batch"
    digits: int = 1  # the least digits of a batch's number in the name of its directory

    def __post_init__(self) -> None:
        check_form(self.compression, self.batch_column)

    @property
    def exactly_once(self) -> bool:
        """True: a replayed batch leaves or replaces what was there."""
        return True

    def open(self, schema: pa.Schema, owner: str | None = None) -> None:
        """Refuse results that have the batches' column, and a directory that is another's or cannot be written to."""
        if self.batch_column.lower() in (name.lower() for name in schema.names):
            raise SinkError(
                f"to_parquet: the results have a column {self.batch_column}, as the directories of {self.path} do",
                hint='rename it in the query, or give batch_column="…"',
            )
        try:
            self._take(owner)
        except OSError as error:
            raise SinkError(
                f"to_parquet: {self.path} cannot be written: {error.strerror or error}",
                hint="make room or give permission there, or write to another directory",
            ) from error

    def _take(self, owner: str | None) -> None:
        """Make the directory this checkpoint's, and try whether files can be written there."""
        marker = self._own("owner.json")
        if marker.exists():
            self._check_owner(_read_owner(marker), owner)
        files.make_directory(marker.parent)
        files.try_writing(marker.parent)
        if owner is not None and not marker.exists():
            files.write_text(marker, json.dumps({"format": _FORMAT, "owner": owner}) + "\n")

    def _check_owner(self, found: dict[str, object], owner: str | None) -> None:
        if found.get("format") != _FORMAT:
            raise SinkError(
                f"to_parquet: {self.path} was written by another version of Weft, as _weft/owner.json says",
                hint=_ELSEWHERE,
            )
        if owner is not None and found.get("owner") != owner:
            raise SinkError(
                f"to_parquet: {self.path} holds the results of another checkpoint, as _weft/owner.json says",
                hint=_ELSEWHERE,
            )

    def recover(self, last_committed: int) -> None:
        """Drop what was not committed; batches the checkpoint cannot have made are an error."""
        ahead = [batch for batch in self.batches() if batch > last_committed + 1]
        if ahead:
            raise SinkError(
                f"to_parquet: {self.path} has batch {ahead[-1]}, but the checkpoint ends with {last_committed}",
                hint=_ELSEWHERE,
            )
        for leftover in _LEFTOVERS:
            files.remove(self._own(leftover))

    def begin(self, batch_id: int) -> None:
        """Drop what an earlier attempt of the batch wrote and did not commit."""
        for leftover in _LEFTOVERS:
            files.remove(self._own(leftover, str(batch_id)))

    def commit(self, batch_id: int, rows: ResultRows) -> None:
        """Put the rows in place as one file."""
        table = as_table(rows) if isinstance(rows, pa.Table) or rows else None
        parts = [self.write_part(batch_id, 0, table)] if table is not None and table.num_rows else []
        self.commit_parts(batch_id, parts)

    def write_part(self, batch_id: int, partition: int, rows: ResultRows) -> str:
        """Write a file under a name that no other attempt has; readers do not see it before `commit_parts`."""
        path = self._pending(batch_id, partition)
        files.write_parquet(path, as_table(rows), self.compression)
        return path.name

    def open_part(self, batch_id: int, partition: int) -> ParquetPart:
        """Begin a file like that of `write_part`, to which rows are added as they are found."""
        return ParquetPart(self._pending(batch_id, partition), self.compression)

    def _pending(self, batch_id: int, partition: int) -> Path:
        directory = self._made("pending", str(batch_id))
        return directory / f"part-{partition:05d}-{uuid.uuid4().hex}.parquet"

    def commit_parts(self, batch_id: int, names: Sequence[str]) -> None:
        """Put the directory of the files in place; without files, the batch is empty."""
        ready, place = self._take_from_tasks(batch_id), self.batch_directory(batch_id)
        there = files.names_in(ready)
        for name in names:
            if name not in there:
                raise SinkError(
                    f"to_parquet: batch {batch_id} lacks its file {name}", hint="run the batch again"
                )
        for other in there.difference(names):  # of attempts that were lost
            files.remove(ready / other)
        if names and place.exists() and self._is_repeated(place, ready):
            files.remove(ready)
            return
        for name in names:
            files.flush(ready / name)
        replaced = self._own("replaced", str(batch_id)) if place.exists() else None
        if replaced is not None:
            files.remove(replaced)
            files.make_directory(replaced.parent)
            files.move(place, replaced)
        if names:
            files.move(ready, place)
        else:
            files.remove(ready)
        if replaced is not None:
            files.remove(replaced)

    def _is_repeated(self, place: Path, ready: Path) -> bool:
        """Whether the files of a batch that is committed again hold what is in place already."""
        there, again = ([one / name for name in files.names_in(one)] for one in (place, ready))
        return hold_equal_rows(there, again, ordered=self.digits > 1)

    def _take_from_tasks(self, batch_id: int) -> Path:
        """Move the files of a batch into a directory that no task writes to, so that late tasks cannot add any."""
        pending, ready = self._own("pending", str(batch_id)), self._made("ready") / str(batch_id)
        files.remove(ready)
        files.set_aside(pending, ready)
        return ready

    def batch_directory(self, batch_id: int) -> Path:
        """Where the rows of a batch are."""
        return self.path / f"{self.batch_column}={batch_id:0{self.digits}}"

    def in_order(self) -> ParquetSink:
        """The sink for ordered results: of two files, the one with the smaller name has the earlier rows."""
        return replace(self, digits=_DIGITS)

    @property
    def keeps_order(self) -> bool:
        """Whether it is for ordered results."""
        return self.digits > 1

    def batches(self) -> list[int]:
        """The batches that have rows here, in order."""
        prefix = f"{self.batch_column}="
        names = [path.name.removeprefix(prefix) for path in self.path.glob(f"{prefix}*")]
        return sorted(int(name) for name in names if name.isdigit())

    def last_batch(self) -> int:
        """The last batch that has rows here; -1 without one."""
        return max(self.batches(), default=-1)

    def describe(self) -> dict[str, object]:
        """What is needed to make it again."""
        form = {"compression": self.compression, "batch_column": self.batch_column, "digits": self.digits}
        return {"kind": "parquet", "path": str(self.path.absolute()), **form}

    def _made(self, *names: str) -> Path:
        """A directory below `_weft`, which is made; if `_weft` itself is gone, so are the results that were there."""
        directory = self._own(*names)
        if not directory.is_dir():
            if not self._own().is_dir():
                raise SinkError(
                    f"to_parquet: {self.path} is gone, with the results of earlier batches",
                    hint=f"put it back as it was; to go on without them, make the directory {self._own()}",
                )
            files.make_directory(directory)
        return directory

    def _own(self, *names: str) -> Path:
        return self.path.joinpath("_weft", *names)


def _read_owner(marker: Path) -> dict[str, object]:
    """The content of the file that says which checkpoint the results belong to; an error if it is damaged."""
    try:
        found = json.loads(marker.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise SinkError(
            f"to_parquet: {marker} is damaged, which says which checkpoint the results are of",
            hint="restore it from a copy, or delete it if they are of this checkpoint",
        )
    return found


_ELSEWHERE = "write to another directory, or continue with the checkpoint this one belongs to"


@overload
def to_parquet(path: Path, *, compression: str = "snappy", batch_column: str = "batch") -> ParquetSink: ...


@overload
def to_parquet(
    path: str | Path, *, compression: str = "snappy", batch_column: str = "batch"
) -> ParquetSink | ObjectParquetSink: ...


@checked(SinkError)
def to_parquet(
    path: str | Path, *, compression: str = "snappy", batch_column: str = "batch"
) -> ParquetSink | ObjectParquetSink:
    """Results as Parquet files in a directory, each exactly once; or in an object store, as in "s3://bucket/out".

    A relative path is resolved now: it stays the same if the process changes its working directory. In an object store,
    `committed_files` of what this gives names the files of whole batches.

    >>> to_parquet("/data/trolls").batch_directory(3).as_posix()
    '/data/trolls/batch=3'
    """
    if not str(path).strip():
        raise SinkError("to_parquet: the path is empty")
    if is_object_uri(path):
        from weft.connectors.files.parquet_objects import (
            ObjectParquetSink,
        )  # which is a sink like this one, in another place

        return ObjectParquetSink(normal_place(path), compression, batch_column)
    local = local_path(path)
    if local is None:
        raise SinkError(
            f"to_parquet: {path} is not a path of this machine's file system",
            hint="mount it, or write with foreach_batch",
        )
    return ParquetSink(local, compression, batch_column)
