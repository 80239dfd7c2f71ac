"""What batches did, in the units of their plan: the observed side of `explain()`.

Guarantees: pure. The graph may be of one query or of many. It is assumed that it ran in as many partitions as it was
planned for, since the copies of a tuple are known only by that.

The seconds of some batches are those that the event times of their tuples cover: for the input that advanced most, from
the newest tuple before these batches (or their own oldest, if they are the first) to their newest. So a stream that
pauses, or that lies an hour behind the others, does not distort them. If no input has event time, or none advanced,
they are wall-clock seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.errors import StatisticsError
from weft.logical.expr.user_functions import FunctionFigures, has_user_call, user_functions
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.rules import ProbeRule
from weft.plan.schedule import edge_copies
from weft.plan.show.observation import (
    EVENT_TIME,
    WALL_CLOCK,
    Observation,
    StepSeen,
    StoreSeen,
)
from weft.runtime.observe.metrics import BatchMetrics
from weft.stats.input_figures import EdgeFigures, InputFigures
from weft.stats.statistics import predicate_name

__all__ = ["called_pairs", "observed", "probe_copies", "store_copies"]

Batches = Sequence[BatchMetrics]


def observed(graph: PhysicalGraph, metrics: Batches, last: int | None = None) -> Observation:
    """What a graph's batches did together, or the ``last`` of them; ``metrics`` are in the order of the batches."""
    if last is not None and last < 1:
        raise StatisticsError(f"the last {last} batches tell nothing", hint="ask for 1 or more")
    recent = metrics if last is None else metrics[-last:]
    seconds, clock = _seconds(graph, metrics[: len(metrics) - len(recent)], recent)
    return Observation(
        batches=len(recent),
        seconds=seconds,
        clock=clock,
        results=sum(batch.results for batch in recent),
        inputs={alias: _input(alias, recent) for alias in graph.aliases},
        steps=_steps(graph, recent),
        stores=_stores(graph, recent),
        hops=_hops(graph, recent),
        elapsed=sum(batch.elapsed for batch in recent) / max(1, len(recent)),
        closed=sum(sum(batch.closed.values()) for batch in recent),
        functions=_functions(graph, recent),
        selectivities={n: passed / rows for n, (rows, passed) in called_pairs(graph, recent).items()},
        backlog=_backlog(graph, recent),
        edges=_edges(graph, recent),
    )


def probe_copies(graph: PhysicalGraph, rule: ProbeRule) -> float:
    """How many times a tuple is sent that probes by a rule."""
    return edge_copies(graph.edge(rule.edge).kind, graph.store(rule.store).layout.partitions)


def store_copies(graph: PhysicalGraph, store: str) -> int:
    """How many times a store keeps each tuple."""
    layout = graph.store(store).layout
    return layout.partitions if layout.kind == "replicated" else 1


def _seconds(graph: PhysicalGraph, earlier: Batches, recent: Batches) -> tuple[float, str]:
    timed = [alias for alias in graph.aliases if graph.input(alias).event_time is not None]
    span = max((_span(alias, earlier, recent) for alias in timed), default=0)
    return (span / 1e6, EVENT_TIME) if span > 0 else (_wall_clock(recent), WALL_CLOCK)


def _span(alias: str, earlier: Batches, recent: Batches) -> int:
    """By how many microseconds the event time of an input advanced."""
    before = [batch.inputs[alias].newest for batch in earlier if alias in batch.inputs]
    known = [time for time in before if time is not None]
    here = [batch.inputs[alias] for batch in recent if alias in batch.inputs]
    first = [one.oldest for one in here if one.oldest is not None]
    newest = [one.newest for one in here if one.newest is not None]
    if not newest or not (known or first):
        return 0
    return max(newest) - (max(known) if known else min(first))


def _wall_clock(batches: Batches) -> float:
    """The seconds from the first batch's start to the last one's end, and at least those that the batches took."""
    if not batches:
        return 0.0
    whole = batches[-1].started + batches[-1].elapsed - batches[0].started
    return max(whole, sum(batch.elapsed for batch in batches))


def _input(alias: str, batches: Batches) -> InputFigures:
    brought = (batch.inputs[alias] for batch in batches if alias in batch.inputs)
    return sum(brought, InputFigures())


def _backlog(graph: PhysicalGraph, batches: Batches) -> dict[str, int]:
    waiting = batches[-1].backlog if batches else {}
    streams = {alias: graph.input(alias).stream.name for alias in graph.aliases}
    return {alias: waiting[stream].parts for alias, stream in streams.items() if stream in waiting}


def _steps(graph: PhysicalGraph, batches: Batches) -> dict[str, StepSeen]:
    rules = [rule for rule in graph.rules if isinstance(rule, ProbeRule)]
    found = {}
    for rule in rules:
        steps = [batch.steps[rule.edge] for batch in batches if rule.edge in batch.steps]
        probes = sum(step.tuples for step in steps) / probe_copies(graph, rule)
        found[rule.edge] = StepSeen(probes, sum(step.matches for step in steps))
    return found


def _edges(graph: PhysicalGraph, batches: Batches) -> dict[str, EdgeFigures]:
    """What was sent over every edge that leads to another hop, in the order of the graph."""
    found = {}
    for edge in graph.edges:
        sent = [batch.edges[edge.name] for batch in batches if edge.name in batch.edges]
        if sent:
            found[edge.name] = sum(sent, EdgeFigures())
    return found


def _stores(graph: PhysicalGraph, batches: Batches) -> dict[str, StoreSeen]:
    held = batches[-1].stores if batches else {}
    return {
        store.name: StoreSeen(
            held[store.name].rows / store_copies(graph, store.name),
            held[store.name].bytes,
            held[store.name].runs,
        )
        for store in graph.stores
        if store.name in held
    }


def _functions(graph: PhysicalGraph, batches: Batches) -> dict[str, FunctionFigures]:
    """What the user functions did that the queries call."""
    found = {}
    called = {name for member in graph.members for name in user_functions(member.query.expressions())}
    for name in sorted(called):
        seen = [batch.functions[name] for batch in batches if name in batch.functions]
        found[name] = sum(seen, FunctionFigures())
    return found


def called_pairs(graph: PhysicalGraph, batches: Batches) -> dict[str, tuple[float, float]]:
    """Of the conditions that call users' functions, by `predicate_name`: rows checked, and rows passed."""
    found, queries = {}, [member.query for member in graph.members]
    for name in {predicate_name(query, p) for query in queries for p in query.conditions if has_user_call(p)}:
        seen = [batch.conditions[name] for batch in batches if name in batch.conditions]
        if rows := sum(one.rows for one in seen):
            found[name] = float(rows), float(sum(one.passed for one in seen))
    return found


def _hops(graph: PhysicalGraph, batches: Batches) -> tuple[float, ...]:
    """The mean seconds of every hop of the graph, over the batches that measured it."""
    hops = [
        [batch.seconds[hop] for batch in batches if hop < len(batch.seconds)] for hop in range(graph.hops + 1)
    ]
    return tuple(sum(times) / len(times) for times in hops if times)
