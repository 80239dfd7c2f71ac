"""Tuples that may be stored anywhere are dealt out in turn, whatever their batches and filters."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from tests.local_runner import LocalRunner
from tests.unit.runtime.joins import graph, v, w
from weft.connectors.formats.records import Decoded
from weft.logical.codec import encode
from weft.plan.physical.graph import PhysicalGraph
from weft.ports.source import Part
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import BatchPlan, Blueprint, Manifest
from weft.runtime.loop.batch.executed_batch import ExecutedBatch
from weft.runtime.loop.batch.finished_batch import finish_batch
from weft.runtime.loop.batch.task_reports import TaskReports
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.task.worker import read_task
from weft.runtime.wire.exchange import SentParcel
from weft.runtime.wire.messages import Message
from weft.runtime.wire.task_input import Job, Setup

PARTITIONS = 4
TASKS = 3
BATCHES = 25

# Every other tuple of v is wanted: dealt out before that, all that are would go to every other partition.
THETA = "SELECT v.x, w.uid FROM v, w WHERE v.x < w.uid AND v.vid = 1"


def scattered() -> PhysicalGraph:
    """A plan both of whose stores are scattered."""
    found = graph(THETA)
    assert {store.layout.kind for store in found.stores} == {"scattered"}
    assert found.stores[0].layout.partitions == PARTITIONS
    return found


def test_partitions_differ_by_one_tuple() -> None:
    """Many small batches that all began with the same partition would fill it alone."""
    rng, runner = random.Random(0), LocalRunner(scattered())
    for second in range(BATCHES):
        left = v(*((n % 2, n, float(second)) for n in range(rng.randint(0, 5))))
        right = w(*((0, n, "", float(second)) for n in range(rng.randint(0, 3))))
        runner.process({"v": left, "w": right})
        for plan in runner.program.stores.values():
            held = [sum(run.bounds.rows for run in state.earlier_runs(plan)) for state in runner.states]
            assert max(held) - min(held) <= 1
    assert sum(runner.dealt.values()) > 2 * PARTITIONS


@dataclass(frozen=True)
class Made:
    """A source whose files are what their names make of them: few tuples each."""

    def read(self, stream: str, part: Part, *_: object) -> Decoded:
        count = random.Random(f"{stream} {part.what}").randint(0, 3)
        made = (
            v(*((1, n, 1.0) for n in range(count)))
            if stream == "v"
            else w(*((1, n, "", 1.0) for n in range(count)))
        )
        columns = {name: made[name].combine_chunks() for name in made.schema.names}
        return Decoded(pa.RecordBatch.from_pydict(columns))


def test_read_tasks_go_on_where_they_ended(tmp_path: Path) -> None:
    """Without coordination, over many batches: partitions differ by the number of read tasks at most."""
    program = ExecutableGraph(scattered())
    streams = {name: program.graph.input(name).stream for name in "vw"}
    checkpoint = Checkpoint.at(tmp_path)
    identity = checkpoint.open({})
    blueprint = checkpoint.write_blueprint(Blueprint(program.graph.to_json(), "", {}))
    held = {store.name: [0] * PARTITIONS for store in program.graph.stores}
    manifest, sources = Manifest(), cast("dict[str, Any]", dict.fromkeys("vw", Made()))
    for number in range(BATCHES):
        batch_order = BatchOrder(number, ("v", "w"), PARTITIONS)
        plan = BatchPlan(number, 0, blueprint, encode(batch_order))
        checkpoint.write_plan(plan)
        job = Job(Setup(checkpoint.storage, identity, sources, streams), plan, manifest)
        sent = [m for task in range(TASKS) for m in read_task(job, task, _parts(number, task))]
        again = [m for task in range(TASKS) for m in read_task(job, task, _parts(number, task))]
        assert _parcels(sent) == _parcels(again)
        for message in sent:
            _count(program, held, message)
        reports = TaskReports.from_messages(message for message in sent if message.is_report)
        manifest = finish_batch(ExecutedBatch(plan, manifest, reports, program)).manifest
        checkpoint.commit(manifest)
        for counts in held.values():
            assert max(counts) - min(counts) <= TASKS
    checkpoint.close()
    assert all(sum(counts) > BATCHES for counts in held.values())


def _parts(number: int, task: int) -> list[tuple[str, Part]]:
    return [(stream, Part({"batch": number, "task": task})) for stream in "vw"]


def _parcels(messages: list[Message]) -> list[tuple[int, str, bytes]]:
    return [(m.task, m.target, m.data.to_pybytes()) for m in messages if not m.is_report]


def _count(program: ExecutableGraph, held: dict[str, list[int]], message: Message) -> None:
    if not message.is_report:
        parcel = SentParcel.from_message(message)
        target = program.edges[parcel.edge].target
        if parcel.edge.endswith(f"store {target}"):
            for partition, rows in enumerate(parcel.counts or ()):
                held[target][partition] += rows
