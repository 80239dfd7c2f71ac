"""The content of a checkpoint directory, read without changing it.

Guarantees: it only reads, and takes no lock, so it can be used while a session runs; it shows the state after the last
committed batch. Files of a batch under way are in no manifest yet and count as *unnamed*, as do those that a crash
left; the next commit deletes files that are unnamed then. It loads no kernels. If the blueprint of the last batch is
missing or damaged, the queries and the users of stores are not known, and the rest is shown.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.errors import StateError, StatisticsError, WeftError
from weft.logical.codec import decode
from weft.logical.query.window import Rows
from weft.plan.join_plan import store_name
from weft.plan.physical.graph import PhysicalGraph, StoreNode
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import Manifest
from weft.runtime.observe.table_progress import TableProgress, table_states
from weft.runtime.queries.request import QueryRequest
from weft.runtime.state.partition_manifest import StoreTotals
from weft.runtime.state.segment_file import BUCKETS
from weft.stats.known import Known
from weft.stats.report import StatisticsRow, observed_rows
from weft.storage.cache import CacheCounts
from weft.storage.storage import Storage, storage_at

__all__ = ["CheckpointState", "Files", "QueryState", "StoreState", "StreamState", "inspect"]

_LOG = logging.getLogger("weft")

_TRIES = 5  # a running session may delete files while they are read


@dataclass(frozen=True, slots=True)
class Files:
    """How many files there are, and how many bytes they have together."""

    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream: its columns and event time as text, how many tuples came, and its watermark in microseconds.

    ``moved`` is the record that moved the watermark last: its time, its batch and where it was read.
    """

    name: str
    text: str
    arrived: int = 0
    watermark: int | None = None
    moved: tuple[int, int, str] | None = None


@dataclass(frozen=True, slots=True)
class StoreState:
    """A store.

    ``rows`` and ``bytes`` are what it holds, copies included, in how many ``runs`` and ``partitions``. ``oldest`` and
    ``newest`` bound the times of its tuples, in microseconds, or their numbers, if it is ``counted`` (for a `ROWS`
    window). ``users`` are the queries that use it; where the graph is not known, there are none, and ``layout`` is
    empty.
    """

    identity: str
    name: str
    layout: str
    rows: int
    bytes: int
    runs: int
    partitions: int
    oldest: int | None
    newest: int | None
    counted: bool = False
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueryState:
    """A query that runs: its text in its author's names, the first batch it is in, and how many results it has given.

    ``bytes`` are those of its stores and of its results that are held back; the bytes of a shared store are divided
    among its users. ``own`` are those that are its alone, ``shared`` those of all stores that others use too,
    undivided.
    """

    name: str
    text: str
    first: int
    results: int
    bytes: float
    own: int = 0
    shared: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The content of a checkpoint.

    ``partitions`` is None if it has not been claimed by a session yet. ``last_batch`` is the last committed batch, -1
    if there is none. ``stopped`` are the queries that ran before, and why they stopped; ``suspended`` are those whose
    sinks could not take their results, which wait. ``live`` are the files of state that manifests name, ``unnamed``
    all others; ``dead_letters`` counts the records that were set aside. ``statistics`` are the figures that batches
    have told, as of when they were last written down. ``tables`` are those that queries look up, in the version that
    was in force. ``cache`` is how tasks used the caches of their hosts in the last batch. ``merge_debt`` bytes of runs
    wait to be merged.
    """

    directory: str
    format: int
    partitions: int | None
    last_batch: int
    streams: tuple[StreamState, ...]
    stores: tuple[StoreState, ...]
    queries: tuple[QueryState, ...]
    stopped: Mapping[str, str]
    live: Files
    unnamed: Files
    dead_letters: int
    statistics: tuple[StatisticsRow, ...] = ()
    tables: tuple[TableProgress, ...] = ()
    cache: CacheCounts = CacheCounts()  # noqa: RUF009
    merge_debt: int = 0
    suspended: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Sketch:
    """The queries and the graph of the last batch, as far as they can be read."""

    graph: PhysicalGraph | None = None
    requests: Mapping[str, QueryRequest] = field(default_factory=dict)
    stopped: Mapping[str, str] = field(default_factory=dict)

    @property
    def stores(self) -> tuple[StoreNode, ...]:
        """The stores of the graph."""
        return () if self.graph is None else tuple(self.graph.stores)

    def node(self, identity: str) -> StoreNode | None:
        """The store of an identity; None if the graph has none."""
        return next((store for store in self.stores if store.identity == identity), None)

    def is_counted(self, node: StoreNode) -> bool:
        """Whether a store's clock is the number of a tuple, and not a time."""
        window = None if self.graph is None else self.graph.input(node.aliases[0]).window
        return len(node.aliases) == 1 and isinstance(window, Rows) and not window.per

    def is_table(self, node: StoreNode) -> bool:
        """Whether a store holds the rows of a table, which have no times."""
        return self.graph is not None and self.graph.input(node.aliases[0]).stream.table

    def first(self, name: str) -> int:
        """The first batch that a query is in."""
        members = () if self.graph is None else self.graph.members
        return next((member.first for member in members if member.name == name), 0)


def inspect(place: Path | str) -> CheckpointState:
    """Read the content of a checkpoint: a directory, or the URI of an object store."""
    root = storage_at(str(place))
    identity = _identity(root)
    files, named, manifests, sketch = _consistent(root)
    now = manifests[-1] if manifests else Manifest()
    stores = _stores(now, sketch)
    return CheckpointState(
        directory=root.locate("").rstrip("/"),
        format=identity["format"],
        partitions=now.ranges or identity.get("partitions"),
        last_batch=now.number,
        streams=tuple(
            _stream(name, now, found)
            for name, found in identity.get("streams", {}).items()
            if not _is_table(found)
        ),
        stores=stores,
        queries=tuple(
            _query(name, one, sketch, now, stores) for name, one in sorted(sketch.requests.items())
        ),
        stopped=dict(sorted(sketch.stopped.items())),
        live=_sum(size for name, size in files.items() if name in named),
        unnamed=_sum(size for name, size in files.items() if name not in named),
        dead_letters=_dead_letters(root),
        statistics=_statistics(root),
        tables=tuple(table_states(now.cursors).values()),
        cache=CacheCounts(**(now.metrics or {}).get("cache", {})),
        merge_debt=(now.metrics or {}).get("merge_debt", 0),
        suspended={name: one.text for name, one in sorted(now.suspended.items())},
    )


def _identity(root: Storage) -> dict[str, Any]:
    found = Checkpoint(root).owner()
    if not found:
        raise StateError(
            f"{root.locate('')} is no checkpoint directory",
            hint="name the directory given as Session(checkpoint=…)",
        )
    return found


def _stream(name: str, manifest: Manifest, found: Any) -> StreamState:
    moved = manifest.moved.get(name)
    told = None if moved is None else (int(moved[0]), int(moved[1]), str(moved[2]))
    return StreamState(name, _columns(found), manifest.arrived.get(name, 0), manifest.marks.get(name), told)


def _is_table(found: Any) -> bool:
    return isinstance(found, list) and found[2:] == ["table"]


def _columns(found: Any) -> str:
    """A stream's columns and its event time, as the checkpoint has them."""
    if not isinstance(found, list) or not found:
        return str(found)
    return f"{found[0]}, event time {found[1]}" if len(found) > 1 and found[1] else str(found[0])


def _consistent(root: Storage) -> tuple[dict[str, int], set[str], list[Manifest], _Sketch]:
    """The files of state with their sizes, those that are named, the kept manifests, oldest first, and the queries.

    They are read again if a running session has committed a batch meanwhile, so that they fit together.
    """
    checkpoint = Checkpoint(root)
    for _ in range(_TRIES):
        files, numbers = root.sizes(BUCKETS), _numbers(root)
        last = max(numbers, default=-1)
        found = [manifest for number in numbers if (manifest := Checkpoint(root).manifest(number))]
        sketch, named, error = _sketch(checkpoint, last), set[str](), None
        try:
            named = named.union(*map(checkpoint.files_of, found))
        except StateError as caught:
            error = caught
        if len(found) == len(numbers) == len(_numbers(root)) and max(_numbers(root), default=-1) == last:
            if error is not None:
                raise error
            return files, named, found, sketch
    raise StateError(f"{root.locate('')} changes faster than it can be read", hint="try again")


def _sketch(checkpoint: Checkpoint, last: int) -> _Sketch:
    """The queries of the last committed batch or, before there is one, of the first that is planned."""
    try:
        left, plan = checkpoint.manifest(last), checkpoint.plan(0)
        name = (
            left.blueprint if left is not None and last >= 0 else plan.blueprint if plan is not None else ""
        )
        if not name:
            return _Sketch()
        blueprint = checkpoint.blueprint(name)
        graph = PhysicalGraph.from_json(blueprint.graph) if blueprint.graph else None
        requests = {name: decode(QueryRequest, one) for name, one in blueprint.requests.items()}
        return _Sketch(graph, requests, dict(blueprint.stopped))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, WeftError):
        return _Sketch()  # what the manifest says is shown all the same


def _numbers(root: Storage) -> list[int]:
    stems = (name.removesuffix(".json") for name in root.list("state") if name.endswith(".json"))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def _query(
    name: str, request: QueryRequest, sketch: _Sketch, manifest: Manifest, stores: Iterable[StoreState]
) -> QueryState:
    text = str(request.query.renamed(dict(request.names)))
    mine = [store for store in stores if name in store.users]
    waiting = sum(run.bytes for run in manifest.held.get(name, ()))
    own = waiting + sum(store.bytes for store in mine if len(store.users) == 1)
    shared = sum(store.bytes for store in mine if len(store.users) > 1)
    part = waiting + sum(store.bytes / len(store.users) for store in mine)
    return QueryState(name, text, sketch.first(name), manifest.results.get(name, 0), part, own, shared)


def _stores(manifest: Manifest, sketch: _Sketch) -> tuple[StoreState, ...]:
    """The stores that the graph has, empty or not, and those of which there are runs."""
    held = (store for store, totals in manifest.stores.items() if totals.runs)
    found = {*held, *(store.identity for store in sketch.stores)}
    return tuple(_store(identity, manifest, sketch) for identity in sorted(found, key=_rank))


def _rank(store: str) -> tuple[int, str]:
    """A sort key for identities of stores: those of inputs first, then intermediate results."""
    return store.count("⋈"), store


def _store(identity: str, manifest: Manifest, sketch: _Sketch) -> StoreState:
    node = sketch.node(identity)
    totals = manifest.stores.get(identity, StoreTotals())
    spans = () if node is not None and sketch.is_table(node) else totals.spans
    return StoreState(
        identity,
        identity if node is None else store_name(node.aliases),
        "" if node is None else str(node.layout),
        totals.rows,
        totals.bytes,
        totals.runs,
        totals.partitions,
        spans[0][0] if spans else None,
        spans[-1][1] if spans else None,
        node is not None and sketch.is_counted(node),
        () if node is None else node.users,
    )


def _sum(sizes: Iterable[int]) -> Files:
    every = list(sizes)
    return Files(len(every), sum(every))


def _statistics(root: Storage) -> tuple[StatisticsRow, ...]:
    """The figures that were written down; none if there are none, or they are damaged."""
    text = Checkpoint(root).statistics()
    try:
        return () if text is None else tuple(observed_rows(Known.from_json(text)))
    except StatisticsError as error:
        _LOG.warning("the statistics of %s are not shown: %s", root.locate(""), error)
        return ()


def _dead_letters(root: Storage) -> int:
    names = [name for name in root.list("dead_letters") if name.startswith("batch-")]
    found = (root.get(f"dead_letters/{name}") or b"" for name in names)
    return sum(1 + _more(line) for data in found for line in data.splitlines() if line)


def _more(line: bytes) -> int:
    """How many further records a line stands for."""
    return int(json.loads(line).get("more", 0)) if b'"more"' in line else 0
