"""The tables of SplitJoin's benchmark.

Guarantees: a figure that was not measured is shown as such.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise, product
from operator import mul
from typing import Any

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


SECTIONS = ("throughput", "peers", "selectivity", "precision", "latency")


def throughput_cases(options: argparse.Namespace) -> list[Case]:
    """All combinations of windows, cores and partitions, or some of them (see the top of this file)."""
    if options.full:
        every = product(options.kinds, options.windows, options.cores, options.partitions)
        return [_case(options, kind, size, cores, parts) for kind, size, cores, parts in every]
    cases = [_case(options, *window) for window in product(options.kinds, options.windows)]
    kind, size = options.kinds[-1], options.windows[len(options.windows) // 2]
    cases += [_case(options, kind, size, cores) for cores in options.cores]
    cases += [_case(options, kind, size, None, parts) for parts in options.partitions]
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
    size, kind, sink = options.precision_window, options.kinds[-1], options.precision_sink
    return [
        _case(options, kind, size, order=order, precision=precision, sink=sink) for order, precision in orders
    ]


def latency_cases(options: argparse.Namespace) -> list[Case]:
    """One window."""
    return [_case(options, options.kinds[-1], options.latency_window)]


def _case(
    options: argparse.Namespace,
    kind: str,
    size: int,
    cores: int | None = None,
    partitions: int | None = None,
    *,
    domain: int | None = None,
    sink: str | None = None,
    order: str = "none",
    precision: int | None = None,
) -> Case:
    return Case(
        kind,
        size,
        cores or max(options.cores),
        partitions or min(options.partitions),
        domain or options.domain,
        sink or options.sink,
        order,
        precision,
    )


def _tuples(text: str) -> int:
    """A number of tuples, as 131072 or 2^17."""
    base, _, exponent = text.partition("^")
    return int(_positive(base) ** _positive(exponent or "1"))


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0, as 1000 or 2^17")
    return number


def _some_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        given = text.split(",")
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return [name for name in known if name in given]

    return names


def parse(description: str, arguments: Sequence[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="weft bench splitjoin",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, known, what in (
        ("sections", SECTIONS, "what is measured"),
        ("kinds", KINDS, "of windows"),
        ("peers", tuple(PEERS), "who is compared with Weft"),
    ):
        help_text = f"{what}: some of {','.join(known)}"
        parser.add_argument(f"--{name}", type=_some_of(known), default=list(known), help=help_text)
    _add_streams(parser)
    _add_sections(parser)
    _add_places(parser)
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


def _add_places(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--together", action="store_true", help="all in one process: quick, for a look, not for figures")
    add("--timeout", type=float, default=600, help="seconds a run may take")
    add("--cache", metavar="DIRECTORY", help="keep the data there, and find it there the next time")
    add("--directory", help="where data, results and checkpoints go; a temporary directory")
    add("--json", metavar="FILE", help="write the figures there, too")
    add("--strict", action="store_true", help="exit with 1 if a target is missed")


def _table(title: str, caption: str, left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(title=title, caption=caption)
    for head in left:
        table.add_column(head)
    for head in right:
        table.add_column(head, justify="right")
    return table


def throughput_table(found: Mapping[Case, Steady], batch_rows: int) -> Table:
    """One row per run."""
    table = _table(
        f"Throughput with full windows, batches of 2 × {batch_rows:,} tuples",
        "tuples/s: of both streams; a batch lasts until the next begins; reading and routing, probing and storing: the "
        "slowest task; results: for each tuple",
        ("window", "size"),
        ("cores", "parts", "tuples/s", "p50 s", "p95 s", "reading s", "probing s", "state MB", "results"),
    )
    for case, one in found.items():
        table.add_row(
            "15 minutes" if case.kind == "time" else "count",
            window_text(case.size),
            str(case.cores),
            str(case.partitions),
            f"{one.rate:,.0f}",
            *(f"{percentile(one.cycles, share):.2f}" for share in (0.5, 0.95)),
            *(f"{one.share(place):.2f}" for place in (0, 1)),
            f"{one.state / 1e6:,.0f}",
            f"{one.matches:.2f}",
        )
    return table


def peers_table(case: Case, weft: Steady, found: Mapping[str, Peer]) -> Table:
    """Weft's throughput, and what every peer made of its last measured batch."""
    table = _table(
        f"Peers: {case.kind} window of {window_text(case.size)} tuples, {cores_text(case.cores)}",
        "peers: the new tuples of one batch against its windows, from memory, counted; Weft: end to end",
        ("", "agrees"),
        ("tuples", "seconds", "tuples/s", "Weft is faster by"),
    )
    rows, seconds = sum(weft.rows[weft.measured]), sum(weft.cycles)
    table.add_row("Weft, from files to the sink", "", f"{rows:,}", f"{seconds:.2f}", f"{weft.rate:,.0f}", "–")
    for name, one in found.items():
        if one.rate is None or one.seconds is None:
            table.add_row(PEERS[name][0], one.note)
            continue
        agrees = "–" if one.expected is None else "no" if one.differs else "yes"
        figures = (
            f"{one.tuples:,}",
            f"{one.seconds:.2f}",
            f"{one.rate:,.0f}",
            f"{weft.rate / one.rate:,.1f} ×",
        )
        table.add_row(PEERS[name][0], agrees, *figures)
    return table


def selectivity_table(found: Mapping[Case, Steady]) -> Table:
    """One row per domain (Figure 17)."""
    size = next(iter(found)).size
    table = _table(
        f"Selectivity: windows of {window_text(size)} tuples",
        "partners: in a full window, for each tuple, from the width of the bands",
        (),
        ("values up to", "partners", "results/tuple", "tuples/s", "results/s", "p50 s"),
    )
    for case, one in found.items():
        table.add_row(
            f"{case.domain:,}",
            f"{matches_per_tuple(case.size, case.domain):.2f}",
            f"{one.matches:.2f}",
            f"{one.rate:,.0f}",
            f"{one.rate * one.matches:,.0f}",
            f"{percentile(one.cycles, 0.5):.2f}",
        )
    return table


def precision_table(found: Mapping[Case, Steady]) -> Table:
    """One row per order (Figure 19)."""
    first = next(iter(found))
    table = _table(
        f"Order: {first.kind} windows of {window_text(first.size)} tuples, to {first.sink}",
        "relative to the same join without order",
        ("order",),
        ("tuples/s", "relative", "p50 s", "p95 s"),
    )
    plain = without_order(found)
    for case, one in found.items():
        table.add_row(
            order_text(case),
            f"{one.rate:,.0f}",
            f"{one.rate / plain.rate:.1%}" if plain else "–",
            *(f"{percentile(one.cycles, share):.2f}" for share in (0.5, 0.95)),
        )
    return table


def latency_table(found: Sequence[Latency]) -> Table:
    """One row per run."""
    table = _table(
        "Visiting latency: from a tuple's arrival to its results at the sink (seconds)",
        "the parts are means; waiting: for the batch before, and for Spark to see the file",
        ("window",),
        ("tuples/s", "mean", "p50", "p95", *PARTS),
    )
    for one in found:
        table.add_row(
            f"{one.case.kind} {window_text(one.case.size)}",
            f"{one.rate:,.0f}" + ("" if one.kept_up else " (too many)"),
            *(f"{figure:.2f}" for figure in (one.latency.mean, one.latency.p50, one.latency.p95)),
            *(f"{part:.2f}" for part in one.parts),
        )
    return table
