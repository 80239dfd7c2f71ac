"""What the log asks of a storage, and the two there are (design, D3).

Guarantees: an entry is there completely or not at all, whenever the process ends; reading one that is not there gives
None. Of all who put an entry if it is absent, one succeeds. One that cannot be read or written is a `StateError` that
names it. Names are relative paths with `/` between their parts. Nothing needs a rename or a lock of the storage; how a
disk writes an entry is its own affair. `weft.storage.objects` has the third storage, an object store.

`storage_at` gives the storage at a place, so that tasks find what the driver means: a path names a directory, a URI
such as ``s3://bucket/ck`` a place in an object store; one in memory is known in the process that made it alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from weft.errors import StateError
from weft.storage.objects import ObjectStorage
from weft.storage.uris import is_object_uri, normal_place

__all__ = [
    "LocalDisk",
    "Memory",
    "Storage",
    "checkpoint_writes",
    "new_memory",
    "storage_at",
]


_UNFINISHED = ".tmp"  # the end of the name of a file that is being written, which begins with a dot

# What file systems say that have no hard links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class Storage(Protocol):
    """A place for named bytes."""

    def __hash__(self) -> int: ...

    def put(self, name: str, data: bytes, *, flush: bool = True) -> None:
        """Keep bytes under a name, in place of earlier ones; with ``flush``, they survive a crash of the machine."""
        ...

    def put_if_absent(self, name: str, data: bytes, *, flush: bool = True) -> bool:
        """Keep bytes under a name that has none; False if there are others, which stay.

        True if just these bytes are there already: a request whose answer was lost is repeated, and finds its own
        entry. So callers that must not be taken for each other put something of their own into the bytes.
        """
        ...

    def get(self, name: str) -> bytes | None:
        """The bytes of that name; None if there are none."""
        ...

    def open_local(self, name: str) -> pa.Buffer | None:
        """The bytes of an entry that never changes, mapped from a file of this machine where there is one."""
        ...

    def list(self, folder: str) -> list[str]:
        """The names of the entries right below a folder, without its own name; nothing if there is no such folder."""
        ...

    def sizes(self, folder: str) -> dict[str, int]:
        """The names of the entries right below a folder with their bytes, in the order of the names."""
        ...

    def delete(self, name: str) -> None:
        """Forget an entry, if it is there."""
        ...

    def path(self, name: str) -> Path | None:
        """Where an entry is, or would be, on this machine's file system; None if it has no such place."""
        ...

    def locate(self, name: str) -> str:
        """What to call an entry in an error message."""
        ...


def _unwritable(place: str | Path, error: OSError) -> StateError:
    why = os.strerror(error.errno) if error.errno else error.strerror or error
    return StateError(
        f"{place} cannot be written: {why}",
        hint="make room or give permission there; a session that is started again goes on where it was",
    )


@contextlib.contextmanager
def checkpoint_writes(place: str | Path) -> Iterator[None]:
    """A context in which a file of the checkpoint is written; what the system refuses is a `StateError` that names it.

    `LocalDisk` sees to that itself; this is for files that Arrow writes.
    """
    try:
        yield
    except OSError as error:
        raise _unwritable(place, error) from error


@dataclass(frozen=True, slots=True)
class LocalDisk:
    """A directory of this machine's file system, or a mounted share."""

    root: Path

    def put(self, name: str, data: bytes, *, flush: bool = True) -> None:
        """Write a file, and only when it is complete give it its name."""
        with self._writing(name, data, flush) as (partial, file):
            os.replace(partial, file)

    def put_if_absent(self, name: str, data: bytes, *, flush: bool = True) -> bool:
        """Write a file, and give it its name only if no file has that."""
        with self._writing(name, data, flush) as (partial, file):
            is_first = self._name(partial, file, data, flush)
        return is_first or self.get(name) == data

    @contextlib.contextmanager
    def _writing(self, name: str, data: bytes, flush: bool) -> Iterator[tuple[str, str]]:
        """A complete file under a name that no other writer has, and the name that it is to get."""
        folder, _, last = f"{self.root}/{name}".rpartition("/")
        partial = f"{folder}/.{last}.{uuid.uuid4().hex}{_UNFINISHED}"
        try:
            try:
                try:
                    self._write(partial, data, flush)
                except FileNotFoundError:  # the first entry of its folder
                    os.makedirs(folder, exist_ok=True)
                    self._write(partial, data, flush)
                yield partial, f"{folder}/{last}"
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(partial)
        except OSError as error:
            raise _unwritable(f"{folder}/{last}", error) from error

    def _name(self, partial: str, file: str, data: bytes, flush: bool) -> bool:
        """Give a complete file its name, unless one has it; where files cannot be linked, write one under that name."""
        try:
            try:
                os.link(partial, file)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                self._write(file, data, flush, os.O_EXCL)
        except FileExistsError:
            return False
        return True

    @staticmethod
    def _write(file: str, data: bytes, flush: bool, how: int = os.O_TRUNC) -> None:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | how, 0o666)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
            if flush:
                os.fsync(handle)
        finally:
            os.close(handle)

    def get(self, name: str) -> bytes | None:
        """The content of a file."""
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(name, error) from error

    def open_local(self, name: str) -> pa.Buffer | None:
        """The content of a file, mapped; an empty file cannot be mapped."""
        try:
            if not os.path.getsize(self.root / name):
                return pa.py_buffer(b"")
            with pa.memory_map(str(self.root / name)) as file:
                return file.read_buffer()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(name, error) from error

    def _unreadable(self, name: str, error: OSError) -> StateError:
        return StateError(
            f"{self.root / name} cannot be read: {error.strerror or error}",
            hint="make it a file that this user can read",
        )

    def list(self, folder: str) -> list[str]:
        """The files of a directory, without those that are still being written."""
        return [name for name in self._entries(folder) if not name.startswith(".")]

    def sizes(self, folder: str) -> dict[str, int]:
        """The files of a directory and their sizes, without those that are deleted meanwhile."""
        sizes = {}
        for name in sorted(self.list(folder)):
            with contextlib.suppress(FileNotFoundError):
                if (self.root / folder / name).is_file():
                    sizes[name] = os.path.getsize(self.root / folder / name)
        return sizes

    def delete(self, name: str) -> None:
        """Delete a file."""
        try:
            os.unlink(f"{self.root}/{name}")
        except FileNotFoundError:
            return
        except OSError as error:
            raise StateError(
                f"{self.root}/{name} cannot be deleted: {error.strerror or error}",
                hint="make it a file again, in a directory that this user may write to",
            ) from error

    def delete_unfinished(self, *folders: str) -> None:
        """Delete what writers that were killed have left in folders to which nobody else is writing now."""
        for folder in folders:
            for name in self._entries(folder):
                if name.startswith(".") and name.endswith(_UNFINISHED):
                    self.delete(f"{folder}/{name}" if folder else name)

    def make_folder(self, name: str) -> None:
        """See to it that a folder is there."""
        try:
            (self.root / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(
                f"{error.filename or self.root / name} cannot be made a directory: {error.strerror or error}",
                hint="give this user the right to write there, remove what is in its place, or use another checkpoint",
            ) from error

    def _entries(self, folder: str) -> Sequence[str]:
        try:
            return os.listdir(self.root / folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable(folder, error) from error

    def _unusable(self, folder: str, error: OSError) -> StateError:
        return StateError(
            f"{self.root / folder} cannot be listed: {error.strerror or error}",
            hint="make it a directory that this user can read and write, or use another checkpoint",
        )

    def path(self, name: str) -> Path:
        """Where a file is."""
        return self.root / name

    def locate(self, name: str) -> str:
        """The path of a file."""
        return str(self.root / name)


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """Entries in the memory of this process, which end with it; ``objects`` are entries that are not bytes."""

    entries: dict[str, bytes] = field(default_factory=dict)
    objects: dict[str, Any] = field(default_factory=dict)

    def put(self, name: str, data: bytes, *, flush: bool = True) -> None:  # noqa: ARG002
        """Keep bytes."""
        self.entries[name] = data

    def put_if_absent(self, name: str, data: bytes, *, flush: bool = True) -> bool:  # noqa: ARG002
        """Keep bytes under a name that has none; `setdefault` is one step, whatever other threads do."""
        return self.entries.setdefault(name, data) == data

    def get(self, name: str) -> bytes | None:
        """The bytes of that name."""
        return self.entries.get(name)

    def open_local(self, name: str) -> pa.Buffer | None:
        """The bytes of that name, as they are."""
        content = self.entries.get(name)
        return None if content is None else pa.py_buffer(content)

    def list(self, folder: str) -> list[str]:
        """The entries and objects of a folder."""
        names = [*self.entries, *self.objects]
        return [name.rpartition("/")[2] for name in names if name.rpartition("/")[0] == folder]

    def sizes(self, folder: str) -> dict[str, int]:
        """The entries of a folder; objects have no bytes."""
        return {name: len(self.entries.get(f"{folder}/{name}", b"")) for name in sorted(self.list(folder))}

    def delete(self, name: str) -> None:
        """Forget an entry or an object."""
        self.entries.pop(name, None)
        self.objects.pop(name, None)

    def path(self, name: str) -> None:  # noqa: ARG002
        """None, since an entry in memory is in no file."""
        return

    def locate(self, name: str) -> str:
        """The name of an entry."""
        return f"memory:{name}"


_MEMORIES: dict[str, Memory] = {}
_NUMBERS = count()
_MEMORY = "memory:"


def new_memory() -> str:
    """A new place in the memory of this process; what is put below it is there, too."""
    return f"{_MEMORY}{next(_NUMBERS)}"


def storage_at(place: str) -> Storage:
    """The storage at a place."""
    if place.startswith(_MEMORY):
        return _MEMORIES.setdefault(place, Memory())
    if is_object_uri(place):
        return ObjectStorage(normal_place(place))
    return LocalDisk(Path(normal_place(place)))
