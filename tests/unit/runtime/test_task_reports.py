"""What the driver makes of what tasks tell it."""

from __future__ import annotations

from tests.unit.runtime.joins import graph
from weft.logical.codec import encode
from weft.runtime.log.values import BatchPlan, Manifest
from weft.runtime.loop.batch.executed_batch import ExecutedBatch
from weft.runtime.loop.batch.finished_batch import finish_batch
from weft.runtime.loop.batch.task_reports import TaskReports
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.visibility import StateFacts
from weft.runtime.wire.reports import ReadReport
from weft.stats.input_figures import InputFigures

ROWS = "SELECT v.x FROM v [ROWS 4], w [ROWS 3] WHERE v.vid = w.vid"


def test_what_windows_that_count_forget_is_remembered() -> None:
    """A query that comes later and counts further back would else miss tuples that it believes to see."""
    program = ExecutableGraph(graph(ROWS))
    v = next(store.identity for store in program.stores.values() if store.node.aliases == ("v",))
    manifest, seen = Manifest(), []
    for number, rows in enumerate((3, 6)):
        batch_order = encode(BatchOrder(number, program.graph.aliases, 2))
        plan = BatchPlan(number, 0, "", batch_order)
        brought = {
            "v": InputFigures(rows, oldest=50 - number, newest=60),
            "w": InputFigures(1, oldest=70, newest=70),
        }
        arrived = [ReadReport(0, inputs=brought)]
        ran = ExecutedBatch(plan, manifest, TaskReports.from_reports(arrived), program)
        manifest = finish_batch(ran).manifest
        seen.append(StateFacts.after(manifest))
    assert [facts.evicted[v] for facts in seen] == [3 - 4, 9 - 4]
    assert [facts.oldest for facts in seen] == [{"v": 50, "w": 70}, {"v": 49, "w": 70}]
