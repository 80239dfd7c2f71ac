"""What "sustainable" means, apart from who sustains it (AJoin, section 7, after Karimov et al., ICDE 2018).

Guarantees: input comes by the clock, whatever a contender does with it. All contenders are measured from outside and
alike: a result is there when its sink has made it visible, and its last tuple came when its file did. A rate is
sustained if 95 of 100 results come within the bound, if results do not come later and later, and if nothing is left to
be read soon after the input has ended.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import csv

__all__ = ["Feed", "Judgement", "Window", "find_highest", "judge", "latencies"]

SLOPE = 0.02  # seconds by which results may come later, every second
Floats = NDArray[np.float64]


@dataclass
class Feed:
    """Lets files appear at their times, in a thread; ``arrived`` is when each did, in seconds since 1970.

    The first file of each stream comes at once, so that it can be waited for: whoever has read it is ready. The others
    come from `start` on.
    """

    data: Path
    incoming: Path
    streams: Sequence[str]
    interval: float
    arrived: list[float] = field(default_factory=list)
    began: float = 0.0
    _thread: threading.Thread | None = None

    def give_first(self) -> None:
        """Let the first file of each stream appear."""
        for name in self.streams:
            (self.incoming / name).mkdir(parents=True, exist_ok=True)
        self._give({name: sorted((self.data / name).iterdir())[0] for name in self.streams})

    def start(self) -> None:
        """Begin with the others now."""
        self.began = time.time()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        files = {name: sorted((self.data / name).iterdir()) for name in self.streams}
        for number in range(1, min(map(len, files.values()))):
            time.sleep(max(0.0, self.began + number * self.interval - time.time()))
            self._give({name: some[number] for name, some in files.items()})

    def _give(self, files: Mapping[str, Path]) -> None:
        for name, file in files.items():
            os.link(file, self.incoming / name / file.name)
        self.arrived.append(time.time())

    def wait(self) -> None:
        """Wait until all files have come."""
        if self._thread is not None:
            self._thread.join()


@dataclass(frozen=True, slots=True)
class Window:
    """What of a trial counts: arrivals ``since`` a time; and the most seconds that 95 of 100 results may take."""

    since: float
    bound: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became of a rate: latencies in seconds, how much later results came every second, and the verdict."""

    rate: int
    results: int
    p50: float
    p95: float
    p99: float
    max: float
    slope: float
    left: int
    sustained: bool


def latencies(
    visible: Iterable[tuple[float, Sequence[Path]]],
    streams: Sequence[str],
    file_rows: int,
    arrived: Sequence[float],
) -> tuple[Floats, Floats]:
    """When the last tuple of every result came, and how long it then took, given when which files became visible."""
    times, came, took = np.array(arrived), [np.empty(0)], [np.empty(0)]
    for moment, files in visible:
        for file in files:
            numbers = [each // file_rows for each in _row_numbers(file, streams)]
            last = np.maximum.reduce(numbers)
            came.append(times[last])
            took.append(moment - times[last])
    return np.concatenate(came), np.concatenate(took)


def _row_numbers(file: Path, streams: Sequence[str]) -> list[NDArray[np.int64]]:
    """The numbers of the rows that results are made of, for every stream; what is not Parquet is CSV."""
    names = [f"{name}_n" for name in streams]
    if file.suffix == ".parquet":
        table = pq.read_table(file, columns=names, partitioning=None)
    else:
        table = csv.read_csv(file, csv.ReadOptions(column_names=[*names, "price"]))
    return [table.column(name).to_numpy() for name in names]


def judge(rate: int, came: Floats, took: Floats, window: Window, left: int = 0) -> Judgement:
    """Judge a rate by its results; ``left`` is how many rows had not been read when time was up."""
    counts = came >= window.since
    came, took = came[counts], took[counts]
    if not came.size:
        return Judgement(rate, 0, np.inf, np.inf, np.inf, np.inf, np.inf, left, sustained=False)
    p50, p95, p99, most = (float(one) for one in np.quantile(took, (0.5, 0.95, 0.99, 1)))
    slope = _slope(came, took)
    grows = slope > SLOPE and slope * float(np.ptp(came)) > window.bound / 10
    sustained = p95 <= window.bound and not grows and not left
    return Judgement(rate, int(came.size), p50, p95, p99, most, slope, left, sustained)


def _slope(came: Floats, took: Floats) -> float:
    """By how many seconds results come later every second: a line through the medians of arrivals."""
    moments, places = np.unique(came, return_inverse=True)
    if moments.size < 3:
        return 0.0
    order = np.argsort(places, kind="stable")
    cuts = np.searchsorted(places[order], np.arange(moments.size))
    medians = [float(np.median(part)) for part in np.split(took[order], cuts[1:])]
    return float(np.polyfit(moments - moments[0], medians, 1)[0])


def find_highest(sustains: Callable[[int], bool], first: int, steps: int, most: int) -> int:
    """The highest rate that is sustained: doubled while it is, halved until it is, then by bisection; 0 if none is.

    >>> find_highest(lambda rate: rate <= 300, 100, 4, 10_000)
    295
    """
    low, high, rate = 0, None, first
    while high is None and rate <= most:
        if sustains(rate):
            low, rate = rate, 2 * rate
        else:
            high = rate
    while high is not None and not low and high > 1:
        rate = high // 2
        if sustains(rate):
            low = rate
        else:
            high = rate
    for _ in range(steps if high is not None and low else 0):
        rate = round((low * (high or low)) ** 0.5)
        if rate in (low, high):
            break
        if sustains(rate):
            low = rate
        else:
            high = rate
    return low
