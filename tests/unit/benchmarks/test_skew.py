"""What the benchmark of skew is made of: keys by Zipf's law, and how much can be gained at most."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from benchmarks._zipf import STREAMS, Zipf, write_zipf
from benchmarks.skew import gain_at_most

ZIPF = Zipf(rows=20_000, batches=2, keys=1_000, exponent=1.2)


def test_keys_are_as_frequent_as_is_said(tmp_path: Path) -> None:
    """A session that is told the shares must be told the truth."""
    write_zipf(tmp_path, ZIPF, seed=1)
    for name in STREAMS:
        keys = np.concatenate([pq.read_table(file)["k"].to_numpy() for file in (tmp_path / name).iterdir()])
        found = np.bincount(keys, minlength=ZIPF.keys) / keys.size
        assert found[:5] == pytest.approx(ZIPF.shares[:5], rel=0.1)
        assert keys.size == ZIPF.rows * ZIPF.batches
    assert ZIPF.heavy(2) == {0: ZIPF.shares[0], 1: ZIPF.shares[1]}


def test_the_gain_is_bounded_by_the_cores_and_by_the_heaviest_key() -> None:
    """With one core nothing can be gained; with two, Zipf 1.2 leaves 1.5 ×."""
    assert gain_at_most(ZIPF, 8, 1) == 1.0
    assert gain_at_most(ZIPF, 8, 2) == pytest.approx(1.53, abs=0.02)
    assert gain_at_most(ZIPF, 8, 8) > 6
