"""Partitions that become others: what each has of the runs that the partitions before had (design, D13).

Guarantees: no byte of state is copied. A partition is a range of hashes (`weft.kernels.route.partition.range_of`), so
what becomes its own of a run is a part of that run. Where a store is laid out by the hash of the value that it is
partitioned by, that is a slice of it; group stores are such. Of other stores that are partitioned by a value, it is the
rows whose value is in the range (`Share`), which are picked out when the run is opened, until it is merged. Rows with a
heavy value, which are in any partition, are shared out by their time. Runs of scattered stores go to partitions in
turn, as a whole; of replicated ones, every partition has what the first had. So every row that was in one partition is
in one again.

Segments that several partitions name are deleted by the driver alone (`PartitionManifest.shared`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from weft.bucket.bounds import PLACES, Bounds
from weft.bucket.index import by_hash
from weft.kernels.route.heavy import heavy_words
from weft.kernels.route.partition import range_of
from weft.plan.physical.graph import CODEC
from weft.runtime.model.columns import key_name
from weft.runtime.program.group_plans import GroupPlan
from weft.runtime.program.store_plans import StorePlan
from weft.runtime.state.partition_manifest import PartitionManifest, Share, StoredRun

__all__ = ["places_of", "rehomed"]


def places_of(plan: StorePlan, partition: int, count: int) -> tuple[int, int]:
    """The hashes of a store's layout that a partition has; all of them, where the layout is by another value."""
    return range_of(partition, count) if _is_laid_out_by_key(plan) else (0, PLACES)


def rehomed(
    before: Sequence[PartitionManifest],
    begun: Mapping[str, int],
    plans: Iterable[StorePlan | GroupPlan],
    partition: int,
    count: int,
) -> PartitionManifest:
    """The manifest that a partition, of so many, begins with, given those of all partitions before, in their order.

    Stores that no plan is of are only read once more, to fill others, and their runs may be anywhere.
    """
    known, plan_of = [manifest.since(begun) for manifest in before], {plan.identity: plan for plan in plans}
    runs: dict[str, tuple[StoredRun, ...]] = {}
    for store in dict.fromkeys(store for one in known for store in one):
        every = [one.get(store, ()) for one in known]
        if found := tuple(_share(store, plan_of.get(store), every, partition, count)):
            runs[store] = found
    named = {run.segment for some in runs.values() for run in some}
    sizes = {name: size for manifest in before for name, size in manifest.sizes.items() if name in named}
    return PartitionManifest(
        max((one.moment for one in before), default=-1), runs, sizes, (), tuple(sorted(sizes))
    )


def _share(
    store: str,
    plan: StorePlan | GroupPlan | None,
    runs: Sequence[Sequence[StoredRun]],
    partition: int,
    count: int,
) -> Iterator[StoredRun]:
    kind = _kind(store, plan)
    if kind == "replicated":
        yield from next((some for some in runs if some), ())
    elif kind == "scattered" or plan is None:
        every = [run for some in runs for run in some]
        yield from (run for place, run in enumerate(every) if place % count == partition)
    else:
        yield from (part for some in runs for run in some if (part := _part(plan, run, partition, count)))


def _kind(store: str, plan: StorePlan | GroupPlan | None) -> str:
    """How the rows of a store came to partitions; without a plan it is only known whether all have all of them."""
    if isinstance(plan, GroupPlan):
        return "partitioned"
    if plan is None:
        return "replicated" if " replicated" in store else "scattered"
    layout = plan.node.layout
    return "scattered" if layout.kind == "partitioned" and layout.by is None else layout.kind


def _part(plan: StorePlan | GroupPlan, run: StoredRun, partition: int, count: int) -> StoredRun | None:
    """What becomes a partition's own of a run; None if that is nothing."""
    is_slice = _is_laid_out_by_key(plan)
    before = 0, PLACES
    if is_slice:
        before = run.bounds.low, run.bounds.high
    elif run.share is not None:
        before = run.share.low, run.share.high
    mine = range_of(partition, count)
    low, high = max(mine[0], before[0]), min(mine[1], before[1])
    if low >= high:
        return None
    bounds = _portion(run.bounds, (high - low) / (before[1] - before[0]))
    if is_slice or isinstance(plan, GroupPlan):
        return replace(run, bounds=replace(bounds, low=low, high=high))
    heavy = tuple(heavy_words(plan.node.layout.heavy).tolist())
    return replace(run, bounds=bounds, share=Share(low, high, CODEC.dumps(plan.by), plan.clock, heavy))


def _portion(bounds: Bounds, part: float) -> Bounds:
    """The bounds of about such a part of the rows, one at least; how many they are is known when they are merged."""
    rows = min(bounds.rows, max(1, round(bounds.rows * part)))
    return replace(bounds, rows=rows, bytes=min(bounds.bytes, max(1, round(bounds.bytes * part))))


def _is_laid_out_by_key(plan: StorePlan | GroupPlan) -> bool:
    if isinstance(plan, GroupPlan):
        return True
    layout = plan.node.layout
    if layout.kind != "partitioned" or layout.by is None or layout.heavy or not plan.orders:
        return False
    return plan.orders[0] == by_hash(key_name(layout.by))
