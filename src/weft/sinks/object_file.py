"""A file that becomes an object: written on this machine's disk, and put as a whole when it is complete."""

from __future__ import annotations

import tempfile
from pathlib import Path

from weft.storage.objects import ObjectStorage

__all__ = ["ObjectFile"]


class ObjectFile:
    """A file in a folder of its own, whose content goes to ``path``."""

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
