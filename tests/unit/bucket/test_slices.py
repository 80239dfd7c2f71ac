"""Parts of buckets by hash: every row once, found by every order, merged and written like any bucket."""

from __future__ import annotations

from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.bucket.checks import check_index
from weft.bucket.bounds import PLACES
from weft.bucket.bucket import Bucket, build
from weft.bucket.codec import decode, encode
from weft.bucket.compiled import mix
from weft.bucket.index import by_hash, by_value
from weft.bucket.merge import between, merge
from weft.kernels.probe.equality import in_order, probe

ORDERS = (by_hash("k"), by_hash("s"), by_value("v"))


def bucket_of(seed: int, rows: int) -> Bucket:
    rng = np.random.default_rng(seed)
    keys = pa.array(rng.integers(0, max(1, rows // 3), rows), mask=rng.random(rows) < 0.1)
    batch = pa.RecordBatch.from_pydict(
        {
            "k": keys,
            "s": pa.array([f"t{n}" if n % 7 else None for n in rng.integers(0, 50, rows)], pa.string()),
            "v": pa.array(rng.normal(size=rows)),
            "ts": pa.array(rng.integers(0, 10**6, rows)),
            "row": pa.array(np.arange(rows)),
        }
    )
    return build(batch, layout=ORDERS[0], indexes=ORDERS[1:], event_time="ts")


def rows_of(bucket: Bucket) -> list[int]:
    found: list[int] = bucket.batch.column("row").to_pylist()
    return found


@pytest.mark.parametrize("seed", range(12))
def test_parts_have_every_row_once_and_are_buckets_like_any_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    whole = bucket_of(seed, int(rng.choice([0, 1, 5, 300, 3000])))
    cuts = sorted({0, PLACES, *(int(cut) for cut in rng.integers(0, PLACES - 1, 4, dtype=np.uint64))})
    parts = [between(whole, low, high) for low, high in pairwise(cuts)]
    assert sorted(row for part in parts for row in rows_of(part)) == sorted(rows_of(whole))
    for part, low, high in zip(parts, cuts, cuts[1:], strict=False):
        assert part.bounds.rows == part.batch.num_rows
        for key in part.batch.column("k").to_pylist():
            assert high == PLACES if key is None else low <= int(mix(np.int64(key))) < high
        for order in ORDERS:
            check_index(part, order)
        again = decode(encode(part))
        assert again.batch.equals(part.batch)
        assert again.bounds == part.bounds
    assert sorted(rows_of(merge(parts))) == sorted(rows_of(whole))


@pytest.mark.parametrize("seed", range(4))
def test_probing_the_parts_finds_what_probing_the_whole_finds(seed: int) -> None:
    whole = bucket_of(seed, 2000)
    parts = [between(whole, n * PLACES // 5, (n + 1) * PLACES // 5) for n in range(5)]
    parts = [between(part, part.bounds.low, part.bounds.high - 1000) for part in parts[:2]] + parts[2:]
    asked = pa.RecordBatch.from_pydict(
        {"k": pa.array(range(700)), "s": pa.array([f"t{n}" for n in range(700)])}
    )
    for order in ORDERS[:2]:
        keys = in_order([asked.column(order.columns[0])])
        pairs = []
        for runs in ([whole], parts):
            found = probe(keys, runs, order)
            stored = [
                runs[n].batch.column("row").take(pa.array(found.of_run(n)[1])).to_pylist()
                for n in range(len(runs))
            ]
            asking = [found.of_run(n)[0].tolist() for n in range(len(runs))]
            pairs.append(sorted(zip(chain(*asking), chain(*stored), strict=True)))
        assert pairs[0] == pairs[1]
        assert pairs[0]
