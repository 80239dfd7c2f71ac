"""What the loop and its tasks ask of a sink.

Guarantees asked for: `open` comes first, then `recover` with the last batch that the checkpoint knows to be complete
(-1: none), then for each batch `begin` and one commit; the checkpoint records a batch only after its commit. A batch
may be committed again after a crash, with the same rows; a sink whose `exactly_once` is true then holds them once.

Every sink is a `Sink`. What a sink can do beyond that, it says by the methods it has: a `PartSink` is written to by
tasks, an `OrderedPartSink` also results in order; a `CountingSink` wants the number of results alone, a `KeyedSink` can
replace rows by later ones, an `OrderedSink` keeps punctuations, a `RememberingSink` knows which batches it has. What
tasks write is seen by nobody before the driver commits the name that it was given; what was aborted, or was left by a
task that died, is never seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa

    from weft.ports.punctuation import Punctuations

__all__ = [
    "CountingSink",
    "KeyedSink",
    "OrderedPartSink",
    "OrderedSink",
    "PartOpener",
    "PartSink",
    "PartWriter",
    "RememberingSink",
    "ResultRows",
    "Sink",
    "hurried",
    "is_hurried",
]

_hurried: ContextVar[bool] = ContextVar("hurried", default=False)


@contextmanager
def hurried() -> Iterator[None]:
    """A context in which sinks do not wait for a server that is away: they are tried again later anyway."""
    token = _hurried.set(True)
    try:
        yield
    finally:
        _hurried.reset(token)


def is_hurried() -> bool:
    """Whether the caller has no time to wait for a server that is away."""
    return _hurried.get()


ResultRows: TypeAlias = "pa.Table | Sequence[pa.RecordBatch]"


@runtime_checkable
class Sink(Protocol):
    """A place for results that the driver hands over."""

    @property
    def exactly_once(self) -> bool:
        """Whether a replayed batch leaves no trace of the first attempt."""
        ...

    def open(self, schema: pa.Schema, owner: str | None = None) -> None:
        """Learn what results look like; refuse them if they cannot be taken. `owner` identifies the checkpoint."""
        ...

    def recover(self, last_committed: int) -> None:
        """Clear away what was left by attempts that were not completed."""
        ...

    def begin(self, batch_id: int) -> None:
        """Get ready for a batch, which an earlier attempt may have begun."""
        ...

    def commit(self, batch_id: int, rows: ResultRows) -> None:
        """Make the rows of a batch visible, all at once, in place of those of an earlier attempt."""
        ...


@runtime_checkable
class PartSink(Sink, Protocol):
    """A sink to which tasks write on their own, so that results need not pass through the driver.

    One that is also a `PartOpener` (`open_part`) is given a task's results as they are found; `write_part` is given all
    of a task's results of a batch at once, which, if they are many, are mapped from a file.
    """

    def write_part(self, batch_id: int, partition: int, rows: ResultRows) -> str:
        """In a task: write rows where nobody sees them; gives the name for `commit_parts`."""
        ...

    def commit_parts(self, batch_id: int, names: Sequence[str]) -> None:
        """In the driver: make the parts of a batch visible, all at once; other attempts' parts are dropped."""
        ...


@runtime_checkable
class CountingSink(Sink, Protocol):
    """A sink that keeps the number of results alone, so that tasks count them without making them."""

    def commit_count(self, batch_id: int, rows: int) -> None:
        """Keep how many results a batch has, in place of the number of an earlier attempt."""
        ...


@runtime_checkable
class KeyedSink(Sink, Protocol):
    """A sink that can replace rows: one for each value of some columns."""

    def keyed(self, keys: Sequence[str]) -> Sink:
        """The sink as it replaces the row that it has with the same keys by one that comes later."""
        ...


@runtime_checkable
class OrderedSink(Sink, Protocol):
    """A sink that keeps punctuations; others find some of them in the metadata of an ordered table's schema."""

    def commit_ordered(self, batch_id: int, rows: ResultRows, punctuations: Punctuations) -> None:
        """As `commit`, with rows in order, and up to where they are complete."""
        ...


@runtime_checkable
class OrderedPartSink(PartSink, Protocol):
    """A sink to which tasks write ordered results: each a range of a batch, to the part of the range's number.

    It is a `PartOpener`, too. Rows come with the punctuations of their range in the metadata of their schema.
    """

    @property
    def keeps_order(self) -> bool:
        """Whether readers see the parts of a batch in the order of their numbers."""
        ...

    def open_part(self, batch_id: int, partition: int) -> PartWriter:
        """As that of a `PartOpener`; for ordered results, ``partition`` is the number of the range."""
        ...


@runtime_checkable
class RememberingSink(Sink, Protocol):
    """A sink that knows which batches it has, so that the loss of its results is noticed when a session starts."""

    def last_batch(self) -> int:
        """The last batch that it was given rows of; -1 without one."""
        ...


class PartWriter(Protocol):
    """A task's results of one query and batch, on their way into a sink."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Add results; they need not be held in memory afterwards."""
        ...

    def close(self) -> str:
        """There are no more results; gives the name for `commit_parts`."""
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
