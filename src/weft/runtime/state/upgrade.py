"""Stored runs, upgraded to what the queries of the current graph need.

Guarantees: a run written for other queries has, once upgraded, the columns, orders and query-sets that this graph
expects. A query that came after the run was written is in the query-set of a row iff it sees the row (`Visibility`) and
its filters let it pass (design, D7 and section 3). Columns that were not kept are NULL; no query sees rows that lack
what it reads. Files are not rewritten for this: a run is upgraded when it is opened, and stays so once it is merged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import Bucket, assemble, build, column
from weft.bucket.columns import longs
from weft.bucket.compiled import Longs, Mask
from weft.errors import FunctionError
from weft.kernels.expr.arrow import arrow_type
from weft.kernels.expr.select import Columns, passing_rows
from weft.kernels.expr.user_functions import current
from weft.kernels.query_sets.query_set import columns_of, nonempty, only, set_bit
from weft.logical.expr.expression import all_of as conjunction
from weft.logical.expr.expression import columns
from weft.logical.query.query import PRESENT
from weft.plan.join_plan import Names
from weft.plan.physical.derive import filters_of
from weft.plan.physical.graph import Member
from weft.plan.physical.rules import Users
from weft.runtime.model.columns import BATCH, FOREVER, UNTIL, full, full_name, key_name, seq_name, values_of
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.store_plans import StorePlan

__all__ = ["past_rows", "upgrade_run"]

# The number of the batch that copies of stored tuples are given. It is before all batches, so queries that come later
# never see a copy beside the tuple it was made of.
COPIED = -1


def upgrade_run(program: ExecutableGraph, plan: StorePlan, run: Bucket, written: int) -> Bucket:
    """Upgrade a run to the columns, orders and queries of a program.

    ``written`` is the batch in which the run was written: later queries are added to its query-sets. A run that needs
    no change is returned as it is.
    """
    newcomers = _newcomers(program, plan.node.users, written)
    wanted = [*plan.columns, *(key_name(expr) for expr in plan.computed)]
    has_all = set(run.batch.schema.names) == set(wanted) and set(run.orders) == set(plan.orders)
    if has_all and not newcomers and run.layout == _layout(plan):
        return _in_sequence(plan, run, wanted)
    batch = _with_columns(program, plan, run.batch)
    if plan.sets:
        sets = _old_sets(program, run.batch, newcomers)
        if len(plan.node.aliases) == 1:
            _add_newcomers(sets, newcomers, plan.node.aliases[0], plan.clock, batch)
        batch = _with_sets(batch, sets)
    return _arranged(plan, run, batch.select(wanted))


def _in_sequence(plan: StorePlan, run: Bucket, wanted: list[str]) -> Bucket:
    """A run with its columns and indexes in the sequence of the plan, since only equal ones can be merged."""
    if run.batch.schema.names == wanted and run.orders == plan.orders:
        return run
    indexes = tuple(run.index(order) for order in plan.orders)
    return Bucket(run.batch.select(wanted), indexes, run.event_time, run.bounds)


def past_rows(
    program: ExecutableGraph, alias: str, rows: pa.RecordBatch, written: int, users: Users, copies: bool
) -> pa.RecordBatch:
    """The rows of a run of an input's store that some queries see, in the form in which new tuples arrive.

    With ``copies``, the same rows are also read from another store: then they are marked as copies, which no query that
    comes later sees.
    """
    time, clock = program.clock(alias)
    numbers = (seq_name(alias),) if alias in program.counted else ()
    names = dict.fromkeys((*map(full_name, program.source(alias).columns), time, clock, *numbers, BATCH))
    batch = pa.RecordBatch.from_pydict({name: _column(program, (alias,), name, rows) for name in names})
    if not program.sets:  # there is one query, and all rows are for it
        return batch
    newcomers = _newcomers(program, users, written)
    sets = _old_sets(program, rows, newcomers)
    _add_newcomers(sets, newcomers, alias, clock, batch)
    sets = only(sets, program.slots(users))
    kept = np.ones(rows.num_rows, np.bool_) if program.counts_per_key(alias) else nonempty(sets)
    if copies:
        place = batch.schema.get_field_index(BATCH)
        batch = batch.set_column(place, BATCH, pa.array(full(batch.num_rows, COPIED)))
    made = _with_sets(batch, sets)
    return made if kept.all() else made.filter(pa.array(kept))


def _newcomers(program: ExecutableGraph, users: Users, written: int) -> list[Member]:
    return [member for name in users if (member := program.members[name]).first > written]


def _layout(plan: StorePlan) -> Any:
    return plan.orders[0] if plan.orders else None


def _with_columns(program: ExecutableGraph, plan: StorePlan, batch: pa.RecordBatch) -> pa.RecordBatch:
    plain = [name for name in plan.columns if name not in plan.sets]
    made = pa.RecordBatch.from_pydict({n: _column(program, plan.node.aliases, n, batch) for n in plain})
    for expr in plan.computed:
        known = key_name(expr)
        there = known in batch.schema.names
        made = made.append_column(known, column(batch, known) if there else values_of(made, expr))
    return made


def _column(program: ExecutableGraph, aliases: Names, name: str, batch: pa.RecordBatch) -> Any:
    """A column of a batch, or what stands for one that was not kept.

    A missing column of the query is NULL; missing batch numbers and numbers of tuples are 0, as if the tuples had come
    first; and a missing time until which a match is inside its windows lies after all times.
    """
    if name in batch.schema.names:
        return column(batch, name)
    rows = batch.num_rows
    if name in (BATCH, UNTIL):
        return pa.array(full(rows, 0 if name == BATCH else FOREVER))
    for alias in aliases:
        for item in program.source(alias).columns:
            if full_name(item) == name and item.name == PRESENT:
                return pa.array(np.ones(rows, np.bool_))
            if full_name(item) == name:
                return pa.nulls(rows, arrow_type(item.type))
    return pa.array(full(rows, 0))


def _with_sets(batch: pa.RecordBatch, sets: Longs) -> pa.RecordBatch:
    for name, values in columns_of(sets).items():
        batch = batch.append_column(name, values)
    return batch


def _old_sets(program: ExecutableGraph, old: pa.RecordBatch, newcomers: list[Member]) -> Longs:
    """The query-sets of rows, with the queries that ran when they were stored.

    Rows that were stored without query-sets are for all of these: there was but one query then.
    """
    sets = np.zeros((program.words, old.num_rows), np.int64)
    present = [member.slot for member in program.graph.members if member not in newcomers]
    names = [name for name in program.sets if name in old.schema.names]
    for word, name in enumerate(names):
        sets[word] = longs(column(old, name))
    if not names:
        sets[:] = -1
    return only(sets, present)


def _add_newcomers(
    sets: Longs, newcomers: list[Member], alias: str, clock: str, batch: pa.RecordBatch
) -> None:
    for member in newcomers:
        set_bit(sets, member.slot, _seen(member, alias, clock, batch))


def _seen(member: Member, alias: str, clock: str, batch: pa.RecordBatch) -> Mask:
    """Which stored rows of an input a query sees that began after they were stored."""
    visibility = member.visibility(alias)
    if visibility.batch >= member.first:
        return np.zeros(batch.num_rows, np.bool_)
    seen: Mask = longs(column(batch, BATCH)) >= visibility.batch
    if visibility.since is not None:
        seen &= longs(column(batch, clock)) >= visibility.since
    filters = filters_of(member.query, alias)
    if filters and seen.any():
        named = columns(conjunction(filters))
        found: Columns = {(c.alias, c.name): column(batch, full_name(c)) for c in named}
        try:
            seen &= passing_rows(filters, found, batch.num_rows)
        except FunctionError as error:  # only this query fails; the others see their rows
            current().failed.setdefault(member.name, error)
            seen[:] = False
    return seen


def _arranged(plan: StorePlan, run: Bucket, batch: pa.RecordBatch) -> Bucket:
    """A run of the rows with the store's orders; rows are laid out anew only if its first order has changed."""
    others = plan.orders[1:]
    if run.layout == _layout(plan):
        kept = tuple(index for order in plan.orders for index in run.indexes if index.order == order)
        return assemble(batch, kept, plan.orders, plan.clock)
    return build(batch, layout=_layout(plan), indexes=others, event_time=plan.clock)
