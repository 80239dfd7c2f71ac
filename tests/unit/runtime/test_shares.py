"""Shares of a run: whatever order it is laid out in, a partition has the rows that are sent to it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from tests.shares import quick, seeds
from tests.unit.runtime.joins import times
from weft.bucket.bounds import PLACES
from weft.bucket.bucket import Bucket, build
from weft.bucket.index import Order, by_hash
from weft.bucket.merge import between
from weft.kernels.route.partition import partitions, range_of
from weft.logical.expr.expression import Column
from weft.logical.schema import DataType
from weft.plan.physical.graph import CODEC
from weft.runtime.hop.admission import admit
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.state import settling
from weft.runtime.state.open_segments import OpenSegments, Underway
from weft.runtime.state.partition import PartitionState
from weft.runtime.state.partition_manifest import PartitionFile, Share, StoredRun
from weft.runtime.state.rehoming import rehomed
from weft.runtime.state.segment_file import BUCKETS
from weft.runtime.state.settling import MergeBudget
from weft.runtime.state.stores import make_run
from weft.session.session import Session
from weft.storage.storage import LocalDisk, Memory

KEY = Column("a", "k", DataType("long"))
PAIR = "SELECT a.i AS i, a.x AS x, b.i AS b FROM a [RANGE 9 DAYS], b [RANGE 9 DAYS] WHERE a.k = b.k"


def rows_in(run: Bucket, low: int, high: int) -> list[int]:
    """The rows of a stored run that a share of it has."""
    storage = Memory()
    storage.objects[f"{BUCKETS}/s"] = [[run]]
    stored = StoredRun("s", 0, 1, 0, run.bounds, Share(low, high, CODEC.dumps(KEY), "a.t"))
    found: list[int] = OpenSegments(storage).open(0, stored).batch.column("a.i").to_pylist()
    return found


@pytest.mark.parametrize("seed", seeds(12))
@pytest.mark.parametrize("layout", ["a.k", "a.x", None])
def test_rows_are_in_the_partition_that_they_are_sent_to(layout: str | None, seed: int) -> None:
    """A plan may lay a store out in another order than its runs; by the hashes of that, rows would be lost."""
    rng, count = random.Random(seed), random.Random(seed).randint(1, 7)
    keys = pa.array([rng.choice((None, *range(20))) for _ in range(200)], pa.int64())
    values = {
        "a.k": keys,
        "a.x": pa.array([rng.randrange(9) for _ in keys]),
        "a.i": range(200),
        "a.t": range(200),
    }
    batch = pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in values.items()})
    run = build(batch, layout=None if layout is None else by_hash(layout), event_time="a.t")
    homes = partitions([keys], count, nulls=True).tolist()
    for partition in range(count):
        wanted = [row for row, home in enumerate(homes) if home == partition]
        assert sorted(rows_in(run, *range_of(partition, count))) == wanted
    if layout == "a.k":  # what a merge has left of it
        rest = between(run, PLACES // 3, PLACES)
        assert sorted(rows_in(rest, 0, PLACES // 2)) == sorted(
            between(run, PLACES // 3, PLACES // 2).batch.column("a.i").to_pylist()
        )
        assert not rows_in(rest, 0, PLACES // 4)


class Partitions:
    """The partitions of a store on disk; every batch may lay it out in another order, and in other partitions."""

    def __init__(self, root: Path) -> None:
        (root / BUCKETS).mkdir(parents=True)
        session = Session()
        for name in "ab":
            session.stream(name, "i long, k long, x long, t timestamp", event_time="t")
        self.graph = session.query(PAIR, name="q").graph
        self.segments = OpenSegments(LocalDisk(root))
        self.files: dict[int, PartitionFile] = {}
        self.count, self.number, self.rows = 1, -1, 0

    def program(self, orders: tuple[Order, ...]) -> ExecutableGraph:
        """A program with the store alone, in those orders."""
        program = ExecutableGraph(self.graph)
        name, plan = next(pair for pair in program.stores.items() if pair[1].node.aliases == ("a",))
        program.stores = {name: replace(plan, orders=orders)}
        return program

    def run(self, program: ExecutableGraph, count: int, rng: random.Random) -> list[dict[str, list[int]]]:
        """Add rows in a batch with so many partitions; gives what each of them has found, and has then."""
        (plan,) = program.stores.values()
        rehomes = count != self.count
        self.number += 1
        batch, homes = self._arriving(program, rng.randint(1, 90), count, rng)
        begun, files, kept = {plan.identity: 0}, dict[int, PartitionFile](), list[dict[str, list[int]]]()
        for partition in range(count):
            make = partial(rehomed, begun=begun, plans=[plan], partition=partition, count=count)
            before = (
                self.segments.rehomed(partition, self.files, make)
                if rehomes
                else self.segments.manifest(partition, self.files.get(partition))
            )
            runs = before.since(begun)
            state = PartitionState(
                self.segments, self.number, partition, program, before, runs, Underway(), None, count, rehomes
            )
            found = _numbers(state.earlier_runs(plan))
            if mine := [row for row, home in enumerate(homes) if home == partition]:
                state.add(plan, "a", make_run(plan, batch.take(pa.array(mine)), self.number))
            for hop in range(1, 1 + self.graph.hops):
                state.settle(hop, ("a",), {}, MergeBudget(rng.choice((0, 0, 2_000, 20_000))))
            file, manifest = state.finish()
            if file or (partition in self.files and not rehomes):
                files[partition] = file or self.files[partition]
            left = [
                self.segments.open(partition, run) for run in manifest.since(begun).get(plan.identity, ())
            ]
            kept.append({"found": found, "left": _numbers(left)})
        self.files, self.count = files, count
        return kept

    def _arriving(
        self, program: ExecutableGraph, rows: int, count: int, rng: random.Random
    ) -> tuple[pa.RecordBatch, list[int]]:
        keys = pa.array([rng.randrange(300) for _ in range(rows)], pa.int64())
        others = pa.array([rng.choice((None, *range(40))) for _ in range(rows)], pa.int64())
        numbers = pa.array(range(self.rows, self.rows + rows))
        self.rows += rows
        table = pa.table({"i": numbers, "k": keys, "x": others, "t": times([self.number] * rows)})
        return admit(program, "a", table).batch, partitions([keys], count).tolist()


def _numbers(runs: Sequence[Bucket]) -> list[int]:
    return sorted(number for run in runs for number in run.batch.column("a.i").to_pylist())


@pytest.mark.parametrize("seed", quick(seeds(16), 2))
def test_plans_lay_a_store_out_anew_between_merges_in_pieces_and_changes_of_partitions(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of a run after a merge in pieces has bounds, which are hashes of the layout it was written in."""
    rng = random.Random(seed)
    monkeypatch.setattr(settling, "PIECE", rng.choice((600, 2_000, 6_000)))
    monkeypatch.setattr(settling, "FREE", rng.choice((0, 0, 3_000)))
    stored, count = Partitions(tmp_path), rng.randint(1, 4)
    orders = [by_hash("a.k"), by_hash("a.x")]
    program = stored.program(tuple(orders))
    for _ in range(30):
        if rng.random() < 0.2:
            rng.shuffle(orders)
            program = stored.program(tuple(orders[: rng.choice((0, 1, 2, 2))]))
        if rng.random() < 0.2:
            count = rng.randint(1, 6)
        known = list(range(stored.rows))
        kept = stored.run(program, count, rng)
        assert sorted(number for one in kept for number in one["found"]) == known, seed
        assert sorted(number for one in kept for number in one["left"]) == list(range(stored.rows)), seed
