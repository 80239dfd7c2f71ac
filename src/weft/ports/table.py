"""What the loop asks of what a table is read from.

Guarantees asked for: a reader is a description; making one reads nothing. It is used in the driver alone, by one thread
at a time. `version` is cheap, and another text whenever the rows may be others. `read` gives the rows of that version
as a whole, with the declared columns and types, or raises a `SourceError` that names what is wrong; it never gives
rows of two versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa

    from weft.logical.schema import Schema

__all__ = ["RegisteredTable", "TableReader"]


@runtime_checkable
class TableReader(Protocol):
    """What a table is read from."""

    def columns(self) -> Schema | None:
        """The columns of its rows; None if they are not known."""
        ...

    def version(self) -> str:
        """The version that there is now."""
        ...

    def read(self, version: str) -> Iterator[pa.RecordBatch]:
        """The rows of a version, in at least one batch; a `SourceError` if it is there no longer."""
        ...

    def count(self) -> int | None:
        """How many rows there are now, where that is known without reading them."""
        ...


@dataclass(frozen=True, slots=True)
class RegisteredTable:
    """What a table is read from, and after how many seconds it is looked at again; None: never."""

    reader: TableReader
    refresh: float | None = None
