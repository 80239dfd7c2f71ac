"""The memory that a hot key needs: Weft's join of two streams, each with so many rows of one key.

Guarantees: every sink (`to_count`, `to_parquet`, `to_memory`) has a session of its own, in one process, on Spark. The
figures are the most memory that any of Spark's Python workers had, the most that the driver had, and the number of
results. Memory is `RssAnon`, without pages that are mapped from files, which can be dropped at any time; samples are
taken a hundred times a second, from /proc. More than the target, or a wrong number of results, gives the exit code 1.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from benchmarks._harness import make_console, make_table, say

import weft

SINKS = ("count", "parquet", "memory")
TARGET = 1 << 30  # bytes of a worker
SQL = "SELECT a.x AS x, b.x AS y FROM a, b WHERE a.k = b.k"


@dataclass(frozen=True, slots=True)
class Run:
    """The figures of one sink: seconds, the most own memory of a worker and of the driver, and the results."""

    seconds: float
    worker: int
    driver: int
    results: int


def own_memory(process: int, root: Path = Path("/proc")) -> int:
    """The memory of a process, in bytes, that is not mapped from files; 0 if the process has ended."""
    try:
        lines = (root / str(process) / "status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def workers_of(session: int, root: Path = Path("/proc")) -> list[int]:
    """Spark's Python workers in a session of processes: those that run PySpark's daemon or were forked by it."""
    found = []
    for entry in root.glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
            fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # the process has ended meanwhile
            continue
        if (
            int(fields[3]) == session
            and (b"pyspark" in command or b"weft" in command)
            and b"java" not in command
        ):
            found.append(int(entry.name))
    return [one for one in found if one != os.getpid()]


class Peaks:
    """Watches the workers and this process while its `with` block runs."""

    def __init__(self) -> None:
        self.worker = self.driver = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peaks:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        session, looked, workers = os.getsid(0), 0.0, list[int]()
        while not self._done.wait(0.01):
            if time.monotonic() - looked > 0.5:
                workers, looked = workers_of(session), time.monotonic()
            self.worker = max([self.worker, *map(own_memory, workers)])
            self.driver = max(self.driver, own_memory(os.getpid()))


def _sink(kind: str, out: Path) -> tuple[Any, Callable[[], int]]:
    """A sink, and a function that gives how many results are in it."""
    if kind == "count":
        count = weft.to_count()
        return count, count.count
    if kind == "memory":
        memory = weft.to_memory()
        return memory, lambda: memory.results().num_rows
    return weft.to_parquet(out), lambda: ds.dataset(out, format="parquet", partitioning="hive").count_rows()


def measure(kind: str, rows: int, work: Path, master: str, memory: str | None, order: str = "none") -> Run:
    """Join two files of so many rows of one key."""
    session = weft.Session(checkpoint=work / "checkpoint", master=master, memory=memory)
    for name in "ab":
        folder = work / name
        folder.mkdir(parents=True)
        columns = {"k": np.zeros(rows, np.int64), "x": np.arange(rows, dtype=np.int64)}
        pq.write_table(pa.table(columns), folder / "rows.parquet")
        session.stream(name, weft.files("parquet", str(folder), schema="k long, x long"))
    sink, count = _sink(kind, work / "out")
    session.query(SQL, name="hot", sink=sink, order=order)
    began = time.perf_counter()
    with Peaks() as peaks:
        session.start()
        try:
            session.process_all_available()
        finally:
            session.stop()
    return Run(time.perf_counter() - began, peaks.worker, peaks.driver, count())


def main(arguments: Sequence[str]) -> int:
    """Measure all sinks and print the table."""
    parser = argparse.ArgumentParser("weft bench hotkey", description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000, help="of the key in each stream")
    parser.add_argument("--sinks", nargs="+", choices=SINKS, default=SINKS)
    parser.add_argument("--order", choices=("none", "outer", "inner"), default="none", help="of the results")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default=None, help='of a task, as in "512 MB"')
    parser.add_argument("--work", type=Path, default=None, help="a directory for what is written")
    given = parser.parse_args(arguments)
    found: dict[str, Run] = {}
    with tempfile.TemporaryDirectory(dir=given.work) as work:
        for kind in given.sinks:
            found[kind] = measure(kind, given.rows, Path(work, kind), given.master, given.memory, given.order)
            say(f"{kind}: {found[kind]}")
    table = make_table(
        f"one key, {given.rows:,} × {given.rows:,} rows, order {given.order}, {given.master}",
        ("sink", "results", "seconds", "worker's own memory", "driver's own memory"),
    )
    for kind, run in found.items():
        sizes = (f"{run.worker / 1e6:,.0f} MB", f"{run.driver / 1e6:,.0f} MB")
        table.add_row(kind, f"{run.results:,}", f"{run.seconds:.1f}", *sizes)
    make_console().print(table)
    right = all(run.results == given.rows**2 and run.worker <= TARGET for run in found.values())
    return 0 if right else 1
