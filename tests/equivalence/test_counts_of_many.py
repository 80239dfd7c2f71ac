"""Queries that are only counted, many at once: each has as many results as when they are kept, however it is counted.

Counting never makes a match where ranges of an index say enough, so that path is known to be taken: a test counts how
often it is, and fails if that is seldom.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from tests.shares import quick, seeds
from weft.runtime.hop import interpret

STREAMS = "abc"
COLUMNS = ("k", "j", "s")
SCHEMA = "k long, j long, s string, v long, ts timestamp"
WINDOWS = ("", "[RANGE 1 SECOND]", "[RANGE 2 SECONDS]", "[RANGE 5 SECONDS]", "[ROWS 5]")


def write_streams(rng: Random, folder: Path, batches: int, rows: int) -> None:
    """Files of every stream, one for each batch, whose times overlap with those of the batches before and after."""
    for name in STREAMS:
        (folder / name).mkdir()
        for number in range(batches):
            columns: dict[str, Any] = {one: _keys(rng, one, rows) for one in COLUMNS}
            columns["v"] = [rng.randrange(10) for _ in range(rows)]
            times = [1_000_000 * (2 * number + rng.randrange(4)) for _ in range(rows)]
            columns["ts"] = pa.array(times, pa.timestamp("us", "UTC"))
            pq.write_table(pa.table(columns), folder / name / f"{number}.parquet")


def _keys(rng: Random, column: str, rows: int) -> list[Any]:
    numbers = [rng.choice((*range(4), None)) for _ in range(rows)]
    return [None if n is None else f"text {n}" for n in numbers] if column == "s" else numbers


def random_query(rng: Random, windows: Sequence[str]) -> str:
    """A join of two or three streams, each with one before it, with windows and conditions."""
    names = rng.sample(STREAMS, rng.choice((2, 3, 3)))
    column = rng.choice(COLUMNS)
    where = []
    for place, name in enumerate(names[1:]):
        other = rng.choice(names[: place + 1])
        column = column if rng.random() < 0.6 else rng.choice(COLUMNS)
        theirs = column if column == "s" or rng.random() < 0.7 else rng.choice("kj")
        where.append(f"{other}.{column} = {name}.{theirs}")
    where += [f"{name}.v {rng.choice('<>')} {rng.randrange(2, 8)}" for name in names if rng.random() < 0.6]
    window = rng.choice(windows)
    froms = ", ".join(f"{name} {window if rng.random() < 0.7 else rng.choice(windows)}" for name in names)
    return f"SELECT {names[0]}.v AS v, {names[1]}.ts AS t FROM {froms} WHERE {' AND '.join(where)}"


def counts_of(folder: Path, work: Path, queries: Sequence[str], kept: bool) -> list[int]:
    """How many results each query has."""
    session = weft.Session(
        checkpoint=work, execution="local", adapt="off", options=weft.Options(partitions=2)
    )
    for name in STREAMS:
        source = weft.files("parquet", str(folder / name), schema=SCHEMA, max_files_per_batch=1)
        session.stream(name, source, event_time="ts", late="join")
    sinks = [weft.to_memory() if kept else weft.to_count() for _ in queries]
    for number, (sql, sink) in enumerate(zip(queries, sinks, strict=True)):
        session.query(sql, name=f"q{number}", sink=sink)
    session.start(available_now=True)
    session.await_termination()
    found = [sum(batch.results for batch in session.progress[f"q{number}"]) for number in range(len(queries))]
    ages = [
        sum(batch.latency.event.count for batch in session.progress[f"q{number}"])
        for number in range(len(queries))
    ]
    session.stop()
    assert ages == found
    return found


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each way of counting has counted, and how often it could not."""
    seen = Counter[str]()

    def watched(name: str, real: Any) -> Any:
        def call(*args: Any) -> bool:
            done = bool(real(*args))
            seen[name if done else f"not {name}"] += 1
            return done

        return call

    for name in ("count_matches", "count_in_chain", "count_for_queries"):
        monkeypatch.setattr(interpret, name, watched(name, getattr(interpret, name)))
    return seen


@pytest.mark.parametrize("seed", quick(seeds(12), 1))
def test_many_queries_that_are_counted_have_the_results_that_are_kept(
    seed: int, tmp_path: Path, taken: Counter[str]
) -> None:
    """Counts of many queries would be wrong where nothing is made of which anybody could see it."""
    rng = Random(seed)
    write_streams(rng, tmp_path, 4, 25)
    windows = WINDOWS if seed % 3 == 2 else WINDOWS[:-1] if seed % 3 else WINDOWS[2:3]
    queries = [random_query(rng, windows) for _ in range(rng.choice((6, 20, 70)))]
    counted = counts_of(tmp_path, tmp_path / "counted", queries, kept=False)
    assert taken["count_for_queries"] > taken["not count_for_queries"] / 4
    assert counted == counts_of(tmp_path, tmp_path / "kept", queries, kept=True)
    assert sum(counted) > 100
