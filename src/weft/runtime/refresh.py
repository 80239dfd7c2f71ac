"""Stored runs as the queries of today need them.

Guarantees: a run written for other queries has, refreshed, the columns, orders and query-sets that this graph expects.
A query that came after the run was written is in the set of a row iff its sight covers the row and its filters let it
pass (design, D7 and section 3). Columns that were not kept are NULL; no query's sight covers rows that lack what it
reads. Files are not rewritten for it: a run is refreshed when it is opened, and written as it then is when it is merged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import Bucket, assemble, build, column
from weft.bucket.compiled import Longs, Mask
from weft.kernels.arrow import arrow_type
from weft.kernels.query_set import all_of, bits_of, columns_of, set_bit
from weft.kernels.select import Columns, holds
from weft.logical.expr import all_of as conjunction
from weft.logical.expr import columns
from weft.plan.derive import filters_of
from weft.plan.graph import Member
from weft.runtime.batch import BATCH, FOREVER, UNTIL, full, full_name, key_name, longs, values_of
from weft.runtime.program import Program, StorePlan

__all__ = ["refreshed"]


def refreshed(program: Program, plan: StorePlan, run: Bucket, written: int) -> Bucket:
    """A run that was written in some batch, for this program; the same object if it is as it should be."""
    newcomers = [m for name in plan.node.users if (m := program.members[name]).first > written]
    names = set(run.batch.schema.names)
    wanted = {*plan.columns, *(key_name(expr) for expr in plan.computed)}
    if names == wanted and not newcomers and run.layout == _layout(plan) and set(run.orders) == set(plan.orders):
        return run
    batch = _with_columns(program, plan, run.batch)
    if plan.sets:
        batch = _with_sets(program, plan, batch, run.batch, newcomers)
    return _arranged(plan, run, batch)


def _layout(plan: StorePlan) -> Any:
    return plan.orders[0] if plan.orders else None


def _with_columns(program: Program, plan: StorePlan, batch: pa.RecordBatch) -> pa.RecordBatch:
    names, rows = batch.schema.names, batch.num_rows
    kept = {name: column(batch, name) for name in plan.columns if name in names}
    for name in plan.columns:
        if name not in names and name not in plan.sets:
            kept[name] = _missing(program, plan, name, rows)
    made = pa.RecordBatch.from_pydict(kept)
    for expr in plan.computed:
        known = key_name(expr)
        values = column(batch, known) if known in names else values_of(made, expr)
        made = made.append_column(known, values)
    return made


def _missing(program: Program, plan: StorePlan, name: str, rows: int) -> Any:
    """A column that was not kept: NULL; but what was not counted came first, and what has no end lasts."""
    if name in (BATCH, UNTIL):
        return pa.array(full(rows, 0 if name == BATCH else FOREVER))
    for alias in plan.node.aliases:
        for item in program.source(alias).columns:
            if full_name(item) == name:
                return pa.nulls(rows, arrow_type(item.type))
    return pa.nulls(rows, pa.int64())


def _with_sets(
    program: Program, plan: StorePlan, batch: pa.RecordBatch, old: pa.RecordBatch, newcomers: list[Member]
) -> pa.RecordBatch:
    sets = _old_sets(program, plan, old, newcomers)
    for member in newcomers:
        set_bit(sets, member.slot, _seen(member, plan, batch))
    for name, values in columns_of(sets).items():
        batch = batch.append_column(name, values)
    return batch


def _old_sets(program: Program, plan: StorePlan, old: pa.RecordBatch, newcomers: list[Member]) -> Longs:
    """The query-sets of those who were there; without any, all rows were for the one query there was."""
    sets = np.zeros((program.words, old.num_rows), np.int64)
    present = [m.slot for m in program.graph.members if m not in newcomers]
    names = [name for name in plan.sets if name in old.schema.names]
    for word, name in enumerate(names):
        sets[word] = longs(column(old, name))
    stay = bits_of(present, program.words)[:, None]
    return all_of(sets, stay) if names else np.ascontiguousarray(np.broadcast_to(stay, sets.shape))


def _seen(member: Member, plan: StorePlan, batch: pa.RecordBatch) -> Mask:
    """Which rows of an input's store a query sees that came after them."""
    rows = batch.num_rows
    alias = plan.node.aliases[0]
    sight = member.sight(alias)
    if sight.batch >= member.first or len(plan.node.aliases) > 1:
        return np.zeros(rows, np.bool_)
    seen: Mask = longs(column(batch, BATCH)) >= sight.batch
    if sight.since is not None:
        seen &= longs(column(batch, plan.clock)) >= sight.since
    filters = filters_of(member.query, alias)
    if filters and seen.any():
        predicate = conjunction(filters)
        found: Columns = {(c.alias, c.name): column(batch, full_name(c)) for c in columns(predicate)}
        seen &= holds(predicate, found, rows)
    return seen


def _arranged(plan: StorePlan, run: Bucket, batch: pa.RecordBatch) -> Bucket:
    """The rows with the orders they are looked up by; laid out anew only if the first is another."""
    bounds = run.bounds
    span = None if bounds.first is None or bounds.last is None else (bounds.first, bounds.last)
    others = plan.orders[1:]
    if run.layout == _layout(plan):
        index = run.index(plan.orders[0]) if plan.orders else None
        return assemble(batch, index, others, plan.clock, span)
    return build(batch, layout=_layout(plan), indexes=others, event_time=plan.clock, span=span)
