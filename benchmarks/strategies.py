"""How close each strategy comes to the best plan there is, and how long planning takes.

Random queries of 3 to 5 relations (chains, stars, cliques, trees, cycles; windows of every kind; equalities,
comparisons and sums) are planned by every strategy; `exhaustive` is the yardstick. Then `auto` is timed alone.
"""

from __future__ import annotations

import argparse
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from multiprocessing import get_context

from rich.console import Console
from rich.progress import track
from rich.table import Table

from weft.optimizer.optimizer import STRATEGIES, optimise
from weft.optimizer.space import Options
from weft.testing import random_case

HEURISTICS = tuple(name for name in STRATEGIES if name != "exhaustive")


def costs(seed: int) -> tuple[int, dict[str, float]]:
    """How many relations a random query has, and each strategy's cost relative to the best plan."""
    case = random_case(seed)
    found = {}
    for strategy in STRATEGIES:
        plan = optimise(case.query, case.statistics, Options(strategy=strategy))
        found[strategy] = plan.cost.total if plan.cost else 0.0
    return len(case.query.inputs), {name: found[name] / found["exhaustive"] for name in HEURISTICS}


def quality_table(results: list[tuple[int, dict[str, float]]]) -> Table:
    """One row per strategy: its cost over the best plan's."""
    table = Table(title=f"Cost relative to the best plan ({len(results)} random queries of 3-5 relations)")
    for head in (
        "strategy",
        "mean",
        "median",
        "p95",
        "worst",
        "best plan found",
        "dearer than auto",
        "cheaper",
    ):
        table.add_column(head, justify="left" if head == "strategy" else "right")
    for name in HEURISTICS:
        ratios = sorted(ratio[name] for _, ratio in results)
        beaten = sum(ratio[name] > ratio["auto"] * (1 + 1e-9) for _, ratio in results)
        cheaper = sum(ratio[name] < ratio["auto"] * (1 - 1e-9) for _, ratio in results)
        table.add_row(
            name,
            f"{statistics.mean(ratios):.4f}",
            f"{statistics.median(ratios):.4f}",
            f"{ratios[int(0.95 * (len(ratios) - 1))]:.3f}",
            f"{ratios[-1]:.3f}",
            f"{sum(r < 1 + 1e-9 for r in ratios) / len(ratios):.1%}",
            str(beaten),
            str(cheaper),
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


def time_table(count: int) -> Table:
    """Planning times of `auto`, one process."""
    table = Table(title=f"Time to plan with auto (ms), {count} random queries each")
    for head in ("query", "median", "p95", "worst", "to reach"):
        table.add_column(head, justify="left" if head == "query" else "right")
    rows: list[tuple[str, int, str | None, str]] = []
    rows += [(f"{n} relations, any shape", n, None, "50" if n == 5 else "") for n in (3, 4, 5)]
    rows += [(f"{n}-relation chain", n, "chain", "200" if n == 10 else "") for n in (6, 8, 10)]
    milliseconds(range(10), 3, 5, None)  # warm up
    for name, relations, shape, target in rows:
        taken = milliseconds(range(count), relations, relations, shape)
        p95 = taken[int(0.95 * (len(taken) - 1))]
        table.add_row(name, f"{statistics.median(taken):.1f}", f"{p95:.1f}", f"{taken[-1]:.1f}", target)
    return table


def main(arguments: list[str]) -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="weft bench strategies", description=__doc__)
    parser.add_argument("--queries", type=int, default=1000, help="random queries to compare")
    parser.add_argument("--timed", type=int, default=100, help="random queries to time")
    parser.add_argument("--workers", type=int, default=2, help="processes for the comparison")
    options = parser.parse_args(arguments)
    console, begin = Console(), time.perf_counter()
    console.print(time_table(options.timed))
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        found = pool.map(costs, range(options.queries), chunksize=2)
        results = list(track(found, "comparing", options.queries, console=console, transient=True))
    console.print(quality_table(results))
    console.print(f"{timedelta(seconds=round(time.perf_counter() - begin))} in all")
    return 0
