"""What was sent over every edge: users see what communication costs, and the optimiser's estimate beside it."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

import weft
from weft.connectors.memory.source import TableSource
from weft.runtime.hop.outcome import Parcel
from weft.stats.input_figures import EdgeFigures

PARTITIONS = 3


def source(*keys: int | None) -> TableSource:
    """A stream of one column, with these values."""
    made = TableSource("k long")
    made.offer(pa.table({"k": pa.array(keys, pa.int64())}))
    return made


def session(**options: object) -> weft.Session:
    """A session that joins two streams of three rows each, of which one has no key."""
    made = weft.Session(execution="local", options=weft.Options(partitions=PARTITIONS, **options))  # type: ignore[arg-type]
    made.stream("a", source(1, 2, None))
    made.stream("b", source(1, 1, 3))
    return made


def test_tuples_are_counted_where_they_are_sent() -> None:
    """Each tuple of an equality goes to one partition, and one without a key to none; nothing else is sent."""
    made = session()
    made.query("SELECT a.k FROM a, b WHERE a.k = b.k", name="q", sink=weft.to_count())
    made.run_available()
    sent = [batch.sent for batch in made.progress["q"]]
    assert sum(one.tuples for one in sent) == 5
    assert sum(one.bytes for one in sent) >= 5 * 8
    shown = made.explain()
    assert "Communication" in shown
    (total,) = (line for line in shown.splitlines() if line.split()[:1] == ["all"])
    assert total.split()[1] == "5"


def test_a_tuple_for_all_partitions_counts_for_each() -> None:
    """That is what a join without an equality costs, and why the optimiser avoids it."""
    made = session()
    made.query("SELECT a.k FROM a, b WHERE a.k < b.k", name="q", sink=weft.to_count(), strategy="flat")
    made.run_available()
    sent = sum(batch.sent.tuples for batch in made.progress["q"])
    stores = {store.name: str(store.layout) for store in made.queries[0].graph.stores}
    assert sent > 6, stores


def test_edges_of_shared_graphs_are_shown_under_the_names_of_each_query() -> None:
    """A query sees what was sent for it, also over edges that it shares."""
    made = session()
    for name in ("one", "other"):
        made.query("SELECT x.k FROM a AS x, b AS y WHERE x.k = y.k", name=name, sink=weft.to_count())
    made.run_available()
    for query in made.queries:
        (batch, *_) = made.progress[query.name]
        assert {*batch.edges} <= {edge.name for edge in query.graph.edges}
        assert batch.sent.tuples == 6  # where others may come, tuples without a key are stored, too


@pytest.mark.parametrize("seed", range(5))
def test_copies_of_a_parcel_are_those_its_partitions_get(seed: int) -> None:
    """What is counted when it is sent is what arrives."""
    rng = random.Random(seed)
    rows = rng.randint(1, 20)
    batch = pa.record_batch({"k": pa.array(range(rows), pa.int64())})

    targets = np.array([rng.randint(-1, PARTITIONS - 1) for _ in range(rows)], np.int32)
    for parcel in (Parcel("e", batch), Parcel("e", batch, targets)):
        arrived = sum(parcel.rows_for(partition).num_rows for partition in range(PARTITIONS))
        assert parcel.copies(PARTITIONS) == arrived
        assert parcel.bytes_sent(PARTITIONS) == 8 * arrived
    assert EdgeFigures(1, 8) + EdgeFigures(2, 16) == EdgeFigures(3, 24)
