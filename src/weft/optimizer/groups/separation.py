"""Which queries have stores of their own, since they would lose by sharing them with others (AJoin, section 4).

Guarantees: queries are in one group unless they have a join in common and would lose by sharing it, according to
Equation 2 and to what their filters have in common. So the stores of a group hold no tuples that none of its queries
wants, no query-sets are computed that would always be empty, and tuples of use to all are stored once.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.logical.query import Query
from weft.optimizer.groups.grouping import Overlap, groups, sub_joins
from weft.stats.statistics import Statistics

__all__ = ["closest_group", "separate_groups"]


def separate_groups(queries: Mapping[str, Query], overlap: Overlap, statistics: Statistics) -> dict[str, str]:
    """The group of every query; the name of the first group is empty."""
    joins = {name: set(sub_joins(query)) for name, query in queries.items()}
    kept: list[list[str]] = []
    for found in groups(queries, overlap, statistics):
        mine = set().union(*(joins[name] for name in found))
        place = next((group for group in kept if not any(mine & joins[name] for name in group)), None)
        if place is None:
            kept.append(list(found))
        else:
            place.extend(found)
    return {name: f"group {i + 1}" if i else "" for i, group in enumerate(kept) for name in group}


def closest_group(query: Query, queries: Mapping[str, Query], known: Mapping[str, str]) -> str:
    """The group of the running query that has the most joins in common with a new query (eager sharing)."""
    mine = set(sub_joins(query))
    shared = {name: len(mine & set(sub_joins(other))) for name, other in queries.items() if name in known}
    best = max(sorted(shared), key=lambda name: shared[name], default=None)
    return known[best] if best is not None and shared[best] else ""
