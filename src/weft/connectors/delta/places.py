"""Where a Delta table is: a directory of this machine's file system, or a place in an object store.

Guarantees: a file that `flush` has returned for survives the death of the machine. In an object store a file is
written on this machine's disk and put as a whole when it is complete.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from weft.connectors.files import file_system as files
from weft.connectors.files.object_upload import ObjectFile
from weft.errors import ConfigError
from weft.storage.objects import ObjectStorage, delta_options
from weft.storage.uris import is_object_uri

__all__ = [
    "DeltaPlace",
    "ObjectPlace",
    "TableFile",
    "place_at",
]


class TableFile(Protocol):
    """A file of a table that is being written: its content goes to a path, then it is put in place."""

    @property
    def path(self) -> Path:
        """Where to write it."""
        ...

    def finish(self) -> None:
        """Put the file in place, whose content is complete."""
        ...

    def drop(self) -> None:
        """Forget what was written."""
        ...


class DeltaPlace(Protocol):
    """What a Delta sink asks of the place of its table."""

    @property
    def uri(self) -> str:
        """The place as delta-rs is told it."""
        ...

    @property
    def options(self) -> dict[str, str]:
        """How delta-rs is to use it."""
        ...

    def prepare(self) -> None:
        """See to it that a table can be made here."""
        ...

    def is_empty(self) -> bool:
        """Whether nothing is here."""
        ...

    def try_writing(self) -> None:
        """Raise what is in the way of writing files."""
        ...

    def new_file(self, name: str) -> TableFile:
        """Begin a file of that name."""
        ...

    def flush(self, name: str) -> None:
        """See to it that a file survives a loss of power; a `FileNotFoundError` if it is not there."""
        ...

    def remove(self, name: str) -> None:
        """Delete a file, if it is there."""
        ...


@dataclass(frozen=True, slots=True)
class _File:
    path: Path

    def finish(self) -> None:
        """Do nothing: it is in place."""

    def drop(self) -> None:
        """Delete it."""
        files.remove(self.path)


@dataclass(frozen=True, slots=True)
class DirectoryPlace:
    """A directory that driver and tasks see under the same path."""

    path: Path

    @property
    def uri(self) -> str:
        """The path."""
        return str(self.path)

    @property
    def options(self) -> dict[str, str]:
        """None are needed."""
        return {}

    def prepare(self) -> None:
        """Make the directory."""
        files.make_directory(self.path)

    def is_empty(self) -> bool:
        """Whether the directory has no files."""
        return not files.names_in(self.path)

    def try_writing(self) -> None:
        """Write a small file and delete it."""
        files.try_writing(self.path)

    def new_file(self, name: str) -> TableFile:
        """A file that is written where it stays."""
        return _File(self.path / name)

    def flush(self, name: str) -> None:
        """Flush a file to the disk."""
        files.flush(self.path / name)

    def remove(self, name: str) -> None:
        """Delete a file."""
        files.remove(self.path / name)


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """The objects below a URI."""

    uri: str

    @property
    def options(self) -> dict[str, str]:
        """Patience, and conditional puts."""
        return delta_options()

    @property
    def _storage(self) -> ObjectStorage:
        return ObjectStorage(self.uri)

    def prepare(self) -> None:
        """Refuse a store that is not there or cannot be used, and one whose writers rely on a lock: none is taken."""
        if os.environ.get("AWS_S3_LOCKING_PROVIDER"):
            raise ConfigError(
                f"{self.uri}: AWS_S3_LOCKING_PROVIDER is set, but tables are written without a lock",
                hint="unset it, if no writer of the table relies on that lock",
            )
        self._storage.check()

    def is_empty(self) -> bool:
        """Whether no object has a name below the URI."""
        return self._storage.is_empty()

    def try_writing(self) -> None:
        """Put a small object and delete it."""
        name = f".try-{uuid.uuid4().hex}"
        self._storage.put(name, b"")
        self._storage.delete(name)

    def new_file(self, name: str) -> TableFile:
        """A file on this machine's disk, which becomes an object."""
        return ObjectFile(self._storage, name)

    def flush(self, name: str) -> None:
        """Look whether the object is there: what a store has, it keeps."""
        if not self._storage.exists(name):
            raise FileNotFoundError(name)

    def remove(self, name: str) -> None:
        """Delete an object."""
        self._storage.delete(name)


def place_at(path: Path | str) -> DeltaPlace:
    """The place of a table, by its path or URI."""
    return ObjectPlace(str(path)) if is_object_uri(path) else DirectoryPlace(Path(path))
