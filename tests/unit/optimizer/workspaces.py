"""The workspace of queries under known rates."""

from __future__ import annotations

from weft.logical.query.canonical import canonical
from weft.logical.query.query import Query
from weft.optimizer.joint.space.workspace import PROBES_ONLY, Workspace
from weft.optimizer.space import Options
from weft.stats.statistics import Statistics


def workspace(
    *queries: Query,
    statistics: Statistics | None = None,
    options: Options | None = None,
    replicated: bool = False,
) -> Workspace:
    """Queries q1, q2, … together, in probe cost only."""
    named = {f"q{i}": canonical(query).query for i, query in enumerate(queries, 1)}
    return Workspace(
        named, statistics or Statistics(), options or Options(weights=PROBES_ONLY), replicated=replicated
    )
