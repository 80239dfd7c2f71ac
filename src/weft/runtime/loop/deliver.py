"""How a batch's results come to a sink: as the parts that tasks wrote, as their number, in order, or as they are.

Guarantees: a query that failed in a batch has no results in it, and its sink is told of the batch all the same. Ordered
results pass through the driver, which merges them; a sink that only counts gets them at once, since it has no order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from weft.plan.graph import Member
from weft.runtime.log.values import BatchPlan, HeldRun, Manifest
from weft.runtime.loop.buffered import opened, written
from weft.runtime.loop.ending import after
from weft.runtime.loop.ordered_output import Gathered, gathered, placed
from weft.runtime.loop.query_sinks import Output
from weft.runtime.loop.task_reports import TaskReports
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.program.executable import ExecutableGraph
from weft.storage.storage import Storage

__all__ = ["deliver", "figures_of", "gather_all", "hold"]


def deliver(
    output: Output, name: str, number: int, told: TaskReports, ordered: Gathered | None = None
) -> None:
    """Commit what a batch told of a query's results."""
    failed = name in told.failed
    if output.counting is not None:
        output.counting.commit_count(number, told.rows(name))
    elif ordered is not None:
        _deliver_ordered(output, number, ordered.without_rows() if failed else ordered)
    elif output.parts is not None:
        output.parts.commit_parts(number, [] if failed else told.parts.get(name, []))
    else:
        output.sink.commit(number, told.results(name))


def _deliver_ordered(output: Output, number: int, ordered: Gathered) -> None:
    """A sink that keeps punctuations gets all of them; any other finds some in the metadata of the table's schema."""
    if output.ordered is not None:
        output.ordered.commit_ordered(number, ordered.table, ordered.punctuations)
    else:
        output.sink.commit(number, ordered.punctuations.on(ordered.table))


def gather_all(
    plan: BatchPlan,
    before: Manifest,
    told: TaskReports,
    programs: Mapping[str, ExecutableGraph],
    names: Iterable[str],
    storage: Storage,
) -> dict[str, Gathered]:
    """The results of ordered queries as they leave; of those that hold some back, only what leaves is counted."""
    found: dict[str, Gathered] = {}
    for graph, program in programs.items():
        water, batch_order = after(plan, before, told, programs, graph)
        for name in names:
            member = program.members[name]
            waiting = opened(storage, before.held.get(name, ()))
            runs = [] if name in told.failed else _runs(member, batch_order, told)
            found[name] = gathered(
                member, runs, batch_order, _rows_before(name, plan, before), water, waiting
            )
            if member.held:
                told.counts[name] = found[name].table.num_rows
    return found


def _rows_before(name: str, plan: BatchPlan, before: Manifest) -> int:
    """How many results of a query have left; another that had its name before does not count."""
    return 0 if name in plan.begun else before.results.get(name, 0)


def _runs(member: Member, batch_order: BatchOrder, told: TaskReports) -> list[pa.RecordBatch]:
    """The sorted runs of a query, in an order that does not depend on which message came first."""
    sent = sorted(told.sent.get(member.name, []), key=lambda one: one[0])
    ordering, aliases = member.ordering, member.query.aliases
    if ordering is not None and ordering.by_arrival and len(aliases) == 1:  # read tasks gave them
        runs = [(sender[1], batch) for sender, batches in sent for batch in batches]
        return placed(member, batch_order, runs, told.read.get(aliases[0], {}))
    return [batch for _, batches in sent for batch in batches]


def hold(
    manifest: Manifest, ordered: Mapping[str, Gathered], told: TaskReports, storage: Storage
) -> Manifest:
    """The manifest with what is held back of the queries that go on."""
    held: dict[str, tuple[HeldRun, ...]] = {}
    for name, one in ordered.items():
        if one.waiting and name not in told.failed:
            held[name] = written(storage, manifest.number, one.waiting)
    return replace(manifest, held=held)


def figures_of(ordered: Mapping[str, Gathered]) -> dict[str, Any]:
    """What a batch's metrics say of ordered results: the last punctuations, and how many results wait, by query."""
    last = {name: one.punctuations[-1:] for name, one in ordered.items() if len(one.punctuations)}
    return {
        "punctuated": {
            name: {"rows": int(one.rows[0]), "mark": int(one.marks[0]), "timed": one.timed}
            for name, one in last.items()
        },
        "held": {name: rows for name, one in ordered.items() if (rows := one.rows_waiting)},
    }
