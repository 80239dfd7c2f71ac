"""How much slower batches are while clients watch: hundreds of live readers, and tens that ask again and again.

One `weft serve` runs a join of two generated streams. Windows without and with clients follow each other in turns
(quiet, busy, busy, quiet, …), so that a drift of the machine falls on both alike. The time of a batch is what the
service says of it; neither the median nor the mean may be more than a tenth longer with clients. Idle clients follow a
query that has no results; a busy one asks for the overview, the queries, a page of results, metrics or batches, by
turns, twice a second by default.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import fmean

from benchmarks._harness import make_parser, say
from benchmarks._race import percentile
from benchmarks._serve_clients import Load, put_under_load
from rich.console import Console
from rich.table import Table

from weft.errors import WeftError
from weft.service.client import Client

MOST = 1.10  # so many times as long may a batch take with clients, in the median and in the mean

PIPELINE = """
streams:
  left: {{event_time: ts, source: {{rate: {rate}, columns: {{k: {{uniform: 10000}}, ts: timestamps}}}}}}
  right: {{event_time: ts, source: {{rate: {rate}, seed: 2, columns: {{k: {{uniform: 10000}}, ts: timestamps}}}}}}
queries:
  pairs: SELECT l.k, l.ts FROM left [RANGE 5 SECONDS] AS l, right [RANGE 5 SECONDS] AS r WHERE l.k = r.k
  silent: SELECT l.k FROM left [RANGE 5 SECONDS] AS l, right [RANGE 5 SECONDS] AS r WHERE l.k = r.k AND l.k < 0
checkpoint: ck
execution: {execution}
adapt: "off"
serve: {{port: 0, rate: 1000000, burst: 1000000, live_readers: 10000}}
"""


def main(arguments: list[str]) -> int:
    """Run the benchmark."""
    parser = make_parser("serve", __doc__)
    parser.add_argument("--idle", type=int, default=500, help="clients that follow results")
    parser.add_argument("--busy", type=int, default=50, help="clients that ask again and again")
    parser.add_argument(
        "--every", type=float, default=0.5, help="seconds between two requests of a busy client"
    )
    parser.add_argument("--seconds", type=float, default=15.0, help="of a window")
    parser.add_argument("--rounds", type=int, default=4, help="windows of either kind")
    parser.add_argument("--rate", type=int, default=20_000, help="rows per second and stream")
    parser.add_argument("--execution", default="auto", choices=("auto", "resident", "jobs", "local"))
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="weft-serve-", ignore_cleanup_errors=True) as root:
        file = Path(root) / "pipeline.yaml"
        file.write_text(PIPELINE.format(rate=options.rate, execution=options.execution), encoding="utf-8")
        command = [sys.executable, "-c", "from weft.service.cli import main; main()", "serve", str(file)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        try:
            return measure(process, options)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def measure(process: subprocess.Popen[str], options: argparse.Namespace) -> int:
    """Measure a service that is starting."""
    assert process.stdout is not None
    address = process.stdout.readline().rpartition(" ")[2].strip()
    client, port = Client(address), int(address.rpartition(":")[2])
    _wait_until_it_runs(client)
    say("warming up")
    _window(client, options.seconds)
    taken: dict[str, list[float]] = {"without clients": [], "with clients": []}
    load = Load()
    for number in range(options.rounds):
        kinds = list(taken) if number % 2 == 0 else list(reversed(taken))
        for kind in kinds:
            say(f"round {number + 1} of {options.rounds}: {kind}")
            if kind == "without clients":
                taken[kind] += _window(client, options.seconds)
            else:
                seconds, load = _busy_window(client, port, options)
                taken[kind] += seconds
    return _report(taken, load, options)


def _wait_until_it_runs(client: Client) -> None:
    until = time.monotonic() + 300
    while time.monotonic() < until:
        try:
            if client.health().ready and client.batches(limit=1):
                return
        except WeftError:
            pass
        time.sleep(0.5)
    raise WeftError("the service does not run")


def _window(client: Client, seconds: float) -> list[float]:
    """The seconds of the batches that end within a window."""
    first = client.batches(limit=1)[-1].number
    until = time.monotonic() + seconds
    found: dict[int, float] = {}
    while time.monotonic() < until:
        time.sleep(min(1.0, seconds))
        found |= {one.number: one.seconds for one in client.batches(first, 1000)}
    return list(found.values())


def _busy_window(client: Client, port: int, options: argparse.Namespace) -> tuple[list[float], Load]:
    """A window while clients watch, which are there before it begins and until it has ended."""
    ready, found = threading.Event(), list[Load]()

    async def run() -> None:
        there = asyncio.Event()
        lasting = options.seconds + 2
        task = asyncio.create_task(
            put_under_load(port, options.idle, options.busy, options.every, lasting, there)
        )
        await asyncio.wait([task, asyncio.create_task(there.wait())], return_when=asyncio.FIRST_COMPLETED)
        ready.set()
        found.append(await task)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    ready.wait()
    taken = _window(client, options.seconds)
    thread.join()
    return taken, found[0]


def _report(taken: dict[str, list[float]], load: Load, options: argparse.Namespace) -> int:
    table = Table(title=f"{options.idle} idle and {options.busy} busy clients")
    for head in ("", "batches", "mean, ms", "median, ms", "95th percentile, ms"):
        table.add_column(head, justify="left" if not head else "right")
    for kind, seconds in taken.items():
        ordered = sorted(seconds)
        figures = (fmean(ordered), percentile(ordered, 0.5), percentile(ordered, 0.95))
        table.add_row(kind, str(len(ordered)), *(f"{1e3 * one:.1f}" for one in figures))
    console = Console()
    console.print(table)
    without, others = sorted(taken["without clients"]), sorted(taken["with clients"])
    median, mean = percentile(others, 0.5) / percentile(without, 0.5), fmean(others) / fmean(without)
    wrong = sum(count for status, count in load.answers.items() if status != 200)
    console.print(
        f"with clients, a batch takes {median:.2f} times as long in the median and {mean:.2f} times in the mean "
        f"(at most {MOST:.2f})"
    )
    console.print(f"answers in the last busy window: {load.answers}, live readers: {load.open}")
    return 0 if max(median, mean) <= MOST and not wrong else 1
