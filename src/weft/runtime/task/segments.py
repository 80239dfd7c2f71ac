"""A partition of the stores, kept in bucket files (design, D3).

Guarantees: a task sees the state of the batch before and what earlier hops of this batch added, and nothing that any
other attempt left. A file is written once, under a name no other attempt has; what is handed on or reported names those
that count. Files stay mapped from batch to batch, and those that no manifest names any more are let go.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from weft.bucket import codec
from weft.bucket.bucket import Bucket
from weft.runtime.log.checkpoint import BUCKETS
from weft.runtime.log.values import Manifest, RunFile
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.model.watermarks import Watermarks
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.store_plans import StorePlan
from weft.runtime.state.expiry import forgettable
from weft.runtime.state.stores import Forget, settle
from weft.runtime.state.upgrade import upgrade_run
from weft.runtime.task.messages import Message
from weft.runtime.task.reports import AddedRun, StoreRuns
from weft.storage.storage import LocalDisk, Memory, Storage

__all__ = ["FileState", "Shelf", "shelf_of", "written_in"]


@dataclass
class FileState:
    """`State` for the interpreter; ``earlier`` is what the hops before this one added, as they reported it."""

    shelf: Shelf
    number: int
    manifest: Manifest
    program: ExecutableGraph
    partition: int
    earlier: Sequence[AddedRun]
    fills: frozenset[str] | None = None  # at a boundary: the stores that are filled, from nothing
    fresh: dict[tuple[str, str], list[Bucket]] = field(default_factory=dict, init=False)
    _names: dict[int, tuple[Bucket, str]] = field(
        default_factory=dict, init=False
    )  # by id, while a run is held

    def earlier_runs(self, plan: StorePlan) -> Sequence[Bucket]:
        """The runs of earlier batches, oldest first."""
        if self.fills is not None:
            return ()
        runs = self.manifest.runs_of(plan.identity, self.partition)
        return [self._open(run.name, plan) for run in runs]

    def added(self, plan: StorePlan, start: str) -> Sequence[Bucket]:
        """What tuples of an input have added in this batch, in this hop and in those before."""
        place = (plan.identity, start)
        before = [added.name for added in self.earlier if (added.store, added.start) == place]
        return [*(self._open(name, plan) for name in before), *self.fresh.get(place, ())]

    def add(self, plan: StorePlan, start: str, run: Bucket) -> None:
        """Add a run of this batch, made by tuples of an input."""
        self.fresh.setdefault((plan.identity, start), []).append(run)

    def leave(self, hop: int, batch_order: BatchOrder) -> Iterator[Message]:
        """Settle the stores that no later hop uses; hand on what was added to the others."""
        marks = Watermarks(self.manifest.marks)
        for store, plan in self.program.stores.items():
            last = self.program.last_hops[store]
            if last > hop:
                for added in self._added_to(plan.identity):
                    yield added.to_message(self.partition)
            if last == hop and (self.fills is None or plan.identity in self.fills):
                additions = [run for start in batch_order.order for run in self.added(plan, start)]
                forget = Forget() if self.fills is not None else forgettable(plan, marks, batch_order)
                kept = settle(plan, (*self.earlier_runs(plan), *additions), forget)
                runs = tuple(RunFile(self._name(run), run.bounds) for run in kept)
                yield StoreRuns(plan.identity, self.partition, runs).to_message(self.partition)

    def _added_to(self, store: str) -> Iterator[AddedRun]:
        """What this batch has added to a store by now."""
        yield from (added for added in self.earlier if added.store == store)
        for (identity, start), runs in self.fresh.items():
            if identity == store:
                yield from (AddedRun(store, start, self._name(run)) for run in runs)

    def _open(self, name: str, plan: StorePlan) -> Bucket:
        """A run as the graph's queries need it; it stays in the file that it is in."""
        bucket = self.shelf.open_for(name, self.program, plan)
        self._names[id(bucket)] = bucket, name
        return bucket

    def _name(self, run: Bucket) -> str:
        """The file a run is in; a new one if it is in none."""
        if id(run) not in self._names:
            name = f"{self.number}-{self.partition}-{uuid.uuid4().hex}"
            self.shelf.write(name, run)
            self._names[id(run)] = run, name
        return self._names[id(run)][1]


def written_in(name: str) -> int:
    """The batch in which a file was written."""
    return int(name.split("-")[0])


SMALL = 1 << 16  # bytes of a run that is kept as it is rather than mapped


class Shelf:
    """The files of state that this process has open, as they were written and as the queries of a program need them.

    A log in memory has no files: its buckets stay what they are.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._open: dict[str, Bucket] = {}
        self._mine: dict[str, tuple[int, ...]] = {}  # files that this process wrote, as it left them
        self._fresh: dict[str, tuple[ExecutableGraph, Bucket]] = {}

    def open(self, name: str) -> Bucket:
        """A run as it was written."""
        if isinstance(self.storage, Memory):
            found: Bucket = self.storage.objects[f"{BUCKETS}/{name}"]
            return found
        if name not in self._open:
            path = self._path(name)
            known = self._mine.get(name)  # then its checksum need not be computed
            self._open[name] = codec.read(path, verify=known is None or known != _stamp(path))
        return self._open[name]

    def open_for(self, name: str, program: ExecutableGraph, plan: StorePlan) -> Bucket:
        """A run as the queries of a program need it."""
        known = self._fresh.get(name)
        if known is None or known[0] is not program:
            known = program, upgrade_run(program, plan, self.open(name), written_in(name))
            self._fresh[name] = known
        return known[1]

    def write(self, name: str, run: Bucket) -> None:
        """Keep a run under a name that nothing else has."""
        if isinstance(self.storage, Memory):
            self.storage.objects[f"{BUCKETS}/{name}"] = run
        else:
            path = self._path(name)
            codec.write(run, path)
            self._mine[name] = _stamp(path)
            if run.bounds.bytes < SMALL:
                self._open[name] = run

    def forget(self, manifest: Manifest, number: int) -> None:
        """Let go of files that neither the manifest names nor this batch has written."""
        live, mine = manifest.files(), f"{number}-"
        for name in [*self._open, *self._fresh]:
            if name not in live and not name.startswith(mine):
                self._open.pop(name, None)
                self._fresh.pop(name, None)
                self._mine.pop(name, None)

    def _path(self, name: str) -> Path:
        path = self.storage.path(f"{BUCKETS}/{name}")
        if path is None:
            raise ValueError(f"{name} has no place on this machine")
        return path


def _stamp(path: Path) -> tuple[int, ...]:
    """What tells a file from one that was put in its place or changed; nothing, of one that is gone."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_size, found.st_mtime_ns, found.st_ino


_SHELVES: dict[LocalDisk, Shelf] = {}


def shelf_of(storage: Storage) -> Shelf:
    """What this process has open of a storage; of another one it then lets go."""
    if isinstance(storage, Memory):
        found: Shelf = storage.objects.setdefault("shelf", Shelf(storage))
        return found
    if not isinstance(storage, LocalDisk):
        return Shelf(storage)
    if storage not in _SHELVES:
        _SHELVES.clear()
        _SHELVES[storage] = Shelf(storage)
    return _SHELVES[storage]
