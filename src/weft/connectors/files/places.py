"""The places where whole files appear at once: a directory of a file system, or the objects below a URI.

Both keep the promises of `FilePlace`, a directory by renames and an object store by puts that fail if an object is
there:

    out/batch=0/part-00000-….parquet            what readers see (pyarrow.dataset, spark.read.parquet)
    out/_weft/owner.json                        whose results these are
    out/_weft/pending/N/part-00003-….parquet    written by tasks, not yet published
    out/_weft/ready/N/                          directory: the same while it is published, where no task writes
    out/_weft/replaced/N/                       directory: what a repeated batch replaces
    out/_weft/commits/N.json                    object store: the files of batch N, once it is published
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.connectors.files import file_system as files
from weft.connectors.files.file_place import BatchFolder, FilePlace, NewFile, PlaceGoneError
from weft.connectors.files.parquet_files import hold_equal_rows
from weft.ports.sink import is_hurried
from weft.storage.objects import ObjectStorage
from weft.storage.uris import is_object_uri

__all__ = ["OWN", "DirectoryPlace", "ObjectPlace", "place_at"]

OWN = "_weft"  # the folder of what readers do not look at
_LEFTOVERS = ("pending", "ready", "replaced")


@dataclass(frozen=True, slots=True)
class _DirectoryFile:
    path: Path

    def finish(self) -> None:
        """Do nothing: it is in place."""

    def drop(self) -> None:
        """Delete it."""
        files.remove(self.path)


@dataclass(frozen=True, slots=True)
class DirectoryPlace:
    """A directory that driver and tasks see under the same path.

    A batch is published by one rename of a directory. Publishing it again leaves its files as they are if they hold the
    same rows, so that who knows files by their names (Spark) sees each row once; otherwise it replaces them. Tasks that
    nobody waits for any more, such as the slower of two attempts, may still write while their batch is published: its
    files are first taken out of their reach.
    """

    path: Path

    @property
    def uri(self) -> str:
        """The path."""
        return str(self.path)

    def prepare(self, folder: str = "") -> None:
        """Make the directory."""
        files.make_directory(self.path / folder)

    def try_writing(self, folder: str = "") -> None:
        """Write a small file and delete it."""
        files.try_writing(self.path / folder)

    def is_empty(self) -> bool:
        """Whether the directory has no files."""
        return not files.names_in(self.path)

    def new_file(self, name: str) -> NewFile:
        """A file that is written where it stays."""
        return _DirectoryFile(self.path / name)

    def flush(self, name: str) -> None:
        """Flush a file to the disk."""
        files.flush(self.path / name)

    def remove(self, name: str) -> None:
        """Delete a file."""
        files.remove(self.path / name)

    def read(self, name: str) -> bytes | None:
        """The content of a file."""
        return (self.path / name).read_bytes() if (self.path / name).exists() else None

    def write_if_absent(self, name: str, content: bytes) -> bool:
        """Write a file; of two who do so at the same time the later wins, since a directory has one session."""
        there = self.read(name)
        if there is None:
            files.write_text(self.path / name, content.decode())
        return there in (None, content)

    def new_part(self, batch_id: int, name: str) -> NewFile:
        """A file in the batch's directory of what is pending."""
        return _DirectoryFile(self._made("pending", str(batch_id)) / name)

    def publish(self, folder: BatchFolder, names: Sequence[str]) -> str | None:
        """Put the directory of the files in place; without files, the batch is empty."""
        ready, target = self._take_from_tasks(folder.batch), self.path / folder.name
        there = files.names_in(ready)
        for name in names:
            if name not in there:
                return name
        for other in there.difference(names):  # of attempts that were lost
            files.remove(ready / other)
        if names and target.exists() and _is_repeated(target, ready, folder.is_ordered):
            files.remove(ready)
            return None
        for name in names:
            files.flush(ready / name)
        self._replace(target, ready if names else None, folder.batch)
        if not names:
            files.remove(ready)
        return None

    def _replace(self, target: Path, ready: Path | None, batch_id: int) -> None:
        """Put a batch's directory in place of the one that is there; without one, the batch has no rows now."""
        replaced = self._own("replaced", str(batch_id)) if target.exists() else None
        if replaced is not None:
            files.remove(replaced)
            files.make_directory(replaced.parent)
            files.move(target, replaced)
        if ready is not None:
            files.move(ready, target)
        if replaced is not None:
            files.remove(replaced)

    def _take_from_tasks(self, batch_id: int) -> Path:
        """Move the files of a batch into a directory that no task writes to, so that late tasks cannot add any."""
        pending, ready = self._own("pending", str(batch_id)), self._made("ready") / str(batch_id)
        files.remove(ready)
        files.set_aside(pending, ready)
        return ready

    def batches(self, column: str) -> list[int]:
        """The batches that have a directory."""
        names = [path.name.removeprefix(f"{column}=") for path in self.path.glob(f"{column}=*")]
        return sorted(int(name) for name in names if name.isdigit())

    def files_of(self, folder: BatchFolder) -> list[str]:
        """The files in the directory of a batch."""
        directory = self.path / folder.name
        return sorted(str(directory / name) for name in files.names_in(directory))

    def drop_parts(self, batch_id: int | None = None) -> None:
        """Delete what was not published: a directory has one session, so nobody else can be writing there."""
        for leftover in _LEFTOVERS:
            files.remove(self._own(leftover, *([] if batch_id is None else [str(batch_id)])))

    def check_kept(self, batch_id: int) -> None:  # noqa: ARG002
        """Look whether the directory of what readers do not look at is there: single batches may be deleted."""
        if not self._own().is_dir():
            raise PlaceGoneError(
                f"put it back as it was; to go on without them, make the directory {self._own()}"
            )

    def _made(self, *names: str) -> Path:
        """A directory below `_weft`, which is made; if `_weft` itself is gone, so are the results that were there."""
        directory = self._own(*names)
        if not directory.is_dir():
            self.check_kept(-1)
            files.make_directory(directory)
        return directory

    def _own(self, *names: str) -> Path:
        return self.path.joinpath(OWN, *names)


def _is_repeated(target: Path, ready: Path, ordered: bool) -> bool:
    """Whether the files of a batch that is published again hold what is in place already."""
    in_place, again = ([folder / name for name in files.names_in(folder)] for folder in (target, ready))
    return hold_equal_rows(in_place, again, ordered=ordered)


class _ObjectFile:
    """A file in a folder of its own on this machine's disk, which is put as an object when it is complete."""

    def __init__(self, storage: ObjectStorage, name: str) -> None:
        self._storage, self._name = storage, name
        self._folder = tempfile.TemporaryDirectory(prefix="weft-part-")
        self.path = Path(self._folder.name) / "part.parquet"

    def finish(self) -> None:
        """Put the object, and delete the file."""
        self._storage.put_file(self._name, self.path)
        self.drop()

    def drop(self) -> None:
        """Delete the file."""
        self._folder.cleanup()


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """The objects below a URI.

    A batch is published by one object, `_weft/commits/N.json`, which is put if absent and names its files. Of two
    sessions that publish a batch, one does; the other never deletes what the first has put, whenever it goes on. A
    store has no rename, so a plain reader (`spark.read.parquet`, `pyarrow.dataset`) may see some of the files of the
    batch that is just being published, and beside them those of an attempt that a crash or another session interrupted,
    until the batch is published.
    """

    uri: str

    @property
    def _storage(self) -> ObjectStorage:
        return ObjectStorage(self.uri, is_hurried())

    def prepare(self, folder: str = "") -> None:  # noqa: ARG002
        """Refuse a store that is not there or cannot be used."""
        self._storage.check()

    def try_writing(self, folder: str = "") -> None:
        """Put a small object and delete it."""
        name = f"{folder}/.try-{uuid.uuid4().hex}".lstrip("/")
        self._storage.put(name, b"")
        self._storage.delete(name)

    def is_empty(self) -> bool:
        """Whether no object has a name below the URI."""
        return self._storage.is_empty()

    def new_file(self, name: str) -> NewFile:
        """A file on this machine's disk, which becomes an object."""
        return _ObjectFile(self._storage, name)

    def flush(self, name: str) -> None:
        """Look whether the object is there: what a store has, it keeps."""
        if not self._storage.exists(name):
            raise FileNotFoundError(name)

    def remove(self, name: str) -> None:
        """Delete an object."""
        self._storage.delete(name)

    def read(self, name: str) -> bytes | None:
        """The content of an object."""
        return self._storage.get(name)

    def write_if_absent(self, name: str, content: bytes) -> bool:
        """Put an object; the store decides who is first."""
        return self._storage.put_if_absent(name, content)

    def new_part(self, batch_id: int, name: str) -> NewFile:
        """An object under the batch's prefix of what is pending."""
        return self.new_file(f"{_pending(batch_id)}/{name}")

    def publish(self, folder: BatchFolder, names: Sequence[str]) -> str | None:
        """Copy the files to where readers look, put the object that says that they are the batch, and tidy up."""
        if self._published(folder.batch) is None and (lost := self._commit(folder, names)) is not None:
            return lost
        self._tidy(folder)
        return None

    def _commit(self, folder: BatchFolder, names: Sequence[str]) -> str | None:
        """Copy and commit the files, unless another session does so meanwhile, which ran by the same plan."""
        targets = {name: f"{folder.name}/{name}" for name in names}
        lost = [
            name
            for name, target in targets.items()
            if not self._storage.copy(f"{_pending(folder.batch)}/{name}", target)
        ]
        if lost:
            return lost[0] if self._published(folder.batch) is None else None
        content = json.dumps({"batch": folder.batch, "files": list(targets.values())}).encode()
        self._storage.put_if_absent(_commit_name(folder.batch), content)
        return None

    def _tidy(self, folder: BatchFolder) -> None:
        """Delete what attempts at a published batch have left that are not the batch."""
        published = self._published(folder.batch) or []
        for name in self._storage.list(folder.name):
            if f"{folder.name}/{name}" not in published:
                self._storage.delete(f"{folder.name}/{name}")
        for name in self._storage.list(_pending(folder.batch)):
            self._storage.delete(f"{_pending(folder.batch)}/{name}")

    def _published(self, batch_id: int) -> list[str] | None:
        """The names of the files of a batch; None if it is not published."""
        data = self._storage.get(_commit_name(batch_id))
        return None if data is None else list(json.loads(data)["files"])

    def batches(self, column: str) -> list[int]:  # noqa: ARG002
        """The batches that have an object which says that they are published."""
        stems = (name.removesuffix(".json") for name in self._storage.list(f"{OWN}/commits"))
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def files_of(self, folder: BatchFolder) -> list[str]:
        """The URIs of the files that the batch was published with."""
        return [self._storage.locate(name) for name in self._published(folder.batch) or ()]

    def drop_parts(self, batch_id: int | None = None) -> None:
        """Do nothing: what an earlier attempt wrote has names of its own, and goes when the batch is published.

        A session that was paused here for long would delete what its follower has written.
        """

    def check_kept(self, batch_id: int) -> None:
        """Look whether the object is there that says that the batch is published."""
        if not self._storage.exists(_commit_name(batch_id)):
            raise PlaceGoneError(
                "put it back as it was; to go on without them, put the object "
                f'{self._storage.locate(_commit_name(batch_id))}: {{"batch": {batch_id}, "files": []}}'
            )


def _pending(batch_id: int) -> str:
    return f"{OWN}/pending/{batch_id}"


def _commit_name(batch_id: int) -> str:
    return f"{OWN}/commits/{batch_id}.json"


def place_at(path: Path | str) -> FilePlace:
    """The place of files, by its path or URI."""
    return ObjectPlace(str(path)) if is_object_uri(path) else DirectoryPlace(Path(path))
