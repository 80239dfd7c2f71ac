"""The options of SplitJoin's benchmark, and the cases of every section.

Guarantees: every case is listed once. Without --full, not all combinations are run: all windows are, with the most
cores and the fewest partitions, and for one window all numbers of cores and partitions.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from itertools import product

from benchmarks._splitjoin import KINDS
from benchmarks._splitjoin_figures import Case
from benchmarks._splitjoin_peers import PEERS

__all__ = [
    "SECTIONS",
    "latency_cases",
    "parse",
    "peer_cases",
    "precision_cases",
    "selectivity_cases",
    "throughput_cases",
]

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
