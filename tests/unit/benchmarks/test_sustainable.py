"""What counts as sustained, without anybody who sustains it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks._sustainable import Feed, Window, find_highest, judge, latencies

CAME = np.repeat(np.arange(0.0, 20.0, 0.25), 10)


@pytest.mark.parametrize(
    ("took", "left", "sustained"),
    [
        (np.full(CAME.size, 0.5), 0, True),
        (np.full(CAME.size, 0.5), 7, False),  # something was never read
        (np.full(CAME.size, 1.5), 0, False),  # too late
        (0.1 + 0.04 * CAME, 0, False),  # still within the bound, but later and later
        (0.9 - 0.04 * CAME, 0, True),  # it catches up
        (np.where(CAME < 5, 30.0, 0.2), 0, True),  # the warm-up does not count
    ],
)
def test_a_rate_is_judged(
    took: np.ndarray[tuple[int], np.dtype[np.float64]], left: int, sustained: bool
) -> None:
    """By the latency of 95 of 100 results, by its growth, and by what is left."""
    found = judge(1000, CAME, took, Window(5.0, 1.0), left)
    assert found.sustained is sustained
    assert found.results == np.count_nonzero(CAME >= 5)


def test_a_rate_without_results_is_not_sustained() -> None:
    """Nothing says that it would be."""
    assert not judge(1, np.empty(0), np.empty(0), Window(0.0, 1.0)).sustained


@pytest.mark.parametrize("limit", [1, 70, 100, 5_000, 10**9])
def test_the_highest_rate_is_found(limit: int) -> None:
    """Above and below the first one that is tried, and nowhere beyond what may be tried."""
    tried: list[int] = []

    def sustains(rate: int) -> bool:
        tried.append(rate)
        return rate <= limit

    found = find_highest(sustains, 100, 6, 10_000)
    assert found <= min(limit, 10_000)
    assert found in tried
    assert max(tried) <= 10_000
    assert found > 0.9 * min(limit, 6_400)
    assert find_highest(lambda _: False, 100, 6, 10_000) == 0


def test_results_are_measured_from_their_last_tuple(tmp_path: Path) -> None:
    """By the number of its row, which says in which file it came."""
    pq.write_table(pa.table({"v_n": [0, 5], "w_n": [9, 1]}), tmp_path / "r.parquet")
    came, took = latencies([(50.0, [tmp_path / "r.parquet"])], ("v", "w"), 4, [10.0, 20.0, 30.0])
    assert came.tolist() == [30.0, 20.0]
    assert took.tolist() == [20.0, 30.0]


def test_files_come_by_the_clock(tmp_path: Path) -> None:
    """The first at once, the others one after the other, of all streams alike."""
    for name in "vw":
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(3):
            (tmp_path / "data" / name / f"{number}").touch()
    feed = Feed(tmp_path / "data", tmp_path / "in", "vw", 0.02)
    feed.give_first()
    assert [one.name for one in (tmp_path / "in").rglob("*") if one.is_file()] == ["0", "0"]
    feed.start()
    feed.wait()
    assert len(feed.arrived) == 3
    assert feed.arrived[2] - feed.began >= 0.04
    assert len([one for one in (tmp_path / "in").rglob("*") if one.is_file()]) == 6
