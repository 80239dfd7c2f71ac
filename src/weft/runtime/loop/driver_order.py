"""In which order the inputs of a batch are processed (MJoin driver selection, section 3.2).

Guarantees: a policy is a pure function of what is known; its order has every input once, ties broken by name. The
results are the same whatever the order; what differs is how early they come, and when memory is needed. Only `ROWS`
windows depend on the order: while a query has one, what is known comes from the tuples that arrived and from their
times alone, so that neither the number of partitions nor what tasks had time for changes an answer (design, D5).

A batch is processed input by input: all tuples of one, then all of the next. For `timestamp` and `round_robin`, which
the paper states tuple by tuple, that means: by the oldest tuple of each input, and in turns from batch to batch. The
paper has one join over all inputs. Here there may be many queries, each over some inputs; what an input gives is then
the sum over all joins that it is part of.

What a policy is told (`facts_of_batch`) is a function of the parts that the batch takes, of the manifest before it and
of the metrics of the last batch; it reads nothing, and is worked out once, since the order is in the plan of the batch.
The rows of a batch are those that its parts say they have. Where a part does not know (texts, mostly), they are
estimated from its bytes and from how many rows a byte had in earlier batches, and the input is noted as estimated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from weft.errors import ConfigError, nearest
from weft.logical.expr.expression import aliases
from weft.logical.query.window import Range, Rows, Window
from weft.plan.physical.graph import PhysicalGraph, StoreNode
from weft.ports.source import Part
from weft.runtime.log.values import Inputs, Manifest
from weft.runtime.observe.metrics import BatchMetrics, StoreMetrics
from weft.runtime.observe.progress import History
from weft.runtime.wire.reports import PartRead

__all__ = [
    "DEFAULT",
    "POLICIES",
    "ROW_BYTES",
    "BatchFacts",
    "JoinFacts",
    "driver_order",
    "facts_of_batch",
    "next_rows_per_byte",
    "stored_tuples",
]


DEFAULT = "initial_output_size"


@dataclass(frozen=True, slots=True)
class JoinFacts:
    """All queries that join just these inputs, and how many results they have had together."""

    inputs: tuple[str, ...]
    results: int = 0


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What is known when a batch begins, by input.

    ``rows`` is how many tuples are in the batch (the paper's buffer), before any filter of a query; for inputs in
    ``estimated`` it is an estimate. ``oldest`` is the first time among them, in microseconds, where that is known.
    ``stored`` is how many tuples are stored (the paper's hash table), and ``arrived`` how many came in earlier batches.
    """

    batch: int
    rows: Mapping[str, int]
    oldest: Mapping[str, int] = field(default_factory=dict)
    stored: Mapping[str, int] = field(default_factory=dict)
    arrived: Mapping[str, int] = field(default_factory=dict)
    joins: tuple[JoinFacts, ...] = ()
    estimated: frozenset[str] = frozenset()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs, sorted."""
        return tuple(sorted(self.rows))

    def selectivity(self, join: JoinFacts) -> float:
        """σ_MJoin: results per combination of tuples.

        A join that has had no result counts as one with a single result, so that it is not forgotten beside others.
        """
        combinations = math.prod(max(1, self.arrived.get(name, 0)) for name in join.inputs)
        return max(1, join.results) / combinations

    def results_of(self, name: str) -> int:
        """How many results the joins have had that an input is part of."""
        return sum(join.results for join in self.joins if name in join.inputs)


Policy = Callable[[BatchFacts], tuple[str, ...]]


def timestamp(facts: BatchFacts) -> tuple[str, ...]:
    """The input with the oldest tuple first."""
    return _sorted(facts, lambda name: facts.oldest.get(name, math.inf))


def round_robin(facts: BatchFacts) -> tuple[str, ...]:
    """Each input is first in turn, from batch to batch."""
    names = facts.inputs
    first = facts.batch % len(names)
    return names[first:] + names[:first]


def consumption_rate(facts: BatchFacts) -> tuple[str, ...]:
    """The most selective input first: ascending σ_Sj = |MJoin| / |S_j|."""
    return _sorted(facts, lambda name: facts.results_of(name) / max(1, facts.arrived.get(name, 0)))


def initial_output_size(facts: BatchFacts) -> tuple[str, ...]:
    """The input that gives most results next: |buffer_j| · σ_MJoin · Π |ht_l|, equation (1)."""
    return _greedy(facts, lambda name, per_tuple: facts.rows[name] * per_tuple)


def output_rate(facts: BatchFacts) -> tuple[str, ...]:
    """The input that gives most results per tuple next: equation (1) over |buffer_j|."""
    return _greedy(facts, lambda name, per_tuple: per_tuple if facts.rows[name] else 0.0)


def _sorted(facts: BatchFacts, key: Callable[[str], float]) -> tuple[str, ...]:
    return tuple(sorted(facts.inputs, key=lambda name: (key(name), name)))


def _greedy(facts: BatchFacts, score: Callable[[str, float], float]) -> tuple[str, ...]:
    """The input with the best score first, and so on; tuples that have been processed count as stored.

    ``score`` is given an input and how many results one of its tuples is expected to give.
    """
    tables = {name: facts.stored.get(name, 0) for name in facts.inputs}
    joins = [(join, facts.selectivity(join)) for join in facts.joins]
    order: list[str] = []
    while len(order) < len(tables):
        left = [name for name in tables if name not in order]
        scores = {name: score(name, _results_per_tuple(name, tables, joins)) for name in left}
        best = max(left, key=scores.__getitem__)  # the first by name, of those that score alike
        tables[best] += facts.rows[best]
        order.append(best)
    return tuple(order)


def _results_per_tuple(name: str, tables: Mapping[str, int], joins: list[tuple[JoinFacts, float]]) -> float:
    """σ_MJoin · Π |ht_l| over the other inputs of a join, summed over all joins of an input."""
    return sum(
        selectivity * math.prod(float(tables[other]) for other in join.inputs if other != name)
        for join, selectivity in joins
        if name in join.inputs
    )


POLICIES: dict[str, Policy] = {
    "timestamp": timestamp,
    "round_robin": round_robin,
    "consumption_rate": consumption_rate,
    "initial_output_size": initial_output_size,
    "output_rate": output_rate,
}


def driver_order(policy: str, facts: BatchFacts) -> tuple[str, ...]:
    """The order of a batch's inputs under a policy."""
    chosen = POLICIES.get(policy)
    if chosen is None:
        raise ConfigError(f"there is no driver policy {policy!r}", hint=nearest(policy, POLICIES))
    return chosen(facts)


ROW_BYTES = 64  # of a row, while nothing has been read that tells


def facts_of_batch(graph: PhysicalGraph, history: History, before: Manifest, inputs: Inputs) -> BatchFacts:
    """What is known of the batch after a manifest, which takes these parts."""
    streams = {one.alias: one.stream.name for member in graph.members for one in member.query.inputs}
    parts = {alias: inputs.get(streams[alias], ()) for alias in graph.aliases}
    arrived = {alias: before.arrived.get(streams[alias], 0) for alias in graph.aliases}
    number, last = history.batches[-1] if history.batches else (-1, None)
    density = last.rows_per_byte if last else {}
    oldest = {alias: _oldest(some, before.newest.get(streams[alias])) for alias, some in parts.items()}
    return BatchFacts(
        before.number + 1,
        {alias: _rows(some, density.get(streams[alias])) for alias, some in parts.items()},
        {alias: time for alias, time in oldest.items() if time is not None},
        _inside_windows(graph, before, arrived)
        if _counts_tuples(graph)
        else _stored(history.graphs.get(number), last, arrived),
        arrived,
        _joins(graph, before.results),
        frozenset(alias for alias, some in parts.items() if any(part.rows is None for part in some)),
    )


def _rows(parts: Sequence[Part], density: float | None) -> int:
    """How many rows parts have; ``density`` is how many there are to a byte, where a part does not know."""
    known = sum(part.rows for part in parts if part.rows is not None)
    unknown = [part.bytes for part in parts if part.rows is None]
    if not unknown:
        return known
    return known + max(1, round(sum(unknown) * (1 / ROW_BYTES if density is None else density)))


def _oldest(parts: Sequence[Part], newest: int | None) -> int | None:
    """The oldest time of parts; one that does not know it is taken to go on at the ``newest`` time there was."""
    times = [newest if part.oldest is None else part.oldest for part in parts]
    return min((time for time in times if time is not None), default=None)


def _joins(graph: PhysicalGraph, results: Mapping[str, int]) -> tuple[JoinFacts, ...]:
    found: dict[tuple[str, ...], int] = {}
    for member in graph.members:
        names = member.query.aliases
        found[names] = found.get(names, 0) + results.get(member.name, 0)
    return tuple(JoinFacts(names, count) for names, count in found.items())


def _counts_tuples(graph: PhysicalGraph) -> bool:
    """Whether a query has a `ROWS` window: what is inside it depends on the order of the inputs in a batch."""
    return any(isinstance(one.window, Rows) for member in graph.members for one in member.query.inputs)


def _inside_windows(graph: PhysicalGraph, before: Manifest, arrived: Mapping[str, int]) -> dict[str, int]:
    """How many tuples of each input its widest window holds, from the tuples that came and from their times alone.

    What stores really hold depends on how many partitions there are and on when tasks have found the time to merge
    and forget, and must not decide an order that answers depend on.
    """
    found = dict.fromkeys(graph.aliases, 0)
    for member in graph.members:
        for one in member.query.inputs:
            held = _inside(one.window, arrived[one.alias], one.stream.name, before)
            found[one.alias] = max(found[one.alias], held)
    return found


def _inside(window: Window, arrived: int, stream: str, before: Manifest) -> int:
    """How many of the tuples of a stream that have come a window holds, if they came evenly over their times."""
    if isinstance(window, Rows) and not window.per:
        return min(window.count, arrived)
    if isinstance(window, Range) and stream in before.oldest and stream in before.newest:
        span, width = (
            before.newest[stream] - before.oldest[stream],
            window.duration // timedelta(microseconds=1),
        )
        return arrived if span <= width else arrived * width // span
    return arrived


def _stored(
    graph: PhysicalGraph | None, last: BatchMetrics | None, arrived: Mapping[str, int]
) -> dict[str, int]:
    """How many tuples of each input are stored after the last batch, which ran by a graph."""
    if graph is None or last is None:
        return {}
    return stored_tuples(graph, last.stores, arrived)


def stored_tuples(
    graph: PhysicalGraph, stores: Mapping[str, StoreMetrics], arrived: Mapping[str, int]
) -> dict[str, int]:
    """How many tuples of each input the stores of a graph hold, each tuple counted once.

    A replicated store has a copy in each of its partitions, which counts once. Stores of one group differ in their
    layout and hold the same tuples, so the largest counts. Stores of different groups hold the tuples of different
    queries: if one of these takes every tuple, the largest store has all there are; else groups, which are made of
    queries that have little in common, are added up, but never to more than have arrived.
    """
    groups: dict[str, dict[str, int]] = {}
    for store in graph.stores:
        if len(store.aliases) == 1 and store.name in stores:
            copies = store.layout.partitions if store.layout.kind == "replicated" else 1
            rows, mine = stores[store.name].rows // copies, groups.setdefault(store.aliases[0], {})
            mine[store.group] = max(rows, mine.get(store.group, 0))
    return {alias: _over_groups(graph, alias, mine, arrived.get(alias)) for alias, mine in groups.items()}


def _over_groups(graph: PhysicalGraph, alias: str, groups: Mapping[str, int], arrived: int | None) -> int:
    largest, total = max(groups.values()), sum(groups.values())
    if len(groups) == 1 or _takes_all(graph, [one for one in graph.stores if one.aliases == (alias,)]):
        return largest
    return total if arrived is None else max(largest, min(total, arrived))


def _takes_all(graph: PhysicalGraph, stores: Collection[StoreNode]) -> bool:
    """Whether one of the queries that use some stores of an input takes every tuple of it."""
    members = {member.name: member for member in graph.members}
    return any(
        all(set(store.aliases).isdisjoint(aliases(one)) for one in members[name].query.filters)
        for store in stores
        for name in store.users
        if name in members
    )


def next_rows_per_byte(
    before: Mapping[str, float], inputs: Inputs, reads: Sequence[PartRead]
) -> dict[str, float]:
    """By stream, how many rows a byte of its parts has, after a batch; what came before counts for half.

    >>> next_rows_per_byte({"a": 0.5, "b": 1.0}, {"a": (Part({}, 100),)}, [PartRead("a", 9, 1)])
    {'a': 0.3, 'b': 1.0}
    """
    found = dict(before)
    for stream in sorted({read.stream for read in reads}):
        rows = sum(read.rows + read.malformed for read in reads if read.stream == stream)
        size = sum(part.bytes for part in inputs.get(stream, ()))
        if size:
            found[stream] = (found.get(stream, rows / size) + rows / size) / 2
    return found
