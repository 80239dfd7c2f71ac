"""The options of SplitJoin's benchmark, the cases of every section, their figures, tables and verdicts.

Guarantees: every case is listed once. Without --full, not all combinations are run: all windows are, with the most
cores and the fewest partitions, and for one window all numbers of cores and partitions. A figure that was not measured
is shown as such, and no verdict rests on it.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise, product
from operator import mul
from typing import Any

from benchmarks._harness import make_parser, make_table, some_of
from benchmarks._race import percentile
from benchmarks._splitjoin import KINDS, matches_per_tuple, window_text
from benchmarks._splitjoin_peers import PEERS
from benchmarks._splitjoin_run import PARTS
from rich.table import Table

from weft.logical.codec import decode
from weft.stats.histogram import Histogram

RATE_TARGET = 100_000  # tuples a second
LOOPS_TARGET = 50  # times as fast as the nested loops
ORDER_TARGET = 0.15  # the part of the throughput that order may cost
LARGE, CORES = 1 << 21, 2  # the window and the cores for which the targets hold
# The paper's tuples a second on 28 cores, with windows of 15 minutes or 2^21 tuples.
PAPER = {"time": 4_400, "count": 5_200}
Runs = Mapping["Case", "Steady"]


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

        def plain(case: Case, one: Steady | Peer, **more: str) -> dict[str, Any]:
            return {**asdict(case), **more, **asdict(one), "rate": one.rate}

        runs = {"throughput": self.throughput, "selectivity": self.selectivity, "precision": self.precision}
        peers = [
            plain(case, one, peer=name) for case, some in self.peers.items() for name, one in some.items()
        ]
        sections = {name: [plain(*run) for run in some.items()] for name, some in runs.items()}
        latency = [asdict(one) for one in self.latency]
        return {
            **sections,
            "peers": peers,
            "latency": latency,
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


def _is_large(case: Case, kind: str) -> bool:
    """Whether the targets hold for a case."""
    return (case.kind, case.size, case.cores) == (kind, LARGE, CORES)


def _rate_verdicts(report: Report) -> Iterator[tuple[str, bool | None]]:
    for kind, paper in PAPER.items():
        best = max(
            (run.rate for case, run in report.throughput.items() if _is_large(case, kind)), default=None
        )
        target = f"at least {RATE_TARGET:,} tuples/s, {kind} window of {window_text(LARGE)} on {CORES} cores"
        shown = "not measured" if best is None else f"{best:,.0f}"
        yield f"{target} ({shown}; paper, 28 cores: {paper:,})", None if best is None else best >= RATE_TARGET


def _loops_verdicts(report: Report) -> Iterator[tuple[str, bool | None]]:
    for kind in PAPER:
        ratios = [
            report.throughput[case].rate / loops
            for case, peers in report.peers.items()
            if _is_large(case, kind) and (loops := peers.get("loops", Peer()).rate)
        ]
        target = (
            f"at least {LOOPS_TARGET} × nested loops, {kind} window of {window_text(LARGE)} on {CORES} cores"
        )
        shown = f"{max(ratios):.1f} ×" if ratios else "not measured"
        yield f"{target} ({shown})", max(ratios) >= LOOPS_TARGET if ratios else None


def _order_verdict(report: Report) -> tuple[str, bool | None]:
    target = f'order "outer" costs at most {ORDER_TARGET:.0%}'
    plain = without_order(report.precision)
    strict = [one for case, one in report.precision.items() if (case.order, case.precision) == ("outer", 1)]
    if plain is None or not strict:
        return f"{target} (not measured)", None
    cost = 1 - strict[0].rate / plain.rate
    return f"{target} ({cost:.1%})", cost <= ORDER_TARGET


SECTIONS = ("throughput", "peers", "selectivity", "precision", "latency")


def throughput_cases(options: argparse.Namespace) -> list[Case]:
    """All combinations of windows, cores and partitions, or some of them (see the top of this file)."""
    if options.full:
        every = product(options.kinds, options.windows, options.cores, options.partitions)
        return [
            _case(options, kind, size, cores=cores, partitions=parts) for kind, size, cores, parts in every
        ]
    cases = [_case(options, *window) for window in product(options.kinds, options.windows)]
    kind, size = options.kinds[-1], options.windows[len(options.windows) // 2]
    cases += [_case(options, kind, size, cores=cores) for cores in options.cores]
    cases += [_case(options, kind, size, partitions=parts) for parts in options.partitions]
    return list(dict.fromkeys(cases))


def peer_cases(options: argparse.Namespace) -> list[Case]:
    """The runs of Weft that peers are compared with."""
    sizes = options.peer_windows or [max(options.windows)]
    return [_case(options, *window) for window in product(options.kinds, sizes)]


def selectivity_cases(options: argparse.Namespace) -> list[Case]:
    """One window, with values over larger and larger domains."""
    size, kind = options.selectivity_window, options.kinds[-1]
    return [_case(options, kind, size, domain=domain) for domain in options.domains]


def precision_cases(options: argparse.Namespace) -> list[Case]:
    """Results without order first, then in outer order with every precision, then in inner order."""
    orders = [("none", None), *(("outer", one) for one in options.precisions), ("inner", None)]
    plain = _case(options, options.kinds[-1], options.precision_window, sink=options.precision_sink)
    return [replace(plain, order=order, precision=precision) for order, precision in orders]


def latency_cases(options: argparse.Namespace) -> list[Case]:
    """One window."""
    return [_case(options, options.kinds[-1], options.latency_window)]


def _case(options: argparse.Namespace, kind: str, size: int, **others: Any) -> Case:
    """A case with the most cores and the fewest partitions, unless others are given."""
    usual = Case(kind, size, max(options.cores), min(options.partitions), options.domain, options.sink)
    return replace(usual, **others)


def _tuples(text: str) -> int:
    """A number of tuples, as 131072 or 2^17."""
    base, _, exponent = text.partition("^")
    return int(_positive(base) ** _positive(exponent or "1"))


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0, as 1000 or 2^17")
    return number


def parse(description: str, arguments: Sequence[str]) -> argparse.Namespace:
    """The options."""
    parser = make_parser("splitjoin", description, "timeout directory json strict", timeout=600.0)
    for name, names, what in (
        ("sections", SECTIONS, "what is measured"),
        ("kinds", KINDS, "of windows"),
        ("peers", tuple(PEERS), "who is compared with Weft"),
    ):
        text = f"{what}: some of {','.join(names)}"
        parser.add_argument(f"--{name}", type=some_of(names), default=list(names), help=text)
    _add_streams(parser)
    _add_sections(parser)
    return parser.parse_args(arguments)


def _add_streams(parser: argparse.ArgumentParser) -> None:
    add, sizes = parser.add_argument, [1 << 17, 1 << 19, 1 << 21]
    add("--windows", type=_tuples, nargs="+", default=sizes, help="tuples of each stream, as 2^17")
    add("--cores", type=_positive, nargs="+", default=[1, 2], help="of Spark: SplitJoin's join cores")
    add("--partitions", type=_positive, nargs="+", default=[2, 4, 8, 16], help="of the join")
    add("--full", action="store_true", help="every window with all cores and partitions, not a cross")
    add("--batch-rows", type=_tuples, default=1 << 16, help="tuples of each stream in a batch")
    add("--batches", type=_positive, default=8, help="that are measured")
    add("--warm-up", type=int, default=2, help="batches before them, once the windows are full")
    add("--fill-rows", type=_tuples, default=1 << 19, help="tuples of a file that fills windows")
    add("--domain", type=_positive, default=10_000, help="values are uniform over 1 to this")
    add("--sink", choices=("count", "parquet"), default="count", help="where results go")
    add("--seed", type=int, default=7, help="of the data")
    add("--together", action="store_true", help="all in one process: quick, for a look, not for figures")
    add("--cache", metavar="DIRECTORY", help="keep the data there, and find it there the next time")


def _add_sections(parser: argparse.ArgumentParser) -> None:
    add, paper = parser.add_argument, 28 << 15
    add("--peer-rows", type=_tuples, default=1 << 14, help="new tuples DuckDB and Polars take of each stream")
    add("--peer-windows", type=_tuples, nargs="+", help="for the peers; the largest of --windows")
    add(
        "--loop-rows",
        type=_tuples,
        default=2_048,
        help="new tuples that the nested loops take of each stream",
    )
    add("--selectivity-window", type=_tuples, default=paper, help="for Figure 17; 28 × 2^15 as in the paper")
    add("--domains", type=_positive, nargs="+", default=[1_000, 3_000, 10_000, 100_000], help="for Figure 17")
    add("--precision-window", type=_tuples, default=1 << 19, help="for Figure 19")
    add("--precisions", type=_positive, nargs="*", default=[1, 2, 8, 64, 1024], help="of the outer order")
    add("--precision-sink", choices=("count", "parquet"), default="parquet", help="where ordered results go")
    add("--latency-window", type=_tuples, default=1 << 19, help="for the visiting latency")
    add("--latency-rate", type=_positive, default=20_000, help="tuples a second that come, of both streams")
    add("--latency-seconds", type=float, default=20, help="how long they come")
    add("--interval", type=float, default=0.25, help="seconds between files")


def throughput_table(found: Runs, batch_rows: int) -> Table:
    """One row per run."""
    heads = ("window", "size", "cores", "parts", "tuples/s", "p50 s", "p95 s")
    table = make_table(
        f"Throughput with full windows, batches of 2 × {batch_rows:,} tuples",
        (*heads, "reading s", "probing s", "state MB", "results"),
        2,
        "tuples/s: of both streams; a batch lasts until the next begins; reading and routing, probing and storing: the "
        "slowest task; results: for each tuple",
    )
    for case, run in found.items():
        what = ("15 minutes" if case.kind == "time" else "count", window_text(case.size))
        phases = (f"{run.share(place):.2f}" for place in (0, 1))
        counts = (str(case.cores), str(case.partitions), *_rate(run))
        table.add_row(*what, *counts, *phases, f"{run.state / 1e6:,.0f}", f"{run.matches:.2f}")
    return table


def _rate(run: Steady) -> tuple[str, ...]:
    """Tuples a second, and the median and the 95th percentile of the seconds of a batch."""
    return f"{run.rate:,.0f}", *(f"{percentile(run.cycles, share):.2f}" for share in (0.5, 0.95))


def peers_table(case: Case, weft: Steady, found: Mapping[str, Peer]) -> Table:
    """Weft's throughput, and what every peer made of its last measured batch."""
    table = make_table(
        f"Peers: {case.kind} window of {window_text(case.size)} tuples, {cores_text(case.cores)}",
        ("", "agrees", "tuples", "seconds", "tuples/s", "Weft is faster by"),
        2,
        "peers: the new tuples of one batch against its windows, from memory, counted; Weft: end to end",
    )
    rows, seconds = sum(weft.rows[weft.measured]), sum(weft.cycles)
    table.add_row("Weft, from files to the sink", "", f"{rows:,}", f"{seconds:.2f}", f"{weft.rate:,.0f}", "–")
    for name, peer in found.items():
        if peer.rate is None or peer.seconds is None:
            table.add_row(PEERS[name][0], peer.note)
            continue
        agrees = "–" if peer.expected is None else "no" if peer.differs else "yes"
        figures = (f"{peer.tuples:,}", f"{peer.seconds:.2f}", f"{peer.rate:,.0f}")
        table.add_row(PEERS[name][0], agrees, *figures, f"{weft.rate / peer.rate:,.1f} ×")
    return table


def selectivity_table(found: Runs) -> Table:
    """One row per domain (Figure 17)."""
    table = make_table(
        f"Selectivity: windows of {window_text(next(iter(found)).size)} tuples",
        ("values up to", "partners", "results/tuple", "results/s", "tuples/s", "p50 s", "p95 s"),
        0,
        "partners: in a full window, for each tuple, from the width of the bands",
    )
    for case, run in found.items():
        partners = f"{matches_per_tuple(case.size, case.domain):.2f}"
        results = (f"{run.matches:.2f}", f"{run.rate * run.matches:,.0f}")
        table.add_row(f"{case.domain:,}", partners, *results, *_rate(run))
    return table


def precision_table(found: Runs) -> Table:
    """One row per order (Figure 19)."""
    first, plain = next(iter(found)), without_order(found)
    table = make_table(
        f"Order: {first.kind} windows of {window_text(first.size)} tuples, to {first.sink}",
        ("order", "relative", "tuples/s", "p50 s", "p95 s"),
        caption="relative to the same join without order",
    )
    for case, run in found.items():
        table.add_row(order_text(case), f"{run.rate / plain.rate:.1%}" if plain else "–", *_rate(run))
    return table


def latency_table(found: Sequence[Latency]) -> Table:
    """One row per run."""
    table = make_table(
        "Visiting latency: from a tuple's arrival to its results at the sink (seconds)",
        ("window", "tuples/s", "mean", "p50", "p95", *PARTS),
        caption="the parts are means; waiting: for the batch before, and for Spark to see the file",
    )
    for run in found:
        rate = f"{run.rate:,.0f}" + ("" if run.kept_up else " (too many)")
        seconds = (run.latency.mean, run.latency.p50, run.latency.p95, *run.parts)
        window = f"{run.case.kind} {window_text(run.case.size)}"
        table.add_row(window, rate, *(f"{figure:.2f}" for figure in seconds))
    return table
