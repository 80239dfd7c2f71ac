"""What tasks ask of a sink that they write to on their own.

Guarantees asked for: what is written is seen by nobody before the driver commits the name that `close` gave; what was
aborted, or was left by a task that died, is never seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PartOpener", "PartWriter"]


class PartWriter(Protocol):
    """A task's results of one query and batch, on their way into a sink."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Add results; they need not be held in memory afterwards."""
        ...

    def close(self) -> str:
        """There are no more; the name is for `commit_parts`."""
        ...

    def abort(self) -> None:
        """The results are not wanted: leave nothing behind."""
        ...


@runtime_checkable
class PartOpener(Protocol):
    """A sink that takes a task's results as they are found, so that no task has to hold all of them (design, D14)."""

    def open_part(self, batch_id: int, partition: int) -> PartWriter:
        """In a task: begin to write rows where nobody sees them."""
        ...
