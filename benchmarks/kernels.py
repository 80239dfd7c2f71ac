"""The probes alone, compared with NumPy, DuckDB and Polars on the same Arrow data: `weft bench kernels`.

Guarantees: every contender has one thread; every contender checks the same window of event time and returns the same
pairs of row numbers (count and checksum are compared before anything is timed); the contenders take turns, so that a
noisy moment hits all alike; a figure is the median of its repetitions.

Before the clock starts, Weft's stored run is in order, which is the index it maintains; NumPy's copy is sorted; DuckDB
has a native table, and Polars a DataFrame. The time is that of probing it with a batch in order of arrival, up to an
Arrow table (for NumPy, arrays) of row numbers; for Weft it includes bringing the batch into hash order.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from benchmarks._harness import CONCLUSIONS, Conclusion, make_table
from rich.console import Console

from weft.bucket.bucket import build
from weft.bucket.index import by_hash, by_value
from weft.kernels.probe.band import Band, band
from weft.kernels.probe.equality import in_order, probe
from weft.kernels.probe.ranges import Matches, Window
from weft.kernels.probe.theta import Sides, theta
from weft.logical.expr.conversion import literal
from weft.logical.expr.expression import Column
from weft.logical.expr.functions import call
from weft.logical.schema import DataType

PROBES = 200_000
WINDOWS = (200_000, 1_000_000, 5_000_000)
KEYS = 1_000_000
SPACING = 10  # microseconds between tuples: 100,000 a second
REACH = 5_000_000  # the window: 5 s either way
NEAR = 100  # the theta probe's: 100 µs either way, some 20 candidates a tuple
VALUES = 10_000_000

Pairs = tuple[Any, Any]
Contender = Callable[[], Pairs]


@dataclass(frozen=True, slots=True)
class Case:
    """Probe tuples and stored tuples, as Arrow data."""

    probes: pa.RecordBatch
    stored: pa.RecordBatch

    @property
    def band(self) -> int:
        """Half the width of a band that holds two stored values."""
        return int(VALUES // self.stored.num_rows)

    def probe(self, name: str) -> Any:
        """A column of the probe tuples."""
        return self.probes.column(name).to_numpy()

    def stored_values(self, name: str) -> Any:
        """A column of the stored tuples."""
        return self.stored.column(name).to_numpy()


def make_case(window: int, seed: int) -> Case:
    """A window of so many tuples, and probe tuples from its last two seconds."""
    random = np.random.default_rng(seed)

    def batch(rows: int, times: Any) -> pa.RecordBatch:
        values = {"row": np.arange(rows, dtype=np.int32), "key": random.integers(0, KEYS, rows), "ts": times}
        values |= {"value": random.integers(0, VALUES, rows), "price": random.integers(0, 1_000, rows)}
        return pa.record_batch(values)

    span = window * SPACING
    arrivals = np.sort(random.integers(max(0, span - PROBES * SPACING), span, PROBES))
    return Case(batch(PROBES, arrivals), batch(window, np.arange(window) * SPACING))


def _contenders(case: Case) -> dict[str, dict[str, Contender]]:
    """The functions to measure, by probe and by contender."""
    tables: dict[str, dict[str, Contender]] = {"equality": {}, "band": {}, "theta": {}}
    makers = {"Weft": weft_contenders, "NumPy": numpy_contenders, "DuckDB": duckdb_contenders}
    for name, make in {**makers, "Polars": polars_contenders}.items():
        for kind, contender in make(case).items():
            tables[kind][name] = contender
    return tables


def weft_contenders(case: Case) -> dict[str, Contender]:
    """Weft's probes of runs in hash order, in the order of a value, and in the order of time."""
    times = case.probe("ts")
    by_key = build(case.stored, layout=by_hash("key"), event_time="ts")
    ordered = build(case.stored, layout=by_value("value"), event_time="ts")
    in_time = build(case.stored, layout=by_value("ts"), event_time="ts")
    predicate, sides = _predicate()

    def window(reach: int) -> Window:
        return Window.around(times, reach, reach)

    def equality() -> Pairs:
        keys = in_order([case.probes.column("key")])
        return _rows(probe(keys, [by_key], by_hash("key"), window=window(REACH)), by_key)

    def bands() -> Pairs:
        value, reach = case.probes.column("value"), pa.scalar(case.band)
        limits = Band(pc.subtract(value, reach), pc.add(value, reach))
        return _rows(band(limits, [ordered], by_value("value"), window=window(REACH)), ordered)

    def thetas() -> Pairs:
        return _rows(theta(predicate, sides, case.probes, [in_time], window=window(NEAR)), in_time)

    return {"equality": equality, "band": bands, "theta": thetas}


def _predicate() -> tuple[Any, Sides]:
    """p.price + s.price > 1900 AND p.key <> s.key."""
    long = DataType("long")
    columns = {(alias, name): Column(alias, name, long) for alias in "ps" for name in ("price", "key")}
    total = call("+", columns["p", "price"], columns["s", "price"])
    differ = call("<>", columns["p", "key"], columns["s", "key"])
    names = {side: {key: key[1] for key in columns if key[0] == side} for side in "ps"}
    return call("and", call(">", total, literal(1900)), differ), Sides(names["p"], names["s"])


def _rows(matches: Matches, run: Any) -> Pairs:
    """Row numbers of the probe batch and of the run, as Arrow arrays."""
    return pa.array(matches.probe), _Stored(pa.array(matches.stored), run)


@dataclass(frozen=True, slots=True)
class _Stored:
    """Row numbers of a run; only to compare results, they are turned into those of arrival."""

    rows: Any
    run: Any


def numpy_contenders(case: Case) -> dict[str, Contender]:
    """NumPy's probes, by sorting the probe batch and `searchsorted`."""

    def sorted_by(name: str) -> tuple[Any, Any, Any]:
        order = np.argsort(case.stored_values(name), kind="stable")
        return case.stored_values(name)[order], case.stored_values("ts")[order], order.astype(np.int32)

    by_key, ordered = sorted_by("key"), sorted_by("value")
    times, in_time = case.probe("ts"), case.stored_values("ts")

    def equality() -> Pairs:
        key = case.probe("key")
        return _searched(key, key, times, REACH, *by_key)

    def bands() -> Pairs:
        value = case.probe("value")
        return _searched(value - case.band, value + case.band, times, REACH, *ordered)

    def thetas() -> Pairs:
        low = np.searchsorted(in_time, times - NEAR, "left")
        high = np.searchsorted(in_time, times + NEAR, "right")
        probes, rows = _expanded(np.arange(times.size), low, high)
        good = case.probe("price")[probes] + case.stored_values("price")[rows] > 1900
        good &= case.probe("key")[probes] != case.stored_values("key")[rows]
        return probes[good], rows[good]

    return {"equality": equality, "band": bands, "theta": thetas}


def _searched(
    low: Any, high: Any, times: Any, reach: int, stored: Any, stored_times: Any, rows: Any
) -> Pairs:
    order = np.argsort(low)
    first = np.searchsorted(stored, low[order], "left")
    last = np.searchsorted(stored, high[order], "right")
    probes, found = _expanded(order, first, last)
    inside = np.abs(stored_times[found] - times[probes]) <= reach
    return probes[inside], rows[found[inside]]


def _expanded(probes: Any, first: Any, last: Any) -> Pairs:
    counts = last - first
    starts = np.repeat(first - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    return np.repeat(probes, counts), starts + np.arange(starts.size)


def duckdb_contenders(case: Case) -> dict[str, Contender]:
    """DuckDB's joins of a native table of the stored tuples with the probe batch as Arrow."""
    duckdb = _imported("duckdb")
    connection = duckdb.connect(config={"threads": 1})
    connection.register("arriving", pa.Table.from_batches([case.stored]))
    connection.execute("CREATE TABLE s AS SELECT * FROM arriving")
    connection.register("p", pa.Table.from_batches([case.probes]))

    def run(condition: str) -> Contender:
        text = f"SELECT p.row AS i, s.row AS j FROM p JOIN s ON {condition}"
        return lambda: _columns(connection.sql(text).to_arrow_table())

    # Where the join should not be by the window, that is written with abs(); as a range, the planner would join by it.
    band = f"s.value BETWEEN p.value - {case.band} AND p.value + {case.band}"
    near = f"s.ts BETWEEN p.ts - {NEAR} AND p.ts + {NEAR}"
    return {
        "equality": run(f"p.key = s.key AND abs(s.ts - p.ts) <= {REACH}"),
        "band": run(f"{band} AND abs(s.ts - p.ts) <= {REACH}"),
        "theta": run(f"{near} AND p.price + s.price > 1900 AND p.key <> s.key"),
    }


def polars_contenders(case: Case) -> dict[str, Contender]:
    """Polars' joins of a DataFrame of the stored tuples with the probe batch, which is converted without a copy."""
    pl = _imported("polars")
    if pl.thread_pool_size() != 1:
        raise SystemExit("Polars was imported with more than one thread; run this in a process of its own")
    stored: Any = pl.from_arrow(case.stored)
    stored = stored.rename({name: f"s_{name}" for name in stored.columns}).with_columns(key=pl.col("s_key"))

    def probes() -> Any:
        return pl.from_arrow(case.probes)

    near = (pl.col("s_ts") >= pl.col("ts") - NEAR, pl.col("s_ts") <= pl.col("ts") + NEAR)
    inside = (pl.col("s_ts") - pl.col("ts")).abs() <= REACH

    def pairs(joined: Any) -> Pairs:
        return _columns(joined.select("row", "s_row").collect().to_arrow())

    def equality() -> Pairs:
        return pairs(probes().lazy().join(stored.lazy(), on="key").filter(inside))

    def bands() -> Pairs:
        low, high = pl.col("value") - case.band, pl.col("value") + case.band
        within = (pl.col("s_value") >= low, pl.col("s_value") <= high)
        return pairs(probes().lazy().join_where(stored.lazy(), *within).filter(inside))

    def thetas() -> Pairs:
        other = (pl.col("price") + pl.col("s_price") > 1900, pl.col("key") != pl.col("s_key"))
        return pairs(probes().lazy().join_where(stored.lazy(), *near).filter(*other))

    return {"equality": equality, "band": bands, "theta": thetas}


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise SystemExit(f"this benchmark compares Weft with {name}: pip install {name}") from None


def _columns(table: Any) -> Pairs:
    return table.column(0), table.column(1)


def _digest(pairs: Pairs) -> tuple[int, int]:
    """How many pairs there are, and a checksum that does not depend on their order."""
    probes, rows = pairs
    if isinstance(rows, _Stored):
        rows = rows.run.batch.column("row").take(rows.rows)
    mixed = (np.asarray(probes).astype(np.uint64) << np.uint64(32)) | np.asarray(rows).astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
    return mixed.size, int((mixed ^ (mixed >> np.uint64(32))).sum(dtype=np.uint64))


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def _measure(
    contenders: dict[str, Contender], repetitions: int, clock: Callable[[], float]
) -> tuple[dict[str, float], int]:
    """The median milliseconds of each contender, and how many pairs all of them found."""
    digests = {name: _digest(contender()) for name, contender in contenders.items()}
    if len(set(digests.values())) > 1:
        raise SystemExit(f"the contenders disagree: {digests}")
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repetitions):
        for name, contender in contenders.items():
            gc.collect()
            begin = clock()
            contender()
            times[name].append(clock() - begin)
    return {name: statistics.median(spent) * 1000 for name, spent in times.items()}, digests["Weft"][0]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(prog="weft bench kernels", description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=9, help="how often each contender runs")
    parser.add_argument("--windows", type=int, nargs="+", default=WINDOWS, help="stored tuples")
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: what a busy machine disturbs less"
    )
    parser.add_argument("--kinds", nargs="+", default=["equality", "band", "theta"], help="which probes")
    options = parser.parse_args(argv)
    os.environ["POLARS_MAX_THREADS"] = (
        "1"  # read when Polars is imported, which is why it is not imported above
    )
    pa.set_cpu_count(1)
    table = make_table(
        f"{PROBES:,} probe tuples, one thread for all, median of {options.repetitions} ({options.clock} time, ms)",
        ("probe", "window", "pairs", "Weft", "NumPy", "DuckDB", "Polars", "best other ÷ Weft"),
    )
    ratios: dict[str, float] = {}
    for window in options.windows:
        for kind, contenders in _contenders(make_case(window, seed=window)).items():
            if kind in options.kinds:
                spent, found = _measure(contenders, options.repetitions, CLOCKS[options.clock])
                ratio = min(ms for name, ms in spent.items() if name != "Weft") / spent["Weft"]
                ratios[f"{kind}, {window:,} ÷ best other"] = ratio
                table.add_row(
                    kind,
                    f"{window:,}",
                    f"{found:,}",
                    *(f"{ms:.1f}" for ms in spent.values()),
                    f"{ratio:.1f} ×",
                )
    Console().print(table)
    CONCLUSIONS.append(Conclusion(ratios=ratios))
    return int(any(ratio < 1 for ratio in ratios.values()))


if __name__ == "__main__":
    sys.exit(main())
