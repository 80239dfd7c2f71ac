"""What a Spark task does (design, D1, D3 and D10).

Guarantees: pure but for the bucket files it writes, each under a name no other attempt has; what it returns names those
that count. A task sees the state of the batch before and what earlier hops of this batch added, and nothing that any
other attempt left. Rows between tasks are (partition, target, bytes): a batch on its way over an edge, or a message
to the driver, which goes along unopened.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa

from weft.bucket import codec
from weft.bucket.bucket import Bucket
from weft.logical.schema import Stream
from weft.plan.rules import ProbeRule, StoreRule
from weft.runtime.checkpoint import Checkpoint, Manifest, Plan, RunFile
from weft.runtime.interpret import Outcome, leave_source, run_hop
from weft.runtime.program import Program, program_of
from weft.runtime.source import admit
from weft.runtime.state import settle
from weft.runtime.turn import Turn
from weft.runtime.watermark import Watermarks, forgettable

__all__ = ["ROW", "Job", "Message", "hop_task", "read_task", "to_rows"]

ROW = pa.schema([("partition", pa.int32()), ("target", pa.string()), ("bucket", pa.binary())])

# Messages to the driver have targets that begin like this; no edge's name does.
NOTE = "!"


@dataclass(frozen=True, slots=True)
class Message:
    """A row between tasks."""

    partition: int
    target: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Job:
    """A batch, as its tasks are told of it: where the checkpoint is, and what reads and writes."""

    root: str
    number: int
    sources: Mapping[str, Any]
    streams: Mapping[str, Stream]
    sinks: Mapping[str, Any]

    def load(self) -> tuple[Plan, Manifest]:
        """The batch's plan and the state it starts from."""
        written = (Path(self.root) / "plan" / f"{self.number}.json").stat()
        return _load(self.root, self.number, (written.st_ino, written.st_mtime_ns))


@lru_cache(maxsize=2)
def _load(root: str, number: int, written: tuple[int, int]) -> tuple[Plan, Manifest]:  # noqa: ARG001
    """Read once; a worker outlives a checkpoint that is deleted and begun anew, whose plans are other files."""
    checkpoint = Checkpoint(Path(root))
    plan, manifest = checkpoint.plan(number), checkpoint.manifest(number - 1)
    if plan is None or manifest is None:
        raise FileNotFoundError(f"the checkpoint {root} has no plan for batch {number}")
    return plan, manifest


def to_rows(messages: Iterable[Message]) -> Iterator[pa.RecordBatch]:
    """Messages as the rows of Spark, one batch each: a bucket may be large."""
    for message in messages:
        columns = [[message.partition], [message.target], [message.data]]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, ROW, strict=True)], schema=ROW
        )


def note(at: int, kind: str, **content: Any) -> Message:
    """A message to the driver."""
    return Message(at, NOTE + kind, json.dumps(content).encode())


def read_task(job: Job, files: Iterable[tuple[str, str, bytes]]) -> Iterator[Message]:
    """Decode files (stream, path, content), admit their tuples and send them on their ways."""
    began = perf_counter()
    plan, manifest = job.load()
    tables: dict[str, list[pa.RecordBatch]] = {}
    for stream, path, content in files:
        decoded = job.sources[stream].decode(stream, path, content, job.streams[stream].event_time)
        if decoded is None:
            continue
        tables.setdefault(stream, []).append(decoded.batch)
        for bad in decoded.bad:
            yield Message(0, f"{NOTE}bad", bad.to_json().encode(errors="surrogatepass"))
    for stream, batches in tables.items():
        table = pa.Table.from_batches(batches)
        for query, graph in plan.graphs.items():
            yield from _enter(job, plan, manifest, query, program_of(graph), stream, table)
    yield note(0, "seconds", hop=0, seconds=perf_counter() - began)


def _enter(
    job: Job, plan: Plan, manifest: Manifest, query: str, program: Program, stream: str, table: pa.Table
) -> Iterator[Message]:
    turn = Turn.from_dict(plan.turns[query])
    mark = manifest.marks.get(query, {}).get(stream)
    for input_ in program.query.inputs:
        if input_.stream.name == stream:
            admitted = admit(program, input_.alias, table, now=plan.now, watermark=mark)
            outcome = leave_source(program, input_.alias, admitted.batch, turn)
            yield from _outgoing(job, query, 0, outcome)
            figures = {"rows": admitted.batch.num_rows, "late": admitted.late, "untimed": admitted.untimed}
            yield note(0, "input", query=query, alias=input_.alias, newest=admitted.newest, **figures)


def _outgoing(job: Job, query: str, partition: int, outcome: Outcome) -> Iterator[Message]:
    """Parcels for later hops, results and counts of a hop."""
    for parcel in outcome.sent:
        yield Message(parcel.partition, f"{query}\t{parcel.edge}", _ipc([parcel.batch]))
    for count in outcome.steps:
        yield note(partition, "step", query=query, **asdict(count))
    if outcome.results:
        sink = job.sinks[query]
        rows = sum(batch.num_rows for batch in outcome.results)
        if sink is None:
            yield Message(partition, f"{NOTE}result\t{query}", _ipc(outcome.results))
        else:
            name = sink.write_part(job.number, partition, outcome.results)
            yield note(partition, "part", query=query, name=name, rows=rows)


def hop_task(job: Job, hop: int, partition: int, messages: Iterable[Message]) -> Iterator[Message]:
    """Run one hop in one partition; what is not for it goes along."""
    began = perf_counter()
    plan, manifest = job.load()
    programs = {query: program_of(graph) for query, graph in plan.graphs.items()}
    arrived: dict[str, dict[str, list[bytes]]] = {query: {} for query in programs}
    added: dict[str, list[dict[str, Any]]] = {query: [] for query in programs}
    for message in messages:
        query, _, edge = message.target.partition("\t")
        if message.target == f"{NOTE}added":
            content = json.loads(message.data)
            added[content["query"]].append(content)
        elif query in programs and edge and programs[query].edges[edge].hop == hop:
            arrived[query].setdefault(edge, []).append(message.data)
        else:
            yield message
    for query, program in programs.items():
        state = FileState(job, manifest, query, partition, added[query])
        turn = Turn.from_dict(plan.turns[query])
        batches = _in_order(arrived[query])
        yield from _outgoing(job, query, partition, run_hop(program, hop, batches, state, turn))
        yield from state.leave(program, hop, turn)
    yield note(partition, "seconds", hop=hop, seconds=perf_counter() - began)


def _in_order(arrived: Mapping[str, Sequence[bytes]]) -> dict[str, list[pa.RecordBatch]]:
    """What arrived, by edge, in an order of its own: the shuffle's is chance, and rows are dealt out by their place.

    When an executor is lost, Spark runs a finished task again though others have taken in some of what it sent; if it
    dealt the rest out otherwise, tuples would be joined twice or not at all.
    """
    return {
        edge: [batch for data in sorted(parts) for batch in _batches(data)]
        for edge, parts in sorted(arrived.items())
    }


@dataclass
class FileState:
    """A partition of a query's stores, in files: `State` for the interpreter."""

    job: Job
    manifest: Manifest
    query: str
    partition: int
    earlier: list[dict[str, Any]]
    fresh: dict[tuple[str, str], list[Bucket]] = field(default_factory=dict)
    names: dict[int, tuple[Bucket, str]] = field(
        default_factory=dict
    )  # by id, which lasts while a run is held

    def settled(self, store: str) -> Sequence[Bucket]:
        """The runs of earlier batches, oldest first."""
        return [self._open(run.name) for run in self.manifest.of(self.query, store, self.partition)]

    def added(self, store: str, start: str) -> Sequence[Bucket]:
        """What tuples of an input have added in this batch, in this hop and in those before."""
        before = [e["name"] for e in self.earlier if (e["store"], e["start"]) == (store, start)]
        return [*map(self._open, before), *self.fresh.get((store, start), ())]

    def add(self, store: str, start: str, run: Bucket) -> None:
        """Add a run of this batch, made by tuples of an input."""
        self.fresh.setdefault((store, start), []).append(run)

    def leave(self, program: Program, hop: int, turn: Turn) -> Iterator[Message]:
        """Settle the stores that no later hop uses; hand on what was added to the others."""
        marks = Watermarks(self.manifest.marks.get(self.query, {}))
        for store, plan in program.stores.items():
            last = last_hop(program, store)
            if last > hop:
                yield from self._hand_on(store, hop)
            if last == hop:
                additions = [run for start in turn.order for run in self.added(store, start)]
                runs = (*self.settled(store), *additions)
                kept = settle(plan, runs, forgettable(program, plan, marks, turn))
                found = [asdict(RunFile(self._name(run), run.bounds)) for run in kept]
                yield self._note("runs", store=store, runs=found)

    def _hand_on(self, store: str, hop: int) -> Iterator[Message]:
        yield from (self._note("added", **entry) for entry in self.earlier if entry["store"] == store)
        for (name, start), runs in self.fresh.items():
            if name == store:
                for run in runs:
                    yield self._note("added", store=store, start=start, name=self._name(run), hop=hop)

    def _note(self, kind: str, **content: Any) -> Message:
        return note(self.partition, kind, **{**content, "query": self.query, "partition": self.partition})

    def _open(self, name: str) -> Bucket:
        bucket = _open(f"{self.job.root}/state/buckets/{name}")
        self.names[id(bucket)] = bucket, name
        return bucket

    def _name(self, run: Bucket) -> str:
        """The file a run is in; a new one if it is in none."""
        if id(run) not in self.names:
            name = f"{self.job.number}-{self.partition}-{uuid.uuid4().hex}"
            codec.write(run, Path(self.job.root) / "state" / "buckets" / name)
            self.names[id(run)] = run, name
        return self.names[id(run)][1]


@lru_cache(maxsize=4096)
def _open(path: str) -> Bucket:
    return codec.read(Path(path))


def last_hop(program: Program, store: str) -> int:
    """The last hop in which a store is added to or probed."""
    rules = [r for r in program.order if isinstance(r, StoreRule | ProbeRule) and r.store == store]
    return max(program.edges[rule.edge].hop for rule in rules)


def _ipc(batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _batches(data: bytes) -> list[pa.RecordBatch]:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return list(reader)
