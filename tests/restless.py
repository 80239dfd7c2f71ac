"""Sessions whose plans change all the time: whatever is planned is planned by other statistics than the last time."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import weft
from tests.random_statistics import random_statistics

__all__ = ["made_restless", "restless"]


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
    session._planner.statistics = lambda _: random_statistics(rng, columns)
    return session
