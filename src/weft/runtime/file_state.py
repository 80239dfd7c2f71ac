"""A partition of a query's stores, kept in bucket files (design, D3).

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
from weft.plan.rules import ProbeRule, StoreRule
from weft.runtime.checkpoint import Manifest, RunFile
from weft.runtime.messages import Message, note
from weft.runtime.program import Program
from weft.runtime.state import settle
from weft.runtime.turn import Turn
from weft.runtime.watermark import Watermarks, forgettable

__all__ = ["FileState", "forget_files", "last_hop"]


@dataclass
class FileState:
    """`State` for the interpreter; ``earlier`` is what the hops before this one added, as they noted it."""

    folder: Path
    number: int
    manifest: Manifest
    query: str
    partition: int
    earlier: list[dict[str, Any]]
    fresh: dict[tuple[str, str], list[Bucket]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def settled(self, store: str) -> Sequence[Bucket]:
        """The runs of earlier batches, oldest first."""
        return [self._open(run.name) for run in self.manifest.of(self.query, store, self.partition)]

    def added(self, store: str, start: str) -> Sequence[Bucket]:
        """What tuples of an input have added in this batch, in this hop and in those before."""
        before = [e["name"] for e in self.earlier if (e["store"], e["start"]) == (store, start)]
        return [*map(self._open, before), *self.fresh.get((store, start), ())]

    def add(self, store: str, start: str, run: Bucket) -> None:
        """Add a run of this batch, made by tuples of an input."""
        self.fresh.setdefault((store, start), []).append(run)

    def leave(self, program: Program, hop: int, turn: Turn) -> Iterator[Message]:
        """Settle the stores that no later hop uses; hand on what was added to the others."""
        marks = Watermarks(self.manifest.marks.get(self.query, {}))
        for store, plan in program.stores.items():
            last = last_hop(program, store)
            if last > hop:
                yield from self._hand_on(store)
            if last == hop:
                additions = [run for start in turn.order for run in self.added(store, start)]
                runs = (*self.settled(store), *additions)
                kept = settle(plan, runs, forgettable(program, plan, marks, turn))
                found = [asdict(RunFile(self._name(run), run.bounds)) for run in kept]
                yield self._note("runs", store=store, runs=found)

    def _hand_on(self, store: str) -> Iterator[Message]:
        yield from (self._note("added", **entry) for entry in self.earlier if entry["store"] == store)
        for (name, start), runs in self.fresh.items():
            if name == store:
                for run in runs:
                    yield self._note("added", store=store, start=start, name=self._name(run))

    def _note(self, kind: str, **content: Any) -> Message:
        return note(self.partition, kind, **{**content, "query": self.query, "partition": self.partition})

    def _open(self, name: str) -> Bucket:
        bucket = _mapped(self.folder / name)
        self.names[id(bucket)] = name
        return bucket

    def _name(self, run: Bucket) -> str:
        """The file a run is in; a new one if it is in none."""
        name = self.names.get(id(run))
        if name is None:
            name = f"{self.number}-{self.partition}-{uuid.uuid4().hex}"
            codec.write(run, self.folder / name)
            self.names[id(run)] = name
        return name


# What this process has mapped.
_OPEN: dict[Path, Bucket] = {}


def _mapped(path: Path) -> Bucket:
    if path not in _OPEN:
        _OPEN[path] = codec.read(path)
    return _OPEN[path]


def forget_files(folder: Path, manifest: Manifest, number: int) -> None:
    """Let go of files that neither the manifest names nor this batch has written."""
    live, mine = manifest.files(), f"{number}-"
    for path in list(_OPEN):
        if path.parent == folder and path.name not in live and not path.name.startswith(mine):
            del _OPEN[path]


def last_hop(program: Program, store: str) -> int:
    """The last hop in which a store is added to or probed."""
    rules = [r for r in program.order if isinstance(r, StoreRule | ProbeRule) and r.store == store]
    return max(program.edges[rule.edge].hop for rule in rules)
