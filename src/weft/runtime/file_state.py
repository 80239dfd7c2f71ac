"""A partition of a graph's stores, kept in bucket files (design, D3).

Guarantees: a task sees the state of the batch before and what earlier hops of this batch added, and nothing that any
other attempt left. A file is written once, under a name no other attempt has; what is handed on or reported names those
that count. Files stay mapped from batch to batch, and those that no manifest names any more are let go.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from weft.bucket import codec
from weft.bucket.bucket import Bucket
from weft.runtime.checkpoint import Manifest, RunFile
from weft.runtime.messages import Message, note
from weft.runtime.prepared import StorePlan
from weft.runtime.program import Program
from weft.runtime.refresh import refreshed
from weft.runtime.state import Forget, settle
from weft.runtime.turn import Turn
from weft.runtime.watermark import Watermarks, forgettable

__all__ = ["FileState", "forget_files", "mapped", "written_in"]


@dataclass
class FileState:
    """`State` for the interpreter; ``earlier`` is what the hops before this one added, as they noted it."""

    folder: Path
    number: int
    manifest: Manifest
    graph: str
    program: Program
    partition: int
    earlier: list[dict[str, Any]]
    fills: frozenset[str] | None = None  # at a boundary: the stores that are filled, from nothing
    fresh: dict[tuple[str, str], list[Bucket]] = field(default_factory=dict)
    names: dict[int, tuple[Bucket, str]] = field(
        default_factory=dict
    )  # by id, which lasts while a run is held

    def settled(self, plan: StorePlan) -> Sequence[Bucket]:
        """The runs of earlier batches, oldest first."""
        if self.fills is not None:
            return ()
        runs = self.manifest.of(self.graph, plan.identity, self.partition)
        return [self._open(run.name, plan) for run in runs]

    def added(self, plan: StorePlan, start: str) -> Sequence[Bucket]:
        """What tuples of an input have added in this batch, in this hop and in those before."""
        place = (plan.identity, start)
        before = [entry["name"] for entry in self.earlier if (entry["store"], entry["start"]) == place]
        return [*(self._open(name, plan) for name in before), *self.fresh.get(place, ())]

    def add(self, plan: StorePlan, start: str, run: Bucket) -> None:
        """Add a run of this batch, made by tuples of an input."""
        self.fresh.setdefault((plan.identity, start), []).append(run)

    def leave(self, hop: int, turn: Turn) -> Iterator[Message]:
        """Settle the stores that no later hop uses; hand on what was added to the others."""
        marks = Watermarks(self.manifest.marks)
        for store, plan in self.program.stores.items():
            last = self.program.last_hops[store]
            if last > hop:
                yield from self._hand_on(plan.identity)
            if last == hop and (self.fills is None or plan.identity in self.fills):
                additions = [run for start in turn.order for run in self.added(plan, start)]
                forget = Forget() if self.fills is not None else forgettable(plan, marks, turn)
                kept = settle(plan, (*self.settled(plan), *additions), forget)
                found = [asdict(RunFile(self._name(run), run.bounds)) for run in kept]
                yield self._note("runs", store=plan.identity, runs=found)

    def _hand_on(self, store: str) -> Iterator[Message]:
        yield from (self._note("added", **entry) for entry in self.earlier if entry["store"] == store)
        for (name, start), runs in self.fresh.items():
            if name == store:
                for run in runs:
                    yield self._note("added", store=store, start=start, name=self._name(run))

    def _note(self, kind: str, **content: Any) -> Message:
        return note(self.partition, kind, **{**content, "graph": self.graph, "partition": self.partition})

    def _open(self, name: str, plan: StorePlan) -> Bucket:
        """A run as the graph's queries need it; it stays in the file that it is in."""
        bucket = _as_needed(self.folder / name, self.program, plan)
        self.names[id(bucket)] = bucket, name
        return bucket

    def _name(self, run: Bucket) -> str:
        """The file a run is in; a new one if it is in none."""
        if id(run) not in self.names:
            name = f"{self.number}-{self.partition}-{uuid.uuid4().hex}"
            codec.write(run, self.folder / name)
            self.names[id(run)] = run, name
        return self.names[id(run)][1]


# What this process has mapped.
_OPEN: dict[Path, Bucket] = {}


# The same, as the queries of a program need it.
_FRESH: dict[Path, tuple[Program, Bucket]] = {}


def mapped(path: Path) -> Bucket:
    """A run as it was written."""
    if path not in _OPEN:
        _OPEN[path] = codec.read(path)
    return _OPEN[path]


def written_in(name: str) -> int:
    """The batch in which a file was written."""
    return int(name.split("-")[0])


def _as_needed(path: Path, program: Program, plan: StorePlan) -> Bucket:
    known = _FRESH.get(path)
    if known is None or known[0] is not program:
        known = program, refreshed(program, plan, mapped(path), written_in(path.name))
        _FRESH[path] = known
    return known[1]


def forget_files(folder: Path, manifest: Manifest, number: int) -> None:
    """Let go of files that neither the manifest names nor this batch has written."""
    live, mine = manifest.files(), f"{number}-"
    for path in list(_OPEN):
        if path.parent == folder and path.name not in live and not path.name.startswith(mine):
            del _OPEN[path]
            _FRESH.pop(path, None)
