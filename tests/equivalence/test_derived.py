"""Queries over queries as they run, derived streams and unions among them, give what the definition gives."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import weft
from tests.equivalence.sub_selects import (
    BEGINNING,
    SCHEMA,
    Shape,
    answer,
    arrow_schema,
    base_streams,
    random_query,
)
from tests.shares import quick, seeds
from weft.errors import WeftError
from weft.logical.query.query import Query
from weft.logical.schema import Stream
from weft.testing import LocalRun

LATENESS = timedelta(seconds=4)
REFUSED = ("no tuples can satisfy", "more than most_inputs")


def rows_of(table: pa.Table, query: Query) -> Counter[tuple[Any, ...]]:
    """Results as a multiset."""
    shown = table.select([output.name for output in query.projection])
    return Counter(tuple(row.values()) for row in shown.to_pylist())


def timely_tables(rng: random.Random, streams: Sequence[Stream], rows: int) -> dict[str, pa.Table]:
    """Tables whose times rise, but for as much as tuples may be late."""
    found = {}
    for stream in streams:
        times = [seconds + rng.uniform(-2, 2) for seconds in sorted(rng.uniform(0, 40) for _ in range(rows))]
        data = [
            {"c0": _value(rng), "c1": _value(rng), "ts": BEGINNING + timedelta(seconds=round(time, 1))}
            for time in times
        ]
        found[stream.name] = pa.Table.from_pylist(data, schema=arrow_schema(SCHEMA))
    return found


def _value(rng: random.Random) -> int | None:
    return None if rng.random() < 0.05 else rng.randint(0, 3)


def split(rng: random.Random, tables: Mapping[str, pa.Table], batches: int) -> list[dict[str, pa.Table]]:
    """The tables cut into batches at random places."""
    cuts = {
        name: sorted(rng.randint(0, table.num_rows) for _ in range(batches - 1))
        for name, table in tables.items()
    }
    bounds = {name: [0, *found, tables[name].num_rows] for name, found in cuts.items()}
    return [
        {name: tables[name].slice(at[i], at[i + 1] - at[i]) for name, at in bounds.items()}
        for i in range(batches)
    ]


def random_session(rng: random.Random, shape: Shape) -> tuple[weft.Session, Query, list[Stream]] | None:
    """A session with a random query over queries; None if it is refused, since it can have no results."""
    streams = base_streams(shape, LATENESS)
    session = weft.Session(options=weft.Options(partitions=rng.choice((1, 2, 3))), adapt="off")
    for stream in streams:
        session.stream(stream.name, stream.schema, event_time=stream.event_time, lateness=stream.lateness)
    query = random_query(rng, streams, shape, rng.choice((1, 2)))
    try:
        session.query(str(query), name="q", sink=weft.to_memory(), cross=True)
    except WeftError as error:
        if not any(text in error.message for text in REFUSED):
            raise
        return None
    return session, query, streams


@pytest.mark.parametrize("seed", quick(seeds(40), 10))
def test_derived(seed: int) -> None:
    """What a sub-select gives would be lost, come twice, be late, or be closed before its partners come."""
    rng = random.Random(seed)
    shape = Shape(untimed=False, counted=False, bounded=rng.random() < 0.7)
    made = random_session(rng, shape)
    if made is None:
        return
    session, query, streams = made
    tables = timely_tables(rng, streams, 10)
    run = LocalRun(session)
    for batch in split(rng, tables, rng.randint(1, 5)):
        run.batch(batch)
    run.end()
    positioned = {
        name: table.append_column("__position", pa.array(range(table.num_rows)))
        for name, table in tables.items()
    }
    assert rows_of(run.results("q"), query) == rows_of(answer(query, positioned), query)
