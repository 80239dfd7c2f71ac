"""Partitions that become others: what each has of the runs that the partitions before had (design, D13).

Guarantees: no byte of state is copied. A partition is a range of hashes (`weft.kernels.route.partition.range_of`), so
what becomes its own of a run is a part of that run: of a store that is partitioned by a value, the rows whose value is
in the range (`Share`). Where the run is laid out by the hash of that value, as those of group stores are, that is a
slice of it; else they are picked out when it is opened, until it is merged. Rows with a heavy value, which are in any
partition, are shared out by their time. Runs of scattered stores go to partitions in turn, as a whole; of replicated
ones, every partition has what the first had. So every row that was in one partition is in one again.

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
    """What becomes a partition's own of a run; None if that is nothing.

    A plan may lay a store out in another order than its runs are in, so a part of a run is told by the hashes of the
    value. Those of the layout tell whether it is empty where the run, whatever the plan says, is laid out by the value.
    Group stores always have the same layout.
    """
    bounds, mine = (run.bounds.low, run.bounds.high), range_of(partition, count)
    if isinstance(plan, GroupPlan):
        low, high = _common(mine, bounds)
        part = _portion(run.bounds, (low, high), bounds)
        return None if part is None else replace(run, bounds=replace(part, low=low, high=high))
    before = (0, PLACES) if run.share is None else (run.share.low, run.share.high)
    low, high = _common(mine, before)
    extent = bounds if _has_places(plan) and run.layout == _order_by_key(plan) else (0, PLACES)
    part = _portion(run.bounds, _common((low, high), extent), _common(before, extent))
    if part is None:
        return None
    heavy = tuple(heavy_words(plan.node.layout.heavy).tolist())
    return replace(run, bounds=part, share=Share(low, high, CODEC.dumps(plan.by), plan.clock, heavy))


def _common(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """What two ranges have in common; its end is not after its beginning if that is nothing."""
    return max(one[0], other[0]), min(one[1], other[1])


def _portion(bounds: Bounds, part: tuple[int, int], whole: tuple[int, int]) -> Bounds | None:
    """The bounds of about such a part of the rows, one at least; how many they are is known when they are merged."""
    if part[0] >= part[1]:
        return None
    share = (part[1] - part[0]) / (whole[1] - whole[0])
    rows = min(bounds.rows, max(1, round(bounds.rows * share)))
    return replace(bounds, rows=rows, bytes=min(bounds.bytes, max(1, round(bounds.bytes * share))))


def _is_laid_out_by_key(plan: StorePlan) -> bool:
    return _has_places(plan) and bool(plan.orders) and str(plan.orders[0]) == _order_by_key(plan)


def _has_places(plan: StorePlan) -> bool:
    """Whether the hash of a row's value alone says which partition it is in."""
    layout = plan.node.layout
    return layout.kind == "partitioned" and layout.by is not None and not layout.heavy


def _order_by_key(plan: StorePlan) -> str:
    layout = plan.node.layout
    return "" if layout.by is None else str(by_hash(key_name(layout.by)))
