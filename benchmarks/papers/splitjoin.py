"""SplitJoin's experiments: streams joined by a band in two dimensions, windows by time and by count, ordered results.

The joins of the paper are nested loops on every core. Two of these are written here, for comparison with each other:
SplitJoin's, where every core meets a tuple at once, and the handshake join's, where a tuple passes from core to core.
Weft looks bands up in an order.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from benchmarks.papers.figures import Claim, Fact, Figure, Row, Rows, over
from benchmarks.papers.workloads import BEGAN, LOCAL, Workload, run

BAND = 10
Values = npt.NDArray[np.int64]


def streams(rows: int, domain: int, rate: float, seed: int = 7) -> dict[str, pa.Table]:
    """R(x, y) and S(a, b), uniform over 1 to ``domain``, with so many tuples a second each."""
    rng = np.random.default_rng(seed)
    times = pa.array(BEGAN + (np.arange(rows) * (1e6 / rate)).astype(np.int64), pa.timestamp("us", "UTC"))
    named = {"r": ("x", "y"), "s": ("a", "b")}
    return {
        name: pa.table({**{one: rng.integers(1, domain + 1, rows) for one in columns}, "ts": times})
        for name, columns in named.items()
    }


def band(window: str) -> str:
    """The paper's join (7.1), with windows as SQL writes them."""
    return (
        f"SELECT r.x, s.a FROM r {window} AS r, s {window} AS s WHERE r.x BETWEEN s.a - {BAND} AND "
        f"s.a + {BAND} "
        f"AND r.y BETWEEN s.b - {BAND} AND s.b + {BAND}"
    )


def _workload(
    window: str, rows: int, *, domain: int = 10_000, rate: float = 100.0, batches: int = 10, **asked: Any
) -> Workload:
    return Workload({"band": band(window)}, streams(rows, domain, rate), batches, "ts", asked=asked)


# -- The two joins of the paper, core by core --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cores:
    """Sub-windows of one stream, one on every core."""

    windows: list[Values]  # of every core: two columns, the newest tuple last

    @classmethod
    def filled(cls, rng: np.random.Generator, cores: int, size: int, domain: int) -> Cores:
        """Windows of ``size`` tuples together."""
        return cls([rng.integers(1, domain + 1, (2, size // cores)) for _ in range(cores)])

    def compare(self, core: int, one: Values) -> int:
        """How many tuples of a core's window match a tuple: all of them are compared."""
        window = self.windows[core]
        return int(
            np.count_nonzero((np.abs(window[0] - one[0]) <= BAND) & (np.abs(window[1] - one[1]) <= BAND))
        )

    def store(self, core: int, one: Values) -> None:
        """Put a tuple into a core's window, in place of its oldest."""
        window = self.windows[core]
        window[:, :-1] = window[:, 1:]
        window[:, -1] = one


def split_join(r: Values, windows: Mapping[str, Cores], cores: int) -> tuple[int, list[float], float]:
    """SplitJoin: every core compares a tuple with its window at once, and one of them stores it, in turn.

    Gives the matches, the seconds until the last core has met each tuple, and all seconds of work.
    """
    found, visits, work = 0, list[float](), 0.0
    for number in range(r.shape[1]):
        one, slowest = r[:, number], 0.0
        for core in range(cores):
            began = time.thread_time()
            found += windows["s"].compare(core, one)
            if core == number % cores:
                windows["r"].store(core, one)
            taken = time.thread_time() - began
            slowest, work = max(slowest, taken), work + taken
        visits.append(slowest)
    return found, visits, work


def handshake_join(r: Values, windows: Mapping[str, Cores], cores: int) -> tuple[int, list[float], float]:
    """The low-latency handshake join: a tuple passes from core to core, which forward it before they compare.

    Every core takes the tuple out of a buffer and puts it into the next one's, one stores it, and an expiry message
    follows the same way. Gives the same figures as `split_join`: the last core meets a tuple after all the others.
    """
    found, visits, work = 0, list[float](), 0.0
    buffers = [deque[Values]() for _ in range(cores + 1)]
    for number in range(r.shape[1]):
        buffers[0].append(r[:, number])
        whole = 0.0
        for core in range(cores):
            began = time.thread_time()
            one = buffers[core].popleft()
            buffers[core + 1].append(one.copy())
            found += windows["s"].compare(core, one)
            if core == number % cores:
                windows["r"].store(core, one)
            buffers[core].append(one)  # the message that expires the oldest tuple goes the same way
            buffers[core].popleft()
            whole += time.thread_time() - began
        buffers[cores].clear()
        visits.append(whole)
        work += whole
    return found, visits, work


def _figure_12(small: bool) -> Rows:
    found: list[Row] = []
    size, tuples, domain = (20_000, 200, 10_000) if small else (200_000, 1_000, 10_000)
    for cores in (1, 4, 16, 28):
        for name, join in (("SplitJoin", split_join), ("handshake join", handshake_join)):
            rng = np.random.default_rng(7)
            windows = {stream: Cores.filled(rng, cores, size, domain) for stream in "rs"}
            _, visits, work = join(rng.integers(1, domain + 1, (2, tuples)), windows, cores)
            found.append(
                {
                    "join": name,
                    "cores": cores,
                    "tuples/s": tuples * cores / work,
                    "visiting latency µs": 1e6 * float(np.mean(visits)),
                }
            )
    return found


FIGURE_12 = Figure(
    name="splitjoin-13",
    paper="SplitJoin",
    title="Figures 12 and 13: SplitJoin and the handshake join, core by core",
    there=(
        "throughput and visiting latency of SplitJoin and of the low-latency handshake join on up "
        "to 32 cores, windows of 5 to 15 minutes"
    ),
    here=(
        "both, written in the benchmark with nested loops over sub-windows, one core's work after "
        "the other's; throughput as if all ran at once"
    ),
    differs=("cores are simulated: each one's work is timed alone, in processor time; windows are smaller"),
    facts=(
        Fact("Figure 12", "SplitJoin outperforms the low-latency handshake join by up to 60 %"),
        Fact(
            "7.4", "with 28 cores the visiting latency is improved by 8.3 × compared with the handshake join"
        ),
    ),
    measure=_figure_12,
    keys=("join", "cores"),
    claims=(
        Claim(
            "SplitJoin has the shorter visiting latency, 28 cores (there 8.3 ×)",
            over("visiting latency µs", {"join": "handshake join"}, {"join": "SplitJoin"}, cores=28),
            2.0,
        ),
        Claim(
            "SplitJoin has the higher throughput, 28 cores (there up to 1.6 ×)",
            over("tuples/s", {"join": "SplitJoin"}, {"join": "handshake join"}, cores=28),
            1.0,
        ),
        Claim(
            "SplitJoin scales with the cores (28 against 1)",
            over("tuples/s", {"cores": 28}, {"cores": 1}, join="SplitJoin"),
            2.0,
        ),
    ),
    plots=(("join", "cores", "tuples/s"), ("join", "cores", "visiting latency µs")),
)


def _figure_16(small: bool) -> Rows:
    found: list[Row] = []
    rows = 8_000 if small else 60_000
    for minutes in (5, 10, 15):
        for kind in ("time", "count"):
            rate = rows / 1_800  # half an hour in all
            size = round(60 * minutes * rate)
            window = f"[RANGE {minutes} MINUTES]" if kind == "time" else f"[ROWS {size}]"
            for partitions in (1, 2):
                ran = run(_workload(window, rows, rate=rate), partitions=partitions)
                found.append(ran.row(minutes=minutes, window=kind, partitions=partitions))
    return found


FIGURE_16 = Figure(
    name="splitjoin-16",
    paper="SplitJoin",
    title="Figures 12, 15, 16 and 18: windows by time and by count",
    there="throughput and latency for windows of 5, 10 and 15 minutes, and for windows of as many tuples",
    here="Weft's own band join over half an hour, with windows by time and by count of the same size",
    differs=(
        "fewer tuples; all input is there at once; a band is looked up and not compared with every tuple; "
    )
    + LOCAL,
    facts=(
        Fact(
            "7.4",
            "28 cores: 4,400 tuples a second with windows of 15 minutes, 5,200 with windows of 2²¹ "
            "tuples, about 20 % more",
        ),
        Fact("7.4", "doubling the window reduces the throughput"),
    ),
    measure=_figure_16,
    keys=("minutes", "window", "partitions"),
    claims=(
        Claim(
            "windows by count are faster than windows by time, 15 minutes (there 1.2 ×)",
            over("rows/s", {"window": "count"}, {"window": "time"}, minutes=15, partitions=1),
            1.0,
            "tuples have their times anyway, and to count them is more work than to compare times",
        ),
        Claim(
            "windows of 15 minutes are slower than those of 5",
            over("rows/s", {"minutes": 5}, {"minutes": 15}, window="time", partitions=1),
            1.0,
            "a band is looked up in an order, whose cost hardly grows with the window",
        ),
        Claim(
            "more than the paper's 4,400 tuples a second",
            lambda rows: min(float(row["rows/s"]) for row in rows) / 4_400,
        ),
    ),
    plots=(("window", "minutes", "rows/s"),),
)


def _figure_17(small: bool) -> Rows:
    found: list[Row] = []
    for domain in (1_000, 3_000, 10_000, 100_000):
        rows = 6_000 if small else 60_000
        ran = run(_workload(f"[ROWS {rows // 2}]", rows, domain=domain), partitions=2)
        found.append({**ran.row(domain=domain), "results per tuple": ran.results / (2 * rows)})
    return found


FIGURE_17 = Figure(
    name="splitjoin-17",
    paper="SplitJoin",
    title="Figure 17: selectivity",
    there="throughput for values that are uniform over smaller and larger domains",
    here="the same, with results counted",
    differs="smaller windows; " + LOCAL,
    facts=(Fact("Figure 17", "SplitJoin is robust to changes of selectivity"),),
    measure=_figure_17,
    keys=("domain",),
    claims=(
        Claim(
            "with a hundred times the selectivity, the throughput is at least a third",
            over("rows/s", {"domain": 1_000}, {"domain": 10_000}),
            0.33,
            "comparisons are few here, so that results are what the work consists of",
        ),
    ),
)


def _figure_19(small: bool) -> Rows:
    found: list[Row] = []
    rows = 6_000 if small else 40_000
    ways: dict[str, dict[str, Any]] = {
        "none": {},
        "outer": {"order": "outer"},
        **{f"inner 2^{bits}": {"order": "inner", "precision": 1 << bits} for bits in (1, 5, 10, 15)},
    }
    for name, asked in ways.items():
        ran = run(_workload(f"[ROWS {rows // 4}]", rows, domain=2_000, **asked), partitions=2)
        found.append(ran.row(order=name))
    return found


FIGURE_19 = Figure(
    name="splitjoin-19",
    paper="SplitJoin",
    title="Figure 19: precision of the order",
    there="throughput if a punctuation follows every 2¹ to 2¹⁵ comparisons (inner), or every tuple (outer)",
    here="throughput without an order, by outer order, and by inner order in blocks of 2¹ to 2¹⁵ tuples",
    differs=("results are sorted at the end of a batch, whatever the precision, and not as they are found; ")
    + LOCAL,
    facts=(
        Fact("7.4", "relaxed inner order is strict outer order; throughput falls as the precision rises"),
    ),
    measure=_figure_19,
    keys=("order",),
    claims=(
        Claim(
            "a coarse inner order is no slower than a fine one (2¹⁵ against 2¹)",
            over("rows/s", {"order": "inner 2^15"}, {"order": "inner 2^1"}),
            0.95,
            "results are sorted once a batch",
        ),
        Claim(
            "an order costs less than half of the throughput (outer)",
            over("rows/s", {"order": "outer"}, {"order": "none"}),
            0.5,
        ),
    ),
)

FIGURES = (FIGURE_12, FIGURE_16, FIGURE_17, FIGURE_19)
