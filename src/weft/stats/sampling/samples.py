"""Samples of the attributes that queries join on: as tasks report them, and merged over tasks and batches.

Guarantees: pure. A *coordinated sample* of an attribute has all values whose hash is below a threshold, each with its
count. The hash of a value is the same in all streams, so the samples of two attributes have the same values below the
smaller of their thresholds, and the values that they have in common tell how many pairs of tuples are equal. It can
miss values that are very frequent, so a sample has the commonest values, too; and some values in their order, if
queries compare them by order.

Merging takes the smallest threshold, keeps the values below it and adds up their counts, each times the weight of its
sample. So it matters neither in which order samples are merged nor how many at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from weft.logical.codec import PackedNumbers, compact
from weft.stats.sampling.attributes import Attribute
from weft.stats.skew import HeavyValue

__all__ = ["EVERY_HASH", "AttributeSample", "Common", "Sample", "SampleHistory", "merge"]

Hashes = NDArray[np.uint64]
Numbers = NDArray[np.float64]

EVERY_HASH = (1 << 64) - 1  # the threshold of a sample that has all values
KEPT_VALUES = 1024  # the driver keeps at most so many values of a batch's coordinated sample
KEPT_COMMON = 64  # and so many common values
LEAST_WEIGHT = 1 / 64  # samples that weigh less are forgotten


@compact
@dataclass(frozen=True, slots=True)
class Common:
    """A common value of an attribute; ``value`` is None where it is neither a whole number nor a short text."""

    value: HeavyValue | None
    hash: int
    count: int


@dataclass(frozen=True, slots=True)
class AttributeSample:
    """What one task reports of an attribute.

    The task read ``rows`` tuples of the stream and looked at ``looked`` of them, of which ``nulls`` had no value. Below
    ``threshold``, ``hashes`` are those of all values that it saw, ascending, and ``counts`` how often it saw each.
    ``common`` are the commonest values. ``ordered`` are some values, ascending.
    """

    attribute: Attribute
    rows: int
    looked: int
    nulls: int
    threshold: int = EVERY_HASH
    hashes: Annotated[tuple[int, ...], PackedNumbers()] = ()
    counts: Annotated[tuple[int, ...], PackedNumbers()] = ()
    common: tuple[Common, ...] = ()
    ordered: Annotated[tuple[float, ...], PackedNumbers("d")] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """A sample of an attribute, of one task or merged, where samples have weights.

    It stands for ``rows`` tuples, of which ``nulls`` have no value. ``looked`` is how many tuples, if all had weighed
    the same, would tell as much. ``counts`` are the tuples that have each of the values with ``hashes``, ascending;
    ``seen`` is how often the value was really seen. ``common`` has the common values by hash, with their tuples.
    ``ordered`` are values, ascending, and ``weights`` the tuples that each stands for. ``batch`` is the last batch that
    was sampled. Without weights there were ``tuples``, and tasks looked at ``tuples_looked_at`` of them.
    """

    rows: float
    looked: float
    nulls: float
    threshold: int
    hashes: Hashes
    counts: Numbers
    seen: Numbers
    common: Mapping[int, tuple[HeavyValue | None, float]]
    ordered: Numbers
    weights: Numbers
    batch: int
    tuples: int
    tuples_looked_at: int

    @classmethod
    def from_report(cls, report: AttributeSample, batch: int) -> Sample:
        """The sample that a task reported in a batch."""
        scale = report.rows / report.looked if report.looked else 0.0
        with_value = scale * (report.looked - report.nulls)
        seen, values = np.array(report.counts, np.float64), np.array(report.ordered, np.float64)
        return cls(
            float(report.rows),
            float(report.looked),
            scale * report.nulls,
            report.threshold,
            np.array(report.hashes, np.uint64),
            scale * seen,
            seen,
            {one.hash: (one.value, scale * one.count) for one in report.common},
            values,
            np.full(values.size, with_value / max(1, values.size)),
            batch,
            report.rows,
            report.looked,
        )

    @property
    def part(self) -> float:
        """The part of all values that the coordinated sample has, in expectation."""
        return self.threshold / EVERY_HASH

    @property
    def null_share(self) -> float:
        """The part of the tuples that have no value."""
        return self.nulls / self.rows if self.rows else 0.0

    def trimmed(self, values: int = KEPT_VALUES, common: int = KEPT_COMMON) -> Sample:
        """The sample with at most so many values, those with the least hashes, and the commonest of the common ones."""
        threshold, kept = self.threshold, slice(0, values)
        if self.hashes.size > values:
            threshold = int(self.hashes[values])
        ranked = sorted(self.common.items(), key=lambda item: (-item[1][1], item[0]))
        places = np.arange(self.ordered.size)
        weights = self.weights
        if places.size > values:  # at equal distances in the order of the values, by weight
            edges, total = np.cumsum(weights), float(weights.sum())
            places = np.searchsorted(edges, (np.arange(values) + 0.5) * total / values)
            weights = np.full(values, total / values)
        return Sample(
            self.rows,
            self.looked,
            self.nulls,
            threshold,
            self.hashes[kept],
            self.counts[kept],
            self.seen[kept],
            dict(ranked[:common]),
            self.ordered[places],
            weights,
            self.batch,
            self.tuples,
            self.tuples_looked_at,
        )


def merge(samples: Sequence[Sample], weights: Sequence[float]) -> Sample:
    """One sample of several of the same attribute, each with a weight."""
    threshold = min(sample.threshold for sample in samples)
    hashes = np.concatenate([sample.hashes for sample in samples])
    counts = np.concatenate([weight * s.counts for s, weight in zip(samples, weights, strict=True)])
    seen = np.concatenate([sample.seen for sample in samples])
    below = hashes < threshold if threshold < EVERY_HASH else np.ones(hashes.size, np.bool_)
    every, place = np.unique(hashes[below], return_inverse=True)
    common: dict[int, tuple[HeavyValue | None, float]] = {}
    for sample, weight in zip(samples, weights, strict=True):
        for key, (value, count) in sample.common.items():
            common[key] = value, weight * count + common.get(key, (None, 0.0))[1]
    ordered = np.concatenate([sample.ordered for sample in samples])
    order = np.argsort(ordered, kind="stable")
    stands = np.concatenate([weight * s.weights for s, weight in zip(samples, weights, strict=True)])
    rows = sum(weight * s.rows for s, weight in zip(samples, weights, strict=True))
    spread = sum((w * s.rows) ** 2 / s.looked for s, w in zip(samples, weights, strict=True) if s.looked)
    return Sample(
        rows,
        rows**2 / spread if spread else 0.0,
        sum(weight * s.nulls for s, weight in zip(samples, weights, strict=True)),
        threshold,
        every,
        _sums(place, counts[below], every.size),
        _sums(place, seen[below], every.size),
        common,
        ordered[order],
        stands[order],
        max(sample.batch for sample in samples),
        sum(sample.tuples for sample in samples),
        sum(sample.tuples_looked_at for sample in samples),
    )


def _sums(places: NDArray[np.intp], numbers: Numbers, size: int) -> Numbers:
    """The sums of the numbers that belong to each of so many places."""
    return np.bincount(places, numbers, size).astype(np.float64)


@dataclass
class SampleHistory:
    """The samples of the last batches, which the driver keeps in memory.

    A sample's weight halves every ``half_life`` batches. One thread adds while others read: it replaces whole tuples,
    so that readers never see half a change.
    """

    half_life: float = 16.0
    _samples: dict[Attribute, tuple[Sample, ...]] = field(default_factory=dict)

    def add(self, batch: int, reports: Iterable[AttributeSample]) -> None:
        """Add what the tasks of a batch reported."""
        found: dict[Attribute, list[Sample]] = {}
        for report in reports:
            if report.looked:
                found.setdefault(report.attribute, []).append(Sample.from_report(report, batch))
        known = dict(self._samples)
        for attribute, samples in found.items():
            new = merge(samples, [1.0] * len(samples)).trimmed()
            recent = [s for s in known.get(attribute, ()) if self._weight(s, batch) >= LEAST_WEIGHT]
            known[attribute] = (*recent, new)
        self._samples = known

    def merged(self) -> dict[Attribute, Sample]:
        """The sample of every attribute, in which older batches weigh less."""
        return {
            attribute: merge(samples, [self._weight(sample, samples[-1].batch) for sample in samples])
            for attribute, samples in self._samples.items()
        }

    def _weight(self, sample: Sample, now: int) -> float:
        return float(0.5 ** ((now - sample.batch) / self.half_life))
