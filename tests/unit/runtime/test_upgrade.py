"""Runs that were written for other queries: a newcomer must see just its own rows in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from tests.unit.plan.workloads import query
from tests.unit.runtime.joins import SECOND, times
from tests.unit.runtime.migrations import BELOW, OLD, pairs, program, stored
from weft.bucket.bucket import Bucket
from weft.bucket.index import by_hash, by_value
from weft.bucket.merge import merge
from weft.kernels.query_sets.query_set import bits_of, sets_of
from weft.plan.physical.graph import Member, Visibility
from weft.plan.physical.lower import lower_workload
from weft.plan.workload import Answer, Walk, WorkloadPlan
from weft.runtime.hop.admission import route_stored
from weft.runtime.hop.outcome import HopOptions, Outcome
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.model.columns import BATCH
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.state.stores import make_run
from weft.runtime.state.upgrade import past_rows, upgrade_run

STORE = OLD.stores["v"]


def run(*rows: tuple[int, int], number: int = 1, of: ExecutableGraph = OLD) -> Bucket:
    """Tuples of v (x, second), all for the query in the first place."""
    xs, seconds = zip(*rows, strict=True)
    columns = {
        "v.vid": pa.array([1] * len(xs), pa.int64()),
        "v.x": pa.array(xs, pa.int64()),
        "v.ts": times(seconds),
    }
    sets = {name: pa.array([1] * len(xs), pa.int64()) for name in of.sets}
    return make_run(of.stores["v"], pa.RecordBatch.from_pydict({**columns, **sets}), number)


def beside(sql: str, *visibilities: Visibility, first: int = 5, slot: int = 1) -> ExecutableGraph:
    """The old query and a new one, in the same stores."""
    both = pairs(stored("v"), stored("w"), new=sql, old=BELOW.format(5))
    return program(both, Member("new", query(sql), slot, first, visibilities), OLD.members["old"])


def seen(batch: pa.RecordBatch, program_: ExecutableGraph, slot: int) -> list[Any]:
    """The x of the rows that are for a query."""
    sets = sets_of([batch.column(name) for name in program_.sets])
    mask = (sets & bits_of([slot], program_.words)[:, None]).any(axis=0)
    return sorted(batch.filter(pa.array(mask)).column("v.x").to_pylist())


def test_a_run_that_is_as_it_should_be_is_the_same_object() -> None:
    """Its file stays, and nothing is computed."""
    one = run((1, 0))
    assert upgrade_run(OLD, STORE, one, 1) is one


def test_columns_and_indexes_in_another_sequence_are_put_in_that_of_the_plan() -> None:
    """Another graph may name the same ones in another sequence; runs of both are merged one day."""
    first, second = by_hash("v.vid"), by_value("v.x")
    other = replace(STORE, orders=(first, second))
    one = make_run(other, run((1, 0), (2, 1)).batch, 1)
    mixed = Bucket(one.batch.select(one.batch.schema.names[::-1]), one.indexes, one.event_time, one.bounds)
    found = upgrade_run(OLD, replace(other, orders=(first, second)), mixed, 1)
    assert found.batch.schema.names == one.batch.schema.names
    turned = Bucket(one.batch, one.indexes[::-1], one.event_time, one.bounds)
    assert merge([one, upgrade_run(OLD, other, turned, 1)]).orders == (first, second)


def test_a_newcomer_is_in_the_sets_of_what_its_filter_lets_pass() -> None:
    """And those who were there stay in."""
    new = beside(BELOW.format(3), Visibility("v", 0))
    found = upgrade_run(new, new.stores["v"], run((1, 0), (4, 0), (2, 0)), 1)
    assert seen(found.batch, new, 1) == [1, 2]
    assert seen(found.batch, new, 0) == [1, 2, 4]


def test_a_newcomer_sees_no_more_than_its_sight() -> None:
    """By the batch in which a row came, and by its time; without sight, nothing."""
    rows = run((1, 10), (2, 20), (3, 30), number=2)
    for visibility, expected in (
        (Visibility("v", 2), [1, 2, 3]),
        (Visibility("v", 3), []),
        (Visibility("v", 0, 20 * SECOND), [2, 3]),
        (Visibility("v", 5), []),
    ):
        new = beside(BELOW.format(4), visibility)
        assert seen(upgrade_run(new, new.stores["v"], rows, 2).batch, new, 1) == expected, visibility


def test_a_run_written_since_it_came_knows_it() -> None:
    """Its rows were filtered when they came."""
    new = beside(BELOW.format(3), Visibility("v", 0))
    rows = run((1, 0), number=6, of=new)
    assert seen(upgrade_run(new, new.stores["v"], rows, 6).batch, new, 1) == []


def test_a_place_that_is_taken_again_is_empty_first() -> None:
    """Rows of the one who had it before are not the newcomer's."""
    member = Member("new", query(BELOW.format(3)), 0, 5, (Visibility("v", 5),))
    new = program(pairs(stored("v"), stored("w"), new=BELOW.format(3)), member)
    assert seen(upgrade_run(new, new.stores["v"], run((1, 0), (2, 0)), 1).batch, new, 0) == []


def test_a_column_that_was_not_kept_is_null() -> None:
    """Nobody's sight covers rows that lack what he reads."""
    sql = "SELECT w.s FROM v [RANGE 5 SECONDS], w [RANGE 5 SECONDS] WHERE v.vid = w.vid"
    new = program(pairs(stored("v"), stored("w"), new=sql, old=BELOW.format(5)))
    columns = {"w.vid": pa.array([1]), "w.ts": times([0]), BATCH: pa.array([1]), OLD.sets[0]: pa.array([1])}
    plan = OLD.stores["w"]
    kept = {name: columns.get(name, pa.array([0])) for name in plan.columns}
    found = upgrade_run(new, new.stores["w"], make_run(plan, pa.RecordBatch.from_pydict(kept), 1), 1)
    assert found.batch.column("w.s").to_pylist() == [None]
    assert set(found.batch.schema.names) >= set(new.stores["w"].columns)


def test_past_rows_are_those_of_the_queries_asked_for() -> None:
    """Others have theirs from another store, and would have them twice."""
    new = beside(BELOW.format(3), Visibility("v", 0))
    rows = run((1, 0), (4, 0)).batch
    assert seen(past_rows(new, "v", rows, 1, ("new",), False), new, 1) == [1]
    assert past_rows(new, "v", rows, 1, ("new",), False).num_rows == 1
    both = past_rows(new, "v", rows, 1, ("new", "old"), False)
    assert (seen(both, new, 0), seen(both, new, 1)) == ([1, 4], [1])


def test_results_of_the_past_are_counted_for_those_alone_who_asked_for_them() -> None:
    """The others have counted them already."""
    alone = query("SELECT v.x FROM v")
    answers = tuple(Answer(name, alone, (Walk("v", ()),)) for name in ("new", "old"))
    both = ExecutableGraph(lower_workload(WorkloadPlan(answers)))
    rows = run((1, 0), (4, 0)).batch
    columns = {name: rows.column(name) for name in ("v.x", "v.ts")}
    batch = pa.RecordBatch.from_pydict({**columns, both.sets[0]: pa.array([3, 3], pa.int64())})
    batch_order = BatchOrder(5, ("v",), 2)
    counting = HopOptions(["new", "old"], edges=["v: result"], answering=["new"])
    counted = Outcome(counting)
    route_stored(both, "v", batch, batch_order, counted)
    assert (counted.counts, counted.results) == ({"new": 2}, {})
    made = Outcome(HopOptions(edges=["v: result"], answering=["new"]))
    route_stored(both, "v", batch, batch_order, made)
    assert (made.counts, list(made.results)) == ({"new": 2}, ["new"])
