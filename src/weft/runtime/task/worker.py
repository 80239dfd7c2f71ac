"""What a task of a batch does, whoever runs it (design, D1, D3 and D10).

Guarantees: pure but for the bucket files and sink parts it writes, each under a name no other attempt has; what it
returns names those that count. What it makes does not depend on the order in which messages come: when an executor
is lost, Spark runs finished tasks again though others have taken in some of what they sent, and rows that were then
dealt out otherwise would be joined twice or not at all. So every parcel says who sent it, and they are sorted by that.
An error of the user's is reported, since no further attempt would mend it.

Tuples that count for a `ROWS` window are numbered in two steps, so that no pass over the input is needed before the
first hop: a read task numbers those it reads, and tells every partition how many there were; a hop begins when it has
all that was sent to it, and then knows how many tuples came before each read task's.

Tuples that may be stored anywhere are dealt out in turn. Every read task goes on where the task of its number ended, as
the manifest says, so the partitions of a store were given numbers of tuples that differ by the number of read tasks at
most, over all batches.
"""

from __future__ import annotations

import gc
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter

import pyarrow as pa

from weft.errors import WeftError
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
from weft.runtime.task.exchange import Sender, SentParcel
from weft.runtime.task.functions import callable_functions
from weft.runtime.task.job import Job
from weft.runtime.task.messages import Message
from weft.runtime.task.outlet import TaskOutlet, failures
from weft.runtime.task.reports import (
    AddedRun,
    BadRecord,
    Dealt,
    HeavyValues,
    InputAdmitted,
    InputCounted,
    PartRead,
    QuerySetSample,
    Seconds,
    TaskError,
)
from weft.runtime.task.segments import FileState, shelf_of, written_in

__all__ = ["hop_task", "past_task", "read_task", "spare_the_collector"]

Piece = tuple[str, Part]  # a stream, and what to read of it


def spare_the_collector() -> None:
    """Take what the first tasks of this process have loaded out of the garbage collector's sight.

    Spark's workers collect garbage after every task. With the compiler and the kernels loaded that takes longer than
    the task; they never become garbage.
    """
    if next(_TASKS) < 20:
        gc.freeze()


_TASKS = itertools.count()


def read_task(job: Job, task: int, pieces: Iterable[Piece]) -> Iterator[Message]:
    """Read parts of streams, admit their tuples and send them on their ways."""
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
        columns, setup = self._columns(), self.job.setup
        for stream, part in pieces:
            if stream not in columns:
                continue  # nobody reads it
            event_time = setup.streams[stream].event_time
            found = setup.sources[stream].read(stream, part, event_time, columns[stream])
            tables.setdefault(stream, []).append(found.batch)
            yield PartRead(stream, found.batch.num_rows, len(found.bad)).to_message()
            for bad in found.bad:
                yield BadRecord(bad.to_json().encode(errors="surrogatepass")).to_message()
        for stream, batches in tables.items():
            table = pa.Table.from_batches(batches)
            yield from self._enter(stream, table)

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

    def _enter(self, stream: str, table: pa.Table) -> Iterator[Message]:
        program, batch_order = self.job.program, self.job.batch_order
        mark = self.job.before.marks.get(stream)
        for alias in program.graph.aliases:
            if program.graph.input(alias).stream.name != stream:
                continue
            one = admit(program, alias, table, now=self.job.plan.now, watermark=mark)
            rows = one.batch.num_rows
            if alias in program.counted:
                counted = InputCounted(alias, self.task, rows)
                yield from (counted.to_message(each) for each in range(batch_order.partitions))
            batch = numbered(program, alias, one.batch, 0)
            with TaskOutlet(self.job, Sender(0, self.task)) as outlet:
                options = HopOptions(self.job.counting, outlet, self.job.limits)
                outcome = route_input(program, alias, batch, batch_order, options, self._dealt(program))
                for store, count in outcome.dealt.items():
                    yield Dealt(store, self.task, count).to_message()
                yield from outlet.messages(outcome)
            if outcome.sample:
                yield QuerySetSample(alias, outcome.sample).to_message()
            if outcome.heavy:
                yield HeavyValues(tuple(outcome.heavy)).to_message()
            yield InputAdmitted(alias, rows, one.late, one.untimed, one.oldest, one.newest).to_message()

    def _dealt(self, program: ExecutableGraph) -> dict[str, int]:
        """Where to go on dealing out tuples, by store; every task begins with another partition."""
        known = self.job.before.dealt
        stores = [store.identity for store in program.stores.values()]
        return {store: self.task + known.get(store, {}).get(str(self.task), 0) for store in stores}


def past_task(job: Job, task: int) -> Iterator[Message]:
    """Read what a partition has stored of the inputs that a boundary needs, and send it on its ways once more."""
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
    """The place of what is stored: all of it at once, nothing counted."""
    return replace(job.batch_order, counts=dict.fromkeys(job.program.counted, Count(0, 0)))


def _stored_options(job: Job, migration: StateMigration) -> HopOptions:
    """What is asked of the hops of what is stored."""
    edges = edges_for(job.program.graph, migration)
    return HopOptions(job.counting, limits=job.limits, edges=edges, answering=migration.backfill)


@dataclass
class _Arrived:
    """What a hop's task was sent."""

    program: ExecutableGraph
    parcels: list[SentParcel] = field(default_factory=list)
    added: list[AddedRun] = field(default_factory=list)
    counts: dict[str, dict[int, int]] = field(default_factory=dict)  # by input and read task

    def batches(self, before: Mapping[str, int]) -> dict[str, list[pa.RecordBatch]]:
        """The batches by edge; ``before`` counts the tuples of earlier batches by input."""
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
        """The batch's place in the total order, now that its tuples are counted."""
        counts = {a: Count(before[a], sum(self.counts.get(a, {}).values())) for a in self.program.counted}
        return replace(batch_order, counts=counts)


def hop_task(job: Job, hop: int, partition: int, messages: Iterable[Message]) -> Iterator[Message]:
    """Run one hop in one partition; what is not for it goes along."""
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
        options = HopOptions(job.counting, outlet, job.limits)
        outcome = run_hop(here.program, hop, batches, state, batch_order, options, partition)
        yield from outlet.messages(outcome)
    yield from state.leave(hop, batch_order)


def _past_hop(job: Job, here: _Arrived, hop: int, partition: int) -> Iterator[Message]:
    """The same at a boundary: what is stored comes as if it were new, and nothing else is there."""
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
    """Keep a message if it is for this hop; a count is kept, and goes along to later hops too."""
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
