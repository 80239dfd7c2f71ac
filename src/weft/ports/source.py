"""What the loop and its tasks ask of a source (design, D2).

Guarantees asked for: a source is a description; making one starts nothing and reads nothing. In the driver, `open`
gives a `Cursor`: how far the stream has been taken. The loop looks what is offered, chooses some of the parts, writes
them into the plan of a batch and only then takes them; a batch that is repeated reads the parts of its plan and looks
at nothing. In a task, `read` gives the rows of one part. What a part names must be enough to read the same rows
again, or to notice that they are no longer there: then `read` raises a `SourceError` that names what is missing or
has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa

    from weft.logical.schema import Schema

__all__ = [
    "BadRow",
    "Blobs",
    "Cursor",
    "CursorContext",
    "MemoryBlobs",
    "Offer",
    "Part",
    "PartRows",
    "Source",
    "Unfinished",
]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of input that one task reads in one go.

    ``what`` is plain JSON that says which piece: a file with its size, a range of offsets. ``bytes`` is about how much
    memory its rows take, by which parts are spread over tasks and batches are kept small enough. Where the source can
    tell without reading the rows, ``rows`` is how many records there are, good or bad, and ``oldest`` and ``newest``
    are times that no record is older or newer than, in microseconds; None where it cannot. ``arrived`` is when its
    first and its last record came, in microseconds since 1970. It is ``stamped`` if the records say themselves when
    they came, and `PartRows` tell it.
    """

    what: Mapping[str, Any]
    bytes: int = 0
    rows: int | None = None
    oldest: int | None = None
    arrived: tuple[int, int] | None = None
    stamped: bool = False
    newest: int | None = None

    @property
    def place(self) -> str:
        """Where its records are, for people: a file, or a range of a topic's partition."""
        what = self.what
        if "partition" in what:
            return f"partition {what['partition']}, offsets {what['first']} to {what['end'] - 1}"
        return str(next((what[name] for name in ("file", "object", "name") if name in what), ""))


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Something that is there but cannot be read yet, and why: a file that is still being written.

    It is ``awaited`` if whoever waits for all that is there waits for it, too.
    """

    name: str
    reason: str
    awaited: bool = True


@dataclass(frozen=True, slots=True)
class Offer:
    """What could be taken now, in the order in which it should be, and what has to wait until it is complete.

    ``backlog`` is how many parts, and about how many bytes, wait in all; more than are listed, where a source lists no
    more than a batch can take.
    """

    parts: tuple[Part, ...] = ()
    unfinished: tuple[Unfinished, ...] = ()
    backlog: tuple[int, int] = (0, 0)


class Blobs(Protocol):
    """A place in the log for what is too large for the plan of every batch."""

    def put(self, data: bytes) -> str:
        """Keep bytes for as long as the state of a cursor names them under ``"blobs"``; gives their name."""
        ...

    def get(self, name: str) -> bytes:
        """The bytes of that name; a `StateError` that names the file if they are missing or damaged."""
        ...


@dataclass(frozen=True, slots=True)
class CursorContext:
    """What a cursor is told when it is opened: what it said of itself when it was last asked, and what it may use.

    ``folder`` is a directory of the stream's own inside the checkpoint; nothing in it is deleted by others. ``spark``
    is the session of Spark's, None where there is none. No more than ``most_bytes`` are wanted of an offer, and no more
    than ``part_bytes`` of a part, where it can be smaller.
    ``event_time`` is the column that has the times of the stream's tuples, None if there is none. ``committed`` tells
    the last committed batch.
    """

    stream: str
    state: Mapping[str, Any]
    blobs: Blobs
    folder: Path
    spark: Any = None
    most_bytes: int = 1 << 30
    event_time: str | None = None
    committed: Callable[[], int] = lambda: -1
    part_bytes: int = 1 << 30


class Cursor(Protocol):
    """How far a stream has been taken. Used by one thread at a time, but for `catch_up`."""

    def look(self, now: float) -> Offer:
        """What is offered beyond what was taken, at a time (seconds since 1970). Called many times a second."""
        ...

    def take(self, parts: Sequence[Part]) -> None:
        """Never offer these parts again: they are in the plan of a batch."""
        ...

    def state(self) -> dict[str, Any]:
        """As plain JSON, what has been taken so far; ``"blobs"`` lists the names of the blobs that it needs."""
        ...

    def release(self, parts: Sequence[Part]) -> None:
        """A batch with these parts is committed: they will not be read again, and may be deleted or archived."""
        ...

    def catch_up(self) -> None:
        """Wait until all that has arrived at the source by now can be seen by `look`; any thread may call it."""
        ...

    def close(self) -> None:
        """Let go of everything that is open."""
        ...


class BadRow(Protocol):
    """A record that had to be set aside, and with it so many ``more`` that are not quoted."""

    @property
    def more(self) -> int: ...

    def to_json(self) -> str: ...


@dataclass(frozen=True, slots=True, eq=False)
class PartRows:
    """What a part gives: good rows with the declared columns and types, and what was set aside.

    ``arrived`` is when each row came, an array of microseconds since 1970 (-1: not known); None if no record says it.
    """

    batch: pa.RecordBatch
    bad: Sequence[BadRow] = ()
    arrived: Any = None


@runtime_checkable
class Source(Protocol):
    """What a stream is read from: any class with these members. It is pickled and sent to tasks, which only `read`."""

    @property
    def schema(self) -> Schema | None: ...

    def open(self, context: CursorContext) -> Cursor:
        """In the driver: go on where the state says, or begin if there is none (an empty mapping)."""
        ...

    def read(
        self,
        stream: str,
        part: Part,
        event_time: str | None = None,
        columns: Collection[str] | None = None,
        latest: int | None = None,
    ) -> PartRows:
        """In a task: the rows of a part, in the given columns alone where the format allows that.

        Records whose event time is after ``latest`` (microseconds since 1970) are set aside; None: there is no limit.
        """
        ...


@dataclass
class MemoryBlobs:
    """Blobs of a log that is kept nowhere, for tests and for running in this process."""

    kept: dict[str, bytes] = field(default_factory=dict)

    def put(self, data: bytes) -> str:
        """Keep bytes."""
        name = f"blob-{len(self.kept)}"
        self.kept[name] = data
        return name

    def get(self, name: str) -> bytes:
        """The bytes of that name."""
        return self.kept[name]
