"""Nexmark's joins and aggregates: Weft, DuckDB's batch answer, and Flink where it is installed, over the same rows.

Events are made from their numbers by the benchmark's public rules, as Parquet files of people, auctions and bids.
Weft reads the files on local Spark and writes Parquet, exactly once, nothing being told of the streams; DuckDB reads
the same files at once and writes Parquet; Flink reads the same files, keeps its state on the heap for ever, makes no
checkpoint and throws its results away. Weft's results must be DuckDB's, by count and checksum: else the exit code is 1.
Rates count all events, also those of kinds that a query does not read, which Weft and its peers leave where they are.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
from benchmarks._flink import find_flink
from benchmarks._harness import (
    ContenderError,
    conclude,
    make_console,
    make_parser,
    make_table,
    run_alone,
    say,
    some_of,
    working_directory,
)
from benchmarks._nexmark_data import SCHEMAS, Events, write_events
from benchmarks._nexmark_flink import run_flink
from benchmarks._nexmark_queries import PUBLISHED, QUERIES, NexmarkQuery
from benchmarks._progress import wait_for_weft, weft_batches

import weft

CONTENDERS = ("weft", "duckdb", "flink")
TARGETS = {"flink": 8.0, "duckdb": 0.4}


@dataclass(frozen=True, slots=True)
class NexmarkTask:
    """What a contender is given."""

    query: str
    contender: str
    data: str
    work: str
    events: int
    files_per_batch: int
    cores: int
    memory: str
    flink: str | None = None  # the interpreter that has Flink's package
    launched: float = 0.0

    @property
    def out(self) -> str:
        """Where the results go."""
        return str(Path(self.work, "out"))


def run_contender(task: NexmarkTask) -> dict[str, Any]:
    """Run the contender that the task names, and give its seconds, start included and not."""
    query = QUERIES[task.query]
    if task.contender == "flink":
        return run_flink(query, task.data, task.flink or "", task.cores, task.memory)
    return run_duckdb(query, task) if task.contender == "duckdb" else run_weft(query, task)


def run_weft(query: NexmarkQuery, task: NexmarkTask) -> dict[str, Any]:
    """The query by Weft, from files to files; without its start, from the second batch on."""
    session = weft.Session(checkpoint=f"{task.work}/checkpoint", master=f"local[{task.cores}]")
    for name in query.streams:
        path = f"{task.data}/{name}"
        source = weft.files("parquet", path, schema=SCHEMAS[name], max_files_per_batch=task.files_per_batch)
        session.stream(name, source, event_time="ts")
    if any(stream == "side" for stream, _ in query.inputs):
        side = weft.files("parquet", f"{task.data}/side", schema="key long, value string")
        session.table("side", side)
    session.query(query.sql(), name=query.name, sink=weft.to_parquet(task.out))
    if query.aggregates:
        session.run_available()  # the end of the input closes what is open
    else:
        session.start(available_now=True)
        wait_for_weft(session, f"weft, {query.name}")
    total, timed = time.time() - task.launched, [alone for _, alone, _ in weft_batches(session)]
    session.stop()
    return {"total": total, "seconds": timed}


def run_duckdb(query: NexmarkQuery, task: NexmarkTask) -> dict[str, Any]:
    """The query by DuckDB, over all files at once."""
    Path(task.out).mkdir(parents=True)
    base = connect(query, task)
    began = time.perf_counter()
    base.execute(f"COPY ({query.duckdb_sql()}) TO '{task.out}/all.parquet' (FORMAT parquet)")
    return {"total": time.time() - task.launched, "seconds": [time.perf_counter() - began]}


def connect(query: NexmarkQuery, task: NexmarkTask) -> duckdb.DuckDBPyConnection:
    """A connection to DuckDB with views of the streams' files."""
    base = duckdb.connect()
    base.execute(f"SET threads = {task.cores}; SET TimeZone = 'UTC'")
    for stream, _ in query.inputs:
        base.execute(f"CREATE VIEW {stream} AS SELECT * FROM read_parquet('{task.data}/{stream}/*.parquet')")
    return base


def checksum(query: NexmarkQuery, out: str) -> tuple[int, int]:
    """How many results there are in some files, and a checksum of them that does not depend on their order."""
    names = ", ".join(name for _, name, _ in query.outputs)
    files = f"read_parquet('{out}/**/*.parquet', hive_partitioning = false)"
    base = duckdb.connect()
    base.execute("SET TimeZone = 'UTC'")
    text = f"SELECT count(*), coalesce(sum(hash({names}) % 1000000007), 0) FROM {files}"
    count, total = base.sql(text).fetchall()[0]
    return int(count), int(total)


def rate(task: NexmarkTask, figures: dict[str, Any]) -> float:
    """Events a second without the start: of Weft, from the second batch on; of others, as they measured it."""
    seconds = figures["seconds"]
    if len(seconds) == 1:
        return task.events / float(seconds[0])
    return task.events * (len(seconds) - 1) / len(seconds) / float(sum(seconds[1:]))


def main(arguments: list[str]) -> int:
    """Run the benchmark; 1 if results differ, or, with ``--strict``, if a target is missed."""
    options = _options(arguments)
    console, troubles, judged, figures = make_console(), [], [], {}
    ratios: dict[str, float] = {}
    flink = find_flink(options.flink)
    table = make_table(
        f"Nexmark, {options.events:,} events",
        ["query", "contender", "results", "seconds", "events/s", "events/s a core", "Weft is faster by"],
        left=2,
        caption="seconds with the start of the process; rates without it",
    )
    with working_directory(options) as root:
        say(f"writing {options.events:,} events")
        write_events(root / "data", Events(options.events, options.rate, options.file_events, options.seed))
        for name in options.queries:
            asked = [
                one for one in options.only if one != "flink" or (flink and not QUERIES[name].aggregates)
            ]
            rates: dict[str, float] = {}
            counted: dict[str, tuple[int, int]] = {}
            for contender in asked:
                task = _task(options, name, contender, root, flink)
                try:
                    answer = run_alone(run_contender, task, options.timeout)
                except ContenderError as error:
                    troubles.append(f"{name}, {contender}: {error}")
                    continue
                rates[contender] = rate(task, answer)
                if contender != "flink":
                    counted[contender] = checksum(QUERIES[name], task.out)
                figures[f"{name} {contender}"] = {**answer, **asdict(task), "rate": rates[contender]}
                count = counted.get(contender, (answer.get("results", 0), 0))[0]
                ratio = (
                    "–"
                    if contender == "weft" or "weft" not in rates
                    else (f"{rates['weft'] / rates[contender]:.2f} ×")
                )
                speeds = (f"{rates[contender]:,.0f}", f"{rates[contender] / options.cores:,.0f}")
                table.add_row(name, contender, f"{count:,}", f"{answer['total']:.1f}", *speeds, ratio)
                say(f"{name}, {contender}: {rates[contender]:,.0f} events/s")
            if len(set(counted.values())) > 1:
                troubles.append(f"{name}: results differ: {counted}")
            judged += _verdicts(name, rates, options.cores)
            peers = [peer for peer in rates if peer != "weft" and "weft" in rates]
            ratios |= {f"{name} ÷ {peer}": rates["weft"] / rates[peer] for peer in peers}
    console.print(table)
    if flink is None and "flink" in options.only:
        console.print(
            "Flink is not installed: pip install apache-flink in any environment, and --flink PYTHON"
        )
    return conclude(console, options, judged, troubles, figures, ratios)


def _verdicts(name: str, rates: dict[str, float], cores: int) -> list[tuple[str, bool]]:
    """Each target of a query with what was measured, and whether it was reached."""
    verdicts = []
    mine = rates.get("weft", 0.0)
    for peer, target in TARGETS.items():
        if peer in rates and mine:
            ratio = mine / rates[peer]
            verdicts.append((f"{name}: at least {target:g} × {peer} ({ratio:.2f} ×)", ratio >= target))
    if name in PUBLISHED and mine:
        text = f"{name}: above Feldera's published {PUBLISHED[name]:,} events/s a core ({mine / cores:,.0f})"
        verdicts.append((text, mine / cores > PUBLISHED[name]))
    return verdicts


def _task(
    options: argparse.Namespace, name: str, contender: str, root: Path, flink: str | None
) -> NexmarkTask:
    work = root / f"{name}-{contender}"
    work.mkdir()
    return NexmarkTask(
        name,
        contender,
        str(root / "data"),
        str(work),
        options.events,
        options.files_per_batch,
        options.cores,
        options.memory,
        flink,
    )


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser("nexmark", __doc__, "cores timeout directory json strict")
    add = parser.add_argument
    add("--events", type=int, default=10_000_000, help="how many, of all kinds")
    add("--rate", type=int, default=1_000_000, help="events a second of event time")
    add("--file-events", type=int, default=250_000, help="events of all kinds in the files of one number")
    add("--files-per-batch", type=int, default=2, help="files of each stream in a batch")
    add("--queries", type=some_of(tuple(QUERIES)), default=list(QUERIES), help=f"some of {','.join(QUERIES)}")
    add("--only", type=some_of(CONTENDERS), default=list(CONTENDERS), help=f"some of {','.join(CONTENDERS)}")
    add("--seed", type=int, default=7, help="of the events")
    add("--memory", default="6g", help="heap of Flink")
    add("--flink", metavar="PYTHON", help="an interpreter that has Flink's package, if this one has not")
    return parser.parse_args(arguments)
