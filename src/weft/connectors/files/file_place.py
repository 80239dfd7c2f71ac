"""What sinks that write files ask of the place of their files: a *place* is where whole files appear at once.

Sinks that write files, Parquet and Delta, know their place by `FilePlace` alone; `weft.connectors.files.places` has the
two that there are. A place has two halves:

- **Files.** `new_file` begins one: its content is written to a path of this machine, then `finish` puts it in place as
  a whole, or `drop` forgets it. A file for which `flush` has returned survives the death of the machine.
- **Batches of files.** Tasks write the parts of a batch where readers do not look (`new_part`). The driver publishes
  some of them as the batch (`publish`): readers who go by what is published see all of a batch or nothing of it, and
  every batch once, whatever crashed before. The place remembers which batches are published. Delta tables do not need
  this half, since their log is that memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["BatchFolder", "FilePlace", "NewFile", "PlaceGoneError"]


class PlaceGoneError(Exception):
    """A place has lost what was published there; ``remedy`` says what a user can do."""

    def __init__(self, remedy: str) -> None:
        super().__init__(remedy)
        self.remedy = remedy


class NewFile(Protocol):
    """A file that is being written: its content goes to a path, then it is put in place."""

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


@dataclass(frozen=True, slots=True)
class BatchFolder:
    """Where readers find a batch: the folder ``COLUMN=BATCH`` of its place, the number with so many digits at least.

    >>> BatchFolder(7, digits=3).name
    'batch=007'
    """

    batch: int
    column: str = "batch"
    digits: int = 1

    @property
    def name(self) -> str:
        """The name of the folder."""
        return f"{self.column}={self.batch:0{self.digits}}"

    @property
    def is_ordered(self) -> bool:
        """Whether the names of batches and files are in the order of the rows."""
        return self.digits > 1


class FilePlace(Protocol):
    """What sinks that write files ask of the place of their files; names are relative to it."""

    @property
    def uri(self) -> str:
        """The place as other programs are told it."""
        ...

    def prepare(self, folder: str = "") -> None:
        """See to it that files can be put into a folder; raise what is in the way."""
        ...

    def try_writing(self, folder: str = "") -> None:
        """Raise what is in the way of writing files."""
        ...

    def is_empty(self) -> bool:
        """Whether nothing is here."""
        ...

    def new_file(self, name: str) -> NewFile:
        """Begin a file of that name."""
        ...

    def flush(self, name: str) -> None:
        """See to it that a file survives a loss of power; a `FileNotFoundError` if it is not there."""
        ...

    def remove(self, name: str) -> None:
        """Delete a file, if it is there."""
        ...

    def read(self, name: str) -> bytes | None:
        """The content of a small file; None if it is not there."""
        ...

    def write_if_absent(self, name: str, content: bytes) -> bool:
        """Write a small file at once, unless it is there with other content: then that stays, and this is False."""
        ...

    def new_part(self, batch_id: int, name: str) -> NewFile:
        """In a task: begin a file of a batch, where readers do not look before the batch is published."""
        ...

    def publish(self, folder: BatchFolder, names: Sequence[str]) -> str | None:
        """Let the parts of these names be the batch, all at once, and drop the others.

        Gives the name of a part that is not there; then nothing is published.
        """
        ...

    def batches(self, column: str) -> list[int]:
        """The batches that are published here, in order."""
        ...

    def files_of(self, folder: BatchFolder) -> list[str]:
        """The paths or URIs of the files of a published batch."""
        ...

    def drop_parts(self, batch_id: int | None = None) -> None:
        """Drop what earlier attempts at a batch, or at any, have left, if nobody else can be writing there."""
        ...

    def check_kept(self, batch_id: int) -> None:
        """Raise a `PlaceGoneError` if what was published up to that batch has been deleted."""
        ...
