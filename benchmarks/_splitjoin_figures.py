"""The figures of SplitJoin's benchmark, and the verdicts on them.

Guarantees: no verdict rests on a figure that was not measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from operator import mul
from typing import Any

from benchmarks._splitjoin import window_text

from weft.logical.codec import decode
from weft.stats.histogram import Histogram

__all__ = [
    "CORES",
    "LARGE",
    "Case",
    "Latency",
    "Peer",
    "Report",
    "Steady",
    "cores_text",
    "order_text",
    "verdicts",
    "without_order",
]

RATE_TARGET = 100_000  # tuples a second
LOOPS_TARGET = 50  # times as fast as the nested loops
ORDER_TARGET = 0.15  # the part of the throughput that order may cost
LARGE, CORES = 1 << 21, 2  # the window and the cores for which the targets hold
PAPER = {
    "time": 4_400,
    "count": 5_200,
}  # the paper's tuples a second on 28 cores, with windows of 15 minutes or 2^21 tuples


@dataclass(frozen=True, slots=True)
class Case:
    """A case to measure: its windows, cores, partitions, values, order and sink."""

    kind: str
    size: int
    cores: int
    partitions: int
    domain: int = 10_000
    sink: str = "count"
    order: str = "none"
    precision: int | None = None

    def __str__(self) -> str:
        text = f"{self.kind} {window_text(self.size)}, {cores_text(self.cores)}, {self.partitions} partitions"
        return f"{text}, values to {self.domain:,}, {self.sink}, order {order_text(self)}"


@dataclass(frozen=True, slots=True)
class Steady:
    """The figures of every batch; batches from ``skip`` to the last but one are measured."""

    skip: int
    rows: list[int]  # of both streams
    started: list[float]  # seconds since 1970
    results: list[int]
    orders: list[list[str]]
    seconds: list[list[float]]  # reading and routing, probing and storing
    stored: int
    state: int  # bytes
    plan: str = field(repr=False, default="")

    @property
    def cycles(self) -> list[float]:
        """The seconds from the start of every measured batch to the start of the next, ascending."""
        times = self.started[self.skip :]
        return sorted(after - before for before, after in pairwise(times))

    @property
    def measured(self) -> slice:
        """The batches that count."""
        return slice(self.skip, len(self.rows) - 1)

    @property
    def rate(self) -> float:
        """Tuples a second, of both streams."""
        return sum(self.rows[self.measured]) / sum(self.cycles)

    @property
    def matches(self) -> float:
        """Results for each tuple of both streams."""
        return sum(self.results[self.measured]) / sum(self.rows[self.measured])

    def share(self, place: int) -> float:
        """The mean seconds of one phase of the measured batches."""
        return statistics.mean(one[place] for one in self.seconds[self.measured])


@dataclass(frozen=True, slots=True)
class Peer:
    """The result of a peer for a batch; if there are no seconds, ``note`` says why."""

    tuples: int = 0
    seconds: float | None = None
    results: int | None = None
    expected: int | None = None  # results of Weft or, where only some tuples were joined, of another peer
    note: str = ""

    @property
    def rate(self) -> float | None:
        """New tuples a second."""
        return self.tuples / self.seconds if self.seconds else None

    @property
    def differs(self) -> bool:
        """Whether the number of results is not the expected one."""
        return None not in (self.results, self.expected) and self.results != self.expected


@dataclass(frozen=True, slots=True)
class Latency:
    """Visits at a rate of tuples a second of both streams; `kept_up` says whether the rate is below saturation."""

    case: Case
    rate: float
    interval: float
    visits: list[dict[str, Any]]

    @property
    def latency(self) -> Histogram:
        """The latencies of all results."""
        return Histogram.sum(decode(Histogram, visit["latency"]) for visit in self.visits)

    @property
    def kept_up(self) -> bool:
        """Whether what the last batch read waited no longer than what came before: not twice the median latency."""
        last = max(self.visits, key=lambda visit: int(visit["batch"]), default=None)
        return last is not None and bool(last["parts"][0] <= 2 * self.latency.p50 + self.interval)

    @property
    def parts(self) -> list[float]:
        """The mean seconds of every part, where every result counts alike."""
        counts = [decode(Histogram, visit["latency"]).count for visit in self.visits]
        columns = zip(*(visit["parts"] for visit in self.visits), strict=True)
        return [sum(map(mul, column, counts)) / sum(counts) for column in columns]


@dataclass(slots=True)
class Report:
    """All figures, by section, and the errors of runs that failed."""

    throughput: dict[Case, Steady] = field(default_factory=dict)
    peers: dict[Case, dict[str, Peer]] = field(default_factory=dict)
    selectivity: dict[Case, Steady] = field(default_factory=dict)
    precision: dict[Case, Steady] = field(default_factory=dict)
    latency: list[Latency] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, with the rates."""

        def runs(found: Mapping[Case, Steady]) -> list[dict[str, Any]]:
            return [{**asdict(case), **asdict(one), "rate": one.rate} for case, one in found.items()]

        peers = [
            {**asdict(case), "peer": name, **asdict(one), "rate": one.rate}
            for case, found in self.peers.items()
            for name, one in found.items()
        ]
        return {
            "throughput": runs(self.throughput),
            "peers": peers,
            "selectivity": runs(self.selectivity),
            "precision": runs(self.precision),
            "latency": [asdict(one) for one in self.latency],
            "notes": self.notes,
            "troubles": self.troubles,
        }


def order_text(case: Case) -> str:
    """The order of a case's results."""
    return case.order if case.precision is None else f"{case.order}, precision {case.precision:,}"


def cores_text(number: int) -> str:
    """A number of cores."""
    return "1 core" if number == 1 else f"{number} cores"


def without_order(found: Mapping[Case, Steady]) -> Steady | None:
    """The run that the others of its section are compared with."""
    return next((one for case, one in found.items() if case.order == "none"), None)


def verdicts(report: Report) -> list[tuple[str, bool | None]]:
    """Each target with its figure, and whether it was reached; None if it was not measured."""
    return [*_rate_verdicts(report), *_loops_verdicts(report), _order_verdict(report)]


def _rate_verdicts(report: Report) -> list[tuple[str, bool | None]]:
    found: list[tuple[str, bool | None]] = []
    for kind, paper in PAPER.items():
        rates = [
            one.rate
            for case, one in report.throughput.items()
            if (case.kind, case.size, case.cores) == (kind, LARGE, CORES)
        ]
        target = f"at least {RATE_TARGET:,} tuples/s, {kind} window of {window_text(LARGE)} on {CORES} cores"
        shown = f"{max(rates):,.0f}" if rates else "not measured"
        reached = max(rates) >= RATE_TARGET if rates else None
        found.append((f"{target} ({shown}; paper, 28 cores: {paper:,})", reached))
    return found


def _loops_verdicts(report: Report) -> list[tuple[str, bool | None]]:
    found: list[tuple[str, bool | None]] = []
    for kind in PAPER:
        target = (
            f"at least {LOOPS_TARGET} × nested loops, {kind} window of {window_text(LARGE)} on {CORES} cores"
        )
        ratios = [
            report.throughput[case].rate / loops
            for case, peers in report.peers.items()
            if (case.kind, case.size, case.cores) == (kind, LARGE, CORES)
            and (loops := peers.get("loops", Peer()).rate)
        ]
        shown = f"{max(ratios):.1f} ×" if ratios else "not measured"
        found.append((f"{target} ({shown})", max(ratios) >= LOOPS_TARGET if ratios else None))
    return found


def _order_verdict(report: Report) -> tuple[str, bool | None]:
    target = f'order "outer" costs at most {ORDER_TARGET:.0%}'
    plain = without_order(report.precision)
    strict = [one for case, one in report.precision.items() if (case.order, case.precision) == ("outer", 1)]
    if plain is None or not strict:
        return f"{target} (not measured)", None
    cost = 1 - strict[0].rate / plain.rate
    return f"{target} ({cost:.1%})", cost <= ORDER_TARGET
