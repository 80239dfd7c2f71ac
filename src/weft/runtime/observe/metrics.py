"""The metrics of a batch, on which progress, `explain()` and the statistics of the optimiser are based.

Guarantees: plain data; sums over partitions. Nothing is measured here: the loop and its tasks measure times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from weft.logical.codec import decode
from weft.logical.expr.expression import to_sql
from weft.logical.expr.user_functions import ConditionFigures, FunctionFigures
from weft.logical.html_table import html_table
from weft.plan.physical.graph import PhysicalGraph
from weft.stats.histogram import Latency
from weft.stats.input_figures import EdgeFigures, InputFigures, StepFigures
from weft.stats.skew import HeavyShares
from weft.stats.statistics import predicate_name
from weft.storage.cache import CacheCounts

if TYPE_CHECKING:  # planning imports this module, and must not load the kernels
    from weft.kernels.expr.user_functions import CallCounts
    from weft.runtime.hop.census import Census

__all__ = [
    "Backlog",
    "BatchMetrics",
    "KeyMetrics",
    "StoreMetrics",
    "next_keys",
    "sum_conditions",
    "sum_functions",
]


@dataclass(frozen=True, slots=True)
class StoreMetrics:
    """What a store holds after a batch, copies included, and how many queries use it."""

    rows: int
    bytes: int
    runs: int
    users: int = 1


@dataclass(frozen=True, slots=True)
class KeyMetrics:
    """The keys of a query on one key, counted over all batches so far.

    ``seen`` keys have had a tuple, ``complete`` ones one of every input. A key is ``dangling`` when it has been closed
    without a tuple of every input; until then it is open. ``aside`` is how many tuples were set aside because their key
    has too many results. ``too_many`` are some such keys of this batch, with how many tuples each input has.
    """

    seen: int = 0
    complete: int = 0
    dangling: int = 0
    aside: int = 0
    too_many: tuple[Mapping[str, Any], ...] = ()

    @property
    def open(self) -> int:
        """Keys that may still become complete."""
        return self.seen - self.complete - self.dangling

    def __str__(self) -> str:
        return f"{self.complete:,} complete, {self.open:,} open, {self.dangling:,} dangling"


@dataclass(frozen=True, slots=True)
class Backlog:
    """What of a stream waits to be read: how many parts, and about how many rows and bytes.

    ``seconds`` is how long what came first has waited: how far the stream is behind.
    """

    parts: int = 0
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class BatchMetrics:
    """What one batch did.

    ``order`` is the driver order of its inputs. ``inputs`` are by alias, ``steps`` by edge, ``stores`` by name.
    ``results`` is how many results left, and ``answers`` the same by query. ``watermarks`` are by stream, after the
    batch. ``seconds`` are those of the slowest task of each hop, the read tasks first, and ``busiest`` is the part of
    each hop's work that this task did. ``started`` is when the batch began, in seconds since 1970, and ``elapsed`` how
    many seconds it took in all. ``backlog`` is what of each stream was left waiting, and ``files`` how many parts were
    read. By query, ``closed`` is how many results were closed rows and not found by probes, ``keys`` are the keys
    of a query on one key, ``punctuated`` is its last punctuation, and ``held`` how many results wait for the
    watermarks. ``functions`` are users' functions by name, ``conditions`` those that call them by `predicate_name`, and
    ``heavy`` the shares of common values of keys, as far as they are known by now. ``rows_per_byte`` is by stream, of
    the parts that it is read in. ``latencies`` are those of the results that left, by query, once the batch is
    committed; none before. ``tables`` are the versions of tables that were in force. ``cache`` is how tasks used the
    caches of their hosts, for state in an object store. There were so many ``tasks``, and ``busy`` is how many seconds
    of theirs each partition took. ``edges`` is what was sent over each edge, tuples and bytes. Of what is
    stored, ``merged_bytes`` were merged, and ``merge_debt`` bytes wait to be merged in later batches.
    """

    number: int
    order: tuple[str, ...]
    inputs: Mapping[str, InputFigures]
    steps: Mapping[str, StepFigures]
    stores: Mapping[str, StoreMetrics]
    results: int
    answers: Mapping[str, int] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)
    seconds: tuple[float, ...] = ()
    started: float = 0.0
    elapsed: float = 0.0
    backlog: Mapping[str, Backlog] = field(default_factory=dict)
    closed: Mapping[str, int] = field(default_factory=dict)
    files: int = 0
    keys: Mapping[str, KeyMetrics] = field(default_factory=dict)
    functions: Mapping[str, FunctionFigures] = field(default_factory=dict)
    conditions: Mapping[str, ConditionFigures] = field(default_factory=dict)
    busiest: tuple[float, ...] = ()
    heavy: HeavyShares = field(default_factory=dict)
    punctuated: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)
    rows_per_byte: Mapping[str, float] = field(default_factory=dict)
    latencies: Mapping[str, Latency] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    cache: CacheCounts = CacheCounts()  # noqa: RUF009
    tasks: int = 0
    busy: Mapping[int, float] = field(default_factory=dict)
    edges: Mapping[str, EdgeFigures] = field(default_factory=dict)
    merged_bytes: int = 0
    merge_debt: int = 0

    def __repr__(self) -> str:
        rows = sum(one.rows for one in self.inputs.values())
        return f"<Batch {self.number}: {rows:,} rows, {self.results:,} results, {self.elapsed:.3g} s>"

    def _repr_html_(self) -> str:
        rows = [(f"input {alias}", f"{one.rows:,}", "", "") for alias, one in self.inputs.items()]
        rows += [
            (f"probe {edge}", f"{one.probes:,}", f"{one.matches:,}", "") for edge, one in self.steps.items()
        ]
        rows += [(f"store {n}", f"{one.rows:,}", "", f"{one.bytes:,}") for n, one in self.stores.items()]
        rows += [(f"results of {name}", "", f"{count:,}", "") for name, count in self.answers.items()]
        title = f"Batch {self.number}: {self.results:,} results in {self.elapsed:.3g} s"
        return html_table(("part", "rows", "matches", "bytes"), rows, title)

    @property
    def sent(self) -> EdgeFigures:
        """The tuples and bytes that were sent over all edges."""
        return sum(self.edges.values(), EdgeFigures())

    @property
    def latency(self) -> Latency:
        """The latencies of all results that left; in the progress of a query, its own."""
        return Latency.sum(self.latencies.values())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BatchMetrics:
        """The metrics in a manifest; an early version knew of a backlog only how many parts wait."""
        waiting = data.get("backlog", {})
        told = {name: {"parts": one} if isinstance(one, int) else one for name, one in waiting.items()}
        return decode(cls, {**data, "backlog": told})


def next_keys(
    before: Mapping[str, KeyMetrics], counted: Iterable[tuple[str, Census]], ended: Iterable[str]
) -> dict[str, KeyMetrics]:
    """The keys of queries after a batch, from the census of its partitions.

    The queries in ``ended`` have closed all of their rows, so keys that are not complete are dangling.
    """
    found = {name: replace(one, too_many=()) for name, one in before.items()}
    for name, one in counted:
        old = found.get(name, KeyMetrics())
        too_many = (*old.too_many, *({"key": each.key, **each.counts} for each in one.too_many))
        sums = (old.seen + one.seen, old.complete + one.complete, old.dangling, old.aside + one.aside)
        found[name] = KeyMetrics(*sums, too_many)
    for name in ended:
        if name in found:
            found[name] = replace(found[name], dangling=found[name].seen - found[name].complete)
    return found


def sum_functions(counts: Iterable[CallCounts]) -> dict[str, FunctionFigures]:
    """The calls of users' functions in all partitions, by name."""
    found: dict[str, FunctionFigures] = {}
    for one in counts:
        for name, spent in one.functions.items():
            found[name] = found.get(name, FunctionFigures()) + spent
    return dict(sorted(found.items()))


def sum_conditions(counts: Iterable[CallCounts], graph: PhysicalGraph) -> dict[str, ConditionFigures]:
    """The conditions that call users' functions, checked in all partitions, by `predicate_name`."""
    named = {to_sql(p): predicate_name(m.query, p) for m in graph.members for p in m.query.conditions}
    found: dict[str, ConditionFigures] = {}
    for one in counts:
        for text, checked in one.conditions.items():
            if text in named:
                found[named[text]] = found.get(named[text], ConditionFigures()) + checked
    return dict(sorted(found.items()))
