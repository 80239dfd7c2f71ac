"""What a task of a batch does, whoever runs it (design, D1, D3 and D10).

Guarantees: pure but for the bucket files and sink parts it writes, each under a name no other attempt has; what it
returns names those that count. What it makes does not depend on the order in which messages come: when an executor
is lost, Spark runs finished tasks again though others have taken in some of what they sent, and rows that were then
dealt out otherwise would be joined twice or not at all. So every parcel says who sent it, and they are sorted by that.
An error of the user's is returned as a note, since no further attempt would mend it.

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
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from time import perf_counter
from typing import Any

import pyarrow as pa

from weft.errors import WeftError
from weft.kernels.expr.user_functions import calling
from weft.ports.source import Part
from weft.runtime.hop.admit import admit, numbered, renumbered
from weft.runtime.hop.interpret import route_input, route_stored, run_hop
from weft.runtime.hop.outcome import Boundary
from weft.runtime.log.values import BatchPlan, Manifest
from weft.runtime.model.batch_order import BatchOrder, Count
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.migration import StateMigration, edges_for
from weft.runtime.state.upgrade import past_rows
from weft.runtime.task.functions import loaded
from weft.runtime.task.job import Job
from weft.runtime.task.messages import NOTE, Message, error_note, note, unpacked
from weft.runtime.task.outlet import Sender, TaskOutlet, failures
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
    with calling(loaded(job.setup.functions)):
        try:
            yield from _Reading(job, task, job.plan, job.before).run(pieces)
        except WeftError as error:
            yield error_note(error)
    yield note(0, "seconds", hop=0, seconds=perf_counter() - began)


@dataclass(frozen=True, slots=True)
class _Reading:
    """One read task."""

    job: Job
    task: int
    plan: BatchPlan
    manifest: Manifest

    def run(self, pieces: Iterable[Piece]) -> Iterator[Message]:
        tables: dict[str, list[pa.RecordBatch]] = {}
        columns, setup = self._columns(), self.job.setup
        for stream, part in pieces:
            if stream not in columns:
                continue  # nobody reads it
            event_time = setup.streams[stream].event_time
            found = setup.sources[stream].read(stream, part, event_time, columns[stream])
            tables.setdefault(stream, []).append(found.batch)
            yield note(0, "read", stream=stream, rows=found.batch.num_rows, malformed=len(found.bad))
            for bad in found.bad:
                data = bad.to_json().encode(errors="surrogatepass")
                yield Message(0, f"{NOTE}bad", pa.py_buffer(data))
        for stream, batches in tables.items():
            table = pa.Table.from_batches(batches)
            for graph, blueprint in self.plan.graphs.items():
                yield from self._enter(graph, self.job.program(blueprint), stream, table)

    def _columns(self) -> dict[str, set[str]]:
        """The columns that queries read, by stream."""
        found: dict[str, set[str]] = {}
        for program in map(self.job.program, self.plan.graphs.values()):
            for source in program.graph.sources:
                names = {column.name for column in source.columns}
                found.setdefault(program.graph.input(source.alias).stream.name, set()).update(names)
        return found

    def _enter(self, graph: str, program: ExecutableGraph, stream: str, table: pa.Table) -> Iterator[Message]:
        batch_order = BatchOrder.from_dict(self.plan.batch_orders[graph])
        mark = self.manifest.marks.get(stream)
        for alias in program.graph.aliases:
            if program.graph.input(alias).stream.name != stream:
                continue
            one = admit(program, alias, table, now=self.plan.now, watermark=mark)
            rows = one.batch.num_rows
            if alias in program.counted:
                counted = {"graph": graph, "alias": alias, "task": self.task, "rows": rows}
                yield from (note(each, "count", **counted) for each in range(batch_order.partitions))
            batch = numbered(program, alias, one.batch, 0)
            dealt, limit = self._dealt(graph, program), self.job.result_limit
            with TaskOutlet(self.job, graph, Sender(0, self.task)) as outlet:
                outcome = route_input(
                    program, alias, batch, batch_order, self.job.counting, dealt, outlet, limit
                )
                for store, count in outcome.dealt.items():
                    yield note(0, "dealt", graph=graph, store=store, task=self.task, rows=count)
                yield from outlet.messages(outcome)
            if outcome.sample:
                yield note(0, "sample", graph=graph, alias=alias, sets=outcome.sample)
            if outcome.heavy:
                yield note(0, "heavy", counted=[asdict(one) for one in outcome.heavy])
            figures = {"rows": rows, "late": one.late, "untimed": one.untimed}
            times = {"oldest": one.oldest, "newest": one.newest}
            yield note(0, "input", graph=graph, alias=alias, stream=stream, **figures, **times)

    def _dealt(self, graph: str, program: ExecutableGraph) -> dict[str, int]:
        """Where to go on dealing out tuples, by store; every task begins with another partition."""
        known = self.manifest.dealt.get(graph, {})
        stores = [store.identity for store in program.stores.values()]
        return {store: self.task + known.get(store, {}).get(str(self.task), 0) for store in stores}


def past_task(job: Job, task: int) -> Iterator[Message]:
    """Read what a partition has stored of the inputs that a boundary needs, and send it on its ways once more."""
    with calling(loaded(job.setup.functions)):
        try:
            yield from _past(job, task)
        except WeftError as error:
            yield error_note(error)


def _past(job: Job, task: int) -> Iterator[Message]:
    plan, manifest, shelf = job.plan, job.before, shelf_of(job.setup.storage)
    for graph, data in plan.migrations.items():
        migration, program = StateMigration.from_dict(data), job.program(plan.graphs[graph])
        batch_order = _past_turn(plan, graph, program)
        bounds = _boundary(job, program, migration)
        dealt = Counter({store.identity: task for store in program.stores.values()})
        for read in migration.reads:
            runs = manifest.of(graph, read.store, task)
            for run in runs if read.is_read_in(task) else ():
                rows = shelf.open(run.name).batch
                past = past_rows(program, read.alias, rows, written_in(run.name), read.users, read.copies)
                with TaskOutlet(job, graph, Sender(0, task, read.alias, run.name)) as outlet:
                    limit = job.result_limit
                    outcome = route_stored(
                        program, read.alias, past, batch_order, bounds, dealt, outlet, limit
                    )
                    dealt.update(outcome.dealt)
                    yield from outlet.messages(outcome)


def _past_turn(plan: BatchPlan, graph: str, program: ExecutableGraph) -> BatchOrder:
    """The place of what is stored: all of it at once, nothing counted."""
    batch_order = BatchOrder.from_dict(plan.batch_orders[graph])
    return replace(batch_order, counts=dict.fromkeys(program.counted, Count(0, 0)))


def _boundary(job: Job, program: ExecutableGraph, migration: StateMigration) -> Boundary:
    return Boundary(edges_for(program.graph, migration), migration.backfill, job.counting)


@dataclass
class _Arrived:
    """What a hop's task was sent for one graph."""

    program: ExecutableGraph
    parcels: list[tuple[str, Sender, str, Any]] = field(default_factory=list)  # edge, sender, how, what
    added: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, dict[int, int]] = field(default_factory=dict)  # by input and read task

    def batches(self, before: Mapping[str, int]) -> dict[str, list[pa.RecordBatch]]:
        """The batches by edge; ``before`` counts the tuples of earlier batches by input."""
        found: dict[str, list[pa.RecordBatch]] = {}
        for edge, sender, how, data in sorted(self.parcels, key=lambda parcel: parcel[:2]):
            batches = unpacked(how, data)
            alias = self.program.starts[edge]
            if sender.hop == 0 and alias in self.counts:
                first = before[alias] + self._ahead(alias, sender.task)
                batches = [renumbered(alias, batch, first) for batch in batches]
            found.setdefault(edge, []).extend(batches)
        return found

    def _ahead(self, alias: str, task: int) -> int:
        return sum(rows for other, rows in self.counts[alias].items() if other < task)

    def before(self, manifest: Manifest) -> dict[str, int]:
        """How many tuples of the counted inputs came in earlier batches."""
        graph = self.program.graph
        return {a: manifest.arrived.get(graph.input(a).stream.name, 0) for a in self.program.counted}

    def batch_order(self, plan: BatchPlan, graph: str, before: Mapping[str, int]) -> BatchOrder:
        """The batch's place in the total order, now that its tuples are counted."""
        counts = {a: Count(before[a], sum(self.counts.get(a, {}).values())) for a in self.program.counted}
        return replace(BatchOrder.from_dict(plan.batch_orders[graph]), counts=counts)


def hop_task(job: Job, hop: int, partition: int, messages: Iterable[Message]) -> Iterator[Message]:
    """Run one hop in one partition; what is not for it goes along."""
    began = perf_counter()
    plan, manifest, shelf = job.plan, job.before, shelf_of(job.setup.storage)
    shelf.forget(manifest, job.number)
    arrived = {graph: _Arrived(job.program(name)) for graph, name in plan.graphs.items()}
    for message in messages:
        if _taken(arrived, hop, message):
            continue
        yield message
    for graph, here in arrived.items():
        run = _past_hop if job.boundary else _hop
        with calling(loaded(job.setup.functions)) as calls:
            try:
                yield from run(job, plan, manifest, graph, here, hop, partition)
            except WeftError as error:
                yield error_note(error)
            yield from failures(partition, calls.failed)
    yield note(partition, "seconds", hop=hop, seconds=perf_counter() - began)


def _hop(
    job: Job, plan: BatchPlan, manifest: Manifest, graph: str, here: _Arrived, hop: int, partition: int
) -> Iterator[Message]:
    before = here.before(manifest)
    batch_order = here.batch_order(plan, graph, before)
    state = FileState(
        shelf_of(job.setup.storage), job.number, manifest, graph, here.program, partition, here.added
    )
    batches = here.batches(before)
    with TaskOutlet(job, graph, Sender(hop, partition)) as outlet:
        outcome = run_hop(
            here.program,
            hop,
            batches,
            state,
            batch_order,
            job.counting,
            partition=partition,
            limit=job.limit,
            outlet=outlet,
            portion_bytes=job.portion_bytes,
            result_limit=job.result_limit,
        )
        yield from outlet.messages(outcome)
    yield from state.leave(hop, batch_order)


def _past_hop(
    job: Job, plan: BatchPlan, manifest: Manifest, graph: str, here: _Arrived, hop: int, partition: int
) -> Iterator[Message]:
    """The same at a boundary: what is stored comes as if it were new, and nothing else is there."""
    if graph not in plan.migrations:
        return
    program, migration = here.program, StateMigration.from_dict(plan.migrations[graph])
    batch_order, fills = _past_turn(plan, graph, program), frozenset(migration.fills)
    shelf = shelf_of(job.setup.storage)
    state = FileState(shelf, job.number, manifest, graph, program, partition, here.added, fills)
    bounds = _boundary(job, program, migration)
    arrived, portion, limit = here.batches({}), job.portion_bytes, job.result_limit
    with TaskOutlet(job, graph, Sender(hop, partition)) as outlet:
        outcome = run_hop(
            program,
            hop,
            arrived,
            state,
            batch_order,
            job.counting,
            bounds,
            outlet=outlet,
            portion_bytes=portion,
            result_limit=limit,
        )
        yield from outlet.messages(outcome)
    yield from state.leave(hop, batch_order)


def _taken(arrived: Mapping[str, _Arrived], hop: int, message: Message) -> bool:
    """Keep a message if it is for this hop; a count is kept, and goes along to later hops too."""
    if message.target == f"{NOTE}added":
        content = message.content()
        arrived[content["graph"]].added.append(content)
        return True
    if message.target == f"{NOTE}count":
        content = message.content()
        counts = arrived[content["graph"]].counts.setdefault(content["alias"], {})
        counts[content["task"]] = content["rows"]
        return False
    if message.target.startswith(NOTE):
        return False
    graph, edge, sender, how = message.target.split("\t")
    if arrived[graph].program.edges[edge].hop != hop:
        return False
    arrived[graph].parcels.append((edge, Sender(*json.loads(sender)), how, message.data))
    return True
