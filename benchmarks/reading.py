"""What it costs to read a row, by stage, until it is on its way to its partition: `weft bench reading`.

Guarantees: the task that reads is the one that runs in a session (`runtime/task/worker.py`), over Parquet files of five
columns: two keys, the time, two payloads. It is given the same file again and again; a stage's figure is the time that
its thread had the processor, without the stages inside it, in the best of the repetitions. Beside it stands what Arrow
alone takes to decode the same columns of the same file. Three kinds of rows are read: numbers; numbers of which a
filter keeps a half; and rows whose key and filter are texts.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks._harness import conclude, make_console, make_parser, make_table, some_of
from benchmarks._progress import wait_for_weft

import weft
from weft.connectors.files import source
from weft.connectors.formats import parquet
from weft.runtime.hop import admission
from weft.runtime.local import LocalExecutor
from weft.runtime.output import outlet
from weft.runtime.task import worker
from weft.runtime.wire import exchange

TARGET = 150  # nanoseconds of one core to read, filter and route a row of numbers
SECOND = 1_000_000

# Where stages begin, and what they are called; each is timed without those inside it.
_STAGES: tuple[tuple[Any, str, str], ...] = (
    (source, "read_part", "file into memory"),
    (parquet, "_decode", "decode"),
    (parquet, "decode_table", "check types and times"),
    (worker, "ages_of_rows", "ages"),
    (worker, "admit", "admit"),
    (admission, "sample_values", "sample"),
    (admission, "_wanted", "filter"),
    (admission, "send", "partition"),
    (outlet, "group", "group and gather"),
    (exchange.Exchange, "pack", "pack"),
)


@dataclass(frozen=True, slots=True)
class Kind:
    """Rows to read: their schema, the key of the join, and a filter of the first stream."""

    schema: str
    key: str
    where: str = ""


KINDS = {
    "numbers": Kind("vid long, uid long, ts timestamp, n long, price double", "vid"),
    "filtered": Kind("vid long, uid long, ts timestamp, n long, price double", "vid", "a.price < 500"),
    "texts": Kind(
        "item string, region string, ts timestamp, n long, price double", "item", "a.region = 'r3'"
    ),
}


def write_file(file: Path, kind: str, rows: int, seed: int) -> None:
    """Write a file of one row group."""
    random = np.random.default_rng(seed)
    times = pa.array(1_700_000_000 * SECOND + np.arange(rows) * 10).cast(pa.timestamp("us", "UTC"))
    columns: dict[str, Any] = {
        "ts": times,
        "n": np.arange(rows),
        "price": random.integers(0, 4_000, rows) / 4,
    }
    if kind == "texts":
        items = np.char.add("item-", np.arange(10_000).astype(str))
        columns["item"] = pa.array(items).take(pa.array(random.integers(0, items.size, rows)))
        regions = np.char.add("r", np.arange(6).astype(str))
        columns["region"] = pa.array(regions).take(pa.array(random.integers(0, regions.size, rows)))
    else:
        columns |= {name: random.integers(0, 1_000_000, rows) for name in ("vid", "uid")}
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file)


@dataclass
class Stages:
    """The seconds of the processor that each stage took, without those inside it."""

    seconds: dict[str, float] = field(default_factory=dict)
    inside: list[float] = field(default_factory=list)

    def timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, which adds its seconds."""

        def call(*given: Any, **named: Any) -> Any:
            began = time.thread_time()
            self.inside.append(0.0)
            try:
                return function(*given, **named)
            finally:
                spent, nested = time.thread_time() - began, self.inside.pop()
                self.seconds[stage] = self.seconds.get(stage, 0.0) + spent - nested
                if self.inside:
                    self.inside[-1] += spent

        return call


@contextmanager
def stages() -> Iterator[Stages]:
    """While it is used, every stage is timed."""
    found = Stages()
    patches = [
        patch.object(place, name, found.timed(stage, getattr(place, name))) for place, name, stage in _STAGES
    ]
    for each in patches:
        each.start()
    try:
        yield found
    finally:
        for each in patches:
            each.stop()


def capture(folder: Path, kind: Kind, cores: int) -> list[tuple[Any, Any]]:
    """Run a session over the files, and give the jobs and pieces of the batches that had input."""
    jobs: list[tuple[Any, Any]] = []
    run = LocalExecutor.run

    def noting(self: LocalExecutor, job: Any, pieces: Any, hops: int) -> Any:
        if not job.boundary and any(pieces):
            jobs.append((job, pieces))
        return run(self, job, pieces, hops)

    session = weft.Session(
        checkpoint=folder / "checkpoint",
        execution="local",
        adapt="off",
        options=weft.Options(partitions=2 * cores),
    )
    for name in "ab":
        files = weft.files("parquet", str(folder / "in" / name), schema=kind.schema)
        session.stream(name, files, event_time="ts")
    where = f" AND {kind.where}" if kind.where else ""
    first, second = kind.schema.split()[0], kind.schema.split()[2]
    shown = f"a.n AS x, b.n AS y, a.price AS p, a.{second} AS q, a.{first} AS r"
    sql = (
        f"SELECT {shown} FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.{kind.key} = b.{kind.key}{where}"
    )
    session.query(sql, name="pair", sink=weft.to_count())
    with patch.object(LocalExecutor, "run", noting):
        session.start(available_now=True)
        wait_for_weft(session, "pair")
    session.stop()
    return jobs


def measure(folder: Path, name: str, rows: int, repeat: int, cores: int) -> dict[str, float]:
    """Nanoseconds a row by stage, and in all; and what Arrow alone takes."""
    for place, stream in enumerate("ab"):
        count = rows if stream == "a" else 1_000
        write_file(folder / "in" / stream / "0.parquet", name, count, place)
    file = folder / "in" / "a" / "0.parquet"
    alone = min(_seconds(lambda: _decode_alone(file)) for _ in range(repeat))
    jobs = capture(folder, KINDS[name], cores)
    job, mine = next(
        (job, [piece for piece in pieces[0] if piece[0] == "a"])
        for job, pieces in jobs
        if any(piece[0] == "a" for piece in pieces[0])
    )
    best: dict[str, float] = {}
    for _ in range(repeat):
        with stages() as found:
            spent = _seconds(lambda: _drain(job, mine))
        found.seconds["the rest"] = spent - sum(found.seconds.values())
        found.seconds["in all"] = spent
        for stage, seconds in found.seconds.items():
            best[stage] = min(seconds, best.get(stage, seconds))
    best["Arrow alone"] = alone
    return {stage: seconds / rows * 1e9 for stage, seconds in best.items()}


def _decode_alone(file: Path) -> Any:
    return pq.ParquetFile(pa.BufferReader(file.read_bytes())).read(use_threads=False)


def _drain(job: Any, pieces: Any) -> None:
    for message in worker.read_task(job, 0, pieces):
        if not message.is_report and "\tfile\t" in message.target:
            os.unlink(message.data.to_pybytes().decode().partition("\n")[0])


def _seconds(function: Callable[[], Any]) -> float:
    began = time.thread_time()
    function()
    return time.thread_time() - began


def main(arguments: list[str]) -> int:
    """Print the table and the verdict."""
    parser = make_parser("reading", __doc__, "cores json strict")
    parser.add_argument("--rows", type=int, default=400_000, help="rows of the file (%(default)s)")
    parser.add_argument("--repeat", type=int, default=15, help="how often it is read (%(default)s)")
    names = tuple(KINDS)
    parser.add_argument(
        "--kinds", type=some_of(names), default=list(names), help=f"some of {','.join(names)}"
    )
    options = parser.parse_args(arguments)
    figures: dict[str, Mapping[str, float]] = {}
    for name in options.kinds:
        with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
            figures[name] = measure(Path(folder), name, options.rows, options.repeat, options.cores)
    heads = ("nanoseconds of one core a row", *figures)
    table = make_table("from a Parquet file to the partitions", heads)
    shown = dict.fromkeys(stage for _, _, stage in _STAGES)
    for stage in (*shown, "the rest", "in all", "Arrow alone"):
        table.add_row(stage, *(f"{kind.get(stage, 0.0):.0f}" for kind in figures.values()))
    console = make_console()
    console.print(table)
    judged = [
        (f"{name}: at most {TARGET} ns a row ({kind['in all']:.0f})", kind["in all"] <= TARGET)
        for name, kind in figures.items()
    ]
    return conclude(console, options, judged, figures=figures)
