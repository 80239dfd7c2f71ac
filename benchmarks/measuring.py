"""What measuring latency costs: the part of the processor's time of a join that goes into it.

The joins are those of `weft bench pair` and `weft bench chain3`, in this process (`execution="local"`). Every function
that does nothing but measure latency is timed while the session runs, by the time its thread had the processor; the sum
is compared with what the whole process used meanwhile. So other processes disturb it little. The first batch, in which
kernels are loaded, counts as well.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks._data import SCHEMA, Shape, write_streams
from benchmarks._harness import make_console, make_parser, make_table
from benchmarks._joins import JOINS, KEYS, RATE, Join
from benchmarks._progress import wait_for_weft

import weft
from weft.runtime.hop import interpret as probing
from weft.runtime.hop import projection
from weft.runtime.hop.latency import LatencyCounts
from weft.runtime.loop import loop
from weft.runtime.loop.batch import committer as committing
from weft.runtime.task import hop_run, worker

# Where the functions are called that do nothing but measure latency; none of them calls another of them.
_MEASURING: tuple[tuple[Any, str], ...] = (
    (projection, "found_ages"),
    (projection, "tuple_ages"),
    (probing, "tuple_ages"),
    (LatencyCounts, "add"),
    (LatencyCounts, "add_repeated"),
    (LatencyCounts, "add_shared"),
    (LatencyCounts, "latencies"),
    (worker, "ages_of_rows"),
    (hop_run, "batch_ages"),
    (loop, "ages_of_inputs"),
    (committing, "with_latencies"),
)


@dataclass
class Cost:
    """The seconds of the processor that measuring took, by function, and that the process took in all."""

    measuring: dict[str, float] = field(default_factory=dict)
    whole: float = 0.0

    @property
    def part(self) -> float:
        """The part of measuring."""
        return sum(self.measuring.values()) / self.whole

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, which adds its seconds."""

        def call(*given: Any, **named: Any) -> Any:
            began = time.thread_time()
            try:
                return function(*given, **named)
            finally:
                self.measuring[name] = self.measuring.get(name, 0.0) + time.thread_time() - began

        return call


@contextmanager
def costs() -> Iterator[Cost]:
    """While it is used, everything that measures latency is timed."""
    found, patches = Cost(), []
    for place, name in _MEASURING:
        what = f"{getattr(place, '__name__', '').rpartition('.')[2]}.{name}"
        patches.append(patch.object(place, name, found.timed(what, getattr(place, name))))
    for one in patches:
        one.start()
    began = time.process_time()
    try:
        yield found
    finally:
        found.whole = time.process_time() - began
        for one in patches:
            one.stop()


def run(join: Join, folder: Path, rows: int, batch: int) -> tuple[Cost, int]:
    """What a join costs, and how many results it has."""
    write_streams(folder / "in", join.streams, Shape(rows, batch, RATE, KEYS))
    known = weft.StreamStatistics(rate=RATE, distinct={"vid": KEYS, "uid": KEYS})
    session = weft.Session(
        checkpoint=folder / "checkpoint",
        execution="local",
        statistics=weft.Statistics(dict.fromkeys(join.streams, known)),
        adapt="off",
    )
    for name in join.streams:
        source = weft.files("parquet", str(folder / "in" / name), schema=SCHEMA, max_files_per_batch=1)
        session.stream(name, source, event_time="ts")
    session.query(join.weft_sql(), name=join.name, sink=weft.to_parquet(folder / "out"))
    with costs() as found:
        session.start(available_now=True)
        wait_for_weft(session, join.name)
    results = sum(one.results for one in session.progress[join.name])
    session.stop()
    return found, results


def main(arguments: list[str]) -> int:
    """Print the table."""
    parser = make_parser("measuring", __doc__)
    add = parser.add_argument
    add("--rows", type=int, default=4_000_000, help="rows of each stream (%(default)s)")
    add("--batch", type=int, default=400_000, help="rows of each stream in a batch (%(default)s)")
    add("--joins", default="pair,chain3", type=lambda text: text.split(","), help="some of pair,chain3,star3")
    options = parser.parse_args(arguments)
    table = make_table(
        "what measuring latency costs, seconds of the processor",
        ("join", "results", "in all", "measuring", "of it"),
        0,
    )
    for name in options.joins:
        with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
            cost, results = run(JOINS[name], Path(folder), options.rows, options.batch)
        spent = sum(cost.measuring.values())
        table.add_row(name, f"{results:,}", f"{cost.whole:.2f}", f"{spent:.3f}", f"{100 * cost.part:.2f} %")
    make_console().print(table)
    return 0
