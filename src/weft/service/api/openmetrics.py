"""Metrics as text, in the format OpenMetrics 1.0.

Guarantees: every family stands once, with its type, unit and help; a histogram's buckets are cumulative and end with
+Inf; the text ends with # EOF. Names of queries, streams and stores are labels whose number is bounded: the first ones
keep their names, all others together are `_other`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["MEDIA", "BoundedNames", "Family", "Histogram", "exposition"]

MEDIA = "application/openmetrics-text; version=1.0.0; charset=utf-8"
OTHER = "_other"

Labels = Mapping[str, str]


class BoundedNames:
    """At most so many different values of a label."""

    def __init__(self, most: int = 200) -> None:
        self._most = most
        self._known: dict[str, None] = {}

    def label(self, name: str) -> str:
        """The name itself, or `_other` if there are too many before it."""
        if name not in self._known and len(self._known) < self._most:
            self._known[name] = None
        return name if name in self._known else OTHER


@dataclass
class Histogram:
    """How many values fall into each bucket, given by its upper bound, and their sum."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float, times: int = 1) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def samples(self, labels: Labels) -> list[tuple[str, Labels, float]]:
        """The buckets, cumulative, with the count and the sum."""
        found: list[tuple[str, Labels, float]] = []
        total = 0
        for bound, count in zip((*self.bounds, math.inf), self.counts, strict=True):
            total += count
            found.append(("_bucket", {**labels, "le": _number(bound)}, total))
        return [*found, ("_count", labels, total), ("_sum", labels, self.sum)]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its samples: the end of each one's name, its labels and its value."""

    name: str
    kind: Literal["counter", "gauge", "histogram", "info"]
    help: str
    samples: Sequence[tuple[str, Labels, float]]
    unit: str = ""


def exposition(families: Iterable[Family]) -> str:
    """All metrics as one text."""
    lines = []
    for family in families:
        lines.append(f"# TYPE {family.name} {family.kind}")
        if family.unit:
            lines.append(f"# UNIT {family.name} {family.unit}")
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
        lines += [f"{family.name}{end}{_labels(labels)} {_number(v)}" for end, labels, v in family.samples]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _labels(labels: Labels) -> str:
    found = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{found}}}" if found else ""


def _escaped(text: str) -> str:
    clean = text.encode("utf-8", "replace").decode()
    return clean.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
