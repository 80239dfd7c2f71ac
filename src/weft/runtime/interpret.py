"""One hop of a graph in one partition (design, D10).

Guarantees: pure but for the additions to the state it is given. Rules run in the order of the graph, so a store has
this batch's additions before it is probed. A probe on behalf of an input sees every settled run, and this batch's
additions made by inputs that come before it in the driver order, and so finds each result exactly once: on behalf
of its last tuple (design, D5). A tuple whose key is NULL goes nowhere, since it joins nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from weft.bucket.bucket import Bucket, column
from weft.kernels import route
from weft.kernels.select import holds
from weft.logical.expr import all_of, columns
from weft.plan.rules import Edge, ProbeRule, StoreRule
from weft.plan.schedule import ALL, GROUP_BY, LOCAL
from weft.runtime.batch import concat, full_name, values_of
from weft.runtime.program import Program
from weft.runtime.state import State, make_run
from weft.runtime.step import execute
from weft.runtime.turn import Turn

__all__ = ["Outcome", "Parcel", "StepCount", "leave_source", "run_hop"]

Arrived = Mapping[str, Sequence[pa.RecordBatch]]


@dataclass(frozen=True, slots=True, eq=False)
class Parcel:
    """A batch on its way over an edge to a partition."""

    edge: str
    partition: int
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class StepCount:
    """How many tuples a probe had, and how many matches it found."""

    edge: str
    probes: int
    matches: int


@dataclass
class Outcome:
    """What a hop gives in one partition: parcels for later hops, results, and what its probes did."""

    sent: list[Parcel] = field(default_factory=list)
    results: list[pa.RecordBatch] = field(default_factory=list)
    steps: list[StepCount] = field(default_factory=list)


def leave_source(program: Program, alias: str, batch: pa.RecordBatch, turn: Turn) -> Outcome:
    """Tuples of an input, as `weft.runtime.source` admits them, filtered and sent on their ways."""
    source, outcome = program.source(alias), Outcome()
    if source.filters:
        predicate = all_of(source.filters)
        found = {(c.alias, c.name): column(batch, full_name(c)) for c in columns(predicate)}
        batch = batch.filter(pa.array(holds(predicate, found, batch.num_rows)))
    leaving = program.leaving(alias)
    for edge in leaving:
        if edge.kind != LOCAL:
            outcome.sent += _send(program, edge, batch, turn)
    if batch.num_rows and leaving[0].kind == LOCAL:  # a query of one input: nothing to join
        outcome.results.append(_project(program, batch))
    return outcome


def run_hop(program: Program, hop: int, arrived: Arrived, state: State, turn: Turn) -> Outcome:
    """Apply the rules of a hop to what arrived in a partition; beyond the last hop there is nothing to do."""
    outcome = Outcome()
    here = {edge: list(batches) for edge, batches in arrived.items() if batches}
    for name in list(here):
        here |= {rider: list(here[name]) for rider in program.riders[name]}
    rules = program.hops[hop] if hop < len(program.hops) else ()  # other queries of the batch may have more
    for rule in rules:
        batches = [batch for batch in here.pop(rule.edge, ()) if batch.num_rows]
        if not batches:
            continue
        batch = concat(batches)
        if isinstance(rule, StoreRule):
            state.add(rule.store, program.starts[rule.edge], make_run(program.stores[rule.store], batch))
        elif isinstance(rule, ProbeRule):
            _probe(program, rule, batch, state, turn, here, outcome)
        else:
            outcome.results.append(_project(program, batch))
    return outcome


def _probe(
    program: Program,
    rule: ProbeRule,
    batch: pa.RecordBatch,
    state: State,
    turn: Turn,
    here: dict[str, list[pa.RecordBatch]],
    outcome: Outcome,
) -> None:
    """Probe a store, and pass the matches on: within the task, or to another."""
    step = program.steps[rule.edge]
    matches = execute(program.query, step, batch, visible(program, rule, state, turn), turn)
    outcome.steps.append(StepCount(rule.edge, batch.num_rows, 0 if matches is None else matches.num_rows))
    if matches is None:
        return
    for output in rule.outputs:
        edge = program.edges[output]
        if edge.kind == LOCAL:
            here.setdefault(output, []).append(matches)
        else:
            outcome.sent += _send(program, edge, matches, turn)


def visible(program: Program, rule: ProbeRule, state: State, turn: Turn) -> list[Bucket]:
    """The runs that a probe sees."""
    runs = list(state.settled(rule.store))
    for start in program.stores[rule.store].node.aliases:
        if turn.sees(rule.start, start):
            runs += state.added(rule.store, start)
    return runs


def _send(program: Program, edge: Edge, batch: pa.RecordBatch, turn: Turn) -> Iterator[Parcel]:
    """A batch as parcels over an edge, with the columns that are needed at its end."""
    if not batch.num_rows:
        return
    slim = batch.select(list(program.carried[edge.name]))
    if edge.kind == ALL:
        parts = route.everywhere(slim, turn.partitions)
    elif edge.kind == GROUP_BY and edge.by is not None:
        targets = route.partitions([values_of(batch, edge.by)], turn.partitions)
        parts = route.split(slim, targets, turn.partitions)
    else:
        parts = route.round_robin(slim, turn.partitions, turn.number)
    for partition, part in enumerate(parts):
        if part.num_rows:
            yield Parcel(edge.name, partition, part)


def _project(program: Program, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of the result."""
    found = {output.name: values_of(batch, output.expr) for output in program.query.projection}
    return pa.RecordBatch.from_pydict(found)
