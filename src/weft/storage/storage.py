"""What the log asks of a storage, and the two there are (design, D3).

Guarantees: an entry is there completely or not at all, whenever the process ends; reading one that is not there gives
None. One that cannot be read or written is a `StateError` that names it. Names are relative paths with `/` between
their parts.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from weft.errors import StateError

__all__ = ["LocalDisk", "Memory", "Storage"]


class Storage(Protocol):
    """A place for named bytes."""

    def put(self, name: str, data: bytes, *, flush: bool = True) -> None:
        """Keep bytes under a name, in place of earlier ones; with ``flush``, they survive a crash of the machine."""
        ...

    def get(self, name: str) -> bytes | None:
        """The bytes of that name; None if there are none."""
        ...

    def list(self, folder: str) -> list[str]:
        """The names of the entries right below a folder, without its own name; nothing if there is no such folder."""
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


@dataclass(frozen=True, slots=True)
class LocalDisk:
    """A directory of this machine's file system, or a mounted share."""

    root: Path

    def put(self, name: str, data: bytes, *, flush: bool = True) -> None:
        """Write a file, and only when it is complete give it its name."""
        folder, _, last = f"{self.root}/{name}".rpartition("/")
        partial = f"{folder}/.{last}.tmp"
        try:
            try:
                self._write(partial, data, flush)
            except FileNotFoundError:  # the first entry of its folder
                os.makedirs(folder, exist_ok=True)
                self._write(partial, data, flush)
            os.replace(partial, f"{folder}/{last}")
        except OSError as error:
            raise StateError(
                f"{folder}/{last} cannot be written: {error.strerror or error}",
                hint="make room or give permission there; a session that is started again goes on where it was",
            ) from error

    @staticmethod
    def _write(file: str, data: bytes, flush: bool) -> None:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
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
            raise StateError(
                f"{self.root / name} cannot be read: {error.strerror or error}",
                hint="make it a file that this user can read",
            ) from error

    def list(self, folder: str) -> list[str]:
        """The files of a directory, without those that are still being written."""
        try:
            return [name for name in os.listdir(self.root / folder) if not name.startswith(".")]
        except FileNotFoundError:
            return []

    def delete(self, name: str) -> None:
        """Delete a file."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.root}/{name}")

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

    def get(self, name: str) -> bytes | None:
        """The bytes of that name."""
        return self.entries.get(name)

    def list(self, folder: str) -> list[str]:
        """The entries and objects of a folder."""
        found = [*self.entries, *self.objects]
        return [name.rpartition("/")[2] for name in found if name.rpartition("/")[0] == folder]

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
