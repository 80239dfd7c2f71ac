"""Shares of a run: whatever order it is laid out in, a partition has the rows that are sent to it."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tests.shares import seeds
from weft.bucket.bounds import PLACES
from weft.bucket.bucket import Bucket, build
from weft.bucket.index import by_hash
from weft.bucket.merge import between
from weft.kernels.route.partition import partitions, range_of
from weft.logical.expr.expression import Column
from weft.logical.schema import DataType
from weft.plan.physical.graph import CODEC
from weft.runtime.state.open_segments import OpenSegments
from weft.runtime.state.partition_manifest import Share, StoredRun
from weft.runtime.state.segment_file import BUCKETS
from weft.storage.storage import Memory

KEY = Column("a", "k", DataType("long"))


def rows_in(run: Bucket, low: int, high: int) -> list[int]:
    """The rows of a stored run that a share of it has."""
    storage = Memory()
    storage.objects[f"{BUCKETS}/s"] = [[run]]
    stored = StoredRun("s", 0, 1, 0, run.bounds, Share(low, high, CODEC.dumps(KEY), "a.t"))
    found: list[int] = OpenSegments(storage).open(0, stored).batch.column("a.i").to_pylist()
    return found


@pytest.mark.parametrize("seed", seeds(12))
@pytest.mark.parametrize("layout", ["a.k", "a.x", None])
def test_rows_are_in_the_partition_that_they_are_sent_to(layout: str | None, seed: int) -> None:
    """A plan may lay a store out in another order than its runs; by the hashes of that, rows would be lost."""
    rng, count = random.Random(seed), random.Random(seed).randint(1, 7)
    keys = pa.array([rng.choice((None, *range(20))) for _ in range(200)], pa.int64())
    values = {
        "a.k": keys,
        "a.x": pa.array([rng.randrange(9) for _ in keys]),
        "a.i": range(200),
        "a.t": range(200),
    }
    batch = pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in values.items()})
    run = build(batch, layout=None if layout is None else by_hash(layout), event_time="a.t")
    homes = partitions([keys], count, nulls=True).tolist()
    for partition in range(count):
        wanted = [row for row, home in enumerate(homes) if home == partition]
        assert sorted(rows_in(run, *range_of(partition, count))) == wanted
    if layout == "a.k":  # what a merge has left of it
        rest = between(run, PLACES // 3, PLACES)
        assert sorted(rows_in(rest, 0, PLACES // 2)) == sorted(
            between(run, PLACES // 3, PLACES // 2).batch.column("a.i").to_pylist()
        )
        assert not rows_in(rest, 0, PLACES // 4)
