"""What the driver makes of what tasks tell it."""

from __future__ import annotations

from tests.unit.runtime.joins import graph
from weft.runtime.log.values import BatchPlan, Manifest
from weft.runtime.loop.ending import facts_of, next_manifest
from weft.runtime.loop.task_reports import TaskReports
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.program.executable import ExecutableGraph

ROWS = "SELECT v.x FROM v [ROWS 4], w [ROWS 3] WHERE v.vid = w.vid"


def arrived(alias: str, rows: int, oldest: int, newest: int) -> dict[str, object]:
    """The note of a read task."""
    times = {"oldest": oldest, "newest": newest}
    return {"graph": "queries", "alias": alias, "rows": rows, "late": 0, "untimed": 0, **times}


def test_what_windows_that_count_forget_is_remembered() -> None:
    """A query that comes later and counts further back would else miss tuples that it believes to see."""
    program = ExecutableGraph(graph(ROWS))
    v = next(store.identity for store in program.stores.values() if store.node.aliases == ("v",))
    manifest, seen = Manifest(), []
    for number, rows in enumerate((3, 6)):
        batch_order = BatchOrder(number, program.graph.aliases, 2).to_dict()
        plan = BatchPlan(number, 0, "", {"queries": ""}, {"queries": batch_order})
        told = TaskReports(inputs=[arrived("v", rows, 50 - number, 60), arrived("w", 1, 70, 70)])
        manifest = next_manifest(plan, manifest, told, {"queries": program}, {})
        seen.append(facts_of(manifest, "queries"))
    assert [facts.evicted[v] for facts in seen] == [3 - 4, 9 - 4]
    assert [facts.oldest for facts in seen] == [{"v": 50, "w": 70}, {"v": 49, "w": 70}]
