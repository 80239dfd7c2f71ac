"""Groups of a join that is never made (design, D9 and D15).

Guarantees: `gather_factorised` returns whether it has gathered all rows that a probe, and those that follow it in the
task, would give a query with aggregates. Where it returns False it has gathered nothing, and the matches have to be
made. What it gathers are partial groups of the tuples themselves, each repeated as often as it occurs in matches; so
the work grows with tuples and stored rows, not with the matches.

That is possible where every aggregate has a *side*: the tuples that probe, or a store that they probe, of which the
keys of the groups and the argument of the aggregate can all be read. A column that the join finds equal to another can
be read on the side of either. The partial groups of each side have the states of its own aggregates, and those of no
row for the others; where groups are combined, they come together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import Bucket, column
from weft.bucket.columns import taken
from weft.bucket.compiled import Longs
from weft.kernels.expr.select import evaluate
from weft.kernels.groups.repeated import MOST_REPEATS, is_repeatable
from weft.kernels.probe.factors import FactorisedMatches
from weft.kernels.probe.occurrences import occurrences
from weft.kernels.probe.ranges import PORTION
from weft.logical.expr.expression import Column, Expr, Literal, columns, transform
from weft.runtime.hop.outcome import Outcome
from weft.runtime.hop.probe_step import Probe
from weft.runtime.hop.search import factorise
from weft.runtime.model.columns import full_name
from weft.runtime.program.group_plans import GroupPlan
from weft.runtime.program.store_plans import Step

__all__ = ["gather_factorised", "sides_of"]

Seen = Callable[[Step], Sequence[Bucket]]  # the runs that a step sees
PROBE = -1  # the side of the tuples that probe; that of a store is the number of its step


@dataclass(frozen=True, slots=True)
class Side:
    """What is read on one side: columns of the join by name, and of which arguments the aggregates are its own.

    An argument can be a key, which all sides read; its aggregates are those of one side all the same.
    """

    number: int
    read: Mapping[str, Expr]
    arguments: frozenset[str | None]  # None stands for COUNT(*)


def sides_of(plan: GroupPlan, chain: Sequence[Step]) -> tuple[Side, ...]:
    """The sides on which the aggregates of a query are computed; none if there is an aggregate without a side."""
    if not all(is_repeatable(state) for state, _ in plan.partials.states.values()):
        return ()
    exprs = {output.name: output.expr for output in plan.member.query.projection}
    window = plan.partials.window
    keys = [*plan.partials.keys, *([window.column] if window is not None else [])]
    arguments = dict.fromkeys(argument for _, argument in plan.partials.states.values())
    found: list[Side] = []
    for side in (PROBE, *range(len(chain))):
        own = _readable(exprs, chain, side)
        if all(key in own for key in keys):
            readable = [name for name in arguments if name is not None and name in own]
            for name in readable:
                arguments.pop(name)
            if readable or (None in arguments and not found) or not (found or arguments):
                read = {name: own[name] for name in (*keys, *readable)}
                found.append(Side(side, read, frozenset((*readable, *([] if found else [None])))))
    if any(name is not None for name in arguments):
        return ()
    return tuple(found)


def _readable(exprs: Mapping[str, Expr], chain: Sequence[Step], side: int) -> dict[str, Expr]:
    """The columns of the join that one side has, as expressions over its own columns."""
    known = set(chain[0].rule.known if side == PROBE else chain[side].store.node.aliases)
    equal = _equal_columns(chain, known)

    def leaf(node: Column | Literal) -> Expr:
        return node if isinstance(node, Literal) else equal.get(node, node)

    moved = {name: transform(expr, leaf) for name, expr in exprs.items()}
    return {name: expr for name, expr in moved.items() if {one.alias for one in columns(expr)} <= known}


def _equal_columns(chain: Sequence[Step], known: set[str]) -> dict[Column, Column]:
    """Columns of other inputs, each with one of the inputs ``known`` that has the same value in every match."""
    classes: list[set[Column]] = []
    for step in chain:
        for stored, key in zip(step.access.stored, step.access.keys, strict=True):
            if isinstance(stored, Column) and isinstance(key, Column) and _is_same(stored, key):
                touched = [one for one in classes if stored in one or key in one]
                classes = [one for one in classes if one not in touched]
                classes.append({stored, key}.union(*touched))
    found: dict[Column, Column] = {}
    for one in classes:
        ours = sorted((item for item in one if item.alias in known), key=lambda item: (item.alias, item.name))
        if ours:
            found |= {item: ours[0] for item in one if item.alias not in known}
    return found


def _is_same(one: Column, other: Column) -> bool:
    """Whether equal values of two columns are the same; 0.0 and -0.0 are not."""
    return one.type == other.type and one.type.name not in ("float", "double")


def gather_factorised(
    plan: GroupPlan, probe: Probe, chain: Sequence[Step], seen: Seen, outcome: Outcome
) -> bool:
    """Gather the rows of a probe, and of those that follow it in the task, as groups if they can stay ranges."""
    store = probe.step.store
    if probe.search is None or store.per_key is not None or store.counted:
        return False
    sides = sides_of(plan, chain)
    if not sides:
        return False
    matches = factorise(probe.search, probe.runs, chain, seen)
    if matches is None or not _pays(matches, sides):
        return False
    _tally(chain, matches, outcome)
    with outcome.failing([plan.name]):
        for side, batch, repeats in _rows(sides, probe, matches):
            made = _made(plan, side, batch)
            groups = plan.partials.lift(made, repeats, side.arguments)
            outcome.gather_groups(plan.name, plan.partials, groups)
    return True


def _pays(matches: FactorisedMatches, sides: Sequence[Side]) -> bool:
    """Whether there are more matches than stored rows that would be looked at."""
    stored = [
        one.run.bounds.rows for s in sides if s.number != PROBE for one in matches.factors[s.number].columns
    ]
    return not stored or int(matches.counts().sum()) >= sum(stored)


def _tally(chain: Sequence[Step], matches: FactorisedMatches, outcome: Outcome) -> None:
    """Count what each probe would have found, and with how many tuples."""
    passed = 0
    for number, step in enumerate(chain, 1):
        outcome.tally(step.rule.edge, probes=passed)
        passed = int(matches.first(number).counts().sum())
        outcome.tally(step.rule.edge, matches=passed)


def _rows(
    sides: Sequence[Side], probe: Probe, matches: FactorisedMatches
) -> Iterator[tuple[Side, pa.RecordBatch, Longs]]:
    """The tuples of each side that are in matches, and how often; in portions."""
    found = occurrences(matches)
    for side in sides:
        if side.number == PROBE:
            yield from _occurring(side, probe.batch, found.probe)
            continue
        factor = matches.factors[side.number]
        for one, repeats in zip(factor.columns, found.stored[side.number], strict=True):
            yield from _occurring(side, one.run.batch, repeats)


def _occurring(
    side: Side, batch: pa.RecordBatch, repeats: Longs
) -> Iterator[tuple[Side, pa.RecordBatch, Longs]]:
    """The rows of a batch that are repeated at least once; those that are very often, in several pieces."""
    names = list(dict.fromkeys(full_name(item) for expr in side.read.values() for item in columns(expr)))
    left = repeats
    while (rows := np.flatnonzero(left)).size:
        for first in range(0, rows.size, PORTION):
            some = rows[first : first + PORTION].astype(np.int32)
            read = {name: taken(column(batch, name), some) for name in names}
            yield side, _batch(read, some.size), np.minimum(left[some], MOST_REPEATS - 1)
        left = np.maximum(left - (MOST_REPEATS - 1), 0)


_ROWS = "$rows"  # says how many rows there are where no column is read


def _batch(read: dict[str, Any], rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({**read, _ROWS: pa.nulls(rows)})


def _made(plan: GroupPlan, side: Side, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of the join, of which those of other sides are NULL."""
    items = {item for expr in side.read.values() for item in columns(expr)}
    read = {(item.alias, item.name): column(batch, full_name(item)) for item in items}
    made = {name: evaluate(expr, read, batch.num_rows) for name, expr in side.read.items()}
    missing = {
        name: pa.nulls(batch.num_rows, kind) for name, kind in plan.row_types.items() if name not in made
    }
    return pa.RecordBatch.from_pydict({**made, **missing, _ROWS: pa.nulls(batch.num_rows)})
