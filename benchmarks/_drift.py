"""Streams whose statistics change on the way: the four-way chain of CLASH 7.3.2, with a phase for every batch.

Guarantees: the data is a function of the scenario and its size. A batch is a second of every stream. In phase 0 a tuple
has about one partner in each neighbour, within windows of five seconds; in phase 1 tuples of s have many partners in r
and none in t, and tuples of t many in u.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import weft

COLUMNS = {"r": "a", "s": "ab", "t": "bc", "u": "c"}
WINDOW = 5
SQL = (
    "SELECT r.a, s.b, t.c FROM "
    + ", ".join(f"{name} [RANGE {WINDOW} SECONDS]" for name in COLUMNS)
    + " WHERE r.a = s.a AND s.b = t.b AND t.c = u.c"
)
PARTNERS = 20  # of a tuple in phase 1
BEGAN = 1_700_000_000_000_000  # in microseconds since 1970


@dataclass(frozen=True, slots=True)
class Scenario:
    """``phase`` says of a batch, given how many there are, in which phase it is; ``rates`` how many times the usual
    number of tuples every stream brings in it."""

    title: str
    phase: Callable[[int, int], int]
    rates: Callable[[int, int], dict[str, float]] = lambda _n, _all: {}


def _half(number: int, batches: int) -> int:
    return int(number >= batches // 2)


def _ramp(number: int, batches: int) -> dict[str, float]:
    """From 4 to 1/4 of the usual rate, and the other way round."""
    power = 1 - 2 * number / max(1, batches - 1)
    return {"r": 4**power, "u": 4**-power}


FLIP = 5  # batches, which are an epoch

SCENARIOS = {
    "swap": Scenario("selectivities swap half-way", _half),
    "drift": Scenario("rates drift slowly", lambda _n, _all: 0, _ramp),
    "steady": Scenario("nothing changes", lambda _n, _all: 0),
    "flip": Scenario("selectivities flip every epoch", lambda n, _all: n // FLIP % 2),
}


def write_batches(root: Path, scenario: Scenario, batches: int, rows: int) -> None:
    """A file for every stream and batch."""
    rng = np.random.default_rng(7)
    for name in COLUMNS:
        (root / name).mkdir(parents=True)
    for number in range(batches):
        rates = scenario.rates(number, batches)
        for name in COLUMNS:
            count = max(1, round(rows * rates.get(name, 1.0)))
            table = _table(rng, name, count, number, scenario.phase(number, batches), rows)
            pq.write_table(table, root / name / f"{number:05}.parquet")


def _table(rng: np.random.Generator, name: str, count: int, number: int, phase: int, rows: int) -> pa.Table:
    second = 1_000_000
    times = np.sort(rng.integers(0, second, count)) + BEGAN + number * second
    values = {column: _keys(rng, name, column, count, phase, rows) for column in COLUMNS[name]}
    return pa.table({**values, "ts": pa.array(times, pa.timestamp("us", "UTC"))})


def _keys(
    rng: np.random.Generator, name: str, column: str, count: int, phase: int, rows: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    wide = WINDOW * rows
    if phase == 0:
        return rng.integers(0, wide, count)
    if column == "b":  # s and t have no value in common
        return rng.integers(0, wide, count) + (0 if name == "s" else 10 * wide)
    return rng.integers(0, wide // PARTNERS, count)


def described(session: weft.Session, phase: int, rows: int, rates: dict[str, float]) -> None:
    """Tell a session what is true in a phase."""
    known = {name: weft.StreamStatistics(rate=rows * rates.get(name, 1.0)) for name in COLUMNS}
    session.statistics = weft.Statistics(known)
    one = 1 / (WINDOW * rows)
    many, none = (PARTNERS * one, one / 1_000) if phase else (one, one)
    for predicate in ("r.a = s.a", "t.c = u.c"):
        session.selectivity(predicate, many)
    session.selectivity("s.b = t.b", none)
