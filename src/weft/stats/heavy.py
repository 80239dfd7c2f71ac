"""Heavy values of keys, as batches show them: sampled and remembered.

Guarantees: pure. Every few batches a read task counts the commonest values among some of its tuples, in the columns by
which the plan places tuples (`kernels/route/sample.py`), and reports them. `next_heavy` merges the reports into the
shares known so far, in which older samples weigh less. The optimiser decides whether the shares call for another plan
(`optimizer/replanning.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from weft.stats.skew import HeavyShares, HeavyValue

__all__ = ["EVERY", "Counted", "next_heavy"]

EVERY = 4  # One of every so many batches is sampled.
SAMPLE = 20_000  # A task counts at most so many values of a column.
TOLD = 32  # A task reports, and the driver remembers, at most so many values of a column.
LEAST = 0.005  # A value with a smaller share than this is forgotten.
SEVERAL = 5  # A value must occur so often in a sample to be reported; fewer occurrences may be chance.
NEWEST = 0.5  # The weight of a new sample; all earlier ones together have the rest.


@dataclass(frozen=True, slots=True)
class Counted:
    """How often the commonest values of a column occur in the sample that one task took.

    The sample has ``sampled`` tuples; it stands for all ``rows`` tuples of the stream that the task read.
    """

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


def next_heavy(before: HeavyShares, reports: Iterable[Counted]) -> Known:
    """The share of each heavy value after a batch, from the shares before it and the reports of its tasks."""
    samples: dict[tuple[str, str], list[Counted]] = {}
    for report in reports:
        if report.sampled:
            samples.setdefault((report.stream, report.column), []).append(report)
    found: Known = {stream: dict(columns) for stream, columns in before.items()}
    for (stream, column), counted in sorted(samples.items()):
        columns = found.setdefault(stream, {})
        columns[column] = _merged(columns.get(column), _shares(counted))
    return found


def _shares(counted: Iterable[Counted]) -> dict[HeavyValue, float]:
    """The share of each value over all tasks; a task's sample weighs as much as the rows it stands for."""
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
    """A share in few digits, rounded down, so that the sum of all shares never exceeds 1."""
    return math.floor(share * 1e6) / 1e6
