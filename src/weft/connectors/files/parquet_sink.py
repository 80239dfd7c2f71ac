"""Results as Parquet files, in a directory or in an object store.

Guarantees: the rows of batch N are the folder `batch=N`, which its place publishes as a whole
(`weft.connectors.files.places` says how): a reader sees all of a batch or nothing of it, and every batch once, whatever
crashed before. In an object store that holds for readers by `committed_files`; for plain readers that need more there,
`weft.to_delta` is the sink. A place that belongs to another checkpoint, or is ahead of its own by more than the batch
that was interrupted, is refused rather than changed. One that was deleted is not made again in silence.

Spark shows N as a column `batch`; `batch_column` gives it another name.

Ordered results are a few files per batch, each a range of the order, and N has ten digits: read in the order of the
files' names, the rows are in order. A file has the punctuations of its range in the metadata of its schema, the last
one about its end (`weft.Punctuations.read`). A batch without rows has no file.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from weft.connectors.common import as_table
from weft.connectors.files.file_place import BatchFolder, FilePlace, PlaceGoneError
from weft.connectors.files.parquet_files import NamedPart, ParquetFile, write_whole
from weft.connectors.files.places import OWN, place_at
from weft.errors import SinkError, StateError, nearest
from weft.logical.arguments import checked
from weft.ports.sink import PartWriter, ResultRows
from weft.storage.paths import local_path
from weft.storage.uris import is_object_uri, normal_place

__all__ = ["ParquetPart", "ParquetSink", "to_parquet"]

_COMPRESSIONS = ("snappy", "zstd", "lz4", "gzip", "none")
_FORMAT = 1
_DIGITS = 10
_OWNER = f"{OWN}/owner.json"
_ELSEWHERE = "write to another place, or continue with the checkpoint this one belongs to"


class ParquetPart:
    """A task's results of a batch, as they are found: a file of row groups that is complete when it is closed."""

    def __init__(self, place: FilePlace, batch_id: int, partition: int, compression: str) -> None:
        self._name = f"part-{partition:05d}-{uuid.uuid4().hex}.parquet"
        self._file = place.new_part(batch_id, self._name)
        self._rows = ParquetFile(self._file.path, compression)

    @property
    def path(self) -> Path:
        """Where on this machine it is written."""
        return self._file.path

    def write(self, rows: pa.RecordBatch) -> None:
        """Add results."""
        self._rows.write(pa.Table.from_batches([rows]))

    def close(self) -> str:
        """Complete the file; gives its name."""
        self._rows.close()
        self._file.finish()
        return self._name

    def abort(self) -> None:
        """Delete what is there."""
        self._rows.abort()
        self._file.drop()


@dataclass(slots=True)
class ParquetSink:
    """Parquet files in a directory that driver and tasks reach under the same path, or below a URI."""

    path: Path | str
    compression: str = "snappy"
    batch_column: str = "batch"
    digits: int = 1  # the least digits of a batch's number in the name of its folder
    _newest: int = field(
        default=-1, init=False, compare=False, repr=False
    )  # the last batch known to be published

    def __post_init__(self) -> None:
        if self.compression not in _COMPRESSIONS:
            hint = nearest(self.compression, _COMPRESSIONS)
            raise SinkError(f"to_parquet: unknown compression {self.compression!r}", hint=hint)
        if not re.fullmatch(r"[A-Za-z]\w*", self.batch_column):
            raise SinkError(f"to_parquet: {self.batch_column!r} cannot be the name of the batches' column")

    @property
    def exactly_once(self) -> bool:
        """True: a replayed batch leaves or replaces what was there."""
        return True

    @property
    def _place(self) -> FilePlace:
        return place_at(self.path)

    @contextmanager
    def _naming(self, what: str) -> Iterator[None]:
        """Turn errors of the place into errors that say what was done to it."""
        try:
            yield
        except PlaceGoneError as error:
            raise SinkError(
                f"to_parquet: {self.path} is gone, with the results of earlier batches", hint=error.remedy
            ) from None
        except StateError as error:  # of an object store
            message = f"to_parquet: {self.path} cannot be {what}: {error.message}"
            raise SinkError(message, hint=error.hint) from error

    def open(self, schema: pa.Schema, owner: str | None = None) -> None:
        """Refuse results that have the batches' column, and a place that is another's or cannot be written to."""
        if self.batch_column.lower() in (name.lower() for name in schema.names):
            raise SinkError(
                f"to_parquet: the results have a column {self.batch_column}, as the folders of {self.path} do",
                hint='rename it in the query, or give batch_column="…"',
            )
        try:
            with self._naming("opened"):
                self._claim(owner)
        except OSError as error:
            raise SinkError(
                f"to_parquet: {self.path} cannot be written: {error.strerror or error}",
                hint="make room or give permission there, or write to another directory",
            ) from error

    def _claim(self, owner: str | None) -> None:
        """Make the place this checkpoint's, and try whether files can be written there."""
        place = self._place
        place.prepare(OWN)
        marker = place.read(_OWNER)
        self._check_owner(marker, owner)
        place.try_writing(OWN)
        if marker is None and owner is not None:
            content = json.dumps({"format": _FORMAT, "owner": owner}) + "\n"
            if not place.write_if_absent(_OWNER, content.encode()):  # another was faster
                self._check_owner(place.read(_OWNER), owner)

    def _check_owner(self, marker: bytes | None, owner: str | None) -> None:
        """Refuse a place whose marker says that its results are another's, or that cannot be read."""
        if marker is None:
            return
        try:
            said = json.loads(marker)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise SinkError(
                f"to_parquet: {self.path}/{_OWNER} is damaged, which says which checkpoint the results are of",
                hint="restore it from a copy, or delete it if they are of this checkpoint",
            )
        if said.get("format") != _FORMAT:
            raise SinkError(
                f"to_parquet: {self.path} was written by another version of Weft, as {_OWNER} says",
                hint=_ELSEWHERE,
            )
        if owner is not None and said.get("owner") != owner:
            raise SinkError(
                f"to_parquet: {self.path} holds the results of another checkpoint, as {_OWNER} says",
                hint=_ELSEWHERE,
            )

    def recover(self, last_committed: int) -> None:
        """Drop what was not committed; batches the checkpoint cannot have made are an error."""
        with self._naming("read"):
            self._newest = self.last_batch()
            if self._newest > last_committed + 1:
                raise SinkError(
                    f"to_parquet: {self.path} has batch {self._newest}, but the checkpoint ends with {last_committed}",
                    hint=_ELSEWHERE,
                )
            self._place.drop_parts()

    def begin(self, batch_id: int) -> None:
        """Drop what an earlier attempt of the batch wrote and did not commit."""
        self._place.drop_parts(batch_id)

    def commit(self, batch_id: int, rows: ResultRows) -> None:
        """Put the rows in place as one file."""
        table = as_table(rows) if isinstance(rows, pa.Table) or rows else None
        parts = [self.write_part(batch_id, 0, table)] if table is not None and table.num_rows else []
        self.commit_parts(batch_id, parts)

    def write_part(self, batch_id: int, partition: int, rows: ResultRows) -> str:
        """Write a file under a name that no other attempt has; readers do not see it before `commit_parts`."""
        return write_whole(self.open_part(batch_id, partition), as_table(rows))

    def open_part(self, batch_id: int, partition: int) -> PartWriter:
        """Begin a file like that of `write_part`, to which rows are added as they are found."""
        with self._naming(f"given batch {batch_id}"):
            part = ParquetPart(self._place, batch_id, partition, self.compression)
        return NamedPart(part, lambda: self._naming(f"given batch {batch_id}"))

    def commit_parts(self, batch_id: int, names: Sequence[str]) -> None:
        """Publish the files as the batch; without files, the batch is empty."""
        with self._naming(f"given batch {batch_id}"):
            place = self._place
            if self._newest >= 0:
                place.check_kept(self._newest)
            lost = place.publish(self._folder(batch_id), names)
        if lost is not None:
            raise SinkError(f"to_parquet: batch {batch_id} lacks its file {lost}", hint="run the batch again")
        self._newest = max(self._newest, batch_id)

    def _folder(self, batch_id: int) -> BatchFolder:
        return BatchFolder(batch_id, self.batch_column, self.digits)

    @property
    def directory(self) -> Path | None:
        """The directory of the files; None if they are in an object store."""
        return None if is_object_uri(self.path) else Path(self.path)

    def batch_directory(self, batch_id: int) -> Path:
        """Where the rows of a batch are, in a directory; files in an object store are told by `committed_files`."""
        if self.directory is None:
            raise SinkError(
                f"to_parquet: {self.path} is no directory",
                hint="committed_files() tells the files of whole batches",
            )
        return self.directory / self._folder(batch_id).name

    def in_order(self) -> ParquetSink:
        """The sink for ordered results: of two files, the one with the smaller name has the earlier rows."""
        return replace(self, digits=_DIGITS)

    @property
    def keeps_order(self) -> bool:
        """Whether it is for ordered results."""
        return self.digits > 1

    def batches(self) -> list[int]:
        """The batches that have rows here, in order; in an object store also those that were committed without."""
        return self._place.batches(self.batch_column)

    def last_batch(self) -> int:
        """The last of `batches`; -1 without one."""
        return max(self.batches(), default=-1)

    def committed_files(self) -> list[str]:
        """The paths or URIs of the files of all committed batches, in the order of the batches."""
        place = self._place
        return [file for batch in self.batches() for file in place.files_of(self._folder(batch))]

    def describe(self) -> dict[str, object]:
        """What is needed to make it again."""
        form = {"compression": self.compression, "batch_column": self.batch_column, "digits": self.digits}
        path = self.path if self.directory is None else self.directory.absolute()
        return {"kind": "parquet", "path": str(path), **form}


@checked(SinkError)
def to_parquet(path: str | Path, *, compression: str = "snappy", batch_column: str = "batch") -> ParquetSink:
    """Results as Parquet files in a directory, each exactly once; or in an object store, as in "s3://bucket/out".

    ``compression`` is that of the files: "snappy", "zstd", "gzip", "lz4" or "none". The files of a batch are in a
    folder named by ``batch_column``, as in `batch=3`, which readers see as a column. A relative path is resolved now:
    it stays the same if the process changes its working directory. `committed_files` of what this gives names the files
    of whole batches.

    >>> to_parquet("/data/trolls").batch_directory(3).as_posix()
    '/data/trolls/batch=3'
    """
    if not str(path).strip():
        raise SinkError("to_parquet: the path is empty")
    if is_object_uri(path):
        return ParquetSink(normal_place(path), compression, batch_column)
    local = local_path(path)
    if local is None:
        raise SinkError(
            f"to_parquet: {path} is not a path of this machine's file system",
            hint="mount it, or write with foreach_batch",
        )
    return ParquetSink(local, compression, batch_column)
