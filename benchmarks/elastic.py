"""Load that doubles, bursts, falls and swings, with a target of latency and without one: `weft bench elastic`.

Guarantees: rows come at the rate of the scenario, whatever the session does, and are joined by a real session in this
process: two streams on one key, within a window of ten seconds. What is plotted is what its batches measured: latency
(p95), what waits, rows taken and tasks. With ``--backlog``, a hundred batches' worth waits at once instead: the rows a
second of all of it are compared with those of the largest batch. With ``--targets``, the same for several targets
(AJoin, Figure 22b: what a threshold of latency costs in throughput).
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks._harness import conclude, make_console, make_parser, make_table
from benchmarks._plot import Plot, draw

import weft
from weft.connectors.memory.source import TableSource

SCHEMA = "k long, ts timestamp"
KEYS = 1_000_000
STEP = 0.05  # seconds between two tables
SQL = "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k"

# By name, the rate at a part (0 to 1) of the time, as a multiple of the usual one.
SCENARIOS: dict[str, Callable[[float], float]] = {
    "doubles": lambda part: 1.0 if part < 0.5 else 2.0,
    "bursts": lambda part: 6.0 if 0.4 < part < 0.45 else 1.0,
    "falls": lambda part: 2.0 if part < 0.5 else 0.2,
    "sine": lambda part: 1.1 + math.sin(6 * math.pi * part),
}


def make_session(folder: Path, target: str | None) -> tuple[weft.Session, dict[str, TableSource]]:
    """A session that joins two streams, and their sources."""
    session = weft.Session(checkpoint=folder, execution="local", latency=target)
    sources = {name: TableSource(SCHEMA) for name in ("a", "b")}
    for name, source in sources.items():
        session.stream(name, source, event_time="ts", ahead=None)
    session.query(SQL, name="pair", sink=weft.to_count())
    return session, sources


def offer(sources: dict[str, TableSource], rows: int, rng: np.random.Generator, moment: float) -> None:
    """Let rows of a moment come, of both streams."""
    times = pa.array(np.full(rows, round(moment * 1e6)), pa.timestamp("us", tz="UTC"))
    for source in sources.values():
        source.offer(pa.table({"k": rng.integers(0, KEYS, rows), "ts": times}), arrived=round(moment * 1e6))


def run_scenario(name: str, rate: int, seconds: float, target: str | None) -> list[dict[str, float]]:
    """The batches of a scenario."""
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
        session, sources = make_session(Path(folder), target)
        rng = np.random.default_rng(1)
        session.start()
        offer(sources, 1_000, rng, time.time())
        session.process_all_available()  # kernels are compiled by now
        began = time.time()
        while (now := time.time()) < began + seconds:
            offer(sources, round(rate * SCENARIOS[name]((now - began) / seconds) * STEP), rng, now)
            time.sleep(max(0.0, STEP - (time.time() - now)))
        session.process_all_available()
        batches = session.progress["pair"][1:]
        session.stop()
    return [_figures(batch, began) for batch in batches]


def _figures(batch: Any, began: float) -> dict[str, float]:
    return {
        "at": batch.started - began,
        "p95": batch.latency.processing.p95 if batch.latency.count else 0.0,
        "behind": max((one.seconds for one in batch.backlog.values()), default=0.0),
        "rows": sum(one.rows for one in batch.inputs.values()),
        "seconds": batch.elapsed,
        "tasks": batch.tasks,
    }


def run_backlog(rows: int, target: str) -> tuple[float, float]:
    """The rows a second of a hundred batches' worth that waits at once, and those of its largest batch."""
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
        session, sources = make_session(Path(folder), target)
        rng, began = np.random.default_rng(1), time.time() - 3_600
        session.start()
        offer(sources, 1_000, rng, began)
        session.process_all_available()
        for number in range(100):
            offer(sources, rows, rng, began + number)
        started = time.perf_counter()
        session.process_all_available()
        spent = time.perf_counter() - started
        batches = [_figures(batch, began) for batch in session.progress["pair"][1:]]
        session.stop()
    largest = max(batches, key=lambda batch: batch["rows"])
    return sum(batch["rows"] for batch in batches) / spent, largest["rows"] / largest["seconds"]


def in_time(batches: list[dict[str, float]], target: float) -> float:
    """The part of the batches with results whose p95 is within the target."""
    told = [batch["p95"] <= target for batch in batches if batch["p95"]]
    return sum(told) / max(1, len(told))


def main(arguments: list[str]) -> int:
    """Print the table and the verdict, and draw the plot."""
    parser = make_parser("elastic", __doc__, "json strict")
    parser.add_argument("--rate", type=int, default=100_000, help="rows a second and stream (%(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each scenario (%(default)s)")
    parser.add_argument("--target", type=float, default=0.5, help="seconds (%(default)s)")
    parser.add_argument("--backlog", action="store_true", help="a backlog at once instead of scenarios")
    parser.add_argument("--targets", type=float, nargs="+", help="a backlog at once, for several targets")
    parser.add_argument("--plot", type=Path, help="where the plot is drawn")
    options = parser.parse_args(arguments)
    console, text = make_console(), f"{round(options.target * 1000)} ms"
    if options.backlog:
        whole, largest = run_backlog(options.rate // 10, text)
        told = f"a backlog runs at 0.9 of the largest batch's rows a second ({whole:,.0f} of {largest:,.0f})"
        return conclude(console, options, [(told, whole >= 0.9 * largest)], figures=[whole, largest])
    if options.targets:
        return _targets(options, console)
    figures = {
        f"{name}, {kind}": run_scenario(name, options.rate, options.seconds, wanted)
        for name in SCENARIOS
        for kind, wanted in (("with a target", text), ("without", None))
    }
    table = make_table("batches by scenario", ("scenario", "batches", "in time", "p95, s, at most", "tasks"))
    for name, batches in figures.items():
        worst, tasks = max(one["p95"] for one in batches), max(one["tasks"] for one in batches)
        table.add_row(
            name, str(len(batches)), f"{in_time(batches, options.target):.0%}", f"{worst:.2g}", f"{tasks}"
        )
    console.print(table)
    if options.plot is not None:
        draw(options.plot, [_plot(name, figures) for name in SCENARIOS])
    judged = [
        (
            f"{name}: p95 within {options.target:g} s in 95 % of batches",
            in_time(batches, options.target) >= 0.95,
        )
        for name, batches in figures.items()
        if name.endswith("with a target")
    ]
    return conclude(console, options, judged, figures=figures)


def _targets(options: Any, console: Any) -> int:
    """Print the rows a second of a backlog, by the target of latency."""
    figures = {
        target: run_backlog(options.rate // 10, f"{round(target * 1000)} ms")[0] for target in options.targets
    }
    table = make_table("a backlog by target", ("target, s", "rows/s"))
    for target, speed in figures.items():
        table.add_row(f"{target:g}", f"{speed:,.0f}")
    console.print(table)
    if options.plot is not None:
        line = list(figures), list(figures.values())
        draw(options.plot, [Plot("a backlog by target", "seconds", "rows a second", {"rows/s": line})])
    return conclude(console, options, [], figures=figures)


def _plot(scenario: str, figures: dict[str, list[dict[str, float]]]) -> Plot:
    lines = {
        f"{kind}: {figure}": ([one["at"] for one in batches], [one[figure] for one in batches])
        for name, batches in figures.items()
        for kind in [name.partition(", ")[2]]
        if name.startswith(scenario)
        for figure in ("p95", "behind", "tasks")
    }
    return Plot(scenario, "seconds", "seconds, and tasks", lines)
