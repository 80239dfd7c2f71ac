"""Heavy values of keys as the manifest keeps them, so that a session that is started again knows them.

Guarantees: pure, and a function of what the manifest before a batch has and of what the batch's tasks reported, so a
batch that is repeated leaves the same. The optimiser decides whether the shares call for another plan
(`optimizer/replanning.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.stats.attributes import Attribute
from weft.stats.sample_estimates import LEAST_SHARE, MOST_HEAVY, heavy_shares, short
from weft.stats.samples import AttributeSample, Sample, merge
from weft.stats.skew import HeavyShares, HeavyValue

__all__ = ["next_heavy"]

NEWEST = 0.5  # The weight of a new sample; all earlier ones together have the rest.

Shares = tuple[tuple[HeavyValue, float], ...]


def next_heavy(before: HeavyShares, reports: Iterable[AttributeSample]) -> dict[str, dict[str, Shares]]:
    """The share of each heavy value after a batch, from the shares before it and the samples of its tasks."""
    samples: dict[Attribute, list[Sample]] = {}
    for report in reports:
        if report.looked and report.hashes:
            samples.setdefault(report.attribute, []).append(Sample.from_report(report, 0))
    found = {stream: dict(columns) for stream, columns in before.items()}
    for attribute, some in sorted(samples.items()):
        columns = found.setdefault(attribute.stream, {})
        new = heavy_shares(merge(some, [1.0] * len(some)))
        columns[attribute.name] = _merged(columns.get(attribute.name), new)
    return found


def _merged(old: Shares | None, new: Shares) -> Shares:
    if old is None:
        return new
    known, now = dict(old), dict(new)
    every = [*known, *(value for value in now if value not in known)]
    shares = {v: NEWEST * now.get(v, 0.0) + (1 - NEWEST) * known.get(v, 0.0) for v in every}
    ranked = sorted(shares.items(), key=lambda item: (-item[1], str(item[0])))
    return tuple((value, short(share)) for value, share in ranked[:MOST_HEAVY] if share >= LEAST_SHARE)
