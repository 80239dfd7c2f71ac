"""A task that Spark runs again, because a machine with its output was lost, must do what it did."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa

from tests.unit.runtime.joins import times
from weft.bucket.bounds import Bounds
from weft.errors import StateError
from weft.optimizer.cost import Weights
from weft.optimizer.space import Options
from weft.plan.schedule import SHUFFLE
from weft.runtime.checkpoint import Blueprint, Checkpoint, Manifest, Plan, RunFile
from weft.runtime.job import Job
from weft.runtime.messages import NOTE, Message, error_of
from weft.runtime.relay import Read, Relay
from weft.runtime.turn import Turn
from weft.runtime.worker import hop_task, past_task, read_task
from weft.session import PlannedQuery, Session
from weft.sources.records import Decoded

# Matches of either pair go to any one task, and look there for all of the other pair's.
PAIRS = """SELECT a.id AS a, d.id AS d FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS], c [RANGE 5 SECONDS],
           d [RANGE 5 SECONDS] WHERE a.k = b.k AND c.k = d.k AND b.x < c.x"""
PARTITIONS = 3


@dataclass(frozen=True)
class Made:
    """A source whose files are what their names make of them."""

    def decode(self, stream: str, path: str, *_: object, **__: object) -> Decoded:
        rng = random.Random(f"{stream} {path}")
        rows = {"id": range(30), "k": [rng.randrange(5) for _ in range(30)]}
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
    checkpoint = Checkpoint(root)
    identity = checkpoint.open({})
    turn = Turn(0, tuple("abcd"), PARTITIONS)
    name = checkpoint.write_blueprint(Blueprint(query.graph.to_json(), "", {}))
    checkpoint.write_plan(Plan(0, now, name, {"queries": name}, {"queries": turn.to_dict()}))
    checkpoint.close()
    streams = {name: query.query.input(name).stream for name in "abcd"}
    return Job(str(root), identity, 0, dict.fromkeys(streams, Made()), streams, {})


def parcels(messages: Iterable[Message]) -> list[tuple[int, str, bytes]]:
    """What goes to other tasks, in no order."""
    return sorted(
        (m.partition, m.target, m.data.to_pybytes()) for m in messages if not m.target.startswith(NOTE)
    )


def test_a_task_does_the_same_in_whatever_order_its_input_comes(tmp_path: Path) -> None:
    """A match that is dealt to another task the second time would be joined twice, or not at all."""
    query = planned()
    assert any(e.kind == SHUFFLE and not e.source.startswith("source") for e in query.graph.edges)
    job = begin(tmp_path, query)
    files = [(name, file, b"") for name in "abcd" for file in "01"]
    sent = [m for task, file in enumerate(files) for m in read_task(job, task, [file])]
    for partition in range(PARTITIONS):
        arrived = [message for message in sent if message.partition == partition]
        once = parcels(hop_task(job, 1, partition, arrived))
        assert len(once) > PARTITIONS
        for seed in range(5):
            random.Random(seed).shuffle(arrived)
            assert parcels(hop_task(job, 1, partition, arrived)) == once


def test_a_damaged_file_is_told_of_and_not_tried_again(tmp_path: Path) -> None:
    """Spark would run a task that fails four times, and then say nothing of the cause."""
    query = planned()
    begin(tmp_path, query)
    checkpoint, store = Checkpoint(tmp_path), query.graph.stores[0]
    last = checkpoint.plan(0)
    assert last is not None
    relay = Relay((Read(store.aliases[0], store.identity, ("q",)),))
    checkpoint.open({})
    checkpoint.commit(Manifest(0, {"queries": {store.identity: {0: (RunFile("0-run", Bounds(1, 9)),)}}}))
    checkpoint.write_plan(replace(last, number=1, relays={"queries": asdict(relay)}, changed=("queries",)))
    checkpoint.buckets.mkdir(exist_ok=True)
    (checkpoint.buckets / "0-run").write_bytes(b"nonsense")
    checkpoint.close()
    (told,) = past_task(Job(str(tmp_path), "", 1, {}, {}, {}, boundary=True), 0)
    assert isinstance(error_of(told.content()), StateError)


def test_a_worker_does_not_take_an_old_checkpoint_for_a_new_one(tmp_path: Path) -> None:
    """Python workers live on: a checkpoint deleted and begun anew would run by the plan of the old one."""
    query, root = planned(), tmp_path / "ck"
    assert begin(root, query, now=1).load()[0].now == 1
    shutil.rmtree(root)
    assert begin(root, query, now=2).load()[0].now == 2
