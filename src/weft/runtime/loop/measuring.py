"""The metrics of a batch, from what its tasks reported.

Guarantees: but for the seconds that the batch took, the metrics are a function of the arguments.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from weft.runtime.loop.batch_facts import next_rows_per_byte
from weft.runtime.loop.ran_batch import RanBatch, StreamProgress
from weft.runtime.model.batch_order import ENDED
from weft.runtime.observe.metrics import (
    Backlog,
    BatchMetrics,
    StoreMetrics,
    next_keys,
    sum_conditions,
    sum_functions,
    sum_steps,
)
from weft.runtime.observe.table_progress import table_states
from weft.runtime.output.ordered_output import Gathered
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.state.partition_manifest import StoreTotals
from weft.stats.sampling.estimates import next_heavy

__all__ = ["measure_batch"]


def measure_batch(
    ran: RanBatch,
    progress: StreamProgress,
    rows: Mapping[str, int],
    ordered: Mapping[str, Gathered],
    stores: Mapping[str, StoreTotals],
    backlog: Mapping[str, Backlog],
    began: float | None,
) -> BatchMetrics | None:
    """The metrics of a batch, None if no query ran; ``rows`` are the results that leave, by query."""
    program, plan, reports = ran.program, ran.plan, ran.reports
    if program is None or progress.order is None:
        return None
    known = BatchMetrics.from_dict(ran.before.metrics) if ran.before.metrics else None
    keys = {query: one for query, one in known.keys.items() if query in program.members} if known else {}
    ended = [query for query, clock in progress.order.clocks.items() if clock.now >= ENDED]
    return BatchMetrics(
        plan.number,
        progress.order.order,
        progress.inputs,
        sum_steps(reports.work.steps),
        _metrics_of_stores(program, stores),
        sum(rows.values()),
        rows,
        dict(progress.watermarks.marks),
        reports.work.seconds(),
        started=plan.now / 1e6,
        elapsed=0.0 if began is None else time.perf_counter() - began,
        backlog=backlog,
        files=sum(len(parts) for parts in plan.inputs.values()),
        closed={q: count for q, count in reports.answers.closed.items() if q in program.members},
        functions=sum_functions(reports.work.calls),
        conditions=sum_conditions(reports.work.calls, program.graph),
        busiest=reports.work.busiest(),
        heavy=next_heavy(known.heavy if known else {}, reports.read.values),
        keys=next_keys(keys, reports.work.census, ended),
        punctuated=_last_punctuations(ordered),
        held={query: count for query, one in ordered.items() if (count := one.rows_waiting)},
        rows_per_byte=next_rows_per_byte(
            known.rows_per_byte if known else {}, plan.inputs, reports.read.reads
        ),
        tables={name: one.version or "" for name, one in table_states(plan.cursors).items()},
        cache=reports.work.cache,
    )


def _metrics_of_stores(
    program: ExecutableGraph, stores: Mapping[str, StoreTotals]
) -> dict[str, StoreMetrics]:
    nodes = {store.identity: store.node for store in program.stores.values()}
    return {
        nodes[identity].name: StoreMetrics(one.rows, one.bytes, one.runs, max(1, len(nodes[identity].users)))
        for identity, one in stores.items()
        if identity in nodes and one.runs
    }


def _last_punctuations(ordered: Mapping[str, Gathered]) -> dict[str, dict[str, Any]]:
    last = {query: one.punctuations[-1:] for query, one in ordered.items() if len(one.punctuations)}
    return {
        query: {"rows": int(one.rows[0]), "mark": int(one.marks[0]), "timed": one.timed}
        for query, one in last.items()
    }
