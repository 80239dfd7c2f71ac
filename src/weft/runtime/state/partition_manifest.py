"""What lives in a partition: its manifest, which its task writes, and what the driver knows of it (design, D3).

Guarantees: plain data that goes through JSON. A partition's manifest names every run that lives in the partition, and
which of its files are retired: no manifest since that batch names them. The driver's manifest has one short line for
each partition, the place of its manifest, and sums over all partitions for each store; so neither grows with stores ×
partitions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

from weft.bucket.bounds import PLACES, Bounds
from weft.logical.codec import compact

__all__ = ["PartitionFile", "PartitionManifest", "Share", "StoreTotals", "StoredRun", "moment_of"]

SPANS = 8  # at most so many intervals of time are kept of a store


def moment_of(number: int, *, boundary: bool = False) -> int:
    """When a partition's manifest is written: in a batch or, before that, by the job at its boundary."""
    return 2 * number + (not boundary)


@dataclass(frozen=True, slots=True)
class Share:
    """Which rows of a run belong to a partition: those whose hash of a value is from ``low`` on and before ``high``.

    The ``value`` is an expression, as JSON. Rows with one of the ``heavy`` words are shared out by the hash of their
    ``clock`` instead.
    """

    low: int
    high: int
    value: str
    clock: str
    heavy: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run of a store in a segment: where it begins there, its bytes, and the batch in which it was made.

    Of what is there, the rows with hashes in the range of its bounds belong to it and, of these, those of its
    ``share``, if it has one. The hashes are those of its ``layout``, the order in which it was written; a plan may have
    laid its store out in another one since. Runs in the order of arrival have none, nor have those of an older version.
    """

    segment: str
    offset: int
    length: int
    written: int
    bounds: Bounds
    share: Share | None = None
    layout: str = ""

    def to_list(self) -> list[Any]:
        """As plain data."""
        bounds = self.bounds
        known = (bounds.rows, bounds.bytes, bounds.min_time, bounds.max_time)
        whole = (bounds.low, bounds.high) == (0, PLACES) and self.share is None
        part = () if whole else (bounds.low, bounds.high)
        share = () if self.share is None else [list(astuple(self.share))]
        layout = (self.layout,) if self.layout else ()
        return [self.segment, self.offset, self.length, self.written, *known, *part, *share, *layout]

    @classmethod
    def from_list(cls, data: list[Any]) -> StoredRun:
        """What `to_list` made."""
        segment, offset, length, written, *bounds = data
        share, layout = None, ""
        if bounds and isinstance(bounds[-1], str):
            layout = bounds.pop()
        if bounds and isinstance(bounds[-1], list):
            low, high, value, clock, heavy = bounds.pop()
            share = Share(low, high, value, clock, tuple(heavy))
        return cls(segment, offset, length, written, Bounds(*bounds), share, layout)


@dataclass(frozen=True, slots=True)
class PartitionFile:
    """The line of a partition in the driver's manifest: the file that ends in the partition's manifest.

    ``size`` is that of the whole file, and ``checksum`` that of the manifest in it.
    """

    name: str
    size: int
    checksum: int

    def __str__(self) -> str:
        return f"{self.name} {self.size} {self.checksum:08x}"

    @classmethod
    def from_text(cls, text: str) -> PartitionFile:
        """What `str` made."""
        name, size, checksum = text.split(" ")
        return cls(name, int(size), int(checksum, 16))


@dataclass(frozen=True, slots=True)
class PartitionManifest:
    """What lives in a partition after the ``moment`` (`moment_of`) at which it was written.

    ``runs`` are by store (its identity), oldest first. ``sizes`` is how many bytes of runs each segment has that is
    named in them, and the file itself that ends in this manifest. ``retired`` are files that it no longer names, each
    with the batch since which that is so. The files in ``shared`` may be named by other partitions too.
    """

    moment: int = -1
    runs: Mapping[str, tuple[StoredRun, ...]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    retired: tuple[tuple[int, str], ...] = ()
    shared: tuple[str, ...] = ()

    @property
    def segments(self) -> set[str]:
        """The names of all files that it keeps alive: the segments that runs are in, and its own."""
        return set(self.sizes)

    def since(self, begun: Mapping[str, int]) -> dict[str, tuple[StoredRun, ...]]:
        """The runs of stores that have been there ever since this was written, given when each store began.

        A store that was given up, and begins anew, has nothing of what it had; partitions that had nothing to do
        meanwhile still name that.
        """
        return {
            store: runs
            for store, runs in self.runs.items()
            if begun.get(store, self.moment + 1) <= self.moment
        }

    def to_bytes(self) -> bytes:
        """As bytes."""
        names = {name: place for place, name in enumerate(self.sizes)}
        runs = {
            store: [[names[run.segment], *run.to_list()[1:]] for run in found]
            for store, found in self.runs.items()
        }
        whole = [self.moment, list(self.sizes.items()), runs, self.retired, self.shared]
        return json.dumps(whole, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> PartitionManifest:
        """What `to_bytes` made."""
        moment, sizes, runs, retired, *shared = json.loads(data)
        named = {
            store: tuple(StoredRun.from_list([sizes[run[0]][0], *run[1:]]) for run in found)
            for store, found in runs.items()
        }
        gone = tuple((n, name) for n, name in retired)
        return cls(moment, named, dict(sizes), gone, tuple(shared[0]) if shared else ())


@compact
@dataclass(frozen=True, slots=True)
class StoreTotals:
    """What a store holds in some partitions: rows, bytes, runs, in how many partitions there are any, and the times.

    ``spans`` are intervals of time, first and last, that hold the times of all runs; they are as narrow as `SPANS`
    of them can be.
    """

    rows: int = 0
    bytes: int = 0
    runs: int = 0
    partitions: int = 0
    spans: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of_bounds(cls, bounds: Iterable[Bounds]) -> StoreTotals:
        """The totals of the runs in one partition."""
        every = list(bounds)
        times = [(b.min_time, b.max_time) for b in every if b.min_time is not None and b.max_time is not None]
        sizes = (sum(one.rows for one in every), sum(one.bytes for one in every))
        return cls(*sizes, len(every), int(bool(every)), _united(times))

    def plus(self, more: StoreTotals) -> StoreTotals:
        """Both together."""
        return StoreTotals(
            self.rows + more.rows,
            self.bytes + more.bytes,
            self.runs + more.runs,
            self.partitions + more.partitions,
            _united([*self.spans, *more.spans]),
        )

    def reaches(self, low: int, high: int) -> bool:
        """Whether there may be rows with times from ``low`` on and before ``high``."""
        return any(first < high and last >= low for first, last in self.spans)


def _united(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Intervals that hold all of these, in order; those that are nearest to each other are united if there are many."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    while len(found) > SPANS:
        gaps = [found[place + 1][0] - found[place][1] for place in range(len(found) - 1)]
        place = gaps.index(min(gaps))
        found[place : place + 2] = [(found[place][0], found[place + 1][1])]
    return tuple(found)
