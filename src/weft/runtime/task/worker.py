"""What a task of a batch does, whoever runs it (design, D1, D3 and D10).

Guarantees: pure but for the bucket files and sink parts it writes, each under a name that no other attempt has; only
those that its messages name count. What a task sends does not depend on the order in which messages arrive: when an
executor is lost, Spark runs finished tasks again, although others have used some of what they sent; if rows were then
dealt out differently, some would be joined twice or not at all. So every parcel names its sender, and parcels are
sorted by it. An error that another attempt would meet again, such as a damaged file, is reported and not raised.

Tuples that are counted are numbered in two steps, so that no pass over the input is needed before the first hop. A read
task numbers those it reads, and reports to every partition how many there were. A hop begins when it has all that was
sent to it, and then knows how many tuples came before those of each read task.

Tuples that may be stored in any partition are dealt out in turn. Every read task goes on where the task of its number
ended in the batch before, as the manifest says. So, over all batches, the numbers of tuples in the partitions of a
store differ at most by the number of read tasks.
"""

from __future__ import annotations

import gc
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np
import pyarrow as pa

from weft.errors import WeftError
from weft.kernels.ages import Classes
from weft.kernels.expr.user_functions import calling
from weft.ports.source import Part
from weft.runtime.hop.admit import admit, numbered, renumbered
from weft.runtime.hop.entering import route_input, route_stored
from weft.runtime.hop.interpret import run_hop
from weft.runtime.hop.outcome import HopOptions
from weft.runtime.log.values import Manifest
from weft.runtime.model.batch_order import BatchOrder, Count
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.migration import StateMigration, edges_for
from weft.runtime.state.upgrade import past_rows
from weft.runtime.task.arrivals import ages_of_rows, batch_ages
from weft.runtime.task.exchange import Sender, SentParcel
from weft.runtime.task.functions import callable_functions
from weft.runtime.task.job import Job
from weft.runtime.task.messages import Message
from weft.runtime.task.outlet import TaskOutlet, failures
from weft.runtime.task.reports import (
    AddedRun,
    BadRecord,
    Dealt,
    InputAdmitted,
    InputCounted,
    PartRead,
    QuerySetSample,
    Seconds,
    TaskError,
    ValuesSampled,
)
from weft.runtime.task.segments import FileState, shelf_of, written_in
from weft.runtime.task.table_parts import is_table_part, read_table_part
from weft.stats.histogram import ZERO

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
    began = perf_counter()
    with calling(callable_functions(job.setup.functions)):
        try:
            yield from _Reading(job, task).run(pieces)
        except WeftError as error:
            yield TaskError.from_error(error).to_message()
    yield Seconds(0, perf_counter() - began).to_message()


@dataclass(frozen=True, slots=True)
class _Reading:
    """One read task."""

    job: Job
    task: int

    def run(self, pieces: Iterable[Piece]) -> Iterator[Message]:
        tables: dict[str, list[pa.RecordBatch]] = {}
        ages: dict[str, list[Classes]] = {}
        columns, setup = self._columns(), self.job.setup
        for stream, part in pieces:
            if stream not in columns:
                continue  # nobody reads it
            if is_table_part(part):
                tables.setdefault(stream, []).append(read_table_part(setup.storage, part, columns[stream]))
                continue
            event_time = setup.streams[stream].event_time
            found = setup.sources[stream].read(stream, part, event_time, columns[stream])
            tables.setdefault(stream, []).append(found.batch)
            if self.job.plan.ages.get(stream, ZERO) is None:
                ages.setdefault(stream, []).append(ages_of_rows(part, found, self.job.plan.now))
            yield PartRead(stream, found.batch.num_rows, len(found.bad)).to_message()
            for bad in found.bad:
                yield BadRecord(bad.to_json().encode(errors="surrogatepass")).to_message()
        for stream, batches in tables.items():
            table = pa.Table.from_batches(batches)
            yield from self._enter(stream, table, np.concatenate(ages[stream]) if stream in ages else None)

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
        program, batch_order = self.job.program, self.job.batch_order
        mark = self.job.before.marks.get(stream)
        for alias in program.graph.aliases:
            if program.graph.input(alias).stream.name != stream:
                continue
            one = admit(program, alias, table, now=self.job.plan.now, watermark=mark, ages=ages)
            rows = one.batch.num_rows
            if alias in program.counted:
                counted = InputCounted(alias, self.task, rows)
                yield from (counted.to_message(each) for each in range(batch_order.partitions))
            batch = numbered(program, alias, one.batch, 0)
            with TaskOutlet(self.job, Sender(0, self.task)) as outlet:
                options = _options(self.job, outlet)
                outcome = route_input(program, alias, batch, batch_order, options, self._dealt(program))
                for store, count in outcome.dealt.items():
                    yield Dealt(store, self.task, count).to_message()
                yield from outlet.messages(outcome)
            if outcome.sample:
                yield QuerySetSample(alias, outcome.sample).to_message()
            for sample in outcome.values:
                yield ValuesSampled(sample).to_message()
            yield InputAdmitted(alias, rows, one.late, one.untimed, one.oldest, one.newest).to_message()

    def _dealt(self, program: ExecutableGraph) -> dict[str, int]:
        """The partition to go on with when dealing out tuples, by store; each task began with another partition."""
        known = self.job.before.dealt
        stores = [store.identity for store in program.stores.values()]
        return {store: self.task + known.get(store, {}).get(str(self.task), 0) for store in stores}


def _options(job: Job, outlet: TaskOutlet) -> HopOptions:
    """The options of a batch's own hops."""
    return HopOptions(job.counting, outlet, job.limits, ages=batch_ages(job.plan, job.program.graph))


def past_task(job: Job, task: int) -> Iterator[Message]:
    """Read the stored tuples of a partition that the job at a boundary needs, and send them over the edges again."""
    with calling(callable_functions(job.setup.functions)):
        try:
            yield from _past(job, task)
        except WeftError as error:
            yield TaskError.from_error(error).to_message()


def _past(job: Job, task: int) -> Iterator[Message]:
    if job.plan.migration is None:
        return
    migration, program, shelf = (
        StateMigration.from_dict(job.plan.migration),
        job.program,
        shelf_of(job.setup.storage),
    )
    batch_order, options = _stored_order(job), _stored_options(job, migration)
    dealt = Counter({store.identity: task for store in program.stores.values()})
    for read in migration.reads:
        runs = job.before.runs_of(read.store, task)
        for run in runs if read.is_read_in(task) else ():
            rows = shelf.open(run.name).batch
            past = past_rows(program, read.alias, rows, written_in(run.name), read.users, read.copies)
            with TaskOutlet(job, Sender(0, task, read.alias, run.name)) as outlet:
                given = replace(options, outlet=outlet)
                outcome = route_stored(program, read.alias, past, batch_order, given, dealt)
                dealt.update(outcome.dealt)
                yield from outlet.messages(outcome)


def _stored_order(job: Job) -> BatchOrder:
    """The batch order in which stored tuples are run through a graph: that of the batch, with all counts 0."""
    return replace(job.batch_order, counts=dict.fromkeys(job.program.counted, Count(0, 0)))


def _stored_options(job: Job, migration: StateMigration) -> HopOptions:
    """The options of hops at a boundary: only the edges that lead to what is filled and to backfilled results."""
    edges = edges_for(job.program.graph, migration)
    return HopOptions(job.counting, limits=job.limits, edges=edges, answering=migration.backfill)


@dataclass
class _Arrived:
    """The messages of a hop's task: parcels, what earlier hops added, and counts of tuples by input and read task."""

    program: ExecutableGraph
    parcels: list[SentParcel] = field(default_factory=list)
    added: list[AddedRun] = field(default_factory=list)
    counts: dict[str, dict[int, int]] = field(default_factory=dict)

    def batches(self, before: Mapping[str, int]) -> dict[str, list[pa.RecordBatch]]:
        """The batches by edge, with the final numbers of tuples; ``before`` is how many came in earlier batches."""
        found: dict[str, list[pa.RecordBatch]] = {}
        for parcel in sorted(self.parcels, key=lambda parcel: (parcel.edge, parcel.sender)):
            batches = parcel.packed.batches()
            alias = self.program.starts[parcel.edge]
            if parcel.sender.hop == 0 and alias in self.counts:
                first = before[alias] + self._ahead(alias, parcel.sender.task)
                batches = [renumbered(alias, batch, first) for batch in batches]
            found.setdefault(parcel.edge, []).extend(batches)
        return found

    def _ahead(self, alias: str, task: int) -> int:
        return sum(rows for other, rows in self.counts[alias].items() if other < task)

    def before(self, manifest: Manifest) -> dict[str, int]:
        """How many tuples of the counted inputs came in earlier batches."""
        graph = self.program.graph
        return {a: manifest.arrived.get(graph.input(a).stream.name, 0) for a in self.program.counted}

    def counted(self, batch_order: BatchOrder, before: Mapping[str, int]) -> BatchOrder:
        """The batch's place in the total order, with the counts of its tuples."""
        counts = {a: Count(before[a], sum(self.counts.get(a, {}).values())) for a in self.program.counted}
        return replace(batch_order, counts=counts)


def hop_task(job: Job, hop: int, partition: int, messages: Iterable[Message]) -> Iterator[Message]:
    """Run one hop in one partition; messages that are not for it are passed on."""
    began = perf_counter()
    shelf_of(job.setup.storage).forget(job.before, job.number)
    arrived = _Arrived(job.program)
    for message in messages:
        if not _taken(arrived, hop, message):
            yield message
    run = _past_hop if job.boundary else _hop
    with calling(callable_functions(job.setup.functions)) as calls:
        try:
            yield from run(job, arrived, hop, partition)
        except WeftError as error:
            yield TaskError.from_error(error).to_message()
        yield from failures(partition, calls.failed)
    yield Seconds(hop, perf_counter() - began).to_message(partition)


def _hop(job: Job, here: _Arrived, hop: int, partition: int) -> Iterator[Message]:
    before = here.before(job.before)
    batch_order = here.counted(job.batch_order, before)
    shelf = shelf_of(job.setup.storage)
    state = FileState(shelf, job.number, job.before, here.program, partition, here.added)
    batches = here.batches(before)
    with TaskOutlet(job, Sender(hop, partition)) as outlet:
        options = _options(job, outlet)
        outcome = run_hop(here.program, hop, batches, state, batch_order, options, partition)
        yield from outlet.messages(outcome)
    yield from state.leave(hop, batch_order)


def _past_hop(job: Job, here: _Arrived, hop: int, partition: int) -> Iterator[Message]:
    """Run one hop of the job at a boundary: stored tuples arrive as if they were new, and all stores are empty."""
    if job.plan.migration is None:
        return
    program, migration = here.program, StateMigration.from_dict(job.plan.migration)
    batch_order, fills = _stored_order(job), frozenset(migration.fills)
    shelf = shelf_of(job.setup.storage)
    state = FileState(shelf, job.number, job.before, program, partition, here.added, fills)
    batches = here.batches({})
    with TaskOutlet(job, Sender(hop, partition)) as outlet:
        options = replace(_stored_options(job, migration), outlet=outlet)
        outcome = run_hop(program, hop, batches, state, batch_order, options)
        yield from outlet.messages(outcome)
    yield from state.leave(hop, batch_order)


def _taken(arrived: _Arrived, hop: int, message: Message) -> bool:
    """Keep a message if it is for this hop, and return whether it need not be passed on.

    A count of tuples is kept and passed on, since later hops need it too.
    """
    if AddedRun.is_in(message):
        arrived.added.append(AddedRun.from_message(message))
        return True
    if InputCounted.is_in(message):
        count = InputCounted.from_message(message)
        arrived.counts.setdefault(count.alias, {})[count.task] = count.rows
        return False
    if message.is_report:
        return False
    parcel = SentParcel.from_message(message)
    if arrived.program.edges[parcel.edge].hop != hop:
        return False
    arrived.parcels.append(parcel)
    return True
