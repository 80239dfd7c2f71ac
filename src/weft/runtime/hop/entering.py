"""Tuples that enter a graph: new ones of an input, and stored ones that are run through it once more.

Guarantees: a tuple is sent over an edge iff some query that it is for uses the edge. The values and query-sets of new
tuples are sampled on the way, in some of the batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from weft.bucket.bucket import column
from weft.errors import FunctionError
from weft.kernels.expr.select import Columns, passing_rows
from weft.kernels.expr.user_functions import current
from weft.kernels.query_sets.query_set import columns_of, nonempty, sets_of
from weft.logical.expr.expression import Column, columns
from weft.logical.expr.expression import all_of as conjunction
from weft.plan.physical.derive import filters_of
from weft.plan.physical.rules import ResultRule, StoreRule
from weft.plan.schedule import LOCAL, SHUFFLE
from weft.runtime.hop.outcome import HopOptions, Outcome
from weft.runtime.hop.projection import Tuples, finish
from weft.runtime.hop.routing import filter_rows, rows_for, send
from weft.runtime.hop.sampling import SAMPLED, sample_query_sets, sample_values
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.model.columns import full_name
from weft.runtime.program.executable import ExecutableGraph

__all__ = ["route_input", "route_stored"]


def route_input(
    program: ExecutableGraph,
    alias: str,
    batch: pa.RecordBatch,
    batch_order: BatchOrder,
    options: HopOptions | None = None,
    dealt: Mapping[str, int] | None = None,
) -> Outcome:
    """Filter tuples of an input, as `weft.runtime.hop.admit` admits them, and send them over the edges of the source.

    ``dealt`` says how many tuples have been dealt out to the partitions of each store before; dealing goes on there.
    """
    outcome = Outcome(options)
    outcome.values = sample_values(program, alias, batch, batch_order.number)
    every = _with_sets(program, alias, batch, outcome)
    wanted = _wanted(program, alias, every, outcome)
    if program.sets and wanted.num_rows and batch_order.number % SAMPLED == 0:
        outcome.sample = sample_query_sets(program, wanted)
    _leave(
        program, alias, every if program.counts_per_key(alias) else wanted, batch_order, outcome, dealt or {}
    )
    return outcome.with_calls(current())


def route_stored(
    program: ExecutableGraph,
    alias: str,
    batch: pa.RecordBatch,
    batch_order: BatchOrder,
    outcome: Outcome,
    dealt: Mapping[str, int] | None = None,
) -> None:
    """Send stored tuples of an input, as `weft.runtime.state.upgrade` gives them, over the source's edges again."""
    _leave(program, alias, batch, batch_order, outcome, dealt or {})
    outcome.with_calls(current())


def _leave(
    program: ExecutableGraph,
    alias: str,
    batch: pa.RecordBatch,
    batch_order: BatchOrder,
    outcome: Outcome,
    dealt: Mapping[str, int],
) -> None:
    """Send tuples over the edges of an input's source; those that no query wants go only to stores that count them."""
    counted = program.counts_per_key(alias)
    for edge in program.leaving(alias):
        rule = program.rules[edge.name]
        if not outcome.options.uses(edge.name):
            continue
        stays = counted and isinstance(rule, StoreRule)
        some = batch if stays else rows_for(program, rule.users, batch, also_empty=counted)
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
    """The tuples with their query-sets, by the filters of all queries, if tuples carry query-sets."""
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
        return filter_rows(batch, nonempty(sets_of([column(batch, name) for name in program.sets])))
    filters = filters_of(program.graph.query, alias)
    if not filters:
        return batch
    named = _named(batch, columns(conjunction(filters)))
    try:
        return filter_rows(batch, passing_rows(filters, named, batch.num_rows))
    except FunctionError as error:
        outcome.fail([program.graph.members[0].name], error)
        return batch.slice(0, 0)


def _named(batch: pa.RecordBatch, items: Iterable[Column]) -> Columns:
    return {(item.alias, item.name): column(batch, full_name(item)) for item in items}
