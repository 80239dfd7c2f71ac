"""Results as Parquet files in an object store.

Guarantees: a batch is committed by one object, `_weft/commits/N.json`, which is put if absent and names its files:
whoever reads by `committed_files` sees all of a batch or nothing of it, and every batch once, whatever crashed before.
Of two sessions that commit a batch, one does; the other never deletes what the first has put, whenever it goes on.
A store has no rename, so a plain reader (`spark.read.parquet`, `pyarrow.dataset`) may see some of the files of the
batch that is just being committed, and beside them those of a commit of it that a crash or another session
interrupted, until the batch is committed. For readers that need more, `weft.to_delta` is the sink.

    out/batch=0/part-00000-….parquet            what plain readers see
    out/_weft/owner.json                        whose results these are
    out/_weft/commits/N.json                    the files of batch N, once it is committed
    out/_weft/pending/N/part-00003-….parquet    written by tasks, not yet committed
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from weft.connectors.common import as_table
from weft.connectors.files import file_system as files
from weft.connectors.files.object_upload import NamedPart, ObjectFile
from weft.connectors.files.parquet_sink import check_form
from weft.errors import SinkError, StateError
from weft.ports.sink import ResultRows
from weft.storage.objects import ObjectStorage

__all__ = [
    "ObjectParquetSink",
]

_FORMAT = 1
_DIGITS = 10
_OWNER = "_weft/owner.json"
_ELSEWHERE = "write to another place, or continue with the checkpoint this one belongs to"


class ObjectParquetPart:
    """A task's results of a batch: a file of this machine, which becomes an object when it is closed."""

    def __init__(self, storage: ObjectStorage, name: str, compression: str) -> None:
        self._name, self._object = name, ObjectFile(storage, name)
        self._file = files.ParquetFile(self._object.path, compression)

    def write(self, rows: pa.RecordBatch) -> None:
        """Add results."""
        self._file.write(pa.Table.from_batches([rows]))

    def close(self) -> str:
        """Put the object; gives its name."""
        self._file.close()
        self._object.finish()
        return self._name.rpartition("/")[2]

    def abort(self) -> None:
        """Delete what is there."""
        self._file.abort()
        self._object.drop()


@dataclass(frozen=True, slots=True)
class ObjectParquetSink:
    """Parquet files below a URI."""

    path: str
    compression: str = "snappy"
    batch_column: str = "batch"
    digits: int = 1  # the least digits of a batch's number in the name of its folder

    def __post_init__(self) -> None:
        check_form(self.compression, self.batch_column)

    @property
    def exactly_once(self) -> bool:
        """True: a batch that is committed is not committed again."""
        return True

    @property
    def _storage(self) -> ObjectStorage:
        return ObjectStorage(self.path)

    def open(self, schema: pa.Schema, owner: str | None = None) -> None:
        """Refuse results that have the batches' column, and a place that is another's or cannot be written to."""
        if self.batch_column.lower() in (name.lower() for name in schema.names):
            raise SinkError(
                f"to_parquet: the results have a column {self.batch_column}, as the folders of {self.path} do",
                hint='rename it in the query, or give batch_column="…"',
            )
        self._storage.check()
        if owner is None:
            return
        mine = json.dumps({"format": _FORMAT, "owner": owner}).encode()
        with self._naming("opened"):
            if not self._storage.put_if_absent(_OWNER, mine):
                raise SinkError(
                    f"to_parquet: {self.path} holds the results of another checkpoint, as {_OWNER} says",
                    hint=_ELSEWHERE,
                )

    @contextmanager
    def _naming(self, what: str) -> Iterator[None]:
        try:
            yield
        except StateError as error:
            raise SinkError(
                f"to_parquet: {self.path} cannot be {what}: {error.message}", hint=error.hint
            ) from error

    def recover(self, last_committed: int) -> None:
        """Refuse batches that the checkpoint cannot have made; what was not committed is not seen."""
        with self._naming("read"):
            ahead = [batch for batch in self.batches() if batch > last_committed + 1]
        if ahead:
            raise SinkError(
                f"to_parquet: {self.path} has batch {ahead[-1]}, but the checkpoint ends with {last_committed}",
                hint=_ELSEWHERE,
            )

    def begin(self, batch_id: int) -> None:
        """Do nothing: what an earlier attempt wrote has names of its own, and goes when the batch is committed.

        A session that was paused here for long would delete what its follower has written.
        """

    def commit(self, batch_id: int, rows: ResultRows) -> None:
        """Put the rows in place as one file."""
        table = as_table(rows) if isinstance(rows, pa.Table) or rows else None
        parts = [self.write_part(batch_id, 0, table)] if table is not None and table.num_rows else []
        self.commit_parts(batch_id, parts)

    def write_part(self, batch_id: int, partition: int, rows: ResultRows) -> str:
        """Put an object under a name that no other attempt has, where readers do not look."""
        return self.open_part(batch_id, partition).write_all(as_table(rows))

    def open_part(self, batch_id: int, partition: int) -> NamedPart:
        """Begin an object like that of `write_part`, to which rows are added as they are found."""
        name = f"_weft/pending/{batch_id}/part-{partition:05d}-{uuid.uuid4().hex}.parquet"
        part = ObjectParquetPart(self._storage, name, self.compression)
        return NamedPart(part, lambda: self._naming(f"given batch {batch_id}"))

    def commit_parts(self, batch_id: int, names: Sequence[str]) -> None:
        """Copy the files to where readers look, put the object that says that they are the batch, and tidy up."""
        with self._naming(f"given batch {batch_id}"):
            if self._committed(batch_id) is None:
                self._place(batch_id, names)
            self._tidy(batch_id)

    def _place(self, batch_id: int, names: Sequence[str]) -> None:
        """Copy and commit the files, unless another session does so meanwhile, which ran by the same plan."""
        files = {name: f"{self._folder(batch_id)}/{name}" for name in names}
        gone = [
            name
            for name, file in files.items()
            if not self._storage.copy(f"_weft/pending/{batch_id}/{name}", file)
        ]
        if gone and self._committed(batch_id) is None:
            raise SinkError(
                f"to_parquet: batch {batch_id} lacks its file {gone[0]}", hint="run the batch again"
            )
        content = json.dumps({"batch": batch_id, "files": list(files.values())}).encode()
        if not gone:
            self._storage.put_if_absent(_commit(batch_id), content)

    def _tidy(self, batch_id: int) -> None:
        """Delete what attempts at a committed batch have left that are not the batch."""
        folder, mine = self._folder(batch_id), self._committed(batch_id) or []
        for left in self._storage.list(folder):
            if f"{folder}/{left}" not in mine:
                self._storage.delete(f"{folder}/{left}")
        for name in self._storage.list(f"_weft/pending/{batch_id}"):
            self._storage.delete(f"_weft/pending/{batch_id}/{name}")

    def _committed(self, batch_id: int) -> list[str] | None:
        """The names of the files of a batch; None if it is not committed."""
        data = self._storage.get(_commit(batch_id))
        return None if data is None else list(json.loads(data)["files"])

    def _folder(self, batch_id: int) -> str:
        return f"{self.batch_column}={batch_id:0{self.digits}}"

    def in_order(self) -> ObjectParquetSink:
        """The sink for ordered results: of two files, the one with the smaller name has the earlier rows."""
        return replace(self, digits=_DIGITS)

    @property
    def keeps_order(self) -> bool:
        """Whether it is for ordered results."""
        return self.digits > 1

    def batches(self) -> list[int]:
        """The batches that are committed here, in order."""
        stems = (name.removesuffix(".json") for name in self._storage.list("_weft/commits"))
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def last_batch(self) -> int:
        """The last batch that is committed here; -1 without one."""
        return max(self.batches(), default=-1)

    def committed_files(self) -> list[str]:
        """The URIs of the files of all committed batches, in the order of the batches."""
        return [
            self._storage.locate(name) for batch in self.batches() for name in self._committed(batch) or ()
        ]

    def describe(self) -> dict[str, object]:
        """What is needed to make it again."""
        form = {"compression": self.compression, "batch_column": self.batch_column, "digits": self.digits}
        return {"kind": "parquet", "path": self.path, **form}


def _commit(batch_id: int) -> str:
    return f"_weft/commits/{batch_id}.json"
