"""What a task of a batch does, whoever runs it (design, D1, D3 and D10).

Guarantees: pure but for the segments and sink parts it writes, each under a name that no other attempt has; only those
that its messages name count. A task has several partitions, and runs a hop in one after the other. What it sends does
not depend on the order in which messages arrive: when an executor is lost, Spark runs finished tasks again, although
others have used some of what they sent; if rows were then dealt out differently, some would be joined twice or not at
all. So every parcel names its sender, and parcels are sorted by it. An error that another attempt would meet again,
such as a damaged file, is reported and not raised.

Tuples that are counted are numbered in two steps, so that no pass over the input is needed before the first hop. A read
task numbers those it reads, and tells every task how many there were. A hop begins when it has all that was sent to it,
and then knows how many tuples came before those of each read task.

Tuples that may be stored in any partition are dealt out in turn. Every read task goes on where the task of its number
ended in the batch before, as the manifest says. So, over all batches, the numbers of tuples in the partitions of a
store differ at most by the number of read tasks.
"""

from __future__ import annotations

import gc
import itertools
import json
import zlib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.errors import SourceError, WeftError
from weft.kernels.ages import Classes
from weft.kernels.expr.user_functions import calling
from weft.logical.codec import decode
from weft.ports.source import Part, PartRows
from weft.runtime.hop.admission import admit, numbered, route_input, route_stored
from weft.runtime.hop.outcome import Outcome
from weft.runtime.output.outlet import TaskOutlet, failures
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.migration import StateMigration
from weft.runtime.state.open_segments import open_segments_of
from weft.runtime.state.upgrade import past_rows
from weft.runtime.task.hop_run import (
    HopInput,
    HopRun,
    batch_options,
    manifest_of,
    stored_options,
    stored_order,
)
from weft.runtime.task.table_parts import is_table_part, read_table_part
from weft.runtime.task.tuple_ages import ages_of_rows
from weft.runtime.wire.exchange import Sender
from weft.runtime.wire.functions import callable_functions
from weft.runtime.wire.messages import Message
from weft.runtime.wire.reports import Failure, HopReport, PartRead, ReadReport, TuplesCounted
from weft.runtime.wire.task_input import Job
from weft.stats.histogram import ZERO
from weft.stats.input_figures import InputFigures
from weft.stats.sampling.samples import AttributeSample
from weft.storage.objects import take_cache_counts

__all__ = ["hop_task", "past_task", "read_task", "spare_the_collector"]

Piece = tuple[str, Part]  # a stream, and what to read of it


def spare_the_collector() -> None:
    """Exempt what the first tasks of this process have loaded from garbage collection.

    Spark's workers collect garbage after every task. With the compiler and the kernels loaded, which never become
    garbage, that would take longer than the task.
    """
    if next(_TASKS) < 20:
        gc.freeze()


_TASKS = itertools.count()


def read_task(job: Job, task: int, pieces: Iterable[Piece]) -> Iterator[Message]:
    """Read parts of streams, admit their tuples and send them over the edges of their sources."""
    began, at, reading = perf_counter(), task % job.tasks, _Reading(job, task)
    with calling(callable_functions(job.setup.functions)):
        try:
            yield from reading.run(pieces)
        except WeftError as error:
            yield Failure.of_task(error).to_message()
    yield reading.report().to_message(at)
    yield HopReport(0, perf_counter() - began).to_message(at)


class _Reading:
    """A read task, and what it has read and admitted so far: the fields of the `ReadReport` that it gives in the end.

    ``counted`` is how many tuples of counted inputs it has admitted.
    """

    def __init__(self, job: Job, task: int) -> None:
        self.job, self.task = job, task
        self.counted: dict[str, int] = {}
        self.parts: list[PartRead] = []
        self.inputs: dict[str, InputFigures] = {}
        self.dealt: Counter[str] = Counter()
        self.query_sets: dict[str, dict[str, int]] = {}
        self.samples: list[AttributeSample] = []
        self.bad: list[bytes] = []

    def report(self) -> ReadReport:
        """What was read and admitted."""
        counts = (self.inputs, dict(self.dealt), self.query_sets)
        return ReadReport(self.task, tuple(self.parts), *counts, tuple(self.samples), b"\n".join(self.bad))

    def run(self, pieces: Iterable[Piece]) -> Iterator[Message]:
        tables: dict[str, list[pa.RecordBatch]] = {}
        ages: dict[str, list[Classes]] = {}
        columns, setup = self._columns(), self.job.setup
        for stream, part in pieces:
            if stream not in columns:
                continue  # no query of this batch reads the stream, which is taken all the same
            if is_table_part(part):
                tables.setdefault(stream, []).append(read_table_part(setup.storage, part, columns[stream]))
                continue
            event_time, latest = setup.streams[stream].event_time, self.job.plan.latest.get(stream)
            try:
                rows = setup.sources[stream].read(stream, part, event_time, columns[stream], latest)
            except SourceError as error:
                error.stream = stream
                raise
            rows, shed = shed_rows(part, rows, self.job.plan.shed.get(stream, 1.0))
            tables.setdefault(stream, []).append(rows.batch)
            if self.job.plan.ages.get(stream, ZERO) is None:
                ages.setdefault(stream, []).append(ages_of_rows(part, rows, self.job.plan.now))
            set_aside = sum(1 + bad.more for bad in rows.bad)
            newest = _newest(rows.batch, event_time)
            self.parts.append(PartRead(stream, rows.batch.num_rows, set_aside, newest, part.place, shed))
            self.bad += [bad.to_json().encode(errors="surrogatepass") for bad in rows.bad]
        for stream, batches in tables.items():
            table = pa.Table.from_batches(batches)
            yield from self._enter(stream, table, np.concatenate(ages[stream]) if stream in ages else None)
        if self.counted:
            counted = TuplesCounted(self.task, self.counted)
            yield from (counted.to_message(task) for task in range(self.job.tasks))

    @property
    def _at(self) -> int:
        """The task of the first hop that gets what this one reports, and passes it on to the driver.

        Where every hop is a stage of Spark, only the last one gives its rows to the driver; there may be more read
        tasks than tasks of hops.
        """
        return self.task % self.job.tasks

    def _columns(self) -> dict[str, set[str]]:
        """The columns that queries read, by stream."""
        found: dict[str, set[str]] = {}
        if self.job.plan.batch_order is None:
            return found
        graph = self.job.program.graph
        for source in graph.sources:
            names = {column.name for column in source.columns}
            found.setdefault(graph.input(source.alias).stream.name, set()).update(names)
        return found

    def _enter(self, stream: str, table: pa.Table, ages: Classes | None) -> Iterator[Message]:
        """Admit the tuples of a stream as those of every input that reads it, and send them on their way."""
        program, batch_order = self.job.program, self.job.batch_order
        mark = self.job.before.marks.get(stream)
        for alias in program.graph.aliases:
            if program.graph.input(alias).stream.name != stream:
                continue
            admitted = admit(program, alias, table, now=self.job.plan.now, watermark=mark, ages=ages)
            if alias in program.counted:
                self.counted[alias] = admitted.batch.num_rows
            batch = numbered(program, alias, admitted.batch, 0)
            with TaskOutlet(self.job, Sender(0, self.task)) as outlet:
                options = replace(batch_options(self.job), outlet=outlet)
                outcome = route_input(program, alias, batch, batch_order, options, self._dealt(program))
                report = yield from outlet.messages(outcome)
            if report != HopReport(0):
                yield report.to_message(self._at)
            self.inputs[alias] = admitted.figures
            self.dealt.update(outcome.dealt)
            self.samples += outcome.values
            if outcome.sample:
                self.query_sets[alias] = outcome.sample

    def _dealt(self, program: ExecutableGraph) -> dict[str, int]:
        """The partition to go on with when dealing out tuples, by store; each task began with another partition."""
        known = self.job.before.dealt
        stores = [store.identity for store in program.stores.values()]
        return {store: self.task + known.get(store, {}).get(str(self.task), 0) for store in stores}


def shed_rows(part: Part, rows: PartRows, kept: float) -> tuple[PartRows, int]:
    """A part's rows without those that are shed, and how many these are.

    Which ones depends on the part and on their places in it alone, so another attempt sheds the same.
    """
    count = rows.batch.num_rows
    if kept >= 1 or not count:
        return rows, 0
    seed = zlib.crc32(json.dumps(part.what, sort_keys=True).encode())
    mixed = (np.arange(count, dtype=np.uint64) + np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    chosen = (mixed >> np.uint64(32)) < np.uint64(kept * 2**32)
    arrived = rows.arrived if rows.arrived is None else rows.arrived[chosen]
    batch = rows.batch.filter(pa.array(chosen))
    return PartRows(batch, rows.bad, arrived), count - batch.num_rows


def _newest(batch: pa.RecordBatch, event_time: str | None) -> int | None:
    """The last event time of a batch; None if it has none."""
    if event_time is None or not batch.num_rows:
        return None
    newest: int | None = pc.max(batch.column(event_time)).value
    return newest


def past_task(job: Job, task: int) -> Iterator[Message]:
    """Read the stored tuples of a task's partitions that the job at a boundary needs, and send them over the edges."""
    report = HopReport(0)
    with calling(callable_functions(job.setup.functions)):
        try:
            report = yield from _past(job, task)
        except WeftError as error:
            yield Failure.of_task(error).to_message(task)
    report = replace(report, cache=take_cache_counts() or None)
    if report != HopReport(0):
        yield report.to_message(task)


def _past(job: Job, task: int) -> Generator[Message, None, HopReport]:
    if job.plan.migration is None:
        return HopReport(0)
    migration, program = decode(StateMigration, job.plan.migration), job.program
    batch_order, segments = stored_order(job), open_segments_of(job.setup.storage)
    dealt = Counter({store.identity: task for store in program.stores.values()})
    with TaskOutlet(job, Sender(0, task)) as outlet:
        options = replace(stored_options(job, migration), outlet=outlet)
        outcome = Outcome(options)
        for partition, read in itertools.product(job.partitions_of(task), migration.reads):
            if not read.is_read_in(partition):
                continue
            manifest = manifest_of(job, partition)
            for run in manifest.since(job.before.begun).get(read.store, ()):
                rows = segments.open(partition, run).batch
                past = past_rows(program, read.alias, rows, run.written, read.users, read.copies)
                outcome.dealt.clear()
                route_stored(program, read.alias, past, batch_order, outcome, dealt)
                dealt.update(outcome.dealt)
        return (yield from outlet.messages(outcome))


def hop_task(job: Job, hop: int, task: int, messages: Iterable[Message]) -> Iterator[Message]:
    """Run one hop in the partitions of a task; messages that are not for it are passed on."""
    began, report = perf_counter(), HopReport(hop)
    arrived = HopInput(job, task)
    for message in messages:
        if not arrived.take(hop, message):
            yield message
    with calling(callable_functions(job.setup.functions)) as calls:
        try:
            report = yield from HopRun(job, hop, task, arrived).run()
        except WeftError as error:
            yield Failure.of_task(error).to_message(task)
        yield from failures(task, calls.failed)
    cache = take_cache_counts() or None
    yield replace(report, seconds=perf_counter() - began, cache=cache).to_message(task)
