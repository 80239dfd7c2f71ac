"""How old the tuples of a batch are when it begins, by what their sources say of their arrival (decision 41).

Guarantees: a function of the plan of the batch and of what is read, so a batch that is repeated measures the same. The
plan says of which streams all tuples are of one age, a class of `weft.stats.histogram`; these carry nothing. Of all
other streams every tuple gets an age: its record's own, if the source knows it; else one between those of the first and
the last record of its part; else zero, as if it had come when the batch began.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.kernels.ages import Classes, ages_of_times
from weft.plan.physical.graph import PhysicalGraph
from weft.ports.source import Part, PartRows
from weft.runtime.hop.latency import BatchAges
from weft.runtime.log.values import BatchPlan, Inputs
from weft.stats.histogram import BITS, ZERO, class_of

__all__ = ["ages_of_inputs", "ages_of_rows", "batch_ages", "oldest_age"]


def ages_of_inputs(inputs: Inputs, now: int) -> dict[str, int | None]:
    """The age of the tuples of every stream of a batch that begins ``now``; None if each has its own."""
    return {stream: _one_age(parts, now) for stream, parts in inputs.items() if parts}


def oldest_age(inputs: Inputs, now: int) -> int:
    """The age of the tuple of a batch that came first; zero if that is not known."""
    first = [part.arrived[0] for parts in inputs.values() for part in parts if part.arrived is not None]
    return _age(min(first, default=now), now)


def _one_age(parts: Sequence[Part], now: int) -> int | None:
    """The age of all records of some parts; None if they differ, or if it is known only when they are read."""
    if any(part.stamped for part in parts):
        return None
    found = {_age(when, now) for part in parts for when in part.arrived or (now,)}
    return found.pop() if len(found) == 1 else None


def _age(arrived: int, now: int) -> int:
    return class_of(max(0, now - arrived))


def batch_ages(plan: BatchPlan, graph: PhysicalGraph) -> BatchAges:
    """The ages of a batch's inputs, as its hops use them."""
    known = {alias: plan.ages.get(graph.input(alias).stream.name, ZERO) for alias in graph.aliases}
    inputs = {alias: age for alias, age in known.items() if age is not None}
    return BatchAges(plan.now, inputs, plan.oldest_age)


def ages_of_rows(part: Part, rows: PartRows, now: int) -> Classes:
    """The ages of the rows of a part."""
    count, stamps = rows.batch.num_rows, rows.arrived
    first, last = part.arrived or (now, now)
    times = np.linspace(first, last, count).astype(np.int64)
    if stamps is not None:
        times = np.where(stamps < 0, times, stamps)
    ages: Classes = np.maximum(ages_of_times(times, now, BITS), np.int16(ZERO))
    return ages
