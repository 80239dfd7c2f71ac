"""A partition of the stores, kept in segments (design, D3).

Guarantees: a hop sees the state of the batch before and what earlier hops of this batch added, and nothing that any
other attempt left. A batch adds at most one segment to a partition, which ends in the partition's new manifest; where
the hops of a batch run in different processes, every hop before the last may leave one more. A partition in which
nothing changed is not written anew. A segment of whose bytes less than half are still of use is given up: what lives in
it is copied to the new one, so a partition never has more than twice the bytes that live in it, beside what the last
manifests name. Files that are named no more are deleted when no manifest that is kept names them.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from weft.bucket.bucket import Bucket
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.group_plans import GroupPlan
from weft.runtime.program.store_plans import StorePlan
from weft.runtime.state.open_segments import OpenSegments, Run, Underway
from weft.runtime.state.partition_manifest import PartitionFile, PartitionManifest, StoredRun, moment_of
from weft.runtime.state.rehoming import places_of
from weft.runtime.state.settling import MergeBudget, settle
from weft.runtime.state.stores import Forget

__all__ = ["LAG", "PartitionState"]

# Files that batch n no longer needs are deleted in batch n + LAG: by then batch n + LAG - 2 is committed, the one
# before it is the oldest that is kept, and neither names them.
LAG = 3
LIVE = 0.5  # the part of a segment's bytes that must be of use
LARGE = 1 << 20  # of runs of fewer bytes it does not matter how much is of use, if something is


@dataclass(frozen=True)
class PartitionState:
    """The `State` of one partition during a hop of batch ``number``.

    ``before`` is the partition's manifest that the batch begins with, and ``runs`` are those of its runs that count.
    ``underway`` is what the batch has done so far. ``count`` is how many partitions there are; if ``is_rehomed``, there
    were others in the batch before, and what this one has of theirs is written down. At a boundary, ``fills`` are the
    stores that are filled; then nothing is stored before.
    """

    open_segments: OpenSegments
    number: int
    partition: int
    program: ExecutableGraph
    before: PartitionManifest
    runs: Mapping[str, tuple[StoredRun, ...]]
    underway: Underway
    fills: frozenset[str] | None = None
    count: int = 1
    is_rehomed: bool = False
    _group_places: dict[int, tuple[Bucket, StoredRun]] = field(
        default_factory=dict, init=False
    )  # by id of the bucket

    def earlier_runs(self, plan: StorePlan) -> Sequence[Bucket]:
        """The runs of earlier batches, oldest first."""
        return [self._opened(run, plan) for run in self._earlier(plan)]

    def added(self, plan: StorePlan, start: str) -> Sequence[Bucket]:
        """What tuples of an input have added in this batch, in this hop and in those before."""
        return [self._opened(run, plan) for run in self.underway.added.get((plan.identity, start), ())]

    def add(self, plan: StorePlan, start: str, run: Bucket) -> None:
        """Add a run of this batch, made by tuples of an input."""
        self.underway.added.setdefault((plan.identity, start), []).append(run)

    def group_runs(self, plan: GroupPlan) -> Sequence[Bucket]:
        """The runs of a group store that earlier batches left, oldest first.

        Runs of which nothing is in the range of the partition are given up.
        """
        named = self.runs.get(plan.identity, ())
        opened = [(self.open_segments.open(self.partition, run), run) for run in named]
        found = [(bucket, run) for bucket, run in opened if bucket.batch.num_rows]
        self._group_places.update((id(bucket), (bucket, run)) for bucket, run in found)
        if len(found) < len(named):
            self.underway.settled[plan.identity] = [run for _, run in found]
        return [bucket for bucket, _ in found]

    def keep_groups(self, plan: GroupPlan, runs: Sequence[Bucket]) -> None:
        """Leave these runs of a group store; those of earlier batches are the same objects."""
        places = {key: run for key, (_, run) in self._group_places.items()}
        self.underway.settled[plan.identity] = [places.get(id(run), run) for run in runs]

    def settle(
        self,
        hop: int,
        order: Sequence[str],
        forget: Mapping[str, Forget],
        budget: MergeBudget | None = None,
    ) -> None:
        """Settle the stores that no later hop uses; ``forget`` is by identity."""
        for store, plan in self.program.stores.items():
            identity = plan.identity
            is_ours = self.fills is None or identity in self.fills
            if self.program.last_hops[store] != hop or not is_ours:
                continue
            additions = [run for start in order for run in self.underway.added.pop((identity, start), ())]
            self.underway.settled[identity] = list(
                settle(
                    plan,
                    (*self._earlier(plan), *additions),
                    forget.get(identity, Forget()),
                    budget,
                    places=places_of(plan, self.partition, self.count),
                    opened=partial(self._opened, plan=plan),
                    rest=_rest,
                )
            )

    def put_down(self) -> Underway:
        """Write what the batch has done so far to a segment, for hops that run in other processes."""
        lists = [*self.underway.added.values(), *self.underway.settled.values()]
        if fresh := _fresh(lists):
            name = self._new_name()
            places, packed = self._packed(name, fresh)
            self.open_segments.write(
                self.partition, name, packed, open_runs=list(zip(places, fresh, strict=True))
            )
            stored = {id(run): place for run, place in zip(fresh, places, strict=True)}
            for runs in lists:
                runs[:] = [stored.get(id(run), run) for run in runs]
            self.underway.segments[name] = sum(map(self.open_segments.size, packed))
        return self.underway

    def finish(self) -> tuple[PartitionFile | None, PartitionManifest]:
        """Write what the batch leaves: the file that ends in the new manifest, and the manifest.

        If nothing has changed, nothing is written: there is no new file, and the manifest is the one before.
        """
        self.open_segments.delete(name for since, name in self.before.retired if since + LAG <= self.number)
        stores = self.program.identities
        runs: dict[str, list[Run]] = {store: list(self.runs.get(store, ())) for store in stores}
        runs = {store: found for store, found in (runs | self.underway.settled).items() if found}
        unchanged = {store: tuple(found) for store, found in runs.items()} == self.before.runs
        if unchanged and not self.underway.segments and not (self.is_rehomed and runs):
            return None, self.before
        name, fresh, moved = self._new_name(), _fresh(runs.values()), self._given_up(runs.values())
        places, packed = self._packed(name, [*fresh, *moved])
        stored = {id(run): place for run, place in zip([*fresh, *moved], places, strict=True)}
        named = {store: tuple(_stored(run, stored) for run in found) for store, found in runs.items()}
        manifest = self._manifest(name, named, sum(map(self.open_segments.size, packed)))
        open_runs = list(zip(places, fresh, strict=False))
        return self.open_segments.write(self.partition, name, packed, manifest, open_runs), manifest

    def _manifest(self, name: str, runs: Mapping[str, tuple[StoredRun, ...]], size: int) -> PartitionManifest:
        """The new manifest, in a file of that name, which has so many bytes of runs itself."""
        known = {**self.before.sizes, **self.underway.segments, name: size}
        live = {name} | {run.segment for found in runs.values() for run in found}
        old = [(since, file) for since, file in self.before.retired if since + LAG > self.number]
        gone = [(self.number, file) for file in known if file not in live and file not in self.before.shared]
        sizes = {file: bytes_ for file, bytes_ in known.items() if file in live}
        moment = moment_of(self.number, boundary=self.fills is not None)
        shared = tuple(file for file in self.before.shared if file in sizes)
        return PartitionManifest(moment, runs, sizes, (*old, *gone), shared)

    def _given_up(self, lists: Iterable[Iterable[Run]]) -> list[StoredRun]:
        """The runs in segments of which too little is of use, so that they are copied to a new one."""
        runs = [run for some in lists for run in some if isinstance(run, StoredRun)]
        live: Counter[str] = Counter()
        for run in runs:
            live[run.segment] += run.length if run.length < LARGE else min(run.length, run.bounds.bytes)
        sizes = {**self.before.sizes, **self.underway.segments}
        given_up = {name for name in live if live[name] < LIVE * sizes[name]} - set(self.before.shared)
        return [run for run in runs if run.segment in given_up]

    def _packed(self, name: str, runs: Sequence[Run]) -> tuple[list[StoredRun], list[Any]]:
        """Runs packed for a segment of that name, and where they will be in it."""
        packed, places, offset = [], [], 0
        for run in runs:
            if isinstance(run, Bucket):
                one, written = self.open_segments.packed(run), self.number
            else:
                one, written = self.open_segments.content(self.partition, run), run.written
            length, layout = self.open_segments.length(one), str(run.layout or "")
            places.append(StoredRun(name, offset, length, written, run.bounds, layout=layout))
            packed.append(one)
            offset += self.open_segments.size(one)
        return places, packed

    def _earlier(self, plan: StorePlan) -> tuple[StoredRun, ...]:
        return () if self.fills is not None else self.runs.get(plan.identity, ())

    def _opened(self, run: Run, plan: StorePlan) -> Bucket:
        """A run, upgraded for the graph's queries."""
        if isinstance(run, Bucket):
            return run
        return self.open_segments.open_for(self.partition, run, self.program, plan)

    def _new_name(self) -> str:
        return f"{self.number}-{self.partition}-{uuid.uuid4().hex[:16]}"


def _rest(run: Run, part: Bucket) -> Run:
    """What is left of a run, given as the part of it that is open.

    What is in a segment stays there, unless it is laid out in another order than the part.
    """
    is_there = isinstance(run, StoredRun) and run.layout == str(part.layout or "")
    return replace(run, bounds=part.bounds) if is_there else part


def _fresh(lists: Iterable[Iterable[Run]]) -> list[Bucket]:
    """The runs that are in no segment yet."""
    return [run for runs in lists for run in runs if isinstance(run, Bucket)]


def _stored(run: Run, stored: Mapping[int, StoredRun]) -> StoredRun:
    found = stored.get(id(run), run)
    if not isinstance(found, StoredRun):
        raise TypeError("a run was not written")
    return found
