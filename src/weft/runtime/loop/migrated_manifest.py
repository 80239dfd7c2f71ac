"""The manifest that a batch begins with if its graph is another than that of the batch before.

Guarantees: it is a function of what the batch before left, of the graphs, of the migration and of what its tasks
reported, so a batch that is repeated begins with the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from weft.runtime.log.values import Manifest, Runs
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.migration import StateMigration, evicted_after, kept_after
from weft.runtime.queries.visibility import StateFacts
from weft.runtime.task.reports import StoreRuns

__all__ = ["facts_of", "migrated_manifest", "next_runs", "without_tables"]


def next_runs(before: Runs, reports: Iterable[StoreRuns]) -> Runs:
    """The live runs after a batch: those that were reported of a store's partition; where none were, those before."""
    runs = {store: dict(partitions) for store, partitions in before.items()}
    for report in reports:
        partitions = runs.setdefault(report.store, {})
        partitions.pop(report.partition, None)
        if report.runs:
            partitions[report.partition] = report.runs
    return runs


def without_tables(manifest: Manifest, program: ExecutableGraph | None, tables: Collection[str]) -> Manifest:
    """The manifest without the rows of tables that the batch reads as a whole."""
    if program is None or not tables:
        return manifest
    gone = {
        store.identity
        for store in program.stores.values()
        if store.is_table and program.graph.input(store.node.aliases[0]).stream.name in tables
    }
    return replace(manifest, runs={store: runs for store, runs in manifest.runs.items() if store not in gone})


def facts_of(manifest: Manifest) -> StateFacts:
    """What a manifest says of the state before the batch that follows it."""
    known = (manifest.marks, manifest.newest, manifest.oldest, manifest.arrived)
    return StateFacts(manifest.number + 1, manifest.kept, manifest.evicted, *known)


def migrated_manifest(
    before: Manifest,
    old: ExecutableGraph | None,
    new: ExecutableGraph | None,
    migration: StateMigration,
    reports: Iterable[StoreRuns],
) -> Manifest:
    """The manifest after a migration: stores that were filled have the runs that were reported, others those before."""
    if new is None:
        return replace(before, runs={}, kept={}, evicted={})
    identities = {store.identity for store in new.stores.values()}
    runs = {s: dict(p) for s, p in before.runs.items() if s in identities and s not in migration.fills}
    facts = facts_of(before)
    return replace(
        before,
        runs=next_runs(runs, reports),
        kept=kept_after(old, new, migration, facts),
        evicted=evicted_after(new, migration, facts),
    )
