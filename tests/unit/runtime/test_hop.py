"""One hop at a time: what a task is given and gives, without the runner around it."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from tests.local_runner import LocalRunner
from tests.unit.runtime.held_state import HeldState
from tests.unit.runtime.joins import c, graph, sorted_rows, v, w
from weft.bucket.bucket import Bucket
from weft.bucket.codec import read, write
from weft.errors import PlanError
from weft.logical.codec import decode, encode
from weft.runtime.hop.admission import admit, route_input
from weft.runtime.hop.interpret import run_hop
from weft.runtime.hop.outcome import Parcel
from weft.runtime.model.batch_order import BatchOrder, Count
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.group_plans import GroupPlan
from weft.runtime.program.store_plans import StorePlan

CHAIN = "SELECT v.x, w.s, c.t FROM v, w, c WHERE v.vid = w.vid AND w.uid = c.uid"
DATA = {
    "v": v((1, 10, 0), (2, 20, 1), (None, 30, 2)),
    "w": w((1, 5, "a", 0), (2, 6, "b", 1), (2, 5, None, 2), (1, None, "n", 3)),
    "c": c((5, "x", 0), (6, "y", 1), (None, "z", 2)),
}
RESULTS = [(10, "a", "x"), (20, "b", "y")]


class Files:
    """A partition whose additions are files that an earlier stage of the batch wrote, as on Spark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def earlier_runs(self, plan: StorePlan) -> Sequence[Bucket]:
        """What the manifest lists: nothing, since this is the first batch."""
        return [read(path) for path in sorted(self.folder.glob(f"settled-{plan.name}-*"))]

    def added(self, plan: StorePlan, start: str) -> Sequence[Bucket]:
        """What is there now."""
        return [read(path) for path in sorted(self.folder.glob(f"{plan.name}-{start}-*"))]

    def add(self, plan: StorePlan, start: str, run: Bucket) -> None:
        """A file more."""
        number = len(list(self.folder.glob(f"{plan.name}-{start}-*")))
        write(run, self.folder / f"{plan.name}-{start}-{number}")

    def group_runs(self, plan: GroupPlan) -> Sequence[Bucket]:
        """There are no groups in these queries."""
        raise AssertionError(plan.name)

    def keep_groups(self, plan: GroupPlan, runs: Sequence[Bucket]) -> None:
        """There are no groups in these queries."""
        raise AssertionError(plan.name, runs)


@pytest.mark.parametrize("strategy", ["flat", "left_deep", "chain"])
def test_hops_work_on_additions_that_are_files(strategy: str, tmp_path: Path) -> None:
    """Every task reads the graph from JSON and the state from disk; nothing is passed on in memory."""
    text = graph(CHAIN, strategy)
    batch_order, partitions = BatchOrder(0, ("w", "v", "c"), 2), [tmp_path / "0", tmp_path / "1"]
    parcels: list[Parcel] = []
    results: list[pa.RecordBatch] = []
    for folder in partitions:
        folder.mkdir()
    for alias, table in DATA.items():
        program = ExecutableGraph(text)
        parcels += route_input(program, alias, admit(program, alias, table).batch, batch_order).sent
    for hop in range(1, len(ExecutableGraph(text).hops)):
        for number, folder in enumerate(partitions):
            program = pickle.loads(pickle.dumps(ExecutableGraph(text)))
            mine = [p for p in parcels if program.edges[p.edge].hop == hop]
            arrived = {p.edge: [q.rows_for(number) for q in mine if q.edge == p.edge] for p in mine}
            outcome = run_hop(program, hop, arrived, Files(folder), batch_order)
            parcels += pickle.loads(pickle.dumps(outcome.sent))
            results += outcome.results.get(text.members[0].name, [])
    table = pa.Table.from_batches(results)
    assert sorted_rows(table.filter(pa.compute.is_valid(table["s"]))) == RESULTS


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("strategy", ["flat", "left_deep"])
def test_null_keys_join_nothing(strategy: str, partitions: int) -> None:
    """NULL is not equal to NULL, wherever it would be sent."""
    runner = LocalRunner(graph(CHAIN, strategy), partitions=partitions)
    table = runner.process(DATA)
    assert sorted(map(str, table.to_pylist())) == sorted(
        str({"x": x, "s": s, "t": t}) for x, s, t in [*RESULTS, (20, None, "x")]
    )


def test_a_turn_travels_as_plain_data() -> None:
    """It is part of the plan of a batch, which a replay reads."""
    batch_order = BatchOrder(3, ("b", "a"), 4, {"a": Count(10, 5)})
    assert decode(BatchOrder, pickle.loads(pickle.dumps(encode(batch_order)))) == batch_order


def test_a_turn_says_who_comes_before_whom() -> None:
    """Of 15 tuples of a, b sees none of this batch's 5 and c sees all."""
    batch_order = BatchOrder(3, ("b", "a", "c"), 4, {"a": Count(10, 5)})
    assert (batch_order.sees("a", "b"), batch_order.sees("b", "a")) == (True, False)
    assert (batch_order.oldest("a", 3, "b"), batch_order.oldest("a", 3, "c")) == (7, 12)


def test_an_impossible_turn_is_refused() -> None:
    """It would give results twice."""
    with pytest.raises(PlanError, match="twice"):
        BatchOrder(0, ("a", "a"), 1)


def test_beyond_the_last_hop_nothing_happens() -> None:
    """Queries that run together have different numbers of hops, and the tasks of a hop are told of all."""
    program = ExecutableGraph(graph(CHAIN, "flat"))
    outcome = run_hop(program, len(program.hops), {}, HeldState(), BatchOrder(0, ("w", "v", "c"), 2))
    assert (outcome.sent, outcome.results, outcome.steps) == ([], {}, {})
