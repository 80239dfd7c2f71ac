"""One hop of a graph in one partition (design, D10).

Guarantees: pure but for the additions to the state it is given. Rules run in the order of the graph, so a store has
this batch's additions before it is probed. A probe on behalf of an input sees every settled run, and this batch's
additions made by inputs that come before it in the driver order, and so finds each result exactly once: on behalf
of its last tuple (design, D5). A tuple whose key is NULL goes nowhere, since it joins nothing. Where there are many
queries, a tuple goes where some query it is for wants it, and a result to just those it is for (design, D7).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import column
from weft.errors import FunctionError
from weft.kernels.expr.select import Columns, passing
from weft.kernels.expr.user_functions import current
from weft.kernels.query_sets.query_set import (
    columns_of,
    nonempty,
    sets_of,
)
from weft.kernels.route.heavy import heavy_rows
from weft.kernels.route.sample import frequent
from weft.logical.expr import Column, columns
from weft.logical.expr import all_of as conjunction
from weft.plan.derive import filters_of
from weft.plan.rules import ProbeRule, ResultRule, StoreRule
from weft.plan.schedule import LOCAL, SHUFFLE
from weft.runtime.hop.census import count_keys
from weft.runtime.hop.closing import close_rows
from weft.runtime.hop.limits import LIMIT, PORTION_BYTES
from weft.runtime.hop.outcome import Boundary, Outcome, Outlet, Tuples, finish
from weft.runtime.hop.probing import Here, Probes
from weft.runtime.hop.routing import kept, of_use, send
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.model.columns import BATCH, concat, full_name, values_of
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.state.stores import State, make_run
from weft.stats import heavy

__all__ = ["route_input", "route_stored", "run_hop"]

CLOSING = 1  # the hop in which rows are closed: all inputs are stored in it

SAMPLED = 8  # every so many batches the query-sets
SAMPLE = 500  # of about so many tuples per input and task are told

Arrived = Mapping[str, Sequence[pa.RecordBatch]]


def route_input(
    program: ExecutableGraph,
    alias: str,
    batch: pa.RecordBatch,
    batch_order: BatchOrder,
    counting: Collection[str] = (),
    dealt: Mapping[str, int] | None = None,
    outlet: Outlet | None = None,
    result_limit: int | None = None,
) -> Outcome:
    """Tuples of an input, as `weft.runtime.hop.admit` admits them, filtered and sent on their ways.

    ``dealt`` says how many tuples have been dealt out before to the partitions of each store: the next one goes on.
    ``outlet`` and ``result_limit`` are as in `run_hop`.
    """
    outcome = Outcome(counting, outlet=outlet, result_limit=result_limit)
    if batch_order.partitions > 1 and batch_order.number % heavy.EVERY == 0 and batch.num_rows:
        outcome.heavy = _counted(program, alias, batch, batch_order)
    every = _with_sets(program, alias, batch, outcome)
    wanted = _wanted(program, alias, every, outcome)
    if program.sets and wanted.num_rows and batch_order.number % SAMPLED == 0:
        outcome.sample = _sampled(program, wanted)
    _leave(program, alias, every if program.apart(alias) else wanted, batch_order, outcome, None, dealt or {})
    return _with_calls(outcome)


def _sampled(program: ExecutableGraph, batch: pa.RecordBatch) -> dict[str, int]:
    """The query-sets of some tuples, as hexadecimal numbers, and how many have them."""
    step = max(1, batch.num_rows // SAMPLE)
    sets = sets_of([column(batch, name) for name in program.sets])[::-1, ::step]
    found, counts = np.unique(np.ascontiguousarray(sets.T), axis=0, return_counts=True)
    words = found.view(np.uint64).tolist()
    return {"".join(f"{word:016x}" for word in one): n for one, n in zip(words, counts.tolist(), strict=True)}


def _counted(
    program: ExecutableGraph, alias: str, batch: pa.RecordBatch, batch_order: BatchOrder
) -> list[heavy.Counted]:
    """The commonest values of the columns by which an input's tuples are placed."""
    stream, found = program.graph.input(alias).stream.name, []
    for item in program.watched(alias):
        values = column(batch, full_name(item))
        sampled, counts = frequent(values, heavy.SAMPLE, heavy.TOLD, batch_order.number)
        often = tuple((value, count) for value, count in counts if count >= heavy.SEVERAL)
        found.append(heavy.Counted(stream, item.name, batch.num_rows, sampled, often))
    return found


def route_stored(
    program: ExecutableGraph,
    alias: str,
    batch: pa.RecordBatch,
    batch_order: BatchOrder,
    job: Boundary,
    dealt: Mapping[str, int] | None = None,
    outlet: Outlet | None = None,
    result_limit: int | None = None,
) -> Outcome:
    """Stored tuples of an input, as `weft.runtime.state.upgrade` gives them, sent on their ways once more."""
    outcome = Outcome(job.counting, job.answering, outlet, result_limit)
    _leave(program, alias, batch, batch_order, outcome, job.edges, dealt or {})
    return _with_calls(outcome)


def _with_calls(outcome: Outcome) -> Outcome:
    """What a hop gives, with what users' functions did in it."""
    calls = current()
    outcome.calls = calls.take_counts()
    for name, error in calls.take_failed().items():
        outcome.fail([name], error)
    return outcome


def _leave(
    program: ExecutableGraph,
    alias: str,
    batch: pa.RecordBatch,
    batch_order: BatchOrder,
    outcome: Outcome,
    edges: Collection[str] | None,
    dealt: Mapping[str, int],
) -> None:
    """Send tuples on their ways; those that nobody wants go no further than where they are counted."""
    counted = program.apart(alias)
    for edge in program.leaving(alias):
        rule = program.rules[edge.name]
        if edges is not None and edge.name not in edges:
            continue
        stays = counted and isinstance(rule, StoreRule)
        some = batch if stays else of_use(program, rule.users, batch, also_empty=counted)
        with outcome.failing(rule.users):
            if edge.kind == SHUFFLE and isinstance(rule, StoreRule):
                store = program.stores[rule.store].identity
                outcome.dealt[store] = some.num_rows
                send(program, edge, some, batch_order, outcome, dealt.get(store, 0))
            elif edge.kind != LOCAL or edge.by is not None:
                send(program, edge, some, batch_order, outcome)
            elif isinstance(rule, ResultRule) and some.num_rows:  # a query of one input: nothing to join
                finish(program, rule, Tuples(some), batch_order, outcome)


def _with_sets(
    program: ExecutableGraph, alias: str, batch: pa.RecordBatch, outcome: Outcome
) -> pa.RecordBatch:
    """The tuples with the queries that want them, if there are many."""
    if program.sets:
        index, failed = program.filters[alias], dict[int, FunctionError]()
        sets = index.query_sets(_named(batch, program.source(alias).columns), batch.num_rows, failed)
        for member in program.graph.members:
            if member.slot in failed:
                outcome.fail([member.name], failed[member.slot])
        for name, values in columns_of(sets).items():
            batch = batch.append_column(name, values)
    return batch


def _wanted(program: ExecutableGraph, alias: str, batch: pa.RecordBatch, outcome: Outcome) -> pa.RecordBatch:
    """The tuples that some query wants."""
    if program.sets:
        return kept(batch, nonempty(sets_of([column(batch, name) for name in program.sets])))
    filters = filters_of(program.graph.query, alias)
    if not filters:
        return batch
    named = _named(batch, columns(conjunction(filters)))
    try:
        return kept(batch, passing(filters, named, batch.num_rows))
    except FunctionError as error:
        outcome.fail([program.graph.members[0].name], error)
        return batch.slice(0, 0)


def _named(batch: pa.RecordBatch, items: Iterable[Column]) -> Columns:
    return {(item.alias, item.name): column(batch, full_name(item)) for item in items}


def run_hop(
    program: ExecutableGraph,
    hop: int,
    arrived: Arrived,
    state: State,
    batch_order: BatchOrder,
    counting: Collection[str] = (),
    job: Boundary | None = None,
    partition: int = 0,
    limit: int = LIMIT,
    outlet: Outlet | None = None,
    portion_bytes: int = PORTION_BYTES,
    result_limit: int | None = None,
) -> Outcome:
    """Apply the rules of a hop to what arrived in a partition; beyond the last hop there is nothing to do.

    No key of a query whose keys are counted has more than ``limit`` results. What is found goes to the ``outlet``, in
    portions that take about so many bytes; without one, the outcome keeps it. A query fails that gives more results
    than its limit.
    """
    outcome = Outcome(counting, job.answering if job else None, outlet, result_limit)
    edges = job.edges if job else None
    here: Here = {edge: list(batches) for edge, batches in arrived.items() if batches}
    if hop == CLOSING and job is None:
        _count(program, here, state, outcome, limit)
    for name in list(here):
        for rider in program.piggybacked[name]:
            here[rider] = [*_riding(program, rider, here[name]), *here.get(rider, ())]
    rules = program.hops[hop] if hop < len(program.hops) else ()  # other graphs of the batch may have more
    later = [rule.store for rule in rules if isinstance(rule, StoreRule)]
    probes = Probes(program, state, batch_order, outcome, here, later, edges, portion_bytes)
    for rule in rules:
        if isinstance(rule, StoreRule):
            later.remove(rule.store)
        batches = [batch for batch in here.pop(rule.edge, ()) if batch.num_rows]
        if not batches or (edges is not None and rule.edge not in edges):
            continue
        if isinstance(rule, StoreRule):
            batch, plan = concat(batches), program.stores[rule.store]
            stored = batch if plan.per_key else of_use(program, rule.users, batch)
            with outcome.failing(rule.users):
                state.add(plan, program.starts[rule.edge], make_run(plan, stored, batch_order.number))
        elif isinstance(rule, ProbeRule):
            with outcome.failing(rule.users):
                probes.run(rule, batches)
    if hop == CLOSING and job is None:
        _close(program, state, batch_order, partition, outcome, portion_bytes)
    return _with_calls(outcome)


def _count(program: ExecutableGraph, here: Here, state: State, outcome: Outcome, limit: int) -> None:
    """Count the keys of queries on one key, and set aside what would give too many results."""
    for sweep in program.sweeps:
        if sweep.on_one_key:
            arrived = {alias: here[edge] for alias, edge in sweep.entries.items() if here.get(edge)}
            with outcome.failing([sweep.member.name]):
                census, kept = count_keys(program, sweep, arrived, state, limit)
                outcome.census[sweep.member.name] = census
                here |= {sweep.entries[alias]: batches for alias, batches in kept.items()}


def _close(
    program: ExecutableGraph,
    state: State,
    batch_order: BatchOrder,
    partition: int,
    outcome: Outcome,
    portion: int,
) -> None:
    """Close rows of queries with outer joins; a query for which that fails is stopped, and the others go on."""
    for sweep in program.sweeps:
        name = sweep.member.name
        try:
            for made in close_rows(program, sweep, state, batch_order, partition, portion):
                outcome.close(name, made)
        except Exception as error:
            outcome.fail([name], error)


def _riding(
    program: ExecutableGraph, rider: str, stored: Sequence[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What rides on an edge that stores: all of it, or all whose value is light; the source sends the others."""
    by, apart = program.edges[rider].by, program.heavy(rider)
    for batch in stored:
        if by is None:
            yield batch
            continue
        past = (BATCH,) if BATCH in batch.schema.names else ()
        slim = batch.select([*program.carried[rider], *past])
        yield kept(slim, ~heavy_rows(values_of(batch, by), apart.rides))
