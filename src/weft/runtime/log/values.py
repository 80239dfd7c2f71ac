"""The entries of the log as values: the plan of a batch, its manifest, and the blueprint of its queries.

Guarantees: plain data that goes through JSON. A manifest names the manifest of every partition, which together name
every file of state that is live after its batch; a plan names the exact input of its batch, so that a repetition of the
batch reads the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from weft.logical.codec import decode, encode
from weft.ports.source import Part
from weft.runtime.log.totals import Totals
from weft.runtime.state.partition_manifest import PartitionFile, StoreTotals
from weft.stats.histogram import ZERO

__all__ = ["BatchPlan", "Blueprint", "HeldRun", "Inputs", "KeptBatch", "Manifest", "Suspension"]

# By stream: the parts that a batch takes, in order.
Inputs = Mapping[str, tuple[Part, ...]]


@dataclass(frozen=True, slots=True)
class HeldRun:
    """A file with results of a query that are held until the watermarks pass them.

    Rows before ``first`` have left already. ``rows`` and ``bytes`` are the size of what remains, and ``time`` is the
    time of the first row that remains; ``sample`` are the times of some of these rows, evenly chosen, the last row's at
    the end. Runs that were written together, each with a range of the times, have the number of their batch as their
    ``group``.
    """

    name: str
    first: int
    rows: int
    time: int
    bytes: int
    sample: tuple[int, ...] = ()
    group: int = -1


@dataclass(frozen=True, slots=True)
class KeptBatch:
    """Results of a query that its sink could not take, to be given to it under the ``number`` of a batch.

    They are in ``files``, in order; there are so many ``rows``, of which a query that only counts has no file. If the
    query has an order, the file ``marks`` has its punctuations.
    """

    number: int
    rows: int = 0
    bytes: int = 0
    files: tuple[str, ...] = ()
    marks: str = ""


@dataclass(frozen=True, slots=True)
class Suspension:
    """A query is suspended since a batch, for a reason, with a remedy; ``kept`` are its results since, in order."""

    since: int
    reason: str
    hint: str | None = None
    kept: tuple[KeptBatch, ...] = ()

    @property
    def rows(self) -> int:
        """How many results wait."""
        return sum(one.rows for one in self.kept)

    @property
    def text(self) -> str:
        """Since when it is suspended, what waits, and why, for people."""
        waiting = f", and {self.rows:,} results wait" if self.rows else ""
        return f"since batch {self.since}{waiting}: {self.reason}"

    @property
    def files(self) -> set[str]:
        """The names of the files with what waits."""
        return {name for one in self.kept for name in (*one.files, one.marks) if name}


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a batch left: its partitions, how far the streams are, counters since the beginning, and its metrics.

    ``partitions`` are the places of the partitions' manifests, of those that hold anything. ``stores`` is what each
    store (by its identity) holds in all partitions, and ``begun`` the moment (`partitions.moment_of`) at which it
    began: what partitions say of it from before counts no more. By stream: ``marks`` are the watermarks, ``active`` is
    when it last brought something, ``arrived`` counts its tuples, ``newest`` and ``oldest`` are the last and the first
    time ever seen, and ``cursors`` say how far it has been taken; of derived streams, ``proven`` are watermarks to
    come, each with the batch all of whose tuples have to be taken before. ``moved`` says which record moved a
    watermark last: its time, its batch and where it was read. By store: ``kept`` and ``evicted`` are as in
    `visibility.StateFacts`, and ``dealt`` counts, by read task, the tuples dealt out to its partitions. By query:
    ``results`` counts its results, ``failed`` says why it could not be answered, which stops it, ``closed`` is the time
    up to which rows of a query with outer joins are closed, ``held`` are the results that wait for the watermarks, and
    ``suspended`` are the queries whose sinks cannot take their results, and ``unsorted`` the results that wait for the
    end of the input to be sorted. ``metrics`` are empty if no query ran. ``totals`` sum up all batches so far.
    ``blueprint`` names the blueprint that the batch ran by. ``ranges`` is how many partitions there are, each with a
    range of hashes; 0 if an early version shared keys out in another way.
    """

    number: int = -1
    partitions: Mapping[int, PartitionFile] = field(default_factory=dict)
    stores: Mapping[str, StoreTotals] = field(default_factory=dict)
    begun: Mapping[str, int] = field(default_factory=dict)
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
    proven: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    suspended: Mapping[str, Suspension] = field(default_factory=dict)
    unsorted: Mapping[str, KeptBatch] = field(default_factory=dict)
    given: Mapping[str, Sequence[Any]] = field(
        default_factory=dict
    )  # by query: its sink, and the last batch there
    moved: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    totals: Totals = Totals()  # noqa: RUF009
    ranges: int = 0

    @property
    def held_files(self) -> set[str]:
        """The names of the files with results that are held, or kept for a sink that cannot take them now."""
        held = {run.name for runs in self.held.values() for run in runs}
        held.update(name for one in self.unsorted.values() for name in one.files)
        return held.union(*(one.files for one in self.suspended.values()))

    def bytes_of(self, store: str) -> int:
        """How many bytes the runs of a store have."""
        return self.stores[store].bytes if store in self.stores else 0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Manifest:
        """The manifest in an entry of the log; one of an early version has no totals, but counters that tell them."""
        return decode(
            cls, data if "totals" in data else {**data, "totals": encode(Totals.from_manifest(data))}
        )


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What a batch will do, fixed before it runs.

    ``now`` is the time it began at, and ``blueprint`` names the queries and the graph that it runs by. ``batch_order``
    is a `BatchOrder` as plain data, None if no query runs. ``changed`` says whether the graph is another than that of
    the batch before; then ``migration`` is the job to be run before the batch, if there is any: a `StateMigration` as
    plain data. ``inputs`` are the parts that it takes of each stream, and ``cursors`` say how far the streams are taken
    once it has them. ``begun`` are the queries of which it is the first batch. ``reason`` says why the graph is another
    than that of the batch before, if data is the reason and not queries. ``ages`` is how old the tuples of each stream
    are at ``now``, in classes of `weft.stats.histogram`: None if each has its own; ``oldest_age`` is the largest.
    ``ended`` says whether the input has ended.
    ``tables`` are the tables whose rows it reads, all of them: those that it had before are forgotten. ``blocked`` are
    streams that cannot be read now, and are not idle for that. ``latest`` is the time, by stream, after which a record
    is too far ahead of the clock. ``resets`` says which watermarks are set to other times before it, ``marks`` by
    stream, and when that was ``asked`` for. ``tasks`` is how many tasks are wanted from this batch on, if that changes
    with it, and ``scaling`` says why the tasks change. ``shed`` is the part of the rows, by stream, that it reads of
    streams that cannot be read in time; of all others, all.
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
    reason: str = ""
    ages: Mapping[str, int | None] = field(default_factory=dict)
    oldest_age: int = ZERO
    ended: bool = False
    tables: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    latest: Mapping[str, int] = field(default_factory=dict)
    resets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tasks: int = 0
    scaling: str = ""
    shed: Mapping[str, float] = field(default_factory=dict)

    @property
    def partitions(self) -> int | None:
        """How many partitions there are in the batch; None if no query runs."""
        return None if self.batch_order is None else int(self.batch_order["partitions"])

    def without(self, stream: str, cursor: Mapping[str, Any]) -> BatchPlan:
        """The plan without input of a stream that turned out to be blocked; it was taken up to ``cursor``."""
        inputs = {name: parts for name, parts in self.inputs.items() if name != stream}
        cursors, blocked = {**self.cursors, stream: cursor}, tuple(sorted({*self.blocked, stream}))
        return replace(self, inputs=inputs, cursors=cursors, blocked=blocked)

    def without_streams(self, cursors: Mapping[str, Mapping[str, Any]]) -> BatchPlan:
        """The plan without input of streams, whose ``cursors`` are those before; it goes on taking up tables."""
        inputs = {name: self.inputs[name] for name in self.tables}
        taken = {name: self.cursors[name] for name in self.tables}
        return replace(self, inputs=inputs, cursors={**cursors, **taken})

    def results_before(self, query: str, before: Manifest) -> int:
        """How many results of a query left before the batch; those of an earlier query of the same name do not count.

        ``before`` is the manifest that the batch begins with.
        """
        return 0 if query in self.begun else before.results.get(query, 0)

    @property
    def parts(self) -> Iterator[tuple[str, Part]]:
        """All parts that the batch takes, each with its stream."""
        for name, parts in sorted(self.inputs.items()):
            yield from ((name, part) for part in parts)


@dataclass(frozen=True, slots=True)
class Blueprint:
    """The queries that run, as they were asked, with the plan for them and its graph as JSON ("" if there are none).

    ``requests`` are by the names of the queries. ``stopped`` says why each query that ran before was stopped, and
    ``former`` has the fingerprint of each. ``fresh`` counts the changes of queries since all of them were last planned
    together. ``transition`` is the change of plan under way, a `Transition` as plain data, if there is one.
    """

    graph: str
    plan: str
    requests: Mapping[str, Mapping[str, Any]]
    stopped: Mapping[str, str] = field(default_factory=dict)
    former: Mapping[str, str] = field(default_factory=dict)
    fresh: int = 0
    transition: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """The name of its file, a hash of the content: equal blueprints have equal names."""
        content = {name: getattr(self, name) for name in Blueprint.__slots__}
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=12).hexdigest()
