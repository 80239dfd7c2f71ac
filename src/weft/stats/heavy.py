"""Heavy values of keys, as batches show them: sampled and remembered.

Guarantees: pure. Every few batches a read task counts the commonest values among some of its tuples, in the columns by
which the plan places tuples (`kernels/route/sample.py`); what it tells is merged into what was known, the older the
less it counts. Whether that asks for another plan is the optimiser's to say (`optimizer/replanning.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from weft.stats.skew import HeavyShares, HeavyValue

__all__ = ["EVERY", "Counted", "next_heavy"]

EVERY = 4  # so many batches one is sampled
SAMPLE = 20_000  # values of a column are counted, of a task
TOLD = 32  # values are told, and remembered
LEAST = 0.005  # is the least share that is remembered
SEVERAL = 5  # times a value must come in a sample to be told: less may be chance
NEWEST = 0.5  # is how much a new sample counts beside all before it


@dataclass(frozen=True, slots=True)
class Counted:
    """The commonest values of a column among some tuples; ``rows`` are those that these stand for."""

    stream: str
    column: str
    rows: int
    sampled: int
    values: tuple[tuple[HeavyValue, int], ...]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Counted:
        """What `dataclasses.asdict` made, also after a way through JSON."""
        return cls(**{**data, "values": tuple((value, number) for value, number in data["values"])})


Known = dict[str, dict[str, tuple[tuple[HeavyValue, float], ...]]]


def next_heavy(before: HeavyShares, told: Iterable[Counted]) -> Known:
    """The shares after a batch: those before, with what its tasks counted."""
    samples: dict[tuple[str, str], list[Counted]] = {}
    for one in told:
        if one.sampled:
            samples.setdefault((one.stream, one.column), []).append(one)
    found: Known = {stream: dict(columns) for stream, columns in before.items()}
    for (stream, column), counted in sorted(samples.items()):
        columns = found.setdefault(stream, {})
        columns[column] = _merged(columns.get(column), _shares(counted))
    return found


def _shares(counted: Iterable[Counted]) -> dict[HeavyValue, float]:
    """The shares over all tasks, each by the rows it stands for."""
    counts: dict[HeavyValue, float] = {}
    total = 0.0
    for one in counted:
        total += one.rows
        for value, number in one.values:
            counts[value] = counts.get(value, 0.0) + number * one.rows / one.sampled
    return {value: count / total for value, count in counts.items()} if total else {}


def _merged(
    old: tuple[tuple[HeavyValue, float], ...] | None, new: Mapping[HeavyValue, float]
) -> tuple[tuple[HeavyValue, float], ...]:
    shares = dict(new)
    if old is not None:
        known = dict(old)
        every = [*known, *(value for value in new if value not in known)]
        shares = {v: NEWEST * new.get(v, 0.0) + (1 - NEWEST) * known.get(v, 0.0) for v in every}
    ranked = sorted(shares.items(), key=lambda item: (-item[1], str(item[0])))
    return tuple((value, _short(share)) for value, share in ranked[:TOLD] if share >= LEAST)


def _short(share: float) -> float:
    """A share in few digits, rounded down: together they are never more than all."""
    return math.floor(share * 1e6) / 1e6
