"""The manifest that a batch begins with if its graph is another than that of the batch before.

Guarantees: it is a function of what the batch before left, of the graphs, of the migration and of what its tasks
reported, so a batch that is repeated begins with the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from weft.runtime.log.values import Manifest
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.migration import StateMigration, evicted_after, kept_after
from weft.runtime.queries.visibility import StateFacts
from weft.runtime.state.partition_manifest import PartitionFile, StoreTotals, moment_of
from weft.runtime.wire.reports import PartitionsLeft

__all__ = ["migrated_manifest", "next_partitions", "next_stores", "without_tables"]


def next_partitions(
    before: Manifest, left: Iterable[PartitionsLeft], ranges: int
) -> dict[int, PartitionFile]:
    """The places of the partitions' manifests after a batch: those that were reported, else those before.

    If there are other partitions than before, all that have anything were reported.
    """
    found = dict(before.partitions) if before.ranges == ranges else {}
    for report in left:
        found.update(report.files)
    return found


def next_stores(before: Manifest, left: Sequence[PartitionsLeft]) -> dict[str, StoreTotals]:
    """What the stores hold after a batch: the sums over all tasks; as before if no task has reported it."""
    if not left:
        return dict(before.stores)
    found: dict[str, StoreTotals] = {}
    for report in left:
        for store, totals in report.stores.items():
            found[store] = found.get(store, StoreTotals()).plus(totals)
    return dict(sorted(found.items()))


def without_tables(manifest: Manifest, program: ExecutableGraph | None, tables: Collection[str]) -> Manifest:
    """The manifest without the rows of tables that the batch reads as a whole."""
    if program is None or not tables:
        return manifest
    gone = {
        store.identity
        for store in program.stores.values()
        if store.is_table and program.graph.input(store.node.aliases[0]).stream.name in tables
    }
    return replace(
        manifest,
        stores={store: totals for store, totals in manifest.stores.items() if store not in gone},
        begun={**manifest.begun, **dict.fromkeys(sorted(gone), moment_of(manifest.number + 1))},
    )


def migrated_manifest(
    before: Manifest,
    old: ExecutableGraph | None,
    new: ExecutableGraph | None,
    migration: StateMigration,
    left: Sequence[PartitionsLeft],
    ranges: int | None = None,
) -> Manifest:
    """The manifest after a migration: stores that were filled begin with it, the others hold what they held.

    If tasks were at work, they left so many partitions, each with a range of hashes.
    """
    now = before.ranges if ranges is None or not left else ranges
    if new is None:
        return replace(before, partitions={}, stores={}, begun={}, kept={}, evicted={})
    identities = sorted(new.identities)
    known = {s: moment for s, moment in before.begun.items() if s not in migration.fills}
    begun = {s: known.get(s, moment_of(before.number + 1, boundary=True)) for s in identities}
    stores = next_stores(before, left)
    facts = StateFacts.after(before)
    return replace(
        before,
        partitions=next_partitions(before, left, now) if identities else {},
        ranges=now,
        stores={s: totals for s, totals in stores.items() if s in begun},
        begun=begun,
        kept=kept_after(old, new, migration, facts),
        evicted=evicted_after(new, migration, facts),
    )
