"""What stands in the log: what a batch will do, what it left, and what its queries run by.

Guarantees: plain data that goes through JSON. A manifest names every file of state that is live after its batch; a plan
names the exact input of its batch, so that whoever repeats the batch takes the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from weft.bucket.bounds import Bounds
from weft.ports.source import Part

__all__ = ["BatchPlan", "Blueprint", "HeldRun", "Inputs", "Manifest", "RunFile", "Runs"]

# By stream: the parts that a batch takes, in order.
Inputs = Mapping[str, tuple[Part, ...]]


@dataclass(frozen=True, slots=True)
class RunFile:
    """A bucket file of a store's partition."""

    name: str
    bounds: Bounds

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {"name": self.name, "bounds": self.bounds.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunFile:
        """What `to_dict` made."""
        return cls(data["name"], Bounds(**data["bounds"]))


@dataclass(frozen=True, slots=True)
class HeldRun:
    """A file with results that wait to leave, from its row ``first`` on: so many, the first of them of that time."""

    name: str
    first: int
    rows: int
    time: int
    bytes: int


# By store (its identity) and partition.
Runs = dict[str, dict[int, tuple[RunFile, ...]]]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a batch left: live buckets, how far the streams are, what came and went so far, and its metrics.

    ``marks`` to ``oldest`` are by stream, ``kept`` and ``evicted`` by store (`visibility.StateFacts`), ``results`` by
    query; ``metrics`` are empty if no query ran. ``failed`` says why queries could not be answered, which stops them;
    ``closed`` up to which time rows of queries with outer joins are closed; ``dealt`` how many tuples have been dealt
    out to the partitions of stores, by store and read task; ``held`` are results that wait to leave, by query.
    ``blueprint`` names the blueprint that the batch ran by, ``cursors`` how far each stream has been taken.
    """

    number: int = -1
    runs: Runs = field(default_factory=dict)
    marks: Mapping[str, int] = field(default_factory=dict)
    active: Mapping[str, int] = field(default_factory=dict)
    arrived: Mapping[str, int] = field(default_factory=dict)
    newest: Mapping[str, int] = field(default_factory=dict)
    oldest: Mapping[str, int] = field(default_factory=dict)
    kept: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    evicted: Mapping[str, int] = field(default_factory=dict)
    results: Mapping[str, int] = field(default_factory=dict)
    records: Mapping[str, int] = field(default_factory=dict)  # seen and bad, of all streams
    metrics: Mapping[str, Any] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    closed: Mapping[str, int] = field(default_factory=dict)
    dealt: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    held: Mapping[str, tuple[HeldRun, ...]] = field(default_factory=dict)
    blueprint: str = ""
    cursors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def files(self) -> set[str]:
        """The files it names: buckets, and results that wait."""
        return {run.name for runs in self.held.values() for run in runs} | {
            run.name for partitions in self.runs.values() for runs in partitions.values() for run in runs
        }

    def runs_of(self, store: str, partition: int) -> tuple[RunFile, ...]:
        """The runs of a store's partition, oldest first."""
        return self.runs.get(store, {}).get(partition, ())

    def bytes_of(self, store: str) -> int:
        """How many bytes the runs of a store have."""
        return sum(run.bounds.bytes for runs in self.runs.get(store, {}).values() for run in runs)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        runs = {
            store: {str(part): [run.to_dict() for run in found] for part, found in parts.items()}
            for store, parts in self.runs.items()
        }
        held = {query: [asdict(run) for run in found] for query, found in self.held.items()}
        plain = {name: getattr(self, name) for name in _PLAIN}
        return {**plain, "runs": runs, "held": held}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Manifest:
        """What `to_dict` made, also after a way through JSON."""
        runs = {
            store: {int(part): tuple(map(RunFile.from_dict, found)) for part, found in parts.items()}
            for store, parts in data["runs"].items()
        }
        held = {query: tuple(HeldRun(**run) for run in found) for query, found in data["held"].items()}
        return cls(runs=runs, held=held, **{name: data[name] for name in _PLAIN})


_PLAIN = tuple(name for name in Manifest.__slots__ if name not in ("runs", "held"))


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What a batch will do: the time it began at, the blueprint that its queries run by, and its place in the order.

    ``batch_order`` is a `BatchOrder` as plain data, None if no query runs. ``changed`` says whether the graph is not
    that of the batch before, and ``migration`` is then the job to be done before the batch, if there is any: a
    `StateMigration` as plain data. ``inputs`` are the parts of each stream that it takes, ``cursors`` how far the
    streams are taken with it. ``begun`` are the queries of which it is the first batch.
    """

    number: int
    now: int
    blueprint: str
    batch_order: Mapping[str, Any] | None = None
    migration: Mapping[str, Any] | None = None
    changed: bool = False
    inputs: Inputs = field(default_factory=dict)
    cursors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    begun: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        inputs = {name: [part.to_dict() for part in parts] for name, parts in self.inputs.items()}
        plain = {name: getattr(self, name) for name in BatchPlan.__slots__ if name != "inputs"}
        return {**plain, "inputs": inputs}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BatchPlan:
        """What `to_dict` made, also after a way through JSON."""
        inputs = {name: tuple(map(Part.from_dict, parts)) for name, parts in data["inputs"].items()}
        return cls(**{**data, "begun": tuple(data["begun"]), "inputs": inputs})

    @property
    def parts(self) -> Iterator[tuple[str, Part]]:
        """All parts that the batch takes, each with its stream."""
        for name, parts in sorted(self.inputs.items()):
            yield from ((name, part) for part in parts)


@dataclass(frozen=True, slots=True)
class Blueprint:
    """The queries that run, as they were asked, the plan for them and its graph as JSON ("" if there are none).

    ``stopped`` are the names of those that ran before, with the reason and a fingerprint of what they were; ``fresh``
    counts changes since all was planned at once.
    """

    graph: str
    plan: str
    requests: Mapping[str, Mapping[str, Any]]
    stopped: Mapping[str, str] = field(default_factory=dict)  # name ↦ why
    former: Mapping[str, str] = field(default_factory=dict)  # name of one that stopped ↦ its fingerprint
    fresh: int = 0

    @property
    def name(self) -> str:
        """What its file is called: equal blueprints have equal names."""
        return hashlib.blake2b(json.dumps(self.to_dict()).encode(), digest_size=12).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {name: getattr(self, name) for name in Blueprint.__slots__}
