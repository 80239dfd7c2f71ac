"""Matches that stay ranges: counted and split into products, against all combinations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as combinations
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from weft.bucket.bucket import build
from weft.bucket.index import by_hash
from weft.kernels.probe.equality import equal_ranges, in_order
from weft.kernels.probe.factors import Factor, FactorisedMatches, RangeColumn
from weft.kernels.probe.occurrences import occurrences
from weft.kernels.probe.ranges import Window
from weft.runtime.hop import counting, search

Tuples = list[tuple[int, int]]  # (key, time)


def _drawn(rng: Random, size: int, keys: int) -> Tuples:
    return [(rng.randrange(keys), rng.randrange(12)) for _ in range(size)]


def _factor(
    probes: Tuples, runs: list[Tuples], own: int | None, window: int | None, permuted: bool
) -> Factor:
    """What tuples with a window of ``own`` find in runs whose window is ``window``."""
    order, columns = by_hash("k"), []
    times = np.array([time for _, time in probes], np.int64)
    far = 1 << 40
    bounds = Window.around(times, far if window is None else window, far if own is None else own)
    keys = in_order([pa.array([key for key, _ in probes], pa.int64())])
    for rows in runs:
        made = {name: pa.array([row[i] for row in rows], pa.int64()) for i, name in enumerate("kt")}
        batch = pa.RecordBatch.from_pydict(made)
        bucket = build(batch, layout=by_hash("t") if permuted else order, indexes=(order,), event_time="t")
        ranges = equal_ranges(keys, bucket, order, bounds)
        columns.append(RangeColumn.of(ranges, len(probes), bucket))
    return Factor(tuple(columns), window)


def _matches(
    probe: tuple[int, int], own: int | None, stores: list[Tuples], windows: list[int | None]
) -> Iterator[tuple[int, ...]]:
    """The matches of one tuple, by definition: the numbers of its partners in every store."""
    numbered = [[(n, row) for n, row in enumerate(rows) if row[0] == probe[0]] for rows in stores]
    for partners in combinations(*numbered):
        rows = [row for _, row in partners]
        newest = max(probe[1], *(time for _, time in rows))
        aged = zip((probe, *rows), (own, *windows), strict=True)
        if all(window is None or newest - row[1] <= window for row, window in aged):
            yield tuple(n for n, _ in partners)


@dataclass(frozen=True)
class _Drawn:
    """Random matches as ranges, and by definition: for every tuple, the numbers of its partners."""

    matches: FactorisedMatches
    expected: list[list[tuple[int, ...]]]
    stores: list[Tuples]


def _draw(rng: Random) -> _Drawn:
    probes, inputs = _drawn(rng, 12, 3), rng.randrange(1, 4)
    own, *windows = (rng.choice((None, 0, 2, 5, 9)) for _ in range(1 + inputs))
    stores = [[_drawn(rng, rng.randrange(1, 9), 3) for _ in range(rng.randrange(3))] for _ in windows]
    factors = tuple(
        _factor(probes, runs, own, window, rng.random() < 0.5)
        for runs, window in zip(stores, windows, strict=True)
    )
    matches = FactorisedMatches(len(probes), np.array([time for _, time in probes], np.int64), factors)
    rows = [[row for run in runs for row in run] for runs in stores]
    return _Drawn(matches, [list(_matches(probe, own, rows, windows)) for probe in probes], rows)


@pytest.mark.parametrize("seed", range(60))
def test_counts_of_factors_are_those_of_all_combinations(seed: int) -> None:
    """A star join that is only counted would count matches outside of their windows, or some twice."""
    rng = Random(seed)
    drawn = _draw(rng)
    expected = list(map(len, drawn.expected))
    assert drawn.matches.counts().tolist() == expected
    portions = list(drawn.matches.products(portion=rng.choice((1, 3, 100))))
    assert sum(int(one.multiplicities().sum()) for one in portions) == sum(expected)


@pytest.mark.parametrize("seed", range(60))
def test_a_tuple_occurs_in_as_many_matches_as_there_are_with_it(seed: int) -> None:
    """A sum over a join that is never made would weigh values with numbers that are not theirs."""
    drawn = _draw(Random(seed))
    found = occurrences(drawn.matches)
    assert found.probe.tolist() == list(map(len, drawn.expected))
    for number, (rows, columns) in enumerate(zip(drawn.stores, found.stored, strict=True)):
        runs = [column.run for column in drawn.matches.factors[number].columns]
        seen = Counter(rows[match[number]] for matches in drawn.expected for match in matches)
        weighed = Counter[tuple[int, int]]()
        for run, counts in zip(runs, columns, strict=True):
            keys, times = (run.batch.column(name).to_pylist() for name in "kt")
            for key, time, count in zip(keys, times, counts.tolist(), strict=True):
                weighed[key, time] += count
        assert +weighed == seen


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("few", [0, search.FEW])
def test_a_star_join_that_is_only_counted_counts_what_rows_would_be(
    few: int, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counting without rows would give another number than keeping them, or none of it would be done on ranges."""
    rng, counts, ranges = Random(seed), list[int](), list[bool]()

    def watched(*args: Any) -> FactorisedMatches | None:
        found = search.factorise(*args)
        ranges.append(found is not None)
        return found

    monkeypatch.setattr(search, "FEW", few)
    monkeypatch.setattr(counting, "factorise", watched)
    names = "abcd"[: rng.randrange(3, 5)]
    froms = ", ".join(f"{n} {rng.choice(('', '[RANGE 2 SECONDS]', '[RANGE 5 SECONDS]'))}" for n in names)
    for name, number in combinations(names, range(3)):
        (tmp_path / name).mkdir(exist_ok=True)
        times = [1_000_000 * (2 * number + rng.randrange(4)) for _ in range(12)]
        keys = [rng.randrange(4) for _ in times]
        rows = pa.table({"k": keys, "ts": pa.array(times, pa.timestamp("us", "UTC"))})
        pq.write_table(rows, tmp_path / name / f"{number}.parquet")
    for sink in (weft.to_count(), weft.to_memory()):
        session = weft.Session(checkpoint=tmp_path / f"ck{len(counts)}", execution="local", adapt="off")
        for name in names:
            files = weft.files(
                "parquet", str(tmp_path / name), schema="k long, ts timestamp", max_files_per_batch=1
            )
            session.stream(name, files, event_time="ts", late="join")
        where = " AND ".join(f"a.k = {name}.k" for name in names[1:])
        session.query(f"SELECT a.k FROM {froms} WHERE {where}", name="q", sink=sink)
        session.start(available_now=True)
        session.await_termination()
        counts.append(sum(batch.results for batch in session.progress["q"]))
        session.stop()
    assert counts[0] == counts[1] > 0
    assert all(ranges) or few
