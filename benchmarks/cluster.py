"""Weft on a standalone cluster of Spark against Weft on one machine, on the same cores.

The joins are those of `weft bench pair` and `weft bench chain3`, in large batches and in small ones, as jobs and by
tasks that stay. The cluster is a master and a worker per core, all on this machine, so that only what a cluster needs
besides is measured: further processes, and TCP between them. Every run is a process of its own; its rate is that of
all batches but the first quarter, in which Java compiles, and results are compared by count and checksum: a difference
gives the exit code 1.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._data import SCHEMA, Shape, write_streams
from benchmarks._digest import Digest, digest
from benchmarks._harness import (
    conclude,
    make_console,
    make_parser,
    make_table,
    run_alone,
    say,
    working_directory,
)
from benchmarks._joins import JOINS, KEYS, RATE
from benchmarks._progress import wait_for_weft, weft_batches
from rich.table import Table
from tests.servers.spark_cluster import SparkCluster

import weft


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Join all input that there is, and return how many rows every batch had and how many seconds it took."""
    join = JOINS[task["join"]]
    known = weft.StreamStatistics(rate=RATE, distinct={"vid": KEYS, "uid": KEYS})
    session = weft.Session(
        checkpoint=f"{task['work']}/checkpoint",
        master=task["master"],
        execution=task["execution"],
        statistics=weft.Statistics(dict.fromkeys(join.streams, known)),
        options=weft.Options(partitions=task["cores"]),
        adapt="off",
    )
    for name in join.streams:
        source = weft.files("parquet", f"{task['data']}/{name}", schema=SCHEMA, max_files_per_batch=1)
        session.stream(name, source, event_time="ts")
    session.query(join.weft_sql(), name=join.name, sink=weft.to_parquet(f"{task['work']}/out"))
    session.start(available_now=True)
    wait_for_weft(session, f"{task['master']}, {task['execution']}")
    by_number = {batch.number: batch for batch in session.progress[join.name]}
    timed = [(by_number[number], alone, whole) for number, alone, whole in weft_batches(session)]
    session.stop()
    return {
        "rows": [sum(one.rows for one in batch.inputs.values()) for batch, _, _ in timed],
        "seconds": [alone for _, alone, _ in timed],
        "latencies": [whole for _, _, whole in timed],
        "tasks": [list(batch.seconds) for batch, _, _ in timed],
    }


TARGET = 0.85
WARM = 4  # one batch of so many is not counted, those that come first
_ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Course:
    """What is run: a join in batches of so many rows of each stream, and how."""

    join: str
    batch: int
    execution: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of a run."""

    rate: float  # input rows a second
    median: float  # seconds from looking for input to the commit
    results: Digest


def main(arguments: list[str]) -> int:
    """Run the benchmark; 1 if results differ, or, with ``--strict``, if a target is missed."""
    options = _options(arguments)
    console = make_console()
    with working_directory(options) as folder:
        rows = list(_run_all(folder, options))
    console.print(_table(rows, options.cores))
    differ = [course for course, found in rows if len({one.results for one in found.values()}) > 1]
    judged = []
    for course, found in rows:
        if (ratio := _ratio(found)) is not None:
            what = f"{course.execution}, {course.join}, batches of {course.batch:,}"
            judged.append((f"{what}: at least {TARGET} × ({ratio:.2f} ×)", ratio >= TARGET))
    troubles = [f"the results of {course} differ" for course in differ]
    return conclude(console, options, judged, troubles, _plain(rows))


Rows = list[tuple[Course, dict[str, Outcome]]]


def _run_all(root: Path, options: Any) -> Iterator[tuple[Course, dict[str, Outcome]]]:
    """Every course on one machine and on a cluster."""
    for join in options.joins:
        for batch in options.batches:
            rows = options.rows if batch >= 100_000 else options.rows // 8
            data = root / f"{join}-{batch}"
            write_streams(data, JOINS[join].streams, Shape(rows, batch, RATE, KEYS))
            for execution in options.executions:
                course = Course(join, batch, execution)
                yield (
                    course,
                    {where: _run(root, data, course, where, rows, options) for where in options.places},
                )


def _run(root: Path, data: Path, course: Course, where: str, rows: int, options: Any) -> Outcome:
    work = Path(tempfile.mkdtemp(dir=root))
    with _master(where, work, options.cores) as master:
        task = {"join": course.join, "execution": course.execution, "master": master, "data": str(data)}
        task |= {"work": str(work), "cores": options.cores}
        found = run_alone(run, task, options.timeout)
    warm = -(-len(found["rows"]) // WARM)
    counted = sum(found["rows"][warm:]), sum(found["seconds"][warm:])
    outcome = Outcome(
        counted[0] / counted[1],
        statistics.median(found["latencies"][warm:]),
        digest(f"{work}/out", JOINS[course.join].streams, rows),
    )
    tasks = [statistics.median(one) for one in zip(*found["tasks"][warm:], strict=False)]
    say(
        f"{course} on {where}: {outcome.rate:,.0f} rows/s, {1000 * outcome.median:.0f} ms a batch, "
        f"tasks {', '.join(f'{1000 * one:.0f}' for one in tasks)} ms"
    )
    return outcome


@contextmanager
def _master(where: str, work: Path, cores: int) -> Iterator[str]:
    """A master on this machine; the cluster's executors import this Weft and the benchmarks."""
    if where == "local":
        yield f"local[{cores}]"
        return
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    cluster = SparkCluster(work / "cluster")
    try:
        cluster.start(cores)
        yield cluster.master
    finally:
        cluster.stop()


def _ratio(found: dict[str, Outcome]) -> float | None:
    return found["cluster"].rate / found["local"].rate if found.keys() >= {"cluster", "local"} else None


def _table(rows: Rows, cores: int) -> Table:
    table = make_table(
        f"a standalone cluster against one machine, {cores} cores",
        ("join", "batches of", "execution", "local, rows/s", "cluster, rows/s", "ratio", "ms", "ms "),
        0,
    )
    for course, found in rows:
        local, cluster = found.get("local"), found.get("cluster")
        ratio = _ratio(found)
        table.add_row(
            *(course.join, f"{course.batch:,}", course.execution),
            *("–" if one is None else f"{one.rate:,.0f}" for one in (local, cluster)),
            "–" if ratio is None else f"{ratio:.2f} ×",
            *("–" if one is None else f"{1000 * one.median:.0f}" for one in (local, cluster)),
        )
    return table


def _plain(rows: Rows) -> list[dict[str, Any]]:
    return [
        {
            "join": course.join,
            "batch": course.batch,
            "execution": course.execution,
            "ratio": _ratio(found),
            **{where: {"rate": one.rate, "seconds": one.median} for where, one in found.items()},
        }
        for course, found in rows
    ]


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser("cluster", __doc__, "timeout directory json strict", timeout=600.0)
    add = parser.add_argument
    add(
        "--rows",
        type=int,
        default=6_400_000,
        help="rows of each stream; an eighth of it where batches are small",
    )
    add("--batches", type=_numbers, default=[400_000, 10_000], help="rows of each stream in a batch")
    add("--joins", type=_names, default=["pair", "chain3"], help="some of pair,chain3")
    add("--executions", type=_names, default=["jobs", "resident"], help="some of jobs,resident")
    add("--places", type=_names, default=["local", "cluster"], help="some of local,cluster")
    add("--cores", type=int, default=2, help="of either; the cluster has as many workers")
    return parser.parse_args(arguments)


def _names(text: str) -> list[str]:
    return text.split(",")


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]
