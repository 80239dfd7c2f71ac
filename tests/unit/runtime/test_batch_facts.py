"""What would be lost: a driver order that is decided by what was in another batch, or by tuples counted twice."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

import weft
import weft.testing
from tests.local_runner import LocalRunner
from tests.unit.plan.workloads import CHAIN, PAIR, plan, shared
from tests.unit.runtime.joins import graph, v, w
from weft.plan.join_plan import Layout
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.lower import lower_workload
from weft.plan.workload import WorkloadPlan, share
from weft.ports.source import Part
from weft.runtime.log.values import Manifest
from weft.runtime.loop import batch_planner as deciding
from weft.runtime.loop.driver_order import (
    BatchFacts,
    JoinFacts,
    driver_order,
    facts_of_batch,
    next_rows_per_byte,
    stored_tuples,
)
from weft.runtime.observe.metrics import BatchMetrics, StoreMetrics
from weft.runtime.observe.progress import History
from weft.runtime.wire.reports import PartRead

BOTH = "SELECT v.x FROM v, w WHERE v.vid = w.vid"


def metrics(**known: Any) -> BatchMetrics:
    return BatchMetrics(0, (), {}, {}, known.pop("stores", {}), 0, **known)


def history(of: PhysicalGraph, **known: Any) -> History:
    found = History()
    found.add(of, metrics(**known))
    return found


def rows(count: int) -> StoreMetrics:
    return StoreMetrics(count, 0, 1)


class TestInput:
    """The rows and times of a batch are those of its parts."""

    def test_parts_that_know_are_believed(self) -> None:
        inputs = {"v": (Part({}, 9, 3, 70), Part({}, 9, 4, 50)), "w": (Part({}, 9, 5),)}
        seen = facts_of_batch(graph(BOTH), History(), Manifest(6, newest={"w": 90, "v": 10}), inputs)
        assert (seen.batch, seen.rows, seen.estimated) == (7, {"v": 7, "w": 5}, frozenset())
        assert seen.oldest == {"v": 50, "w": 90}  # w goes on where it was

    def test_an_input_that_brings_nothing_has_no_rows_and_no_time(self) -> None:
        seen = facts_of_batch(graph(BOTH), History(), Manifest(newest={"v": 1}), {"w": (Part({}, 1, 2, 3),)})
        assert (seen.rows, seen.oldest) == ({"v": 0, "w": 2}, {"w": 3})

    def test_parts_that_do_not_know_are_estimated_from_earlier_batches(self) -> None:
        """100 bytes at a tenth of a row each; without experience, at 64 bytes a row."""
        of, inputs = graph(BOTH), {"v": (Part({}, 100), Part({}, 9, 5)), "w": (Part({}, 640),)}
        seen = facts_of_batch(of, history(of, rows_per_byte={"v": 0.1}), Manifest(), inputs)
        assert (seen.rows, seen.estimated) == ({"v": 15, "w": 10}, frozenset("vw"))

    def test_experience_fades_and_outlasts_batches_without_input(self) -> None:
        first = next_rows_per_byte({}, {"a": (Part({}, 100),)}, [PartRead("a", 9, 1), PartRead("b", 1, 0)])
        assert first == {"a": 0.1}
        assert next_rows_per_byte(first, {}, []) == first
        assert next_rows_per_byte(first, {"a": (Part({}, 10),)}, [PartRead("a", 3, 0)]) == {
            "a": pytest.approx(0.2)
        }

    def test_results_are_of_the_joins_that_have_them(self) -> None:
        """Two queries join v and w, one all three streams."""
        of = lower_workload(shared(a=PAIR, b=PAIR.replace("v.x", "v.vid"), c=CHAIN))
        seen = facts_of_batch(of, History(), Manifest(results={"a": 1, "b": 2, "c": 4, "gone": 8}), {})
        assert sorted(seen.joins, key=lambda join: len(join.inputs)) == [
            JoinFacts(tuple(a for a in of.aliases if of.input(a).stream.name != "c"), 3),
            JoinFacts(of.aliases, 4),
        ]


class TestStored:
    """Every stored tuple counts once, however many stores have it."""

    def relaid(self, *layouts: tuple[str, Layout]) -> PhysicalGraph:
        """A graph of which only the stores matter: those of v have these layouts, each with its group."""
        of = graph(BOTH)
        (home,) = [store for store in of.stores if store.aliases == ("v",)]
        stores = [
            replace(home, name=f"v{place}", layout=layout, group=group)
            for place, (group, layout) in enumerate(layouts)
        ]
        object.__setattr__(of, "stores", tuple(stores))  # no valid graph: nothing runs it
        return of

    def test_replicas_count_once(self) -> None:
        of = self.relaid(("", Layout("replicated", 4)))
        assert stored_tuples(of, {"v0": rows(400)}, {}) == {"v": 100}

    def test_layouts_of_one_group_hold_the_same_tuples(self) -> None:
        """One may not have forgotten yet what the other has."""
        of = self.relaid(("", Layout("scattered", 2)), ("", Layout("replicated", 2)))
        assert stored_tuples(of, {"v0": rows(90), "v1": rows(200)}, {"v": 500}) == {"v": 100}

    def test_where_a_query_takes_all_tuples_the_largest_store_has_all(self) -> None:
        of = self.relaid(("g", Layout("scattered", 2)), ("h", Layout("scattered", 2)))
        assert stored_tuples(of, {"v0": rows(90), "v1": rows(80)}, {"v": 500}) == {"v": 90}

    def test_groups_that_select_hold_different_tuples_but_no_more_than_have_come(self) -> None:
        selective = share({name: plan(f"{PAIR} AND v.x < {name[1:]}") for name in ("q1", "q2")})
        parts = [selective.without([name]).in_group(f"g{name}") for name in ("q2", "q1")]
        both = WorkloadPlan(tuple(one for part in parts for one in part.answers))
        of = lower_workload(both)
        (alias,) = [a for a in of.aliases if of.input(a).stream.name == "v"]
        names = [store.name for store in of.stores if store.aliases == (alias,)]
        assert len(names) == 2
        stores = dict(zip(names, (rows(90), rows(80)), strict=True))
        assert stored_tuples(of, stores, {alias: 500}) == {alias: 170}
        assert stored_tuples(of, stores, {alias: 100}) == {alias: 100}

    def test_intermediate_results_are_no_tuples_of_an_input(self) -> None:
        of = graph(CHAIN, "left_deep")
        assert {len(store.aliases) for store in of.stores} == {1, 2}
        found = stored_tuples(of, {store.name: rows(7) for store in of.stores}, {})
        assert found.keys() == set(of.aliases)

    def test_what_a_run_has_stored(self) -> None:
        """Also when two partitions share it."""
        runner = LocalRunner(graph(BOTH), partitions=2)
        runner.process({"v": v((1, 1, 1), (2, 1, 2), (3, 1, 2)), "w": w((1, 1, "a", 1))})
        seen = facts_of_batch(runner.graph, runner.loop.history, runner.loop.before, {})
        assert (seen.stored, seen.arrived) == ({"v": 3, "w": 1}, {"v": 3, "w": 1})


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[BatchFacts]:
    """What was known whenever a driver order was chosen."""
    found: list[BatchFacts] = []

    def noted(policy: str, seen: BatchFacts) -> tuple[str, ...]:
        found.append(seen)
        return driver_order(policy, seen)

    monkeypatch.setattr(deciding, "driver_order", noted)
    return found


class TestRuns:
    """What was known before a batch is what it then had, for every source."""

    SIZES = ((40, 3), (5, 60), (0, 7), (30, 30))
    SCHEMA = "k long, ts timestamp"

    def batch(self, number: int, size: int) -> pa.Table:
        times = pa.array([number * 1_000_000 + row for row in range(size)]).cast(pa.timestamp("us", "UTC"))
        return pa.table({"k": pa.array(range(size), pa.int64()), "ts": times})

    def write(self, folder: Path, format_: str, number: int, size: int) -> None:
        """A file of so many rows, which comes into its folder whole."""
        table, path = self.batch(number, size), folder.parent / "partial"
        folder.mkdir(exist_ok=True)
        if not size:
            return
        if format_ == "parquet":
            pq.write_table(table, path)
        elif format_ == "arrow":
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table)
        elif format_ == "csv":
            csv.write_csv(table, path)
        else:
            texts = [json.dumps({**row, "ts": row["ts"].isoformat()}) for row in table.to_pylist()]
            path.write_text("\n".join(texts) + "\n")
        path.rename(folder / f"{number}.{format_}")

    def sessions(self, root: Path, make: Any) -> Iterator[weft.Session]:
        """A session for every two batches, each going on where the one before was stopped."""
        for _ in range(0, len(self.SIZES), 2):
            session = weft.Session(checkpoint=root / "checkpoint", execution="local", driver="timestamp")
            for name in "ab":
                session.stream(name, make(name), event_time="ts")
            session.query("SELECT a.k FROM a, b WHERE a.k = b.k", name="q", sink=weft.to_count())
            session.start()
            try:
                yield session
            finally:
                session.stop()

    @pytest.mark.parametrize("format_", ["parquet", "arrow", "csv", "json"])
    def test_files(self, tmp_path: Path, decided: list[BatchFacts], format_: str) -> None:
        """Texts are estimated: after a first batch about right, also after a restart."""

        def make(name: str) -> Any:
            return weft.files(format_, str(tmp_path / name), schema=self.SCHEMA)

        number, had = 0, dict[int, dict[str, int]]()
        for session in self.sessions(tmp_path, make):
            for _ in range(2):
                for name, size in zip("ab", self.SIZES[number], strict=True):
                    self.write(tmp_path / name, format_, number, size)
                time.sleep(0.3 if format_ in ("csv", "json") else 0)
                session.process_all_available()
                number += 1
            had |= {m.number: {a: one.rows for a, one in m.inputs.items()} for m in session.progress["q"]}
        seen = [one for one in decided if any(one.rows.values())]
        exact = format_ in ("parquet", "arrow")
        assert all(bool(one.estimated) != exact for one in seen)
        assert sum(sum(one.values()) for one in had.values()) >= 175
        if exact:
            came = [
                sorted(one.values()) for one in had.values() if any(one.values())
            ]  # files at once, or not
            assert [sorted(one.rows.values()) for one in seen] == came
        else:
            last = {a: rows for one in seen for a, rows in one.rows.items() if rows}  # files at once, or not
            assert last.keys() == seen[-1].rows.keys()
            assert all(0.4 * 30 <= rows <= 2.5 * 30 for rows in last.values()), last
        if format_ == "parquet":
            assert list(seen[-1].oldest.values()) == [3_000_000, 3_000_000]

    def test_tables_and_generated_rows(self, decided: list[BatchFacts]) -> None:
        session = weft.Session(driver="timestamp")
        for name in "ab":
            session.stream(name, self.SCHEMA, event_time="ts")
        session.query("SELECT a.k FROM a, b WHERE a.k = b.k", name="q", sink=weft.to_count())
        run = weft.testing.LocalRun(session)
        for number, (a, b) in enumerate(self.SIZES):
            run.batch({"a": self.batch(number, a), "b": self.batch(number, b)})
        assert [tuple(one.rows.values()) for one in decided] == list(self.SIZES)
        assert all(one.estimated == frozenset() for one in decided)
        assert [one.arrived for one in decided][-1] == dict(zip(decided[-1].inputs, (45, 70), strict=True))
        assert decided[-1].stored == decided[-1].arrived
