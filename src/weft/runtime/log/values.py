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

__all__ = ["GRAPH", "BatchPlan", "Blueprint", "HeldRun", "Inputs", "Manifest", "RunFile", "Runs"]

# The one graph that all queries share.
GRAPH = "queries"

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


# By graph, store (its identity) and partition.
Runs = dict[str, dict[str, dict[int, tuple[RunFile, ...]]]]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a batch left: live buckets, how far the streams are, what came and went so far, and its metrics.

    ``marks`` to ``oldest`` are by stream, ``kept`` and ``evicted`` by graph and store (`migration.StateFacts`),
    ``results`` by query, ``metrics`` by graph; ``failed`` says why queries could not be answered, which stops them;
    ``closed`` up to which time rows of queries with outer joins are closed; ``dealt`` how many tuples have been dealt
    out to the partitions of stores, by graph, store and read task; ``held`` are results that wait to leave, by query.
    ``blueprint`` names the blueprint that the batch ran by, ``cursors`` how far each stream has been taken.
    """

    number: int = -1
    runs: Runs = field(default_factory=dict)
    marks: Mapping[str, int] = field(default_factory=dict)
    active: Mapping[str, int] = field(default_factory=dict)
    arrived: Mapping[str, int] = field(default_factory=dict)
    newest: Mapping[str, int] = field(default_factory=dict)
    oldest: Mapping[str, int] = field(default_factory=dict)
    kept: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)
    evicted: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    results: Mapping[str, int] = field(default_factory=dict)
    records: Mapping[str, int] = field(default_factory=dict)  # seen and bad, of all streams
    metrics: Mapping[str, Any] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    closed: Mapping[str, int] = field(default_factory=dict)
    dealt: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)
    held: Mapping[str, tuple[HeldRun, ...]] = field(default_factory=dict)
    blueprint: str = ""
    cursors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def files(self) -> set[str]:
        """The files it names: buckets, and results that wait."""
        return {run.name for runs in self.held.values() for run in runs} | {
            run.name
            for stores in self.runs.values()
            for partitions in stores.values()
            for runs in partitions.values()
            for run in runs
        }

    def of(self, graph: str, store: str, partition: int) -> tuple[RunFile, ...]:
        """The runs of a store's partition, oldest first."""
        return self.runs.get(graph, {}).get(store, {}).get(partition, ())

    def bytes_of(self, graph: str, store: str) -> int:
        """How much a store holds."""
        partitions = self.runs.get(graph, {}).get(store, {}).values()
        return sum(run.bounds.bytes for runs in partitions for run in runs)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        runs = {
            graph: {
                store: {str(part): [run.to_dict() for run in found] for part, found in parts.items()}
                for store, parts in stores.items()
            }
            for graph, stores in self.runs.items()
        }
        held = {query: [asdict(run) for run in found] for query, found in self.held.items()}
        plain = {name: getattr(self, name) for name in _PLAIN}
        return {**plain, "runs": runs, "held": held}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Manifest:
        """What `to_dict` made, also after a way through JSON."""
        runs = {
            graph: {
                store: {
                    int(part): tuple(RunFile.from_dict(run) for run in found) for part, found in parts.items()
                }
                for store, parts in stores.items()
            }
            for graph, stores in data["runs"].items()
        }
        held = {query: tuple(HeldRun(**run) for run in found) for query, found in data["held"].items()}
        return cls(runs=runs, held=held, **{name: data[name] for name in _PLAIN})


_PLAIN = tuple(name for name in Manifest.__slots__ if name not in ("runs", "held"))


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What a batch will do: the time it began at, the queries that stand, and per graph its blueprint and its turn.

    ``migrations`` are the jobs to be done before it, by graph; ``changed`` the graphs that are others than before.
    ``inputs`` are the parts of each stream that it takes, ``cursors`` how far the streams are taken with it. ``begun``
    are the queries of which it is the first batch.
    """

    number: int
    now: int
    blueprint: str
    graphs: Mapping[str, str]
    batch_orders: Mapping[str, Mapping[str, Any]]
    migrations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
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
        lists = {name: tuple(data[name]) for name in ("changed", "begun")}
        return cls(**{**data, **lists, "inputs": inputs})

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
