"""Streams that look up tables and latest versions, next to Spark's joins of the same data; levels of derived streams.

Guarantees: Weft and Spark run in one process on one Spark, over the same files, with as many files a batch; the first
batch of each counts for neither. All have to find as many results. Spark's stream–static join reads the table anew in
every batch, Weft keeps it in stores. Spark has no ASOF join of streams: there its batch query with a window function is
the peer. The latency of queries over queries is from the rename of a file until a function has the results.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks._harness import CONCLUSIONS, Conclusion, make_console, make_table, say
from benchmarks._progress import batch_seconds, wait_for, weft_batches

import weft

SCHEMA = "k long, n long, ts timestamp"
TABLE = "k long, x long"
SECOND = 1_000_000
USUAL, FREE_HOPS = weft.Weights(), weft.Weights(hop=0.0, keep=1e-3)  # of which the latter replicates nothing
PLACE = "row_number() OVER (PARTITION BY o.n ORDER BY r.ts DESC, r.n DESC)"
LATEST_IN_SPARK = f"""SELECT n, rn FROM (SELECT o.n, r.n AS rn, {PLACE} AS place
                      FROM o JOIN r ON o.k = r.k AND o.ts >= r.ts) WHERE place = 1"""


@dataclass(frozen=True, slots=True)
class Figures:
    """Rows of the stream that were joined in a second, and results in all."""

    rows_per_second: float
    results: int


@dataclass(frozen=True, slots=True)
class Bench:
    """Where the data is, how much of it, and the Spark that runs everything."""

    root: Path
    rows: int
    files: int
    keys: int
    cores: int
    spark: Any

    def write(self, name: str, seed: int, keys: int, rows: int) -> None:
        """A stream of so many rows in files, whose times rise by a second per file."""
        random, each = np.random.default_rng(seed), rows // self.files
        (self.root / name).mkdir()
        for number in range(self.files):
            times = np.sort(random.integers(0, SECOND, each)) + number * SECOND
            columns = {
                "k": random.integers(0, keys, each),
                "n": np.arange(number * each, (number + 1) * each),
                "ts": pa.array(times, pa.timestamp("us", "UTC")),
            }
            pq.write_table(pa.table(columns), self.root / name / f"{number:05}.parquet")

    def write_table(self, name: str, rows: int) -> None:
        """A table of so many keys."""
        (self.root / name).mkdir()
        table = pa.table({"k": np.arange(rows), "x": np.arange(rows) * 3})
        pq.write_table(table, self.root / name / "table.parquet")

    def session(self, name: str, weights: weft.Weights) -> weft.Session:
        """A session with the streams, one file of each a batch."""
        session = weft.Session(
            checkpoint=self.root / f"checkpoint_{name}",
            spark=self.spark,
            options=weft.Options(partitions=self.cores, weights=weights),
        )
        for stream in ("s", "o", "r"):
            files = weft.files("parquet", str(self.root / stream), schema=SCHEMA, max_files_per_batch=1)
            session.stream(stream, files, event_time="ts")
        return session

    def weft(
        self, name: str, text: str, tables: Sequence[str] = (), weights: weft.Weights = USUAL
    ) -> tuple[Figures, str]:
        """Run a query of Weft's over all files, to their end; its figures, and how its stores are spread."""
        session = self.session(name, weights)
        for alias, table in zip("tu", tables, strict=False):
            session.table(alias, weft.files("parquet", str(self.root / table), schema=TABLE))
        planned = session.query(text, name="q", sink=weft.to_parquet(self.root / f"weft_{name}"))
        kinds = " and ".join(store.layout.kind for store in planned.graph.stores)
        session.run_available()
        seconds = [alone for _, alone, _ in weft_batches(session)]
        return Figures(_speed(self.rows, seconds), _count(self.root / f"weft_{name}")), kinds

    def spark_static(self, name: str, tables: Sequence[str]) -> Figures:
        """Run Spark's stream–static joins over all files."""
        spark, key = self.spark, ("k", "n")
        found = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.root / "s"))
        for place, table in enumerate(tables):
            static = spark.read.schema(TABLE).parquet(str(self.root / table))
            renamed = static.withColumnsRenamed({"k": key[place], "x": f"x{place}"})
            found = found.join(renamed, key[place])
        writer = found.drop("k", "ts").writeStream.format("parquet")
        writer = writer.option("path", str(self.root / f"spark_{name}"))
        writer = writer.option("checkpointLocation", str(self.root / f"spark_checkpoint_{name}"))
        query = writer.trigger(availableNow=True).start()
        wait_for(query, f"spark, {name}")
        return Figures(_speed(self.rows, batch_seconds(query)), _count(self.root / f"spark_{name}"))

    def spark_latest(self) -> Figures:
        """Run Spark's batch query for the latest versions, after a first one over one file."""
        for files, out in (("00000.parquet", "warm_up"), ("*.parquet", "spark_asof")):
            for name in ("o", "r"):
                self.spark.read.schema(SCHEMA).parquet(f"{self.root}/{name}/{files}").createOrReplaceTempView(
                    name
                )
            began = time.perf_counter()
            self.spark.sql(LATEST_IN_SPARK).write.parquet(str(self.root / out))
            seconds = time.perf_counter() - began
        return Figures(self.rows / seconds, _count(self.root / "spark_asof"))


def _speed(rows: int, seconds: Sequence[float]) -> float:
    """Rows a second, without the first batch; all batches have as many rows."""
    rest = seconds[1:] if len(seconds) > 1 else seconds
    return rows * len(rest) / len(seconds) / sum(rest)


def _count(folder: Path) -> int:
    return sum(
        pq.read_metadata(file).num_rows for file in folder.rglob("*.parquet") if "_weft" not in file.parts
    )


def latency(spark: Any, execution: str, levels: int, rounds: int) -> float:
    """The median milliseconds from a file's rename to its results, through so many derived streams."""
    with tempfile.TemporaryDirectory() as folder:
        root, came = Path(folder), threading.Event()
        more = {} if execution == "local" else {"spark": spark}
        options = weft.Options(partitions=2)
        session = weft.Session(
            checkpoint=root / "ck", execution=execution, options=options, adapt="off", **more
        )
        for name in ("a", "b"):
            (root / name).mkdir()
            session.stream(name, weft.files("parquet", str(root / name), schema=SCHEMA), event_time="ts")
        inner = "a"
        for _ in range(levels):  # a window that counts rows is not flattened
            inner = (
                f"(SELECT x.k, x.n FROM {inner} [ROWS 1000000] AS x, b [ROWS 1000000] AS y WHERE x.k = y.k)"
            )
        text = f"SELECT d.n FROM {inner} [RANGE 1 HOUR] AS d, b [RANGE 1 HOUR] AS z WHERE d.k = z.k"
        sink = weft.foreach_batch(lambda rows, _: came.set() if rows.num_rows else None, arrow=True)
        session.query(text, name="q", sink=sink)
        _put(root, "b", 0)
        session.start()
        try:
            session.process_all_available()
            found = [_one(partial(_put, root, "a", number), came) for number in range(1, rounds)]
        finally:
            session.stop()
    return 1000 * statistics.median(found[len(found) // 4 :])


def _put(root: Path, stream: str, number: int) -> None:
    times = pa.array([number * SECOND] * 100, pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"k": np.arange(100), "n": np.arange(100), "ts": times}), root / "partial")
    os.replace(root / "partial", root / stream / f"{number:05}.parquet")


def _one(put: Callable[[], None], came: threading.Event) -> float:
    time.sleep(0.1)
    came.clear()
    began = time.perf_counter()
    put()
    if not came.wait(60):
        raise TimeoutError("results do not come")
    return time.perf_counter() - began


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 if Weft and Spark find different numbers of results."""
    given = _parsed(arguments)
    from weft.runtime.spark.session import create_spark

    spark = create_spark(f"local[{given.cores}]")
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.shuffle.partitions", str(given.cores))
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        bench = Bench(Path(folder), given.rows, given.files, given.keys, given.cores, spark)
        rows = _joins(bench)
    levels = {}
    for execution in () if given.no_levels else ("local", "resident"):
        levels[execution] = [latency(spark, execution, level, given.rounds) for level in range(3)]
        say(f"levels, {execution}: " + ", ".join(f"{one:.0f} ms" for one in levels[execution]))
    _print(given, rows, levels)
    if given.json:
        Path(given.json).write_text(
            json.dumps({"joins": rows, "levels": levels}, default=asdict), encoding="utf-8"
        )
    spark.stop()
    speeds = {
        f"{name} ÷ Spark": mine.rows_per_second / other.rows_per_second
        for name, (mine, other) in rows.items()
    }
    CONCLUSIONS.append(Conclusion(ratios=speeds))
    return 0 if all(mine.results == other.results for mine, other in rows.values()) else 1


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("weft bench tables", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of each stream, a tenth for versions")
    parser.add_argument("--files", type=int, default=10, help="of each stream, one a batch")
    parser.add_argument("--keys", type=int, default=500_000, help="of the large table")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=25, help="files through each number of levels")
    parser.add_argument("--no-levels", action="store_true", help="leave out queries over queries")
    parser.add_argument("--directory", default=None, help="where data and results are kept for a while")
    parser.add_argument("--json", default="", help="a file for the figures")
    return parser.parse_args(arguments)


def _joins(bench: Bench) -> dict[str, tuple[Figures, Figures]]:
    """By join, the figures of Weft and of Spark."""
    bench.write("s", 1, bench.keys, bench.rows)
    bench.write("o", 2, bench.keys // 50, bench.rows)
    bench.write("r", 3, bench.keys // 50, bench.rows // 10)
    bench.write_table("small", 1_000)
    bench.write_table("large", bench.keys)
    found = {}
    for name in ("small", "large"):
        peer = bench.spark_static(name, [name])
        mine, kinds = bench.weft(name, "SELECT s.n, t.x FROM s JOIN t ON s.k = t.k", [name])
        found[f"{name} table, {kinds}"] = mine, peer
    two = "SELECT s.n, t.x, u.x AS y FROM s JOIN t ON s.k = t.k JOIN u ON s.n = u.k"
    peer = bench.spark_static("two", ["large", "large"])
    for name, weights in (("two", USUAL), ("two_hops", FREE_HOPS)):
        mine, kinds = bench.weft(name, two, ["large", "large"], weights)
        found[f"two tables, {kinds}"] = mine, peer
    latest = "SELECT o.n, r.n AS rn FROM o ASOF JOIN r ON o.k = r.k AND o.ts >= r.ts"
    found["ASOF, Spark's batch"] = bench.weft("asof", latest)[0], bench.spark_latest()
    return found


def _print(
    given: argparse.Namespace, rows: dict[str, tuple[Figures, Figures]], levels: dict[str, list[float]]
) -> None:
    console = make_console()
    table = make_table(
        f"{given.rows:,} rows of a stream, {given.cores} cores",
        ("join", "Weft, rows/s", "Spark, rows/s", "ratio", "results"),
    )
    for name, (mine, other) in rows.items():
        ratio = mine.rows_per_second / other.rows_per_second
        same = "" if mine.results == other.results else f", Spark {other.results:,}"
        speeds = f"{mine.rows_per_second:,.0f}", f"{other.rows_per_second:,.0f}"
        table.add_row(name, *speeds, f"{ratio:.1f}×", f"{mine.results:,}{same}")
    console.print(table)
    for execution, found in levels.items():
        shown = ", ".join(f"{level}: {one:.0f} ms" for level, one in enumerate(found))
        console.print(f"latency through derived streams, {execution}, by their number: {shown}")
