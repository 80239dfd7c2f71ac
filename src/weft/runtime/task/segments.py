"""A partition of the stores, kept in bucket files (design, D3).

Guarantees: a task sees the state of the batch before and what earlier hops of this batch added, and nothing that any
other attempt left. A file is written once, under a name that no other attempt has; only files that the task's messages
name become part of the state. Files stay mapped from batch to batch, until no manifest names them any more.
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
    """The `State` of one partition, in files.

    ``manifest`` is what the batch ``number`` begins with, and ``earlier`` is what the hops before this one added, as
    they reported it. At a boundary, ``fills`` are the stores that are filled; then nothing is stored before. ``fresh``
    are the runs that this hop added, by store and input.
    """

    shelf: Shelf
    number: int
    manifest: Manifest
    program: ExecutableGraph
    partition: int
    earlier: Sequence[AddedRun]
    fills: frozenset[str] | None = None
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
        """End a hop: settle the stores that no later hop uses, and report what was added to the others.

        Only what these messages name counts as state.
        """
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
        """The runs that this batch has added to a store so far, which are written to files if they are in none."""
        yield from (added for added in self.earlier if added.store == store)
        for (identity, start), runs in self.fresh.items():
            if identity == store:
                yield from (AddedRun(store, start, self._name(run)) for run in runs)

    def _open(self, name: str, plan: StorePlan) -> Bucket:
        """Open a run, upgraded for the graph's queries, and remember the file that it is in."""
        bucket = self.shelf.open_for(name, self.program, plan)
        self._names[id(bucket)] = bucket, name
        return bucket

    def _name(self, run: Bucket) -> str:
        """The name of the file that a run is in; if it is in none, it is written to a new one."""
        if id(run) not in self._names:
            name = f"{self.number}-{self.partition}-{uuid.uuid4().hex}"
            self.shelf.write(name, run)
            self._names[id(run)] = run, name
        return self._names[id(run)][1]


def written_in(name: str) -> int:
    """The batch in which a file was written."""
    return int(name.split("-")[0])


SMALL = 1 << 16  # a run of fewer bytes stays in memory after it is written, and is not mapped


class Shelf:
    """The files of state that this process has open, both as they were written and upgraded for a graph's queries.

    A log in memory has no files: its buckets are objects of the storage.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._open: dict[str, Bucket] = {}
        self._mine: dict[str, tuple[int, ...]] = {}  # files that this process wrote, with their stamps
        self._fresh: dict[str, tuple[ExecutableGraph, Bucket]] = {}

    def open(self, name: str) -> Bucket:
        """A run as it was written."""
        if isinstance(self.storage, Memory):
            found: Bucket = self.storage.objects[f"{BUCKETS}/{name}"]
            return found
        if name not in self._open:
            path = self._path(name)
            known = self._mine.get(name)  # a file that this process wrote need not be verified
            self._open[name] = codec.read(path, verify=known is None or known != _stamp(path))
        return self._open[name]

    def open_for(self, name: str, program: ExecutableGraph, plan: StorePlan) -> Bucket:
        """A run, upgraded for the queries of a program."""
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
        """Close the files that neither the manifest names nor this batch has written."""
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
    """Size, time of change and inode of a file, which differ if it was changed or replaced; empty if it is gone."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_size, found.st_mtime_ns, found.st_ino


_SHELVES: dict[LocalDisk, Shelf] = {}


def shelf_of(storage: Storage) -> Shelf:
    """The shelf of a storage in this process, which keeps one shelf of a disk: those of other disks are dropped."""
    if isinstance(storage, Memory):
        found: Shelf = storage.objects.setdefault("shelf", Shelf(storage))
        return found
    if not isinstance(storage, LocalDisk):
        return Shelf(storage)
    if storage not in _SHELVES:
        _SHELVES.clear()
        _SHELVES[storage] = Shelf(storage)
    return _SHELVES[storage]
