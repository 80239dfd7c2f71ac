"""Tuples enter a graph: they are admitted, sampled for the optimiser, and sent over the edges of their input.

Guarantees: an admitted tuple has the columns that queries read, of the types the stream declares, under the names of
`weft.runtime.model.columns`; a time; and, where the input's tuples are counted, a number. A tuple of a stream with
event time that has none is set aside; a tuple behind its watermark is late, and set aside unless the stream wants late
tuples to be joined. The remaining tuples are numbered before any filter of a query.

A tuple, be it new or stored and run through the graph once more, is sent over an edge iff some query that it is for
uses the edge. The values and query-sets of new tuples are sampled on the way, in some of the batches: a sample is a
function of the tuples and of the number of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import FARTHEST, column
from weft.bucket.columns import longs
from weft.bucket.compiled import Mask
from weft.bucket.words import flatten, validity
from weft.errors import CatalogError, FunctionError, nearest
from weft.kernels.ages import Classes
from weft.kernels.expr.arrow import arrow_type
from weft.kernels.expr.datum import as_type
from weft.kernels.expr.select import Columns, evaluate, passing_rows
from weft.kernels.expr.user_functions import current
from weft.kernels.query_sets.query_set import columns_of, nonempty, sets_of
from weft.kernels.route.sample import draw_rows, frequent, least_hashes, ordered_values
from weft.logical.expr.expression import Column, columns
from weft.logical.expr.expression import all_of as conjunction
from weft.logical.query.query import ARRIVAL, PRESENT
from weft.plan.physical.derive import filters_of
from weft.plan.physical.rules import ResultRule, StoreRule
from weft.plan.schedule import LOCAL, SHUFFLE
from weft.runtime.hop.outcome import HopOptions, Outcome
from weft.runtime.hop.projection import Tuples, finish
from weft.runtime.hop.routing import filter_rows, rows_for, send
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.model.columns import AGE, full_name, seq_name
from weft.runtime.program.executable import ExecutableGraph
from weft.stats.input_figures import InputFigures
from weft.stats.sampling.attributes import JoinAttribute
from weft.stats.sampling.samples import AttributeSample, Common
from weft.stats.skew import key_column

__all__ = [
    "SAMPLED",
    "Admitted",
    "admit",
    "numbered",
    "renumbered",
    "route_input",
    "route_stored",
    "sample_column",
    "sample_query_sets",
    "sample_values",
]


SAMPLED = 8  # query-sets are sampled in every eighth batch
SAMPLE = 500  # about so many tuples are sampled per input and read task

EVERY = 4  # values are sampled in one of every so many batches, or fewer if an input has more attributes than that
LOOKED = 500_000  # a task looks at most at so many tuples
KEPT = 256  # a coordinated sample has so many values, an ordered one at most so many
DRAWN = 10_000  # the commonest values are looked for among so many tuples
TOLD = 64  # so many of the commonest values are reported
SEVERAL = 5  # a value must occur so often to be reported as common; fewer occurrences may be chance
LONGEST = 100  # a text with more characters is reported as common by its hash alone


def sample_query_sets(program: ExecutableGraph, batch: pa.RecordBatch) -> dict[str, int]:
    """Sample query-sets: how many of the sampled tuples have each, by the query-set as a hexadecimal number."""
    step = max(1, batch.num_rows // SAMPLE)
    sets = sets_of([column(batch, name) for name in program.sets])[::-1, ::step]
    found, counts = np.unique(np.ascontiguousarray(sets.T), axis=0, return_counts=True)
    words = found.view(np.uint64).tolist()
    return {"".join(f"{word:016x}" for word in one): n for one, n in zip(words, counts.tolist(), strict=True)}


def sample_values(
    program: ExecutableGraph, alias: str, batch: pa.RecordBatch, number: int
) -> list[AttributeSample]:
    """Sample the attributes of an input that queries join on, before any filter, in some of the batches.

    The more attributes an input has, the fewer batches are sampled: on average at most one attribute a batch.
    """
    attributes, rows = program.sampled[alias], batch.num_rows
    if not rows or not attributes or number % max(EVERY, len(attributes)):
        return []
    read = dict.fromkeys(item for one in attributes for item in columns(one.expr))
    some = {(item.alias, item.name): column(batch, full_name(item)) for item in read}
    drawn = draw_rows(rows, LOOKED, number)
    if drawn is not None:
        some = {name: values.take(pa.array(drawn)) for name, values in some.items()}
    values = {one: _values(one, some, min(rows, LOOKED)) for one in attributes}
    return [sample_column(one, found, rows, number) for one, found in values.items() if found is not None]


def _values(one: JoinAttribute, some: Columns, looked: int) -> Any:
    """The values of an attribute; None if they cannot be computed for some tuple."""
    if isinstance(one.expr, Column):
        return some[one.expr.alias, one.expr.name]
    try:
        return evaluate(one.expr, some, looked)
    except FunctionError:
        return None


def sample_column(one: JoinAttribute, values: Any, rows: int, seed: int, kept: int = KEPT) -> AttributeSample:
    """Sample an attribute whose values are those of the tuples that a task looks at, out of so many ``rows``."""
    looked = len(values)
    ordered = tuple(ordered_values(values, kept, seed).tolist()) if one.ordered else ()
    if not one.equal:
        return AttributeSample(one.attribute, rows, looked, values.null_count, ordered=ordered)
    often = frequent(values, DRAWN, TOLD, seed)
    several = sum(count >= SEVERAL for count in often.counts)
    least = least_hashes(values, kept, often.hashes[:several])
    named = key_column(one.expr) is not None
    common = tuple(
        Common(value if named and not _is_long(value) else None, hashed, count)
        for value, hashed, count in zip(often.values, often.hashes, least.others.tolist(), strict=False)
    )
    return AttributeSample(
        one.attribute,
        rows,
        looked,
        looked - least.rows,
        least.threshold,
        tuple(least.hashes.tolist()),
        tuple(least.counts.tolist()),
        common,
        ordered,
    )


def _is_long(value: object) -> bool:
    return isinstance(value, str) and len(value) > LONGEST


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


def route_input(
    program: ExecutableGraph,
    alias: str,
    batch: pa.RecordBatch,
    batch_order: BatchOrder,
    options: HopOptions | None = None,
    dealt: Mapping[str, int] | None = None,
) -> Outcome:
    """Filter tuples of an input, as `admit` gives them, and send them over the edges of the source.

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
