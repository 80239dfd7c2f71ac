"""Which stores are expected to need more than one task, and how much of them one copes with.

Guarantees: nothing is said of stores that one task copes with.
"""

from __future__ import annotations

from weft.plan.physical.graph import PhysicalGraph
from weft.plan.show.figures import number

__all__ = ["needed_tasks"]


def needed_tasks(graph: PhysicalGraph) -> list[str]:
    """A note for every store that needs several tasks (CLASH 5.5.2 and 5.5.3)."""
    names = {store.aliases: store.name for store in graph.stores}
    return [
        f"{names[one.store]} needs about {one.tasks} tasks: one copes with {number(one.capacity)} of its tuples"
        for one in (graph.cost.stores if graph.cost else ())
        if one.tasks > 1 and one.capacity is not None and one.store in names
    ]
