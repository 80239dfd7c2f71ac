"""Where a tuple is while it probes, and when it has to move (design, D5 and D6).

Guarantees: no other module decides what a hop is, so the cost of a plan and the graph it lowers to cannot disagree. A
hop is one move from task to task; within a hop a tuple stays in its task.

- A tuple reaches the task of its own store in hop 1, together with being stored there.
- A step is *local* if the tuple is where it must be: the store is replicated, or partitioned by the key whose value
  already decided the tuple's task.
- A store can be probed from the hop in which this batch's additions to it are complete: hop 1 for an input, later for a
  stored intermediate result. A tuple that comes too early is sent to that hop directly.
- A tuple that knows between which values of a store's key its partners are goes to the few partitions of the cells
  between them (`ranged`): one, and at the border of a cell one more.
- In a store with *heavy* values, each tuple with such a value is in one partition, which may be any. Probes for a heavy
  value go to all partitions; all other probes go to one partition, as usual. Afterwards, matches are placed by the key
  except those with a heavy value, so if the next step uses the same key they have to be sent again. Only a tuple that
  its source can still send may stay: if its value is light, it is already where it must be, since it was stored there;
  if its value is heavy, the source sends it.
- A tuple that cannot know the partition goes to all of them; the matches stay where the stored tuple was, so afterwards
  they are placed by that store's key.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

__all__ = [
    "ALL",
    "ANYWHERE",
    "CELL",
    "GROUP_BY",
    "LOCAL",
    "NO_KEY",
    "SHUFFLE",
    "SPAN",
    "ProbePlace",
    "Spread",
    "edge_copies",
    "start",
    "step",
    "store_edge",
]

LOCAL, GROUP_BY, SPAN, ALL, SHUFFLE = "local", "group-by", "span", "all", "shuffle"

# The width of a cell, in widths of the band that is looked for.
CELL = 8

# The key of a place, or of a layout, that no key decides.
NO_KEY = -1


_KEYED = ("partitioned", "ranged")


class Spread(NamedTuple):
    """A layout reduced to what routing needs; ``key`` identifies the equality class it is partitioned by.

    A store that is partitioned by the cells of a value is ``ranged``. Tuples with a value of ``heavy``, given as SQL,
    are scattered.
    """

    kind: str
    key: int = NO_KEY
    heavy: tuple[str, ...] = ()


class ProbePlace(NamedTuple):
    """Where a tuple is: its hop, the key that decided its task, and whether its source can still send it elsewhere.

    A tuple with a value of ``heavy`` may be in any task.
    """

    hop: int
    key: int
    fresh: bool = False
    heavy: tuple[str, ...] = ()


# The place of a tuple of which nothing is known.
ANYWHERE = ProbePlace(0, NO_KEY)


def edge_copies(kind: str, partitions: int) -> float:
    """How many copies of a tuple take an edge; for a span, the average if values are spread evenly."""
    if kind == ALL:
        return partitions
    return min(partitions, 1 + 1 / CELL) if kind == SPAN else 1


def start(home: Spread) -> ProbePlace:
    """A tuple of an input as it arrives at its own store; a replicated one has no task of its own."""
    return (
        ProbePlace(0, NO_KEY, True)
        if home.kind == "replicated"
        else ProbePlace(1, home.key, True, home.heavy)
    )


@cache
def step(place: ProbePlace, spread: Spread, complete: int, routable: bool) -> tuple[str, ProbePlace]:
    """The kind of the edge to a store that is complete from hop ``complete`` on, and where the matches are then."""
    if spread.kind == "replicated" and place.hop >= complete:
        return LOCAL, ProbePlace(place.hop, place.key, False, place.heavy)
    is_moved = (spread.heavy or place.heavy) and not place.fresh
    if spread.kind in _KEYED and spread.key == place.key and not is_moved and place.hop >= complete:
        return LOCAL, ProbePlace(place.hop, place.key, False, spread.heavy)
    hop = max(1 if place.fresh else place.hop + 1, complete)
    if spread.kind == "replicated":
        return SHUFFLE, ProbePlace(hop, NO_KEY)
    found = SPAN if spread.kind == "ranged" else GROUP_BY
    return (found if routable else ALL), ProbePlace(hop, spread.key, False, spread.heavy)


@cache
def store_edge(place: ProbePlace, spread: Spread) -> tuple[str, int]:
    """The kind of the edge by which a result is stored, and the hop in which it arrives."""
    placed = spread.kind in _KEYED and spread.key == place.key and set(place.heavy) <= set(spread.heavy)
    if spread.kind == "scattered" or placed:
        return LOCAL, place.hop
    return (ALL if spread.kind == "replicated" else GROUP_BY), place.hop + 1
