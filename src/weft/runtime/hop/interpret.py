"""One hop of a graph in one partition (design, D10).

Guarantees: pure but for the additions to the state it is given. Inputs are processed one after the other, in the driver
order: each first probes and is then stored. A probe on behalf of an input sees every run of earlier batches, and this
batch's additions made by inputs that come before it in the driver order, all of which are there by then; so it finds
each result exactly once: on behalf of its last tuple (design, D5). What it finds has left the task before anything is
done with the next input. A tuple whose key is NULL is not sent, since it joins nothing, except to stores from which
rows are closed. Where there are many queries, a tuple is sent over an edge iff some query that it is for uses the edge,
and a result goes to just those queries that it is for (design, D7).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from weft.kernels.expr.user_functions import current
from weft.kernels.route.heavy import heavy_rows
from weft.plan.physical.rules import ProbeRule, Rule, StoreRule
from weft.runtime.hop.census import count_keys
from weft.runtime.hop.closing import close_rows
from weft.runtime.hop.outcome import HopOptions, Outcome
from weft.runtime.hop.probing import Here, Probes
from weft.runtime.hop.routing import filter_rows, rows_for
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.model.columns import along, concat, values_of
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.state.stores import State, make_run

__all__ = ["run_hop"]

CLOSING = 1  # the hop in which rows are closed: all inputs are stored in it

Arrived = Mapping[str, Sequence[pa.RecordBatch]]


def run_hop(
    program: ExecutableGraph,
    hop: int,
    arrived: Arrived,
    state: State,
    batch_order: BatchOrder,
    options: HopOptions | None = None,
    partition: int = 0,
    outcome: Outcome | None = None,
) -> Outcome:
    """Apply the rules of a hop to what arrived in a partition; a hop after the graph's last one has no rules.

    A task that has several partitions adds what the hop gives in each of them to one ``outcome``.
    """
    outcome = Outcome(options) if outcome is None else outcome
    closes = hop == CLOSING and not outcome.options.at_boundary
    here: Here = {edge: list(batches) for edge, batches in arrived.items() if batches}
    if closes:
        _count(program, here, state, outcome)
    for name in list(here):
        for rider in program.piggybacked[name]:
            here[rider] = [*_riding(program, rider, here[name]), *here.get(rider, ())]
    rules = program.hops[hop] if hop < len(program.hops) else ()
    probes = Probes(program, state, batch_order, outcome, here)
    for rule in _in_driver_order(program, rules, batch_order):
        batches = [batch for batch in here.pop(rule.edge, ()) if batch.num_rows]
        if not batches or not outcome.options.uses(rule.edge):
            continue
        if isinstance(rule, StoreRule):
            batch, plan = concat(batches), program.stores[rule.store]
            stored = batch if plan.per_key else rows_for(program, rule.users, batch)
            with outcome.failing(rule.users):
                state.add(plan, program.starts[rule.edge], make_run(plan, stored, batch_order.number))
        elif isinstance(rule, ProbeRule):
            with outcome.failing(rule.users):
                probes.run(rule, batches)
    if closes:
        _close(program, state, batch_order, partition, outcome)
    return outcome.with_calls(current())


def _in_driver_order(program: ExecutableGraph, rules: Sequence[Rule], batch_order: BatchOrder) -> list[Rule]:
    """Rules by the inputs whose tuples they are for, in the driver order; the probes of an input before its stores.

    No probe needs what its own input adds in this batch, so results need not wait until tuples are stored.
    """
    ranks = {alias: rank for rank, alias in enumerate(batch_order.order)}
    return sorted(rules, key=lambda rule: (ranks[program.starts[rule.edge]], isinstance(rule, StoreRule)))


def _count(program: ExecutableGraph, here: Here, state: State, outcome: Outcome) -> None:
    """Count the keys of queries on one key, and set tuples aside whose keys would have too many results."""
    for sweep in program.sweeps:
        if sweep.on_one_key:
            arrived = {alias: here[edge] for alias, edge in sweep.entries.items() if here.get(edge)}
            with outcome.failing([sweep.member.name]):
                census, kept = count_keys(program, sweep, arrived, state, outcome.options.limits.key_results)
                outcome.add_census(sweep.member.name, census)
                here |= {sweep.entries[alias]: batches for alias, batches in kept.items()}


def _close(
    program: ExecutableGraph,
    state: State,
    batch_order: BatchOrder,
    partition: int,
    outcome: Outcome,
) -> None:
    """Close rows of queries with outer joins; a query for which that fails is stopped, and the others go on."""
    portion = outcome.options.limits.portion_bytes
    for sweep in program.sweeps:
        name = sweep.member.name
        try:
            for rows, times in close_rows(program, sweep, state, batch_order, partition, portion):
                outcome.close(name, rows, times)
        except Exception as error:
            outcome.fail([name], error)


def _riding(
    program: ExecutableGraph, rider: str, stored: Sequence[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The tuples that are piggybacked on those that an edge brings to a store.

    These are all of them or, if a value decides the partition, those whose value is not heavy: the source sends the
    others.
    """
    by, apart = program.edges[rider].by, program.heavy(rider)
    for batch in stored:
        if by is None:
            yield batch
            continue
        slim = batch.select([*program.carried[rider], *along(batch)])
        yield filter_rows(slim, ~heavy_rows(values_of(batch, by), apart.rides))
