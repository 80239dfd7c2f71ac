"""State is few runs, and no more than future tuples can reach; forgetting too much loses results."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

from tests.local_runner import LocalRunner
from tests.unit.runtime.held_state import HeldState
from tests.unit.runtime.joins import SECOND, graph, sorted_rows, v, w
from weft.bucket.bucket import Bucket
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.store_plans import StorePlan
from weft.runtime.state import settling
from weft.runtime.state.settling import FANOUT, MergeBudget, settle
from weft.runtime.state.stores import Forget, make_run
from weft.testing import reference_join

PAIR = "SELECT v.x, w.uid FROM v [RANGE 3 SECONDS], w [RANGE 2 SECONDS] WHERE v.vid = w.vid"


@pytest.fixture
def plan() -> StorePlan:
    return ExecutableGraph(graph(PAIR)).stores["v"]


def run_of(plan: StorePlan, first: int, rows: int) -> Bucket:
    """Tuples of v, one a millisecond."""
    ticks = np.arange(first, first + rows)
    columns = {"v.vid": ticks, "v.x": ticks, "v.ts": (ticks * 1000).astype("M8[us]")}
    return make_run(plan, pa.RecordBatch.from_pydict(columns), 0)


def test_runs_stay_few(plan: StorePlan) -> None:
    """Every run more is a search more for every probe."""
    runs: tuple[Bucket, ...] = ()
    for number in range(100):
        runs = settle(plan, (*runs, run_of(plan, number * 10, 10)), Forget())
    assert len(runs) <= 4 * FANOUT
    assert sum(run.bounds.rows for run in runs) == 1000


def test_runs_that_disorder_makes_overlap_are_merged_all_the_same(plan: StorePlan) -> None:
    """A batch that covers more time than a run may would otherwise never be merged."""
    runs: tuple[Bucket, ...] = ()
    for _ in range(50):
        runs = settle(plan, (*runs, run_of(plan, 0, 100)), Forget(reach=10_000))
    assert len(runs) <= 4 * FANOUT


def test_a_run_that_is_past_is_dropped_whole(plan: StorePlan) -> None:
    """Without being read."""
    old, new = run_of(plan, 0, 10), run_of(plan, 10, 10)
    assert settle(plan, (old, new), Forget(since=10_000)) == (new,)
    assert settle(plan, (old, new), Forget(since=9_000)) == (old, new)


def test_an_unchanged_run_is_the_same_object(plan: StorePlan) -> None:
    """On Spark, its file stays."""
    old, new = run_of(plan, 0, 1000), run_of(plan, 1000, 1)
    kept = settle(plan, (old, new), Forget())
    assert kept[0] is old
    assert kept[1] is new


def test_a_partition_can_be_pickled(plan: StorePlan) -> None:
    """Spark may move it to another worker."""
    state = HeldState()
    state.add(plan, "v", run_of(plan, 0, 5))
    again = pickle.loads(pickle.dumps(state))
    assert again.added(plan, "v")[0].batch.equals(state.added(plan, "v")[0].batch)


@pytest.mark.parametrize("window", ["[RANGE 2 SECONDS]", "[ROWS 20]"])
@pytest.mark.parametrize("strategy", ["flat", "left_deep"])
def test_a_long_run_holds_its_windows_and_no_more(window: str, strategy: str) -> None:
    """A stream that runs for months must not fill the memory."""
    sql = f"SELECT v.x, w.uid FROM v {window}, w {window}, c {window} WHERE v.vid = w.vid AND w.uid = c.uid"
    runner = LocalRunner(graph(sql, strategy), partitions=1)
    sizes = []
    for second in range(60):
        runner.process(
            {
                "v": v(*((i % 3, i, second + i / 10) for i in range(10))),
                "w": w(*((i % 3, i % 5, None, second + i / 10) for i in range(10))),
                "c": pa.table({"uid": [1], "ts": pa.array([second * SECOND], pa.timestamp("us"))}),
            }
        )
        sizes.append(sum(store.rows for store in runner.metrics[-1].stores.values()))
    assert max(sizes[30:]) <= 2.5 * max(sizes[10:20])


def test_forgetting_changes_no_result() -> None:
    """The same as if everything had been kept."""
    rng = np.random.default_rng(1)
    runner, parts = LocalRunner(graph(PAIR), partitions=2), {"v": [v()], "w": [w()]}
    for second in range(40):
        rows = [(int(k), int(x), second + float(t)) for k, x, t in rng.integers(0, 4, (8, 3)) / [1, 1, 4]]
        data = {"v": v(*rows), "w": w(*((k, x, None, t) for k, x, t in rows))}
        runner.process(data)
        for name, table in data.items():
            parts[name].append(table)
    tables = {name: pa.concat_tables(some) for name, some in parts.items()}
    assert sorted_rows(runner.results()) == sorted_rows(reference_join(graph(PAIR).query, tables))
    assert runner.metrics[-1].stores["v"].rows < 80


@pytest.mark.parametrize("seed", range(6))
def test_pieces_have_every_row_once_whatever_the_budget_is(
    plan: StorePlan, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of a run after a part of it was merged is a part of that run, and no copy."""
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(settling, "PIECE", int(rng.choice([300, 1_000, 3_000])))
    monkeypatch.setattr(settling, "FREE", 0)
    runs: tuple[Bucket, ...] = ()
    added = debt = cut = 0
    for _ in range(60):
        rows = int(rng.integers(1, 60))
        budget = MergeBudget(int(rng.choice([0, 500, 5_000])))
        runs = settle(plan, (*runs, run_of(plan, added, rows)), Forget(), budget)
        added, debt, cut = added + rows, max(debt, budget.debt), max(cut, len({r.bounds.low for r in runs}))
        assert sorted(row for run in runs for row in run.batch.column("v.x").to_pylist()) == list(
            range(added)
        )
        assert all(run.bounds.rows == run.batch.num_rows for run in runs)
    assert debt or seed % 2
    assert cut > 1
