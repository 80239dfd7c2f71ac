"""Streams of known rates and selectivities, run through the local runner."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from tests.local_runner import LocalRunner
from weft.optimizer.space import Options
from weft.session.session import PlannedQuery, Session
from weft.stats.statistics import Statistics

RATES = {"v": 100, "w": 300, "c": 200}  # tuples per second
DISTINCT = {"vid": 50, "uid": 80, "x": 10, "y": 10}
COLUMNS = {"v": ("vid", "x"), "w": ("vid", "uid"), "c": ("uid", "y")}


def session(statistics: Statistics | None = None, partitions: int = 2, event_time: bool = True) -> Session:
    """The streams, of which nothing is known but what is given."""
    made = Session(statistics=statistics or Statistics(), options=Options(partitions=partitions))
    for name, columns in COLUMNS.items():
        schema = ", ".join(f"{column} long" for column in columns) + ", ts timestamp"
        made.stream(name, schema, event_time="ts" if event_time else None)
    return made


def tables(rng: np.random.Generator, begin: float, end: float) -> dict[str, pa.Table]:
    """What the streams bring within some seconds."""
    found = {}
    for name, rate in RATES.items():
        rows = round(rate * (end - begin))
        times = np.sort(rng.integers(int(begin * 1e6), int(end * 1e6), rows))
        columns = {column: rng.integers(0, DISTINCT[column], rows) for column in COLUMNS[name]}
        found[name] = pa.table({**columns, "ts": pa.array(times).cast(pa.timestamp("us", "UTC"))})
    return found


def run(planned: PlannedQuery, seconds: float, batch: float = 1.0) -> LocalRunner:
    """The query over so many seconds of the streams, in batches of some seconds each."""
    runner, rng = LocalRunner(planned.graph), np.random.default_rng(11)
    for number in range(round(seconds / batch)):
        data = tables(rng, number * batch, (number + 1) * batch)
        read = {input_.stream.name for input_ in planned.query.inputs}
        process(runner, {name: data[name] for name in sorted(read)}, round(number * batch * 1e6))
    return runner


def process(runner: LocalRunner, data: Mapping[str, pa.Table], now: int) -> None:
    """One batch, arriving when its events do."""
    runner.process(data, now=now)
