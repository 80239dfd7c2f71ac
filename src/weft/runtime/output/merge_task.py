"""Ordered results merged by tasks: the collection tree above its leaves (SplitJoin, 5.1).

Guarantees: a task is given ranges of an order, and of every run what lies in them; it merges each range in portions
and writes it to the part of that number in the sink, or to files for the driver. The ranges of a batch, one after the
other, are the batch in order. Rows that the watermarks have not passed stay: they are merged alike, and written to
files that the manifest will name. What is written is a function of the runs and the ranges, so that a repetition gives
the same. A query whose sink fails here fails alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from weft.bucket.columns import longs
from weft.errors import WeftError
from weft.kernels.ages import ages_of_times
from weft.ports.punctuation import MOST, Punctuations
from weft.ports.sink import PartOpener, PartSink, PartWriter
from weft.runtime.hop.sorting import key_count
from weft.runtime.log.values import HeldRun
from weft.runtime.output.batch_files import ResultFiles, read_file, read_held, write_file, write_held
from weft.runtime.output.sink_errors import sink_error
from weft.runtime.wire.messages import Message
from weft.runtime.wire.reports import Failure, MergedRange
from weft.runtime.wire.sorted_runs import (
    RunSlice,
    SortedRun,
    counts_by_head,
    merged_portions,
    portions,
    sample_of,
)
from weft.runtime.wire.task_input import Job
from weft.stats.histogram import BITS, CLASSES, Histogram, Latency

__all__ = ["InMemory", "Merge", "collect", "collect_task"]


@dataclass(frozen=True, slots=True)
class Merge:
    """A range of an ordered query's results that a task is to merge: rows with heads from ``low`` up to ``high``.

    ``place`` is its number in the batch, and ``last`` says whether no later range leaves. If the rows ``stay``, they
    are held back. Before the batch, so many ``rows`` had left, and so many ``tuples`` had come; ``after`` is how many
    have come with it or, in the order of event time, the clock. With ``every``, the sink wants every punctuation.
    """

    query: str
    place: int
    runs: tuple[SortedRun, ...]
    low: int | None = None
    high: int | None = None
    stay: bool = False
    last: bool = True
    rows: int = 0
    tuples: int = 0
    after: int = 0
    every: bool = False


class InMemory:
    """Runs and merged results that stay in the driver's memory, since there are few; ``runs`` are by name."""

    def __init__(self) -> None:
        self.runs: dict[str, pa.RecordBatch] = {}
        self.batches: list[pa.RecordBatch] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Add results."""
        self.batches.append(rows)

    def abort(self) -> None:
        """Forget them."""
        self.batches = []


def collect_task(job: Job, merges: Iterable[Merge]) -> Iterator[Message]:
    """Merge the ranges that a task is given, and report what came of each."""
    for merge in merges:
        try:
            yield collect(job, merge).to_message()
        except WeftError as error:
            yield Failure.of_task(error).to_message()


def collect(job: Job, merge: Merge, memory: InMemory | None = None) -> MergedRange | Failure:
    """Merge a range; with ``memory``, runs may be there, and results that are for the driver are put there."""
    known = memory.runs if memory is not None else {}
    opened = [RunSlice.of_run(run, _opened(job, run, known)) for run in merge.runs]
    whole = _Range(job, merge, opened, memory)
    if merge.stay:
        return whole.hold_back()
    sink = job.sinks.get(merge.query)
    try:
        return whole.give_out(sink)
    except Exception as error:  # only the query of this sink is concerned; the others go on
        if sink is None:
            raise
        return Failure.of_query(merge.query, sink_error(merge.query, sink, error))


def _opened(job: Job, run: SortedRun, known: Mapping[str, pa.RecordBatch]) -> pa.RecordBatch:
    if run.name in known:
        return known[run.name]
    read = read_held if run.held else read_file
    (batch,) = read(job.setup.storage, run.name)
    return batch


@dataclass(frozen=True, slots=True, eq=False)
class _Range:
    """A range with its runs, which have been opened."""

    job: Job
    merge: Merge
    opened: Sequence[RunSlice]
    memory: InMemory | None

    @property
    def _keys(self) -> int:
        ordering = self.job.program.members[self.merge.query].ordering
        return 1 if ordering is None else key_count(ordering)

    def _slices(self) -> list[RunSlice]:
        low, high = (None if head is None else (head,) for head in (self.merge.low, self.merge.high))
        return [one.between(low, high) for one in self.opened]

    def hold_back(self) -> MergedRange:
        """Write the rows, with their times, to files that outlive the batch."""
        job, merge, held = self.job, self.merge, []
        for run in merged_portions(self._slices(), self._keys, job.limits.portion_bytes, keep=True):
            name, sample = write_held(job.setup.storage, job.number, [run]), sample_of(run)
            held.append(HeldRun(name, 0, run.num_rows, sample[0], run.nbytes, sample, job.number))
        return MergedRange(merge.query, merge.place, held=tuple(held))

    def give_out(self, sink: PartSink | None) -> MergedRange:
        """Write the rows to the sink that tasks write to, or to files for the driver."""
        job, merge, slices = self.job, self.merge, self._slices()
        rows = sum(one.num_rows for one in slices)
        ahead = sum(one.start - run.first for one, run in zip(slices, merge.runs, strict=True))
        marks = self._punctuations(slices, merge.rows + ahead, rows)
        part = isinstance(sink, PartOpener)
        writer: PartWriter | ResultFiles | InMemory
        if isinstance(sink, PartOpener):
            writer = sink.open_part(job.number, merge.place)
        elif self.memory is not None:
            writer = self.memory
        else:
            writer = ResultFiles(job.setup.storage, job.number, job.limits.portion_bytes)
        try:
            for batch in merged_portions(slices, self._keys, job.limits.portion_bytes):
                writer.write(marks.on_batch(batch) if part else batch)
            closed = "" if isinstance(writer, InMemory) else writer.close()
        except BaseException:
            with suppress(OSError):
                writer.abort()
            raise
        name, files = (closed, ()) if isinstance(closed, str) else ("", tuple(closed))
        ages, cuts = self._ages(slices), self._cuts()
        return self._marked(
            MergedRange(merge.query, merge.place, rows, name, files, ages=ages, cuts=cuts), marks
        )

    def _punctuations(self, slices: Sequence[RunSlice], before: int, rows: int) -> Punctuations:
        """The punctuations of the range, before which so many rows have left; the last of them is about its end."""
        merge = self.merge
        high = merge.after if merge.last or merge.high is None else merge.high
        ordering = self.job.program.members[merge.query].ordering
        if ordering is None or not ordering.by_arrival:
            if (
                not merge.last and merge.query not in self.job.sinks
            ):  # the driver is told of the batch's end alone
                return Punctuations.none(timed=True)
            return Punctuations.of_time(before + rows, high)
        found = [
            counts_by_head(mine) for mine in portions(slices, 1, self.job.limits.portion_bytes)
        ]  # heads are not divided among portions
        heads, counts = (np.concatenate(some) for some in zip(*found, strict=True))
        size, end = ordering.block, high if merge.last else high * ordering.block
        marks = Punctuations.of_blocks(heads, counts, size, (before, merge.tuples), end)
        marks = marks if merge.low is None else marks[1:]  # the end of the range before says the same
        return marks if merge.every else marks.few()

    def _marked(self, found: MergedRange, marks: Punctuations) -> MergedRange:
        """What is reported, with its punctuations: those that are many are put into a file."""
        if found.part:
            return found
        if len(marks) <= MOST:
            return replace(found, marks=(tuple(marks.rows.tolist()), tuple(marks.marks.tolist())))
        columns = [pa.array(marks.rows), pa.array(marks.marks)]
        batch = pa.RecordBatch.from_arrays(columns, ["rows", "marks"])
        return replace(found, marked=write_file(self.job.setup.storage, self.job.number, [batch]))

    def _ages(self, slices: Sequence[RunSlice]) -> Latency:
        """How old the results are, if they were held back until the watermarks passed them."""
        if not self.job.program.members[self.merge.query].held:
            return Latency()
        counts, plan = np.zeros(CLASSES, np.int64), self.job.plan
        for one in slices:
            times = longs(one.batch.column(0))
            counts += np.bincount(ages_of_times(times, plan.now, BITS), minlength=CLASSES)
        rows = int(counts.sum())
        arrival = Histogram.from_classes({plan.oldest_age: rows}) if rows else Histogram()
        return Latency(arrival, Histogram.from_counts(counts.tolist())) if rows else Latency()

    def _cuts(self) -> dict[str, tuple[int, int]]:
        """By run that was held before, its first row that stays, and its time; a run of which none does is left out."""
        if not self.merge.last or self.merge.high is None:
            return {}
        found = {}
        for run, one in zip(self.merge.runs, self.opened, strict=True):
            if run.held and (rest := one.between((self.merge.high,), None)).num_rows:
                found[run.name] = rest.start, int(longs(rest.batch.column(0))[0])
        return found
