"""Results made of matches.

Guarantees: a result goes to just those queries that it is for (design, D7), with the columns that each of them selects;
results of a query with an order are sorted. A query for which that raises an error fails, and the others go on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from weft.bucket.bucket import column
from weft.bucket.columns import longs, taken
from weft.bucket.compiled import Ints
from weft.kernels.expr.select import Columns, evaluate
from weft.kernels.query_sets.query_set import count_per_query, rows_per_query, sets_of
from weft.logical.expr.expression import columns
from weft.logical.query.query import Query
from weft.plan.physical.graph import Member
from weft.plan.physical.rules import ResultRule
from weft.runtime.hop.latency import MatchAges, found_ages, tuple_ages
from weft.runtime.hop.outcome import Outcome, Why, unknown
from weft.runtime.hop.probe_step import MatchPortion
from weft.runtime.hop.sorting import sort_results
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.model.columns import full_name
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.window_limits import refine_query_sets

__all__ = ["MatchedRows", "Tuples", "finish"]


class MatchedRows(Protocol):
    """MatchedRows of which results are made; ``column`` gives a column of all of them, or of some rows."""

    @property
    def num_rows(self) -> int: ...

    def column(self, name: str, rows: Ints | None = None) -> Any: ...


@dataclass(frozen=True, slots=True, eq=False)
class Tuples:
    """Tuples of one input as matches, for queries of one input."""

    batch: pa.RecordBatch

    @property
    def num_rows(self) -> int:
        return int(self.batch.num_rows)

    def column(self, name: str, rows: Ints | None = None) -> Any:
        values = column(self.batch, name)
        return values if rows is None else taken(values, rows)


def finish(
    program: ExecutableGraph,
    rule: ResultRule,
    found: MatchedRows,
    batch_order: BatchOrder,
    outcome: Outcome,
    why: Why = unknown,
) -> None:
    """Give matches as results to every query they are for; ``why`` finds the key that made them so many."""
    ages = _ages(program, rule, found, outcome)
    if not program.sets:
        _give(program, rule, rule.users[0], found, None, ages, batch_order, outcome, why)
        return
    held = found.sets if isinstance(found, MatchPortion) else None
    sets = sets_of([found.column(name) for name in program.sets]) if held is None else held
    sets = refine_query_sets(
        program.limits[rule.edge], program.view, sets, found.column, batch_order, rule.start
    )
    slots = program.slots(rule.users)
    if outcome.options.only_counts(rule.users):
        counts = zip(rule.users, count_per_query(sets, slots).tolist(), strict=True)
        wanted = {name: count for name, count in counts if outcome.count(name, count, why)}
        outcome.latency.add_shared(dict(zip(rule.users, slots, strict=True)), sets, ages, wanted)
        return
    offsets, rows = rows_per_query(sets, slots)
    for name, first, last in zip(rule.users, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        _give(program, rule, name, found, rows[first:last], ages, batch_order, outcome, why)


def _ages(
    program: ExecutableGraph, rule: ResultRule, found: MatchedRows, outcome: Outcome
) -> MatchAges | None:
    """The ages of matches; None if they are not asked for."""
    ages = outcome.latency.ages
    if ages is None or not found.num_rows:
        return None
    if isinstance(found, MatchPortion):
        return found_ages(ages, rule.start, found)
    if isinstance(found, Tuples):
        times = longs(column(found.batch, program.view.times[rule.start]))
        return tuple_ages(ages, rule.start, found.batch, times)
    raise TypeError(f"the ages of a {type(found).__name__} are not known")


def _give(
    program: ExecutableGraph,
    rule: ResultRule,
    name: str,
    found: MatchedRows,
    rows: Ints | None,
    ages: MatchAges | None,
    batch_order: BatchOrder,
    outcome: Outcome,
    why: Why,
) -> None:
    """Give matches, or some of them, to a query."""
    count = found.num_rows if rows is None else rows.size
    if name in program.groups:
        _gather(program, name, found, rows, count, outcome)
        return
    if not outcome.count(name, count, why):
        return
    counting = name in outcome.options.counting
    if ages is not None and (counting or not program.members[name].held):
        outcome.latency.add(name, ages.of(rows))
    if counting:
        return
    try:
        outcome.give(
            name, _results(program, program.members[name], rule.start, found, rows, count, batch_order)
        )
    except Exception as error:  # only this query fails; the others go on
        outcome.failed[name] = error


def _gather(
    program: ExecutableGraph, name: str, found: MatchedRows, rows: Ints | None, count: int, outcome: Outcome
) -> None:
    """Gather matches, or some of them, as rows of a query's groups."""
    if not count or name in outcome.failed:
        return
    try:
        made = _projected(program.members[name].query, found, rows, count)
        outcome.gather(name, program.groups[name].partials, pa.RecordBatch.from_pydict(made))
    except Exception as error:  # only this query fails; the others go on
        outcome.failed[name] = error


def _results(
    program: ExecutableGraph,
    member: Member,
    start: str,
    found: MatchedRows,
    rows: Ints | None,
    count: int,
    batch_order: BatchOrder,
) -> pa.RecordBatch:
    """Results with the columns that a query selects; if it has an order, sorted, with their sort keys in front."""
    if member.ordering is None:
        return pa.RecordBatch.from_pydict(_projected(member.query, found, rows, count))
    keys, found, rows = sort_results(member, program.view, start, found, rows, batch_order)
    made = _projected(member.query, found, rows, count)
    names = [f"$key{number}" for number in range(len(keys))]
    return pa.RecordBatch.from_arrays([*map(pa.array, keys), *made.values()], [*names, *made])


def _projected(query: Query, found: MatchedRows, rows: Ints | None, count: int) -> dict[str, Any]:
    """The columns of a query's result."""
    projection = query.projection
    read: Columns = {
        (item.alias, item.name): found.column(full_name(item), rows)
        for item in dict.fromkeys(item for output in projection for item in columns(output.expr))
    }
    return {output.name: evaluate(output.expr, read, count) for output in projection}
