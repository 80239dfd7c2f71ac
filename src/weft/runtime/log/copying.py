"""A checkpoint that no session uses, copied from one storage to another.

Guarantees: a checkpoint in use is refused, and none can begin to use it meanwhile; so is a target that has anything.
Every entry of the copy is read back and compared. ``weft.json`` comes last, so an unfinished copy is no checkpoint
that a session would take up. The source stays as it was.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from weft.errors import StateError
from weft.runtime.log.lease import Lease, lock_directory, unlock
from weft.runtime.log.ownership import Ownership
from weft.storage.objects import ObjectStorage
from weft.storage.storage import LocalDisk, Storage

__all__ = ["Copied", "copy_checkpoint", "held"]

_NOT_COPIED = ("lease/", "exchange/")  # of the session that holds it, and of a batch under way


@dataclass(frozen=True, slots=True)
class Copied:
    """How much was copied."""

    entries: int
    bytes: int


def copy_checkpoint(source: Storage, target: Storage) -> Copied:
    """Copy a checkpoint to a storage that has nothing."""
    if source == target:
        raise StateError(f"{source.locate('')} would be copied to itself", hint="name another place")
    if not Ownership(source).read():
        raise StateError(
            f"{source.locate('')} is no checkpoint", hint="name the place given as Session(checkpoint=…)"
        )
    if next(_names(target), None) is not None:
        raise StateError(f"{target.locate('')} is not empty", hint="copy to a new place")
    with held(source) as lease:
        target.put(
            *lease.as_released()
        )  # the copy's sessions have later epochs, as entries of plans are told by them
        names = sorted(_names(source), key=lambda name: (name == "weft.json", name))
        _check(source, names)
        return Copied(len(names), sum(_copy(source, target, name) for name in names))


@contextmanager
def held(source: Storage) -> Iterator[Lease]:
    """Keep sessions out while a checkpoint is copied."""
    locks = lock_directory(source.root) if isinstance(source, LocalDisk) else []
    lease = Lease(source)
    try:
        lease.take()
        yield lease
    finally:
        lease.close()
        unlock(locks)


def _check(source: Storage, names: list[str]) -> None:
    """Refuse a checkpoint with entries that name their own place."""
    if any(name.startswith("frames/") for name in names):
        raise StateError(
            f"{source.locate('frames')} has rows of DataFrames, which name their place",
            hint="such a checkpoint cannot be moved: begin with a new one",
        )


def _names(storage: Storage) -> Iterator[str]:
    """The names of all entries that belong to a checkpoint."""
    if isinstance(storage, ObjectStorage):
        found: Iterator[str] = (one.name for one in storage.entries())
    elif isinstance(storage, LocalDisk):
        found = _files(storage)
    else:
        raise StateError(
            f"{storage.locate('')} ends with its process", hint="copy from or to a disk or a store"
        )
    return (name for name in found if not name.startswith(_NOT_COPIED) and name != "lock")


def _files(disk: LocalDisk) -> Iterator[str]:
    for folder, _, names in os.walk(disk.root):
        for name in names:
            if not name.startswith("."):
                yield os.path.relpath(os.path.join(folder, name), disk.root).replace(os.sep, "/")


def _copy(source: Storage, target: Storage, name: str) -> int:
    data = source.get(name)
    if data is None:
        raise StateError(f"{source.locate(name)} has vanished", hint="who else changes this checkpoint?")
    if not target.put_if_absent(name, data):
        raise StateError(f"{target.locate(name)} was written by others meanwhile", hint="copy to a new place")
    if _digest(target.get(name)) != _digest(data):
        raise StateError(f"{target.locate(name)} is not what was copied", hint="is that storage sound?")
    return len(data)


def _digest(data: bytes | None) -> str:
    return "" if data is None else hashlib.blake2b(data).hexdigest()
