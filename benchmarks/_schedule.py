"""The times at which queries come and go in AJoin's scenarios SC1 and SC2.

Guarantees: a schedule is plain data, in the order of time; the same arguments give the same changes. A query is deleted
after it was created, and a name is used once.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

SCENARIOS = ("SC1", "SC2")


class Change(NamedTuple):
    """A request, so many seconds after the beginning."""

    moment: float
    kind: str  # create, delete
    name: str


def schedule(scenario: str, *, rate: float, parallel: int, turns: int = 2, seed: int = 7) -> list[Change]:
    """The changes of a scenario.

    SC1 creates ``rate`` queries a second until ``parallel`` run, and deletes none. SC2 begins so; then, ``turns``
    times, it deletes half of those that run, drawn at random, and creates as many others, at the same rate.

    >>> [(change.moment, change.name) for change in schedule("SC1", rate=2, parallel=3)]
    [(0.0, 'q000'), (0.5, 'q001'), (1.0, 'q002')]
    """
    if scenario not in SCENARIOS:
        raise ValueError(f"{scenario!r} is none of {', '.join(SCENARIOS)}")
    if rate <= 0 or parallel < 1:
        raise ValueError(f"{rate} queries a second until {parallel} run makes no sense")
    asked = [("create", f"q{i:03}") for i in range(parallel)]
    if scenario == "SC2":
        asked += _turns(Random(seed), parallel, turns)
    return [Change(i / rate, kind, name) for i, (kind, name) in enumerate(asked)]


def _turns(rng: Random, parallel: int, turns: int) -> list[tuple[str, str]]:
    running, created, asked = [f"q{i:03}" for i in range(parallel)], parallel, []
    half = -(-parallel // 2)
    for _ in range(turns):
        leaving = rng.sample(running, half)
        coming = [f"q{created + i:03}" for i in range(half)]
        created += half
        asked += [("delete", name) for name in leaving] + [("create", name) for name in coming]
        running = [name for name in running if name not in leaving] + coming
    return asked
