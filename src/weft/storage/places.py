"""Storage by a text that names its place, so that tasks find what the driver means.

Guarantees: a path names a directory, and a URI such as ``s3://bucket/ck`` a place in an object store;
a place in memory is known in the process that made it alone.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path

from weft.storage.objects import ObjectStorage
from weft.storage.storage import LocalDisk, Memory, Storage
from weft.storage.uris import is_object_uri, normal_place

__all__ = ["new_memory", "storage_at"]

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
