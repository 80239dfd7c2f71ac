"""The cost of a plan: every formula, with the number of its equation in CLASH, and the weights by which they add up.

Guarantees: costs are in seconds of work per second of stream, so a cost of 0.5 keeps half a core busy. The default
weights are the design's measurements on two cores; only their ratios matter for the choice of a plan.

A slip of the thesis is corrected here. Equation 5.5 divides what is sent to the j-th store by j, but the text that
derives it (and the example in 7.1) by j − 1, the number of relations joined before: the first step sends every tuple.
6.1 repeats the slip. The factor itself is part of the estimate (stats/estimate.py): it holds for unbounded windows
only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from math import ceil, prod

from weft.errors import ConfigError
from weft.logical.arguments import check_fields
from weft.plan.schedule import CELL, SPAN, edge_copies

__all__ = [
    "Weights",
    "call_cost",
    "copies",
    "crowding",
    "heavy_copies",
    "hop_cost",
    "latency",
    "parallelism",
    "probe_cost",
    "step_cost",
    "storage_cost",
    "store_cost",
    "task_capacity",
    "waiting",
]


@dataclass(frozen=True, slots=True)
class Weights:
    """The seconds of work that one unit of each kind takes.

    ``ship``: a tuple sent through a shuffle; ``probe``: one that probes a store; ``store``: one sorted into a store and
    written; ``keep``: one stored for a second; ``hop``: a shuffle and the stage after it; ``latency``: a step that the
    average tuple takes; ``match``: a compared pair.
    """

    ship: float = 0.4e-6  # a tuple sent through a shuffle
    probe: float = 0.3e-6  # a tuple that probes a store
    store: float = 0.3e-6  # a tuple sorted into a store and written
    keep: float = 1e-8  # a tuple stored for a second: merging, mapping, evicting, and the memory it takes
    hop: float = 0.1  # a shuffle and the stage after it, per second of batches
    latency: float = 0.0  # a step that the average tuple takes (5.6)
    match: float = (
        5e-8  # a compared pair; all plans have the same, so it counts only where tasks wait for one of them
    )

    def __post_init__(self) -> None:
        check_fields(self, ConfigError)
        for field in fields(self):
            if not getattr(self, field.name) >= 0:
                raise ConfigError(f"weight {field.name} is {getattr(self, field.name)}", hint="use 0 or more")


DEFAULT_WEIGHTS = Weights()

BUSY = 0.6  # the part of the time that a task may work on a store: the rest is for bursts
LEAST = 1e-12  # the least selectivity and the least seconds to divide by


def copies(kind: str, routable: bool, partitions: int) -> float:
    """χ, the copies sent of a tuple that probes a store (6.2).

    It is one where the partition is known or every task has the whole store, little more where a range of values is
    known, and otherwise one per partition.
    """
    if kind == "ranged" and routable:
        return edge_copies(SPAN, partitions)
    return 1 if kind == "replicated" or (kind == "partitioned" and routable) else partitions


def crowding(selectivity: float, partitions: int) -> float:
    """How much more than its share the busiest partition has to do if values are spread over cells.

    A band of that selectivity leaves 1 / (CELL · selectivity) cells; if there are fewer cells than partitions, the
    other partitions have nothing to do.

    >>> crowding(0.002, 8), crowding(0.25, 8)
    (1.0, 8.0)
    """
    cells = max(1.0, 1 / (CELL * selectivity)) if selectivity > 0 else partitions
    return max(1.0, partitions / cells)


def heavy_copies(share: float, partitions: int) -> float:
    """χ where that share of the tuples has a heavy value, which is looked for in all partitions.

    >>> heavy_copies(0.25, 5)
    2.0
    """
    return 1 + share * (partitions - 1)


def waiting(work: Iterable[tuple[float, float]], partitions: int, tasks: int) -> float:
    """The work that could have been done while all tasks wait for the one that has a heavy value.

    ``work`` has parts, each with the share of it that is the value's; the rest of a part is even over the partitions.
    With ``tasks`` tasks at once, a hop takes as long as an equal share of the work or as the busiest task, whichever is
    longer; the difference, times the tasks, is lost.

    >>> waiting([(8.0, 0.5)], 8, 2), waiting([(8.0, 0.75)], 8, 2), waiting([(8.0, 0.75)], 8, 8)
    (1.0, 4.5, 42.0)
    """
    parts = list(work)
    busiest = sum(amount * (share + (1 - share) / partitions) for amount, share in parts)
    return max(0.0, tasks * busiest - sum(amount for amount, _ in parts))


def probe_cost(sent: Iterable[tuple[float, float]]) -> float:
    """PCost of one probe order: the tuples sent at each step times their copies (inner sums of 5.5 and 6.1).

    >>> probe_cost([(2000, 5), (1000, 1)])  # ⟨R, S, T⟩ of 5.3.2; ⟨R, T, S⟩ costs 2000 · 1 + 1500 · 5
    11000
    """
    return sum(tuples * count for tuples, count in sent)


def storage_cost(sizes: Iterable[float]) -> float:
    """SCost: the tuples in all stores, inputs and intermediate results (5.2); sizes are those of 5.3."""
    return sum(sizes)


def latency(children: Iterable[int]) -> float:
    """ELat of one input: the steps its tuples take, given the arities of the operators on their way to the root (5.6).

    >>> latency([2, 3])
    3
    """
    return sum(count - 1 for count in children)


def step_cost(weights: Weights, tuples: float, count: float, shipped: bool) -> float:
    """The work of sending tuples to a store, unless they are there already, and of probing it."""
    return tuples * count * (weights.probe + (weights.ship if shipped else 0.0))


def call_cost(matches: float, checks: Iterable[tuple[float, float]]) -> float:
    """The work of users' functions in a step that gives so many matches a second: candidate pairs × seconds per row.

    ``checks`` are the conditions that call them, each with its selectivity and seconds per row. The number of pairs
    that all other conditions let through is the number of matches divided by these selectivities. Conditions that
    reject most per second come first (by (selectivity − 1) / seconds, the order that is best for independent
    conditions), and each checks the pairs that those before it let through.

    >>> round(call_cost(10, [(0.1, 1e-3), (0.5, 1e-6)]), 6)  # 200 pairs for the cheap one, 100 for the dear one
    0.1002
    """
    known = [(max(selectivity, LEAST), seconds) for selectivity, seconds in checks]
    pairs, work = matches / prod(selectivity for selectivity, _ in known), 0.0
    for selectivity, seconds in sorted(known, key=lambda one: (one[0] - 1) / max(one[1], LEAST)):
        work += pairs * seconds
        pairs *= selectivity
    return work


def store_cost(weights: Weights, rate: float, size: float, count: int, shipped: bool) -> float:
    """The work of adding ``rate`` tuples per second to a store of ``size``, ``count`` copies each."""
    return count * (rate * (weights.store + (weights.ship if shipped else 0.0)) + size * weights.keep)


def parallelism(work: float, busy: float = BUSY) -> int:
    """N, how many tasks a store needs so that each works on it for at most a part of the time (5.5.2; the N of 5.5).

    The thesis gives all stores the same N, or finds it by trial; here it follows from the work that a store is expected
    to make, in seconds per second: its tuples stored and kept, and all that probe it.

    >>> parallelism(0.01), parallelism(1.3)
    (1, 3)
    """
    return max(1, ceil(work / busy))


def task_capacity(size: float, work: float, busy: float = BUSY) -> float:
    """How many tuples of a store of ``size`` that makes some work a task copes with (5.5.3), if both grow alike.

    A degree of parallelism N suffices while the size, rate times window, is at most N times this (6.2).

    >>> task_capacity(2e6, 1.2)
    1000000.0
    """
    return size * busy / work


def hop_cost(weights: Weights, hops: int) -> float:
    """The work of a plan's hops, however few tuples they carry (design, D6)."""
    return weights.hop * hops
