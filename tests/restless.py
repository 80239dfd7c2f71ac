"""Sessions whose plans change all the time: whatever is planned is planned by other statistics than the last time."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import weft
from tests.random_statistics import random_statistics
from weft.logical.query.query import Query
from weft.runtime.observe.recent_statistics import RecentStatistics
from weft.stats.statistics import Statistics

__all__ = ["DrawnStatistics", "made_restless", "restless"]


class DrawnStatistics(RecentStatistics):
    """What is known of a run's data, whatever its batches measure: drawn anew whenever somebody asks."""

    def __init__(self, draw: Callable[[], Statistics]) -> None:
        super().__init__()
        self.draw = draw

    def for_queries(self, queries: Collection[Query]) -> Statistics:  # noqa: ARG002
        """Another draw."""
        return self.draw()


def restless(rng: random.Random, epochs: Sequence[int] = (1, 1, 2, 3)) -> dict[str, Any]:
    """Keywords of a session that takes every plan it finds, in any way, after one of so many batches."""
    adaptation = weft.Adaptation(
        epoch_batches=rng.choice(epochs),
        epoch_seconds=0.0,
        migrate=rng.choice(("auto", "eager", "side by side", "side by side")),
    )
    return {"adapt": "always", "adaptation": adaptation}


def made_restless(
    session: weft.Session, rng: random.Random, columns: Mapping[str, Sequence[str]]
) -> weft.Session:
    """The session, planning by statistics that are drawn anew whenever they are asked for."""
    session._measured = session._graphs.measured = DrawnStatistics(lambda: random_statistics(rng, columns))
    return session
