"""The manifest that follows from what the tasks of a batch told.

Guarantees: `next_manifest` is a function of the manifest before, the plan and what was told, and of nothing else. It
names the files that tasks reported, so what a lost attempt wrote is nobody's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from weft.runtime.log.values import BatchPlan, Manifest, Runs
from weft.runtime.loop.task_reports import TaskReports
from weft.runtime.model.batch_order import ENDED, BatchOrder, Count
from weft.runtime.model.watermarks import Watermarks, connected_streams
from weft.runtime.observe.metrics import (
    BatchMetrics,
    InputMetrics,
    KeyMetrics,
    next_keys,
    sum_conditions,
    sum_functions,
    sum_steps,
    sum_stores,
)
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.active import Samples
from weft.runtime.queries.migration import StateMigration, evicted_after, kept_after
from weft.runtime.queries.visibility import StateFacts
from weft.runtime.state.expiry import forgettable
from weft.stats.heavy import next_heavy
from weft.stats.skew import HeavyShares

__all__ = ["after", "facts_of", "next_manifest", "relaid_manifest", "samples_of"]


def after(
    plan: BatchPlan, before: Manifest, told: TaskReports, programs: Mapping[str, ExecutableGraph], name: str
) -> tuple[Watermarks, BatchOrder]:
    """How far the streams are after a batch, and the turn of a graph in it as tasks knew it in the end."""
    brought = {graph: told.brought(program.graph, graph) for graph, program in programs.items()}
    arrived, newest, _ = _streams(programs, brought)
    graphs = [program.graph for program in programs.values()]
    marks = Watermarks(before.marks, before.active).advance(connected_streams(graphs), newest, plan.now)
    return marks, _counted(plan, name, programs[name], before.arrived, arrived)


def next_manifest(
    plan: BatchPlan,
    before: Manifest,
    told: TaskReports,
    programs: Mapping[str, ExecutableGraph],
    figures: Mapping[str, Any],
) -> Manifest:
    """What a batch leaves; ``figures`` are those of its metrics that are the same for every graph."""
    runs = next_runs(before.runs, told)
    brought = {name: told.brought(program.graph, name) for name, program in programs.items()}
    arrived, newest, oldest = _streams(programs, brought)
    water = Watermarks(before.marks, before.active).advance(
        connected_streams(program.graph for program in programs.values()), newest, plan.now
    )
    metrics = {
        name: asdict(_measured(plan, before, name, program, brought[name], told, runs, water, figures))
        for name, program in programs.items()
    }
    queries = [member for program in programs.values() for member in program.members]
    known = {name: rows for name, rows in before.results.items() if name not in plan.begun}
    results = {name: known.get(name, 0) + told.rows(name) for name in queries}
    records = {
        "seen": before.records.get("seen", 0) + told.seen,
        "bad": before.records.get("bad", 0) + len(told.bad),
    }
    return Manifest(
        plan.number,
        runs,
        dict(water.marks),
        dict(water.active),
        _added(before.arrived, arrived),
        _of_both(max, before.newest, newest),
        _of_both(min, before.oldest, oldest),
        before.kept,
        {name: _evicted(name, program, before, plan, arrived) for name, program in programs.items()},
        results,
        records,
        metrics,
        dict(told.failed),
        {
            query: clock.now
            for batch_order in map(BatchOrder.from_dict, plan.batch_orders.values())
            for query, clock in batch_order.clocks.items()
        },
        {name: _dealt(name, program, before, told) for name, program in programs.items()},
        blueprint=plan.blueprint,
        cursors=plan.cursors,
    )


def _dealt(
    name: str, program: ExecutableGraph, before: Manifest, told: TaskReports
) -> dict[str, dict[str, int]]:
    """How many tuples read tasks have dealt out, by store, of those stores that there still are."""
    stores = {store.identity for store in program.stores.values()}
    known = before.dealt.get(name, {})
    found = {store: dict(tasks) for store, tasks in known.items() if store in stores}
    for graph, store, task, rows in told.dealt:
        if graph == name:
            tasks = found.setdefault(store, {})
            tasks[task] = tasks.get(task, 0) + rows
    return found


def _streams(
    programs: Mapping[str, ExecutableGraph], brought: Mapping[str, Mapping[str, InputMetrics]]
) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """How many tuples every stream brought, the last time among them and the first; all of its inputs had the same."""
    arrived: dict[str, int] = {}
    newest: dict[str, int] = {}
    oldest: dict[str, int] = {}
    for name, program in programs.items():
        for alias, one in brought[name].items():
            stream = program.graph.input(alias).stream.name
            arrived[stream] = max(one.rows, arrived.get(stream, 0))
            if one.newest is not None:
                newest[stream] = max(one.newest, newest.get(stream, one.newest))
            if one.oldest is not None:
                oldest[stream] = min(one.oldest, oldest.get(stream, one.oldest))
    return arrived, newest, oldest


def _added(before: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {name: before.get(name, 0) + more.get(name, 0) for name in sorted({*before, *more})}


def _of_both(
    pick: Callable[[int, int], int], before: Mapping[str, int], now: Mapping[str, int]
) -> dict[str, int]:
    """The larger or the smaller of what was known and what is."""
    every = {**now, **before}
    return {name: pick(time, now.get(name, time)) for name, time in every.items()}


def _evicted(
    name: str, program: ExecutableGraph, before: Manifest, plan: BatchPlan, arrived: Mapping[str, int]
) -> dict[str, int]:
    """Below which clock stores have forgotten rows, or may have: what tasks were allowed to."""
    found = dict(before.evicted.get(name, {}))
    marks, batch_order = Watermarks(before.marks), _counted(plan, name, program, before.arrived, arrived)
    for store in program.stores.values():
        since = forgettable(store, marks, batch_order).since
        if since is not None:
            found[store.identity] = max(since, found.get(store.identity, since))
    return {
        identity: time
        for identity, time in found.items()
        if any(store.identity == identity for store in program.stores.values())
    }


def _counted(
    plan: BatchPlan,
    name: str,
    program: ExecutableGraph,
    before: Mapping[str, int],
    arrived: Mapping[str, int],
) -> BatchOrder:
    """The turn as tasks knew it in the end."""
    streams = {alias: program.graph.input(alias).stream.name for alias in program.counted}
    counts = {alias: Count(before.get(name, 0), arrived.get(name, 0)) for alias, name in streams.items()}
    return replace(BatchOrder.from_dict(plan.batch_orders[name]), counts=counts)


def _measured(
    plan: BatchPlan,
    before: Manifest,
    name: str,
    program: ExecutableGraph,
    inputs: Mapping[str, InputMetrics],
    told: TaskReports,
    runs: Runs,
    water: Watermarks,
    figures: Mapping[str, Any],
) -> BatchMetrics:
    names = {store.identity: store.name for store in program.stores.values()}
    held = [
        (names[identity], run.bounds)
        for identity, parts in runs.get(name, {}).items()
        if identity in names
        for files in parts.values()
        for run in files
    ]
    answers = {member: told.rows(member) for member in program.members}
    return BatchMetrics(
        plan.number,
        tuple(plan.batch_orders[name]["order"]),
        inputs,
        sum_steps(told.steps.get(name, [])),
        sum_stores(held),
        sum(answers.values()),
        answers,
        dict(water.marks),
        told.seconds(),
        closed={name: rows for name, rows in told.closed.items() if name in program.members},
        functions=sum_functions(told.calls.get(name, [])),
        conditions=sum_conditions(told.calls.get(name, []), program.graph),
        busiest=told.busiest(),
        heavy=next_heavy(_heavy_before(before, name), told.heavy),
        keys=next_keys(_keys_before(before, name, program), told.census, _ended(plan, name)),
        **figures,
    )


def _keys_before(before: Manifest, name: str, program: ExecutableGraph) -> dict[str, KeyMetrics]:
    """The keys that queries had, those that still run."""
    known = BatchMetrics.from_dict(before.metrics[name]).keys if name in before.metrics else {}
    return {query: keys for query, keys in known.items() if query in program.members}


def _heavy_before(before: Manifest, name: str) -> HeavyShares:
    return BatchMetrics.from_dict(before.metrics[name]).heavy if name in before.metrics else {}


def _ended(plan: BatchPlan, name: str) -> list[str]:
    """The queries whose input has ended."""
    clocks = BatchOrder.from_dict(plan.batch_orders[name]).clocks
    return [query for query, clock in clocks.items() if clock.now >= ENDED]


def next_runs(before: Runs, told: TaskReports) -> Runs:
    """The live runs: a partition that reported has those it reported, any other the ones it had."""
    runs = {
        graph: {store: dict(parts) for store, parts in stores.items()} for graph, stores in before.items()
    }
    for graph, store, partition, found in told.runs:
        parts = runs.setdefault(graph, {}).setdefault(store, {})
        parts.pop(partition, None)
        if found:
            parts[partition] = found
    return runs


def facts_of(manifest: Manifest, name: str) -> StateFacts:
    """What a manifest says of the state of a graph, before the batch that follows."""
    kept, evicted = manifest.kept.get(name, {}), manifest.evicted.get(name, {})
    known = (manifest.marks, manifest.newest, manifest.oldest, manifest.arrived)
    return StateFacts(manifest.number + 1, kept, evicted, *known)


def relaid_manifest(
    before: Manifest,
    name: str,
    old: ExecutableGraph | None,
    new: ExecutableGraph | None,
    migration: StateMigration,
    told: TaskReports,
) -> Manifest:
    """What a batch begins with whose graph is another: stores that are filled have what was told, others their runs."""
    facts = facts_of(before, name)
    if new is None:
        return replace(before, runs={}, kept={}, evicted={})
    identities = {store.identity for store in new.stores.values()}
    stores = before.runs.get(name, {})
    runs = {name: {s: dict(p) for s, p in stores.items() if s in identities and s not in migration.fills}}
    kept, evicted = kept_after(old, new, migration, facts), evicted_after(new, migration, facts)
    return replace(before, runs=next_runs(runs, told), kept={name: kept}, evicted={name: evicted})


def samples_of(program: ExecutableGraph, told: TaskReports) -> Samples | None:
    """The query-sets that tasks told of; what is no query's place is nobody's."""
    if not told.samples:
        return None
    slots = {member.slot: name for name, member in program.members.items()}
    names = tuple(slots.get(slot, "") for slot in range(1 + max(slots)))
    return Samples(names, told.samples)
