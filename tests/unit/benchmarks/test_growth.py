"""`weft bench growth` joins what it says, and takes its rates where it says."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from benchmarks.growth import SCHEMAS, WARM, rate_at, write_batch


def test_bids_are_for_auctions_of_the_last_batches(tmp_path: Path) -> None:
    """Else nothing would be joined, or more and more, and the times of batches would tell of something else."""
    for name in SCHEMAS:
        (tmp_path / name).mkdir()
    for number in range(12):
        write_batch(tmp_path, number, auctions=10, bids=200)
    base = duckdb.connect()
    for name in SCHEMAS:
        base.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{tmp_path}/{name}/*.parquet')")
    joined = "FROM bid AS B, auction AS A WHERE B.auction = A.id"
    assert base.sql(f"SELECT count(*) {joined}").fetchall() == [(12 * 200,)]
    late = base.sql(f"SELECT max(epoch(B.ts) - epoch(A.ts)) {joined}").fetchall()[0][0]
    assert 0 < late < 11


def test_rates_are_those_around_a_number_of_stored_rows() -> None:
    """A batch that is slow at first, or at the end, must not count at the other end."""
    seconds = [9.0] * WARM + [1.0] * 20 + [2.0] * 20
    assert rate_at(seconds, 100, 0) == pytest.approx(100.0)
    assert rate_at(seconds, 100, 100 * len(seconds)) == pytest.approx(50.0)
