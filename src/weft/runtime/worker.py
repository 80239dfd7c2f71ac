"""What a Spark task does (design, D1, D3 and D10).

Guarantees: pure but for the bucket files and sink parts it writes, each under a name no other attempt has; what it
returns names those that count. What it makes does not depend on the order in which a shuffle delivers: when an executor
is lost, Spark runs finished tasks again though others have taken in some of what they sent, and rows that were then
dealt out otherwise would be joined twice or not at all. So every parcel says who sent it, and they are sorted by that.
An error of the user's is returned as a note, since no further attempt would mend it.

Tuples that count for a `ROWS` window are numbered in two steps, so that no pass over the input is needed before the
first hop: a read task numbers those it reads, and tells every partition how many there were; a hop begins when it has
all that was sent to it, and then knows how many tuples came before each read task's.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import pyarrow as pa

from weft.errors import WeftError
from weft.logical.schema import Stream
from weft.runtime.batch import longest
from weft.runtime.checkpoint import Checkpoint, Manifest, Plan
from weft.runtime.file_state import FileState, forget_files
from weft.runtime.interpret import Outcome, leave_source, run_hop
from weft.runtime.messages import NOTE, Exchange, Message, error_note, note, packed, unpacked
from weft.runtime.program import Program, program_of
from weft.runtime.source import admit, numbered, renumbered
from weft.runtime.turn import Count, Turn

__all__ = ["Job", "hop_task", "read_task", "spare_the_collector"]

File = tuple[str, str, bytes | None]  # (stream, path, content)


@dataclass(frozen=True, slots=True)
class Job:
    """A batch, as its tasks are told of it: where the checkpoint is, and what reads and writes."""

    root: str
    identity: str  # of the checkpoint: the directory may have been another's before
    number: int
    sources: Mapping[str, Any]
    streams: Mapping[str, Stream]
    sinks: Mapping[str, Any]
    exchange: Exchange = field(default_factory=Exchange)

    def load(self) -> tuple[Plan, Manifest]:
        """The batch's plan and the state it starts from."""
        return _load(self.root, self.identity, self.number)

    @property
    def folder(self) -> Path:
        """Where bucket files are."""
        return Checkpoint(Path(self.root)).buckets


@lru_cache(maxsize=2)
def _load(root: str, identity: str, number: int) -> tuple[Plan, Manifest]:  # noqa: ARG001
    checkpoint = Checkpoint(Path(root))
    plan, manifest = checkpoint.plan(number), checkpoint.manifest(number - 1)
    if plan is None or manifest is None:
        raise FileNotFoundError(f"the checkpoint {root} has no plan for batch {number}")
    return plan, manifest


def spare_the_collector() -> None:
    """Take what the first tasks of this process have loaded out of the garbage collector's sight.

    Spark's workers collect garbage after every task. With the compiler and the kernels loaded that takes longer than
    the task; they never become garbage.
    """
    if next(_TASKS) < 20:
        gc.freeze()


_TASKS = itertools.count()


def read_task(job: Job, task: int, files: Iterable[File]) -> Iterator[Message]:
    """Decode files, admit their tuples and send them on their ways."""
    began = perf_counter()
    try:
        yield from _Reading(job, task, *job.load()).run(files)
    except WeftError as error:
        yield error_note(error)
    yield note(0, "seconds", hop=0, seconds=perf_counter() - began)


@dataclass(frozen=True, slots=True)
class _Reading:
    """One read task."""

    job: Job
    task: int
    plan: Plan
    manifest: Manifest

    def run(self, files: Iterable[File]) -> Iterator[Message]:
        tables: dict[str, list[pa.RecordBatch]] = {}
        columns = self._columns()
        for stream, path, content in files:
            event_time = self.job.streams[stream].event_time
            decoded = self.job.sources[stream].decode(
                stream, path, content, event_time, columns=columns.get(stream, ())
            )
            if decoded is None:
                continue
            tables.setdefault(stream, []).append(decoded.batch)
            yield note(0, "read", stream=stream, rows=decoded.batch.num_rows, malformed=len(decoded.bad))
            for bad in decoded.bad:
                data = bad.to_json().encode(errors="surrogatepass")
                yield Message(0, f"{NOTE}bad", pa.py_buffer(data))
        for stream, batches in tables.items():
            table = pa.Table.from_batches(batches)
            for query, graph in self.plan.graphs.items():
                yield from self._enter(query, program_of(graph), stream, table)

    def _columns(self) -> dict[str, set[str]]:
        """The columns that queries read, by stream."""
        found: dict[str, set[str]] = {}
        for program in map(program_of, self.plan.graphs.values()):
            for input_ in program.query.inputs:
                names = {column.name for column in program.source(input_.alias).columns}
                found.setdefault(input_.stream.name, set()).update(names)
        return found

    def _enter(self, query: str, program: Program, stream: str, table: pa.Table) -> Iterator[Message]:
        turn = Turn.from_dict(self.plan.turns[query])
        mark = self.manifest.marks.get(query, {}).get(stream)
        for input_ in program.query.inputs:
            if input_.stream.name != stream:
                continue
            alias = input_.alias
            one = admit(program, alias, table, now=self.plan.now, watermark=mark)
            rows = one.batch.num_rows
            if longest(program.query, alias) is not None:
                counted = {"query": query, "alias": alias, "task": self.task, "rows": rows}
                yield from (note(each, "count", **counted) for each in range(turn.partitions))
            batch = numbered(program.query, alias, one.batch, 0)
            outcome = leave_source(program, alias, batch, turn)
            yield from _outgoing(self.job, query, Sender(0, self.task), outcome)
            figures = {"rows": rows, "late": one.late, "untimed": one.untimed}
            times = {"oldest": one.oldest, "newest": one.newest}
            yield note(0, "input", query=query, alias=alias, **figures, **times)


class Sender(NamedTuple):
    """Who sent a parcel: the hop (0: a read task), the number of its task, and which of its parcels it is."""

    hop: int
    task: int
    number: int = 0


def _outgoing(job: Job, query: str, sender: Sender, outcome: Outcome) -> Iterator[Message]:
    """Parcels for later hops, results and counts of a hop."""
    at = sender.task if sender.hop else 0
    last, how, data = None, "", None  # what goes to all partitions is packed once
    for number, parcel in enumerate(outcome.sent):
        if last is not parcel.batch:
            last, (how, data) = parcel.batch, job.exchange.pack(parcel.batch)
        target = f"{query}\t{parcel.edge}\t{sender.hop}.{sender.task}.{number}\t{how}"
        yield Message(parcel.partition, target, data)
    for count in outcome.steps:
        yield note(at, "step", query=query, **asdict(count))
    if outcome.results:
        sink = job.sinks[query]
        rows = sum(batch.num_rows for batch in outcome.results)
        if sink is None:
            yield Message(at, f"{NOTE}result\t{query}", packed(outcome.results))
        else:
            name = sink.write_part(job.number, at, outcome.results)
            yield note(at, "part", query=query, name=name, rows=rows)


@dataclass
class _Arrived:
    """What a hop's task was sent for one query."""

    program: Program
    parcels: list[tuple[str, Sender, str, Any]] = field(default_factory=list)  # edge, sender, how, what
    added: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, dict[int, int]] = field(default_factory=dict)  # by input and read task

    def batches(self, before: Mapping[str, int]) -> dict[str, list[pa.RecordBatch]]:
        """The batches by edge; ``before`` counts the tuples of earlier batches."""
        found: dict[str, list[pa.RecordBatch]] = {}
        for edge, sender, how, data in sorted(self.parcels, key=lambda parcel: parcel[:2]):
            batches = unpacked(how, data)
            alias = self.program.starts[edge]
            if sender.hop == 0 and alias in self.counts:
                first = before.get(alias, 0) + self._ahead(alias, sender.task)
                batches = [renumbered(alias, batch, first) for batch in batches]
            found.setdefault(edge, []).extend(batches)
        return found

    def _ahead(self, alias: str, task: int) -> int:
        return sum(rows for other, rows in self.counts[alias].items() if other < task)

    def turn(self, plan: Plan, query: str, before: Mapping[str, int]) -> Turn:
        """The batch's place in the total order, now that its tuples are counted."""
        names = [a for a in self.program.query.aliases if longest(self.program.query, a) is not None]
        counts = {a: Count(before.get(a, 0), sum(self.counts.get(a, {}).values())) for a in names}
        return replace(Turn.from_dict(plan.turns[query]), counts=counts)


def hop_task(job: Job, hop: int, partition: int, messages: Iterable[Message]) -> Iterator[Message]:
    """Run one hop in one partition; what is not for it goes along."""
    began = perf_counter()
    plan, manifest = job.load()
    forget_files(job.folder, manifest, job.number)
    arrived = {query: _Arrived(program_of(graph)) for query, graph in plan.graphs.items()}
    for message in messages:
        if _taken(arrived, hop, message):
            continue
        yield message
    for query, here in arrived.items():
        before = manifest.arrived.get(query, {})
        state = FileState(job.folder, job.number, manifest, query, partition, here.added)
        turn = here.turn(plan, query, before)
        try:
            outcome = run_hop(here.program, hop, here.batches(before), state, turn)
        except WeftError as error:
            yield error_note(error)
            continue
        yield from _outgoing(job, query, Sender(hop, partition), outcome)
        yield from state.leave(here.program, hop, turn)
    yield note(partition, "seconds", hop=hop, seconds=perf_counter() - began)


def _taken(arrived: Mapping[str, _Arrived], hop: int, message: Message) -> bool:
    """Keep a message if it is for this hop; a count is kept, and goes along to later hops too."""
    if message.target == f"{NOTE}added":
        content = message.content()
        arrived[content["query"]].added.append(content)
        return True
    if message.target == f"{NOTE}count":
        content = message.content()
        counts = arrived[content["query"]].counts.setdefault(content["alias"], {})
        counts[content["task"]] = content["rows"]
        return False
    if message.target.startswith(NOTE):
        return False
    query, edge, sender, how = message.target.split("\t")
    if arrived[query].program.edges[edge].hop != hop:
        return False
    arrived[query].parcels.append((edge, Sender(*map(int, sender.split("."))), how, message.data))
    return True
