"""A task that Spark runs again, because a machine with its output was lost, must do what it did."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.runtime.joins import times
from weft.bucket.bounds import Bounds
from weft.connectors.formats.records import Decoded
from weft.errors import StateError
from weft.logical.codec import decode, encode
from weft.optimizer.cost import Weights
from weft.optimizer.space import Options
from weft.plan.schedule import SHUFFLE
from weft.ports.source import Part
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import BatchPlan, Blueprint, Manifest
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.model.limits import TaskLimits
from weft.runtime.queries.migration import StateMigration, StoreScan
from weft.runtime.state.open_segments import _BY_STORAGE
from weft.runtime.state.partition_manifest import PartitionFile, PartitionManifest, StoredRun, StoreTotals
from weft.runtime.state.segment_file import BUCKETS, write_segment
from weft.runtime.task.worker import hop_task, past_task, read_task
from weft.runtime.wire.messages import Message
from weft.runtime.wire.reports import Failure
from weft.runtime.wire.task_input import Job, Setup
from weft.session.session import PlannedQuery, Session

# Matches of either pair go to any one task, and look there for all of the other pair's.
PAIRS = """SELECT a.id AS a, d.id AS d FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS], c [RANGE 5 SECONDS],
           d [RANGE 5 SECONDS] WHERE a.k = b.k AND c.k = d.k AND b.x < c.x"""
PARTITIONS = 3


@dataclass(frozen=True)
class Made:
    """A source whose files are what their names make of them."""

    def read(self, stream: str, part: Part, *_: object) -> Decoded:
        rng = random.Random(f"{stream} {part.what}")
        rows = {"id": range(30), "k": [rng.randrange(12) for _ in range(30)]}
        columns = {**rows, "x": [rng.random() for _ in range(30)], "ts": times([1.0] * 30)}
        return Decoded(pa.RecordBatch.from_pydict(columns))


def planned() -> PlannedQuery:
    """A plan in which matches are dealt out one by one."""
    weights = Weights(ship=3.4e-8, probe=3.5e-6, store=1.1e-6, keep=1e-11, hop=1e-4)
    session = Session(options=Options(strategy="merge", partitions=PARTITIONS, weights=weights))
    for name in "abcd":
        session.stream(name, "id long, k long, x double, ts timestamp", event_time="ts")
    return session.query(PAIRS, name="q")


def begin(root: Path, query: PlannedQuery, now: int = 0) -> Job:
    """A new checkpoint with its first batch planned."""
    checkpoint = Checkpoint.at(root)
    identity = checkpoint.open({})
    batch_order = BatchOrder(0, tuple("abcd"), PARTITIONS)
    name = checkpoint.write_blueprint(Blueprint(query.graph.to_json(), "", {}))
    plan = BatchPlan(0, now, name, encode(batch_order))
    checkpoint.close()
    streams = {name: query.query.input(name).stream for name in "abcd"}
    sources: dict[str, Any] = dict.fromkeys(streams, Made())
    return Job(Setup(checkpoint.storage, identity, sources, streams), plan, Manifest())


def parcels(messages: Iterable[Message]) -> list[tuple[int, str, bytes]]:
    """What goes to other tasks, in no order."""
    return sorted((m.task, m.target, m.data.to_pybytes()) for m in messages if not m.is_report)


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_a_task_does_the_same_in_whatever_order_its_input_comes(tmp_path: Path, tasks: int) -> None:
    """A match that is dealt to another task the second time would be joined twice, or not at all."""
    query = planned()
    assert any(e.kind == SHUFFLE and not e.source.startswith("source") for e in query.graph.edges)
    job = replace(begin(tmp_path, query), tasks=tasks)
    parts = [(name, Part({"file": file})) for name in "abcd" for file in "01"]
    sent = [m for task, part in enumerate(parts) for m in read_task(job, task, [part])]
    for task in range(tasks):
        arrived = [message for message in sent if message.task == task]
        once = parcels(hop_task(job, 1, task, arrived))
        assert len(once) >= tasks
        for seed in range(5):
            random.Random(seed).shuffle(arrived)
            assert parcels(hop_task(job, 1, task, arrived)) == once


def test_a_damaged_file_is_told_of_and_not_tried_again(tmp_path: Path) -> None:
    """Spark would run a task that fails four times, and then say nothing of the cause."""
    query = planned()
    job, store = begin(tmp_path, query), query.graph.stores[0]
    migration = StateMigration((StoreScan(store.aliases[0], store.identity, ("q",)),))
    plan = replace(job.plan, number=1, migration=encode(migration), changed=True)
    bad = StoredRun("0-bad", 0, 8, 0, Bounds(1, 9))
    job.setup.storage.put(f"{BUCKETS}/0-bad", b"nonsense")
    manifest = PartitionManifest(0, {store.identity: (bad,)}, {"0-bad": 8, "0-run": 0})
    file = write_segment(job.setup.storage, "0-run", [], manifest)
    for damage, named in ((None, "0-bad"), (b"nonsense", "0-run")):
        if damage:
            job.setup.storage.put(f"{BUCKETS}/0-run", damage)
            _BY_STORAGE.clear()
        before = Manifest(0, {0: file}, begun={store.identity: 0})
        (told,) = past_task(replace(job, plan=plan, before=before, boundary=True), 0)
        error = Failure.from_message(told).error
        assert isinstance(error, StateError)
        assert named in error.message


def test_a_worker_does_not_take_an_old_checkpoint_for_a_new_one(tmp_path: Path) -> None:
    """Python workers live on: a checkpoint deleted and begun anew would run by the graph of the old one."""
    query, root = planned(), tmp_path / "ck"
    first = begin(root, query)
    assert first.program.graph == query.graph
    shutil.rmtree(root)
    second = begin(root, query)
    second.setup.storage.delete(f"blueprints/{second.plan.blueprint}.json")
    with pytest.raises(StateError, match=f"{second.plan.blueprint}.json is missing"):
        second.program  # noqa: B018


def test_a_job_goes_through_json(tmp_path: Path) -> None:
    """Tasks that stay are told of batches over a channel that carries nothing else."""
    job = begin(tmp_path, planned())
    files = {place: PartitionFile(f"0-{place}-x", 10, 7) for place in range(3)}
    before = Manifest(0, files, {"s": StoreTotals()}, {"s": 0}, {"a": 5}, arrived={"a": 7}, ranges=PARTITIONS)
    lean = replace(
        job, before=before, counting=frozenset("q"), limits=TaskLimits(3), tasks=2, stays=True, flush=True
    ).for_task(0)
    assert lean.before.partitions == {0: files[0], 2: files[2]}
    told = json.loads(json.dumps(lean.to_dict(lambda _: None)))
    assert Job.from_dict(job.setup, told) == replace(lean, plan=decode(BatchPlan, told["plan"]))
