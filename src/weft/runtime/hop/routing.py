"""Which partitions tuples go to over an edge, and which of them go at all.

Guarantees: a tuple carries the columns that are read at the end of the edge or later, and no others. One whose key is
NULL is not sent, unless the edge wants NULLs. Tuples that may go to any partition are dealt out in turn; a batch that
is sent in portions is dealt out as if it had been sent at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import column
from weft.bucket.compiled import Mask
from weft.kernels.query_sets.query_set import nonempty, only, sets_of
from weft.kernels.route import partition as route
from weft.kernels.route.heavy import deal_rows, heavy_rows
from weft.logical.expr.expression import Expr
from weft.plan.physical.rules import Edge, StoreRule, Users
from weft.plan.schedule import ALL, GROUP_BY, LOCAL, SPAN
from weft.runtime.hop.outcome import Outcome, Parcel
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.model.columns import along, values_of
from weft.runtime.program.executable import ExecutableGraph

__all__ = ["filter_rows", "rows_for", "send"]


def filter_rows(batch: pa.RecordBatch, mask: Mask) -> pa.RecordBatch:
    """The rows for which the mask is set."""
    return batch if mask.all() else batch.filter(pa.array(mask))


def rows_for(
    program: ExecutableGraph, users: Users, batch: pa.RecordBatch, *, also_empty: bool = False
) -> pa.RecordBatch:
    """The rows that are for any of some queries.

    ``also_empty`` says that the batch may have rows which are for no query at all; else, if all queries are asked for,
    it is returned as it is.
    """
    everybody = len(users) == len(program.members) and not also_empty
    if not program.sets or everybody or not batch.num_rows:
        return batch
    sets = sets_of([column(batch, name) for name in program.sets])
    return filter_rows(batch, nonempty(only(sets, program.slots(users))))


def send(
    program: ExecutableGraph,
    edge: Edge,
    batch: pa.RecordBatch,
    batch_order: BatchOrder,
    outcome: Outcome,
    begin: int | None = None,
) -> None:
    """Send a batch over an edge, with the columns that are read at its end or later.

    Tuples that may go to any partition are dealt out in turn, from partition ``begin`` on; None goes on in the hop.
    """
    if batch.num_rows:
        for parcel in _parcels(program, edge, batch, batch_order, outcome, begin):
            outcome.send(parcel, batch_order.partitions)


def _parcels(
    program: ExecutableGraph,
    edge: Edge,
    batch: pa.RecordBatch,
    batch_order: BatchOrder,
    outcome: Outcome,
    begin: int | None,
) -> Iterator[Parcel]:
    slim, count = batch.select([*program.carried[edge.name], *along(batch)]), batch_order.partitions
    if edge.kind == ALL:
        yield Parcel(edge.name, slim)
    elif edge.kind == SPAN:
        first, last = (values_of(batch, value) for value in edge.values)
        yield Parcel(edge.name, slim, *route.in_cells(first, last, count))
    elif edge.by is not None and (edge.heavy or edge.kind == LOCAL):
        yield from _send_apart(program, edge, edge.by, batch, slim, batch_order, outcome)
    elif edge.kind == GROUP_BY and edge.by is not None:
        values = values_of(batch, edge.by)
        yield Parcel(edge.name, slim, route.partitions([values], count, nulls=edge.nulls))
    else:
        begin = outcome.deal(edge.name, slim.num_rows, batch_order.number) if begin is None else begin
        yield Parcel(edge.name, slim, route.dealt(slim.num_rows, count, begin))


def _send_apart(
    program: ExecutableGraph,
    edge: Edge,
    by: Expr,
    batch: pa.RecordBatch,
    slim: pa.RecordBatch,
    batch_order: BatchOrder,
    outcome: Outcome,
) -> Iterator[Parcel]:
    """Parcels for an edge with heavy values.

    Tuples with such a value are dealt out in turn if they are stored at the end of the edge, and sent to all partitions
    if they probe there; the others go to the partition of their value.
    """
    values, apart, count = values_of(batch, by), program.heavy(edge.name), batch_order.partitions
    rows = heavy_rows(values, apart.words)
    targets = route.partitions([values], count, nulls=edge.nulls)
    if isinstance(program.rules[edge.name], StoreRule):
        first = outcome.deal(edge.name, int(np.count_nonzero(rows)), batch_order.number)
        yield Parcel(edge.name, slim, deal_rows(targets, rows, count, first))
        return
    alone = ~rows
    if edge.kind == LOCAL:  # piggybacked tuples are there already
        alone &= heavy_rows(values, apart.rides)
    yield Parcel(edge.name, slim, np.where(alone, targets, np.int32(-1)))
    copied = slim.filter(pa.array(rows))
    outcome.tally(edge.name, copies=copied.num_rows * (count - 1))
    if copied.num_rows:
        yield Parcel(edge.name, copied)
