"""How close each strategy comes to the best plan there is, and how long planning takes.

Random queries of 3 to 5 relations (chains, stars, cliques, trees, cycles; windows of every kind; equalities,
comparisons and sums) are planned by every strategy and compared with `exhaustive`. Then `auto` is timed alone.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from multiprocessing import get_context

from benchmarks._harness import conclude, make_console, make_parser, make_table
from rich.progress import track
from rich.table import Table
from tests.random_cases import random_case

from weft.optimizer.single.strategies import STRATEGIES, optimise
from weft.optimizer.space import Options

HEURISTICS = tuple(name for name in STRATEGIES if name != "exhaustive")

EQUAL = 1e-9  # costs that differ by a smaller part than this count as equal
# How many relations a query has, and each strategy's cost relative to the best plan.
Result = tuple[int, dict[str, float]]
# What is timed: relations, shape, and how many milliseconds 95 % may take.
TIMED = (
    *((3, None, None), (4, None, None), (5, None, 50)),
    *((6, "chain", None), (8, "chain", None), (10, "chain", 200)),
)


def costs(seed: int) -> Result:
    """How many relations a random query has, and each strategy's cost relative to the best plan."""
    case = random_case(seed)
    found = {}
    for strategy in STRATEGIES:
        plan = optimise(case.query, case.statistics, Options(strategy=strategy))
        found[strategy] = plan.cost.total if plan.cost else 0.0
    return len(case.query.inputs), {name: found[name] / found["exhaustive"] for name in HEURISTICS}


def p95(ascending: list[float]) -> float:
    """The value that 95 % do not exceed."""
    return ascending[math.ceil(0.95 * len(ascending)) - 1]


def times_cheaper(results: list[Result], name: str) -> int:
    """For how many queries a strategy is cheaper than `auto`."""
    return sum(ratio[name] < ratio["auto"] * (1 - EQUAL) for _, ratio in results)


def quality_table(results: list[Result]) -> Table:
    """The table of costs relative to the best plan's, with one row per strategy."""
    table = make_table(
        f"Cost relative to the best plan ({len(results)} random queries of 3-5 relations)",
        ("strategy", "mean", "median", "p95", "worst", "best", "> auto", "< auto"),
        caption="best: best plan found; > auto, < auto: queries dearer, cheaper than auto",
    )
    for name in HEURISTICS:
        ratios = sorted(ratio[name] for _, ratio in results)
        beaten = sum(ratio[name] > ratio["auto"] * (1 + EQUAL) for _, ratio in results)
        table.add_row(
            name,
            f"{statistics.mean(ratios):.4f}",
            f"{statistics.median(ratios):.4f}",
            f"{p95(ratios):.3f}",
            f"{ratios[-1]:.3f}",
            f"{sum(r < 1 + EQUAL for r in ratios) / len(ratios):.1%}",
            str(beaten),
            str(times_cheaper(results, name)),
        )
    return table


def milliseconds(seeds: range, least: int, most: int, shape: str | None) -> list[float]:
    """The time `auto` takes for each of some random queries."""
    taken = []
    for seed in seeds:
        case = random_case(seed, least=least, most=most, shape=shape)
        begin = time.perf_counter()
        optimise(case.query, case.statistics, Options())
        taken.append(1000 * (time.perf_counter() - begin))
    return sorted(taken)


def timed_name(relations: int, shape: str | None) -> str:
    """The name of a row of the table of times."""
    return f"{relations}-relation {shape}" if shape else f"{relations} relations, any shape"


def measure(count: int) -> list[list[float]]:
    """The times `auto` takes, for each entry of `TIMED`."""
    milliseconds(range(10), 3, 5, None)  # warm up
    return [milliseconds(range(count), relations, relations, shape) for relations, shape, _ in TIMED]


def time_table(times: list[list[float]]) -> Table:
    """The table of planning times of `auto` in one process."""
    table = make_table(
        f"Time to plan with auto (ms), {len(times[0])} random queries each",
        ("query", "median", "p95", "worst", "to reach"),
    )
    for (relations, shape, target), taken in zip(TIMED, times, strict=True):
        figures = (statistics.median(taken), p95(taken), taken[-1])
        table.add_row(timed_name(relations, shape), *(f"{ms:.1f}" for ms in figures), str(target or ""))
    return table


def verdicts(times: list[list[float]], results: list[Result]) -> list[tuple[str, bool]]:
    """Each target with the figure that was measured, and whether it was reached."""
    mean = statistics.mean(ratio["auto"] for _, ratio in results)
    found = [(f"auto within 5 % of the best plan on average ({mean - 1:.2%} above)", mean <= 1.05)]
    for name in ("flat", "left_deep"):
        count = times_cheaper(results, name)
        found.append((f"auto never dearer than {name} ({count} times)", count == 0))
    for (relations, shape, target), taken in zip(TIMED, times, strict=True):
        if target is not None:
            what = f"{timed_name(relations, shape)}: p95 below {target} ms ({p95(taken):.1f} ms)"
            found.append((what, p95(taken) < target))
    return found


def positive(text: str) -> int:
    """A count from the command line, which must be positive."""
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{count} is not 1 or more")
    return count


def main(arguments: list[str]) -> int:
    """Print both tables and a verdict on each target; 1 if one is missed and ``--strict`` given."""
    parser = make_parser("strategies", __doc__, "strict")
    parser.add_argument("--queries", type=positive, default=1000, help="random queries to compare")
    parser.add_argument("--timed", type=positive, default=100, help="random queries to time")
    parser.add_argument("--workers", type=positive, default=2, help="processes for the comparison")
    options = parser.parse_args(arguments)
    console, begin = make_console(), time.perf_counter()
    times = measure(options.timed)
    console.print(time_table(times))
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        found = pool.map(costs, range(options.queries), chunksize=2)
        results = list(track(found, "comparing", options.queries, console=console, transient=True))
    console.print(quality_table(results))
    console.print(f"{timedelta(seconds=round(time.perf_counter() - begin))} in all")
    return conclude(console, options, verdicts(times, results))
