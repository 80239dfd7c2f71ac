"""Which rows a store need not keep any longer, by the watermarks and the numbers of tuples.

Guarantees: what `forgettable` lets go can be part of no later result of tuples that are on time.
"""

from __future__ import annotations

from weft.runtime.model.batch_order import UNKNOWN, BatchOrder
from weft.runtime.model.columns import View, longest, seq_name
from weft.runtime.model.watermarks import Watermarks
from weft.runtime.program.store_plans import Lifetime, StorePlan
from weft.runtime.state.stores import Forget, Superseded

__all__ = ["forgettable"]


def forgettable(plan: StorePlan, watermarks: Watermarks, batch_order: BatchOrder) -> Forget:
    """The rows that a store need not keep after a batch.

    A row is dead for a query when, for some tuple in it, everything that can still come of the inputs outside the store
    is later than the tuple's time plus its retention; it may go when it is dead for all queries. For a match, its
    largest time is taken for that of each of its tuples, so it is never forgotten too early.
    """
    if plan.per_key is not None:  # tuples that can join nothing any more still count
        return Forget(newest=plan.per_key[0])
    if plan.counted:
        return Forget(since=_oldest(plan.view, plan.node.aliases[0], batch_order))
    numbers = {
        seq_name(alias): oldest
        for alias in plan.node.aliases
        if (oldest := _oldest(plan.view, alias, batch_order)) is not None
    }
    if plan.versions:
        return _superseded(plan, watermarks, batch_order)
    spans = [life.span for life in plan.lifetimes]
    bounded = [span for span in spans if span is not None]
    if len(bounded) < len(spans) or not bounded:
        return Forget(numbers=numbers)
    reach = max(1, max(bounded) // 4)
    dead = [_dead(life, watermarks, batch_order) for life in plan.lifetimes]
    known = [time for time in dead if time is not None]
    return Forget(min(known) if len(known) == len(dead) else None, reach, numbers)


def _superseded(plan: StorePlan, watermarks: Watermarks, batch_order: BatchOrder) -> Forget:
    """The versions of which no query asks for any more; nothing, as long as another query may need all rows."""
    queries = {use.query for use in plan.versions}
    others = [_dead(life, watermarks, batch_order) for life in plan.lifetimes if life.query not in queries]
    clocks = [batch_order.clocks[use.query].now for use in plan.versions]
    known = [time for time in others if time is not None]
    if len(known) < len(others) or min(clocks) <= UNKNOWN:
        return Forget()
    needs = tuple(
        Superseded(use.slot, use.keys, clock) for use, clock in zip(plan.versions, clocks, strict=True)
    )
    return Forget(superseded=needs, since_others=min(known, default=None))


def _dead(life: Lifetime, watermarks: Watermarks, batch_order: BatchOrder) -> int | None:
    """The time before which no row is of use to a query any more; None if that is not known yet."""
    if life.query is not None:
        now = batch_order.clocks[life.query].now
        return None if life.span is None or now <= UNKNOWN else now - life.span
    marks = [watermarks.mark_of(name) for name in life.streams]
    known = [mark for mark in marks if mark is not None]
    if life.span is None or len(known) < len(marks) or not known:
        return None
    return min(known) - life.span


def _oldest(view: View, alias: str, batch_order: BatchOrder) -> int | None:
    """The number of the oldest tuple of an input that the next batch can still see; None without a `ROWS` window."""
    rows = longest(view, alias)
    return None if rows is None else sum(batch_order.counts[alias]) - rows
