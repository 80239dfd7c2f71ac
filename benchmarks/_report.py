"""The table of a race, and its verdicts.

Guarantees: a figure that was not measured is shown as such, and no verdict rests on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks._joins import Join
from rich.table import Table

__all__ = ["Figures", "figures_table", "percentile", "verdicts"]

TITLES = {
    "weft": "Weft",
    "hdfs": "Spark streams, HDFS-backed",
    "rocksdb": "Spark streams, RocksDB",
    "batch": "Spark batch",
}


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a contender."""

    rows_per_stream: int
    total: float  # seconds from the launch of its process to the last result
    rows: list[int]  # per batch
    seconds: list[float]  # per batch
    jobs: float  # per batch
    stages: float
    hops: list[float] | None = None  # mean seconds of reading and of each hop
    state_rows: float | None = None
    state: float | None = None  # bytes per stored row
    state_on_disk: float | None = None
    state_to_arrow: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain data, with the rates."""
        return {**asdict(self), "cold_rate": self.cold_rate, "steady_rate": self.steady_rate}

    @property
    def cold_rate(self) -> float:
        """Input rows per second, the start of the process included."""
        return sum(self.rows) / self.total

    @property
    def steady_rate(self) -> float | None:
        """Input rows per second from the second batch on; for a batch job, which was warmed up before, of all rows."""
        if len(self.rows) == 1 and self.state is None:
            return self.rows[0] / self.seconds[0]
        return sum(self.rows[1:]) / sum(self.seconds[1:]) if len(self.rows) > 1 else None

    @property
    def steady_seconds(self) -> list[float]:
        """The latencies of the batches that count, ascending."""
        return sorted(self.seconds[1:] or self.seconds)


def percentile(ascending: list[float], share: float) -> float:
    """The value that this share of the values does not exceed."""
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]


Show = Callable[[Figures], str]


def figures_table(join: Join, rows: int, figures: Mapping[str, Figures]) -> Table:
    """The table of figures, with one column per contender."""
    table = Table(
        title=f"{join.name}: {len(join.streams)} streams of {rows:,} rows",
        caption="without start-up: from the second batch on; the batch join in a session warmed by a small one",
    )
    table.add_column("")
    for contender in figures:
        table.add_column(TITLES[contender], justify="right")
    for head, show in _lines(figures.get("weft")).items():
        table.add_row(head, *(show(one) for one in figures.values()))
    return table


def _lines(weft: Figures | None) -> dict[str, Show]:
    """The lines of the table, by heading: functions that show a figure of a contender."""

    def ratio(one: Figures) -> str:
        return _shown(_ratio(weft, one), "{:.2f} ×") if weft is not None and one is not weft else "–"

    def latency(share: float) -> Show:
        return lambda one: f"{percentile(one.steady_seconds, share):.2f} s"

    return {
        "rows of each stream": lambda one: f"{one.rows_per_stream:,}",
        "batches": lambda one: str(len(one.rows)),
        "input rows/s with start-up": lambda one: f"{one.cold_rate:,.0f}",
        "input rows/s without": lambda one: _shown(one.steady_rate, "{:,.0f}"),
        "Weft is faster by": ratio,
        "batch p50": latency(0.5),
        "batch p95": latency(0.95),
        "jobs a batch": lambda one: f"{one.jobs:.1f}",
        "stages a batch": lambda one: f"{one.stages:.1f}",
        "stored rows": lambda one: _shown(one.state_rows, "{:,.0f}"),
        "state, bytes a row": lambda one: _shown(one.state, "{:.0f}"),
        "… in SST files": lambda one: _shown(one.state_on_disk or None, "{:.0f}"),
        "state ÷ Arrow": lambda one: _shown(one.state_to_arrow, "{:.2f} ×"),
        "read, then each hop": lambda one: ", ".join(f"{s:.2f}" for s in one.hops or ()) or "–",
    }


def _shown(value: float | None, pattern: str) -> str:
    return "–" if value is None else pattern.format(value)


def _ratio(weft: Figures, peer: Figures) -> float | None:
    mine, theirs = weft.steady_rate, peer.steady_rate
    return mine / theirs if mine and theirs else None


def verdicts(join: Join, figures: Mapping[str, Figures]) -> list[tuple[str, bool]]:
    """Each target with the figure that was measured, and whether it was reached."""
    weft = figures.get("weft")
    if weft is None:
        return []
    ratios = {name: _ratio(weft, one) for name, one in figures.items() if name != "weft"}
    stores = [ratio for name in ("hdfs", "rocksdb") if (ratio := ratios.get(name)) is not None]
    found = [(f"at most one job a batch ({weft.jobs:.1f})", weft.jobs <= 1)]
    if weft.state_to_arrow is not None:
        held = weft.state_to_arrow
        found.append((f"state at most 1.5 × its columns in Arrow ({held:.2f} ×)", held <= 1.5))
    if join.state_target and stores:
        least = min(stores)
        what = f"at least {join.state_target:g} × Spark's faster state store ({least:.1f} ×)"
        found.append((what, least >= join.state_target))
    batch = ratios.get("batch")
    if join.batch_target and batch is not None:
        what = f"at least {join.batch_target:g} × Spark's batch join ({batch:.2f} ×)"
        found.append((what, batch >= join.batch_target))
    return found
