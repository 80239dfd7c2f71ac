"""What tasks of a batch put down for each other and for the driver: files that nobody needs once it is committed.

Guarantees: those of a batch are deleted when it is committed, and those that a killed session left when the next one
begins. In a directory that is a folder for every batch; in an object store, nothing is listed of one without files.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field

from weft.storage.storage import LocalDisk, Storage

__all__ = ["EXCHANGE", "BatchFolders"]

EXCHANGE = "exchange"
AHEAD = 3  # batches after the last committed one that a killed session may have begun


@dataclass
class BatchFolders:
    """The folders of batches in a storage; ``_filled`` are those that have files, where that has to be known."""

    storage: Storage
    _filled: set[int] = field(default_factory=set)

    def path(self, number: int) -> str | None:
        """The folder of a batch; None if the storage is no directory."""
        return f"{self.storage.root}/{EXCHANGE}/{number}" if isinstance(self.storage, LocalDisk) else None

    def note(self, number: int) -> None:
        """Note that a batch has files."""
        self._filled.add(number)

    def delete(self, number: int) -> None:
        """Delete the files of a batch."""
        folder = self.path(number)
        if folder is not None and os.path.isdir(folder):
            shutil.rmtree(folder, ignore_errors=True)
        elif folder is None and number in self._filled:
            for name in self.storage.list(f"{EXCHANGE}/{number}"):
                self.storage.delete(f"{EXCHANGE}/{number}/{name}")
        self._filled.discard(number)

    def clean(self, last: int) -> None:
        """Delete what a killed session left, whose last committed batch is that of number ``last``."""
        if isinstance(self.storage, LocalDisk):
            shutil.rmtree(self.storage.root / EXCHANGE, ignore_errors=True)
            return
        for number in range(max(0, last), last + 1 + AHEAD):
            self.note(number)
            self.delete(number)
