"""What it costs to read a row, by stage, until it is on its way to its partition: `weft bench reading`.

Guarantees: the task that reads is the one that runs in a session (`runtime/task/worker.py`), over Parquet files of five
columns: two keys, the time, two payloads. It reads one file a batch; a stage's figure is the time that its thread had
the processor, without the stages inside it, in the best of the batches. Beside it stands what Arrow alone takes to
decode the same columns of one of the files. Three kinds of rows are read: numbers; numbers of which a filter keeps a
half; and rows whose key and filter are texts.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks._calls import timing
from benchmarks._harness import conclude, make_console, make_parser, make_table, some_of
from benchmarks._progress import wait_for_weft

import weft
from weft.connectors.files.parts import read_part
from weft.connectors.formats import parquet
from weft.kernels.route.partition import group
from weft.runtime.hop import admission
from weft.runtime.hop.routing import send
from weft.runtime.local import LocalExecutor
from weft.runtime.task.tuple_ages import ages_of_rows
from weft.runtime.task.worker import read_task
from weft.runtime.wire.exchange import Exchange

TARGET = 150  # nanoseconds of one core to read, filter and route a row of numbers
SECOND = 1_000_000

# What stages are called, and the function of each; each is timed without those inside it.
_STAGES: dict[str, Callable[..., Any]] = {
    "file into memory": read_part,
    "decode": parquet._decode,
    "check types and times": parquet.decode_table,
    "ages": ages_of_rows,
    "admit": admission.admit,
    "sample": admission.sample_values,
    "filter": admission._wanted,
    "partition": send,
    "group and gather": group,
    "pack": Exchange.pack,
    "the rest": read_task,
}


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


def write_file(file: Path, kind: str, rows: int, number: int) -> None:
    """Write a file of one row group, whose times come after those of the files with lower numbers."""
    random = np.random.default_rng(number)
    times = pa.array(1_700_000_000 * SECOND + (np.arange(rows) + number * rows) * 10).cast(
        pa.timestamp("us", "UTC")
    )
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


def read(folder: Path, kind: Kind, cores: int) -> list[dict[str, float]]:
    """Run a session over the files, one a batch, and give the seconds that each batch took to read, by stage."""
    session = weft.Session(
        checkpoint=folder / "checkpoint",
        execution="local",
        adapt="off",
        options=weft.Options(partitions=2 * cores),
    )
    for name in "ab":
        path = str(folder / "in" / name)
        session.stream(
            name, weft.files("parquet", path, schema=kind.schema, max_files_per_batch=1), event_time="ts"
        )
    where = f" AND {kind.where}" if kind.where else ""
    first, second = kind.schema.split()[0], kind.schema.split()[2]
    shown = f"a.n AS x, b.n AS y, a.price AS p, a.{second} AS q, a.{first} AS r"
    sql = (
        f"SELECT {shown} FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.{kind.key} = b.{kind.key}{where}"
    )
    session.query(sql, name="pair", sink=weft.to_count())
    batches: list[dict[str, float]] = []

    def begin_batch(stage: str, _: FrameType) -> None:
        if stage == "a batch":
            batches.append(dict(calls.seconds))

    with timing({**_STAGES, "a batch": LocalExecutor.run}, begin_batch) as calls:
        session.start(available_now=True)
        wait_for_weft(session, "pair")
    session.stop()
    return [_since(now, before) for before, now in pairwise([*batches, dict(calls.seconds)])]


def _since(now: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """What each stage of reading took between two moments, and all of them."""
    found = {stage: now.get(stage, 0.0) - before.get(stage, 0.0) for stage in _STAGES}
    return {**found, "in all": sum(found.values())}


def measure(folder: Path, name: str, rows: int, repeat: int, cores: int) -> dict[str, float]:
    """Nanoseconds a row by stage, and in all; and what Arrow alone takes.

    Only the first batch has rows of the other stream, and is left out.
    """
    write_file(folder / "in" / "b" / "0.parquet", name, 1_000, 0)
    for file in range(repeat + 1):
        write_file(folder / "in" / "a" / f"{file}.parquet", name, rows, file)
    alone = min(_seconds(lambda: _decode_alone(folder / "in" / "a" / "0.parquet")) for _ in range(repeat))
    batches = [batch for batch in read(folder, KINDS[name], cores)[1:] if batch["decode"]]
    best = {stage: min(batch[stage] for batch in batches) for stage in (*_STAGES, "in all")}
    best["Arrow alone"] = alone
    return {stage: seconds / rows * 1e9 for stage, seconds in best.items()}


def _decode_alone(file: Path) -> Any:
    return pq.ParquetFile(pa.BufferReader(file.read_bytes())).read(use_threads=False)


def _seconds(function: Callable[[], Any]) -> float:
    began = time.thread_time()
    function()
    return time.thread_time() - began


def main(arguments: list[str]) -> int:
    """Print the table and the verdict."""
    parser = make_parser("reading", __doc__, "cores json strict")
    parser.add_argument("--rows", type=int, default=400_000, help="rows of the file (%(default)s)")
    parser.add_argument("--repeat", type=int, default=15, help="how many files are read (%(default)s)")
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
    for stage in (*_STAGES, "in all", "Arrow alone"):
        table.add_row(stage, *(f"{kind.get(stage, 0.0):.0f}" for kind in figures.values()))
    console = make_console()
    console.print(table)
    judged = [
        (f"{name}: at most {TARGET} ns a row ({kind['in all']:.0f})", kind["in all"] <= TARGET)
        for name, kind in figures.items()
    ]
    return conclude(console, options, judged, figures=figures)
