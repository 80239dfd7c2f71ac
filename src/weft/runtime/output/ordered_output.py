"""The results of a batch in the order that a query asks for, as the driver knows them: where they are, not what.

Guarantees: the order is that of `query/ordering.py`. The output is a function of what the batches so far left and
of what this one found, so a batch that is replayed gives the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from weft.bucket.columns import longs
from weft.kernels.expr.arrow import result_schema
from weft.plan.physical.graph import Member
from weft.ports.punctuation import Punctuations
from weft.runtime.hop.sorting import tuples_before
from weft.runtime.log.values import HeldRun
from weft.runtime.model.batch_order import ENDED, UNKNOWN, BatchOrder
from weft.runtime.model.watermarks import Watermarks
from weft.runtime.output.batch_files import read_file
from weft.runtime.wire.reports import MergedRange
from weft.stats.histogram import Latency
from weft.storage.storage import Storage

__all__ = ["Gathered", "clock_of", "gather", "next_waiting", "tuples_after"]


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """The results of an ordered query that leave with a batch, its punctuations, and the results that are held back.

    ``rows`` is how many leave. If tasks have written them to the sink, ``parts`` are the names of the parts, in order;
    else they are in ``files`` of the batch and then in ``batches``. ``waiting`` are the files of those that are held
    back. If results are held back until the watermarks pass them, ``ages`` is how old those are that leave.
    """

    schema: pa.Schema
    punctuations: Punctuations
    rows: int = 0
    parts: tuple[str, ...] | None = None
    files: tuple[str, ...] = ()
    batches: tuple[pa.RecordBatch, ...] = ()
    waiting: tuple[HeldRun, ...] = ()
    ages: Latency = field(default_factory=Latency)

    @property
    def rows_waiting(self) -> int:
        """How many results are held back."""
        return sum(run.rows for run in self.waiting)

    def table(self, storage: Storage) -> pa.Table:
        """The results that no task has written to the sink; large files are mapped, and need no memory."""
        read = [batch for name in self.files for batch in read_file(storage, name, keep=True)]
        return pa.Table.from_batches([*read, *self.batches], self.schema)


def clock_of(member: Member, batch_order: BatchOrder, watermarks: Watermarks) -> int:
    """The time before which all results of a query are known, since no tuple before it can be on time any more."""
    if member.name in batch_order.clocks and batch_order.clocks[member.name].now >= ENDED:
        return ENDED
    query = member.query
    marks = [watermarks.mark_of(query.input(alias).stream.name) for alias in query.driving]
    known = [mark for mark in marks if mark is not None]
    return min(known) if len(known) == len(marks) else UNKNOWN


def tuples_after(member: Member, batch_order: BatchOrder) -> int:
    """How many tuples of a query's inputs have come with a batch, since the query began."""
    arrived = sum(batch_order.counts[alias].arrived for alias in member.query.driving)
    return tuples_before(member, batch_order) + arrived


def gather(
    member: Member,
    left: Sequence[MergedRange],
    before: tuple[int, int],
    after: int,
    storage: Storage,
    *,
    in_parts: bool,
) -> Gathered:
    """What leaves with a batch, from what tasks say of its ranges.

    ``before`` are the rows and tuples before the batch; ``after`` is how many tuples there are with it or, in the order
    of event time, the clock. If tasks write to the sink, its parts have the punctuations, and only the last is known.
    """
    found = sorted(left, key=lambda one: one.place)
    rows = sum(one.rows for one in found)
    if in_parts or not found:
        marks = _last(member, before, rows, after)
    else:
        marks = Punctuations.joined(_marks(one, member.held, storage) for one in found)
    return Gathered(
        result_schema(member.query),
        marks,
        rows,
        tuple(one.part for one in found) if in_parts else None,
        tuple(name for one in found for name in one.files),
        ages=Latency.sum(one.ages for one in found),
    )


def _last(member: Member, before: tuple[int, int], rows: int, after: int) -> Punctuations:
    """The punctuation at the end of a batch with so many rows; none while a stream has no watermark."""
    if not member.held:
        return Punctuations(np.array([before[0] + rows]), np.array([after]))
    return Punctuations.of_time(before[0] + rows, after) if after > UNKNOWN else Punctuations.none(timed=True)


def _marks(one: MergedRange, timed: bool, storage: Storage) -> Punctuations:
    if one.marked:
        (batch,) = read_file(storage, one.marked)
        return Punctuations(longs(batch.column(0)), longs(batch.column(1)), timed)
    rows, marks = (np.array(some, np.int64) for some in one.marks)
    return Punctuations(rows, marks, timed)


def next_waiting(
    before: Sequence[HeldRun], merged: Collection[str], left: Sequence[MergedRange], clock: int
) -> tuple[HeldRun, ...]:
    """The runs that are held back after a batch, from those before and what tasks say of the ranges that left and stay.

    Those of ``merged`` are part of runs that were written anew; others that begin before the clock are cut.
    """
    cuts = {name: cut for one in left for name, cut in one.cuts.items()}
    found = []
    for run in before:
        if run.name in merged:
            continue
        if run.time >= clock:
            found.append(run)
        elif run.name in cuts:
            found.append(_cut(run, *cuts[run.name]))
    return (*found, *(run for one in sorted(left, key=lambda one: one.place) for run in one.held))


def _cut(run: HeldRun, first: int, time: int) -> HeldRun:
    """A run of which the rows before ``first`` have left."""
    rows = run.rows - (first - run.first)
    size, sample = run.bytes * rows // run.rows, tuple(one for one in run.sample if one >= time)
    return replace(run, first=first, rows=rows, time=time, bytes=size, sample=sample)
