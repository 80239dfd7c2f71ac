"""What is known of a batch before it runs, for the policy that chooses its driver order.

Guarantees: a function of the parts that the batch takes, of the manifest before it and of the metrics of the last
batch; it reads nothing, and is decided once, since the order is in the plan of the batch. The rows of a batch are those
that its parts say they have. Where a part does not know (texts, mostly), they are estimated from its bytes and from how
many rows a byte had in earlier batches, and the input is noted as estimated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from weft.logical.expr.expression import aliases
from weft.plan.physical.graph import PhysicalGraph, StoreNode
from weft.ports.source import Part
from weft.runtime.log.values import Inputs, Manifest
from weft.runtime.loop.driver import JoinFacts, Observed
from weft.runtime.observe.metrics import BatchMetrics, StoreMetrics
from weft.runtime.observe.progress import History
from weft.runtime.wire.reports import PartRead

__all__ = ["ROW_BYTES", "facts_of_batch", "next_rows_per_byte", "stored_tuples"]

ROW_BYTES = 64  # of a row, while nothing has been read that tells


def facts_of_batch(graph: PhysicalGraph, history: History, before: Manifest, inputs: Inputs) -> Observed:
    """What is known of the batch after a manifest, which takes these parts."""
    streams = {one.alias: one.stream.name for member in graph.members for one in member.query.inputs}
    parts = {alias: inputs.get(streams[alias], ()) for alias in graph.aliases}
    arrived = {alias: before.arrived.get(streams[alias], 0) for alias in graph.aliases}
    number, last = history.batches[-1] if history.batches else (-1, None)
    density = last.rows_per_byte if last else {}
    oldest = {alias: _oldest(some, before.newest.get(streams[alias])) for alias, some in parts.items()}
    return Observed(
        before.number + 1,
        {alias: _rows(some, density.get(streams[alias])) for alias, some in parts.items()},
        {alias: time for alias, time in oldest.items() if time is not None},
        _stored(history.graphs.get(number), last, arrived),
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
