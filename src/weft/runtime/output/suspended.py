"""Suspended queries: their sinks cannot take results, which are kept in the checkpoint until they can (design, 3).

Guarantees: of a query that is suspended at batch N, the results of N and of all later batches are in files that the
manifests name, and each is given to the sink exactly once, in order, when the sink works again: here or in a later
session. What was tried once under the number of a batch is tried again under that number, with the same rows, since
nobody knows whether the sink took it; only results that were never tried become part of a larger batch. Nothing is
tried before the manifest that names it is in the log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from weft.bucket.columns import longs
from weft.errors import SuspendedError, WeftError
from weft.ports.punctuation import Punctuations
from weft.runtime.log.values import KeptBatch, Suspension
from weft.runtime.output.batch_files import read_held, write_held
from weft.storage.storage import Storage

__all__ = ["KeptResults", "Suspensions", "read_kept", "suspended_error", "write_kept"]

FIRST, LONGEST = 1.0, 60.0  # seconds before a sink is tried again, at first and at most
PORTION = 1 << 26  # bytes of a file, about
SMALL = 1 << 20  # a file of fewer bytes is written anew together with what follows it


@dataclass(frozen=True, slots=True, eq=False)
class KeptResults:
    """Results of a batch: how many rows, and what they are if they are not only counted.

    Of a query with an order, ``punctuations`` and the ``schema`` are known, also without rows.
    """

    rows: int
    batches: Iterable[pa.RecordBatch] = ()
    punctuations: Punctuations | None = None
    schema: pa.Schema | None = None

    def table(self) -> pa.Table:
        """All rows as one table."""
        return pa.Table.from_batches(list(self.batches), self.schema)


@dataclass
class _Waiting:
    """A suspended query; the first ``tried`` of its batches may have reached the sink."""

    now: Suspension
    tried: int
    delay: float
    next_try: float


@dataclass
class Suspensions:
    """The queries that are suspended, by name; the results of each are in the storage of the log.

    It is used by the thread that commits batches, and by that of the loop while none is committed; any thread may ask
    which queries are suspended.
    """

    storage: Storage
    clock: Callable[[], float] = time.monotonic
    _waiting: dict[str, _Waiting] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def resume(self, known: Mapping[str, Suspension]) -> None:
        """Begin with the queries that a manifest says are suspended; each is tried at once."""
        for name, one in known.items():
            self._waiting[name] = _Waiting(one, len(one.kept), FIRST, self.clock())

    def __contains__(self, name: object) -> bool:
        return name in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def values(self) -> dict[str, Suspension]:
        """The suspended queries, for the manifest and for whoever asks."""
        with self._lock:
            return {name: one.now for name, one in self._waiting.items()}

    def suspend(self, name: str, number: int, error: WeftError) -> None:
        """Suspend a query at a batch, or note why it still is."""
        known = self._waiting.get(name)
        if known is None:
            known = _Waiting(Suspension(number, ""), 0, FIRST, self.clock() + FIRST)
        now = replace(known.now, reason=error.message, hint=error.hint)
        with self._lock:
            self._waiting[name] = replace(known, now=now)

    def keep(self, name: str, number: int, results: KeptResults) -> None:
        """Keep what a suspended query gave in a batch."""
        if not results.rows and results.punctuations is None:
            return
        known = self._waiting[name]
        kept, last = known.now.kept, None
        if len(kept) > known.tried:
            kept, last = kept[:-1], kept[-1]
        added = write_kept(self.storage, number, results, last)
        with self._lock:
            known.now = replace(known.now, kept=(*kept, added))
            if number == known.now.since:  # the sink may have taken it before it failed
                known.tried = 1

    def due(self, *, at_once: bool = False) -> list[str]:
        """The queries whose sinks are to be tried now; with ``at_once``, all of them."""
        now = self.clock()
        return [name for name, one in self._waiting.items() if at_once or now >= one.next_try]

    def next_batch(self, name: str) -> KeptBatch | None:
        """The first batch that waits for the sink of a query, from now on as one that was tried; None if none does."""
        known = self._waiting[name]
        if not known.now.kept:
            return None
        known.tried = max(known.tried, 1)
        return known.now.kept[0]

    def given(self, name: str) -> None:
        """The first batch that waits is in the sink."""
        known = self._waiting[name]
        with self._lock:
            known.now, known.tried = replace(known.now, kept=known.now.kept[1:]), max(0, known.tried - 1)

    def failed_again(self, name: str, error: WeftError) -> None:
        """The sink of a query still fails: it is tried again later."""
        known = self._waiting[name]
        with self._lock:
            known.now = replace(known.now, reason=error.message, hint=error.hint)
            known.delay = min(LONGEST, 2 * known.delay)
            known.next_try = self.clock() + known.delay

    def end(self, name: str) -> Suspension | None:
        """A query is suspended no longer; returns what was still waiting, None if it was not suspended."""
        with self._lock:
            known = self._waiting.pop(name, None)
        return None if known is None else known.now


def write_kept(storage: Storage, number: int, results: KeptResults, last: KeptBatch | None) -> KeptBatch:
    """Write results to files; what was kept ``last``, and never given to a sink, becomes part of the same batch."""
    before = KeptBatch(number) if last is None else last
    files, batches = list(before.files), iter(results.batches)
    size, small = before.bytes, list[pa.RecordBatch]()
    if files and results.rows and _is_small(tail := read_held(storage, files[-1])):
        files.pop()
        size -= sum(batch.nbytes for batch in tail)
        small = tail
    for portion in _portions(small, batches):
        files.append(write_held(storage, number, portion))
        size += sum(batch.nbytes for batch in portion)
    if not files and results.schema is not None:
        files.append(write_held(storage, number, [_no_rows(results.schema)]))
    marks = _marks(storage, number, before, results.punctuations)
    return KeptBatch(number, before.rows + results.rows, size, tuple(files), marks)


def _marks(storage: Storage, number: int, before: KeptBatch, more: Punctuations | None) -> str:
    if more is None:
        return before.marks
    known = [read_punctuations(storage, before.marks)] if before.marks else []
    every = Punctuations.joined([*known, more])
    schema = pa.schema([("rows", pa.int64()), ("marks", pa.int64())], {b"timed": str(more.timed).encode()})
    columns = [pa.array(every.rows), pa.array(every.marks)]
    return write_held(storage, number, [pa.RecordBatch.from_arrays(columns, schema=schema)])


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _is_small(batches: Iterable[pa.RecordBatch]) -> bool:
    return bool(sum(batch.nbytes for batch in batches) < SMALL)


def _portions(first: list[pa.RecordBatch], more: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Batches in portions of about `PORTION` bytes; the first ones are among them."""
    portion, size = list(first), sum(batch.nbytes for batch in first)
    for batch in more:
        if not batch.num_rows:
            continue
        portion.append(batch)
        size += batch.nbytes
        if size >= PORTION:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def read_kept(storage: Storage, kept: KeptBatch) -> KeptResults:
    """What was kept of a query for a batch; large files are mapped, not read."""
    batches = [batch for name in kept.files for batch in read_held(storage, name)]
    return KeptResults(kept.rows, batches, read_punctuations(storage, kept.marks) if kept.marks else None)


def read_punctuations(storage: Storage, name: str) -> Punctuations:
    """The punctuations in a file of `Suspensions`."""
    (batch,) = read_held(storage, name)
    timed = (batch.schema.metadata or {}).get(b"timed") == b"True"
    return Punctuations(np.array(longs(batch.column(0))), np.array(longs(batch.column(1))), timed)


def suspended_error(suspended: Mapping[str, Suspension]) -> SuspendedError | None:
    """The error for whoever waits for queries of which some are suspended; None if none is."""
    if not suspended:
        return None
    said = [f"query {name} is suspended {one.text}" for name, one in sorted(suspended.items())]
    remedies = sorted({one.hint for one in suspended.values() if one.hint})
    then = "nothing is lost: it goes on by itself when that is mended, in this session or when it is started again"
    return SuspendedError("; ".join(said), hint="; ".join([*remedies, then]))
