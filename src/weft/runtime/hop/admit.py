"""Admission of tuples: they get typed columns, a time and, where they are counted, a number.

Guarantees: an admitted tuple has the columns that queries read, of the types the stream declares, under the names of
`weft.runtime.model.columns`; a time; and, where the input's tuples are counted, a number. A tuple of a stream with
event time that has none is set aside; a tuple behind its watermark is late, and set aside unless the stream wants late
tuples to be joined. The remaining tuples are numbered before any filter of a query.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import FARTHEST, column
from weft.bucket.columns import longs
from weft.bucket.compiled import Mask
from weft.bucket.words import flatten, validity
from weft.errors import CatalogError, nearest
from weft.kernels.ages import Classes
from weft.kernels.expr.arrow import arrow_type
from weft.kernels.expr.datum import as_type
from weft.logical.expr.expression import Column
from weft.logical.query.query import ARRIVAL, PRESENT
from weft.runtime.model.columns import AGE, full_name, seq_name
from weft.runtime.program.executable import ExecutableGraph
from weft.stats.input_figures import InputFigures

__all__ = ["Admitted", "admit", "numbered", "renumbered"]


@dataclass(frozen=True, slots=True, eq=False)
class Admitted:
    """Admitted tuples of an input, and the figures of all that came and could be read."""

    batch: pa.RecordBatch
    figures: InputFigures


def admit(
    program: ExecutableGraph,
    alias: str,
    data: pa.RecordBatch | pa.Table,
    *,
    now: int = 0,
    watermark: int | None = None,
    ages: Classes | None = None,
) -> Admitted:
    """Admit tuples of an input; ``now`` is the time that they get if the stream has no event time.

    ``ages`` are theirs, if they are to carry them. Rows of a table are before all times, so that they never are the
    newest tuple of a result.
    """
    input_ = program.graph.input(alias)
    read = {full_name(item): _typed(data, item, now) for item in program.source(alias).columns}
    if ages is not None:
        read[AGE] = pa.array(ages)
    event_time, name = input_.event_time, program.view.times[alias]
    if input_.stream.table:
        read[name] = pa.array(np.full(data.num_rows, -FARTHEST, np.int64))
        return Admitted(pa.RecordBatch.from_pydict(read), InputFigures(data.num_rows))
    if event_time is None:
        read[name] = pa.array(np.full(data.num_rows, now, np.int64))
        return _timed(pa.RecordBatch.from_pydict(read), name, None, 0)
    read[name] = _typed(data, event_time, now)
    batch, untimed = _only(pa.RecordBatch.from_pydict(read), validity(read[name]))
    return _timed(batch, name, watermark, untimed, drop=input_.stream.late == "drop")


def _timed(
    batch: pa.RecordBatch, name: str, watermark: int | None, untimed: int, *, drop: bool = True
) -> Admitted:
    late = behind = 0
    if watermark is not None:
        on_time = longs(column(batch, name)) >= watermark
        behind = int(on_time.size - on_time.sum())
        batch, late = _only(batch, on_time) if drop else (batch, 0)
    figures = InputFigures(batch.num_rows, late, untimed, behind=behind)
    if not batch.num_rows:
        return Admitted(batch, figures)
    times = longs(column(batch, name))
    return Admitted(batch, replace(figures, oldest=int(times.min()), newest=int(times.max())))


def numbered(program: ExecutableGraph, alias: str, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """The tuples with numbers from ``first`` on, if tuples of the input are counted; else as they are."""
    if alias not in program.counted:
        return batch
    return batch.append_column(
        seq_name(alias), pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
    )


def renumbered(alias: str, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """The tuples with ``first`` added to their numbers; a batch without numbers stays as it is."""
    place = batch.schema.get_field_index(seq_name(alias))
    if place < 0:
        return batch
    return batch.set_column(place, seq_name(alias), pa.array(longs(batch.column(place)) + first))


def _only(batch: pa.RecordBatch, kept: Mask | None) -> tuple[pa.RecordBatch, int]:
    if kept is None or kept.all():
        return batch, 0
    return batch.filter(pa.array(kept)), int(batch.num_rows - kept.sum())


def _typed(data: pa.RecordBatch | pa.Table, item: Column, now: int) -> Any:
    if item.name == PRESENT:
        return pa.array(np.ones(data.num_rows, np.bool_))
    if item.name == ARRIVAL:
        return pa.array(np.full(data.num_rows, now, np.int64)).view(arrow_type(item.type))
    place = data.schema.get_field_index(item.name)
    if place < 0:
        raise CatalogError(
            f"the data of {item.alias} has no column {item.name!r}",
            hint=nearest(item.name, data.schema.names),
        )
    return as_type(flatten(data.column(place)), arrow_type(item.type))
