"""Tuples counted per key, in many small batches: the last ones of every key are found, and the others forgotten."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pyarrow as pa
import pytest

from tests.equivalence.oracle import Oracle, differs, run
from tests.equivalence.streams import SCHEMA, Join, random_table
from tests.equivalence.variants import variants
from tests.local_runner import LocalRunner
from tests.shares import seeds, share_of
from weft.logical.catalog import Catalog
from weft.logical.schema import Stream
from weft.sql.bind import parse_query
from weft.testing import POSITION, reference_join

BATCHES = 24
ROWS = 120
SEEDS = 1

# Joined on the key that is counted per, on others, on none; with filters before which tuples count.
QUERIES = (
    "SELECT a.id AS a, b.id AS b FROM r [ROWS 2 PER s] AS a, t [ROWS 3 PER k] AS b WHERE a.s = b.s AND a.k < 2",
    "SELECT a.id AS a, b.id AS b FROM r [ROWS 1 PER k] AS a, t [RANGE 20 SECONDS] AS b WHERE a.n = b.n AND NOT a.b",
    "SELECT a.id AS a, b.id AS b FROM r [ROWS 1 PER b, k] AS a, t [ROWS 4] AS b WHERE a.d < b.d AND b.k = 1",
    "SELECT a.id AS a, b.id AS b, c.id AS c FROM r [ROWS 1 PER s] AS a, t [ROWS 1 PER s] AS b, r [ROWS 2 PER d] AS c"
    " WHERE a.s = b.s AND b.k = c.k",
    "SELECT a.id AS a, b.id AS b FROM r [ROWS 1 PER d] AS a, r [ROWS 2 PER m] AS b WHERE a.k = b.k",
)


def drawn(text: str, seed: int) -> Join:
    """A query over two random streams, in many batches."""
    rng = random.Random(seed)
    every = Catalog(tuple(Stream(name, SCHEMA, "ts", late="join") for name in ("r", "t")))
    query = parse_query(text, every)
    catalog = Catalog(tuple({input_.stream.name: input_.stream for input_ in query.inputs}.values()))
    tables = {name: random_table(rng, ROWS, rng.choice((0, 8))) for name in catalog.names}
    size = ROWS // BATCHES
    batches = tuple(dict.fromkeys(tables, (n * size, (n + 1) * size)) for n in range(BATCHES))
    return Join(query, catalog, tables, batches)


@pytest.mark.parametrize("text", QUERIES)
def test_the_last_tuples_of_every_key_are_found_and_the_others_forgotten(text: str) -> None:
    """A count would drift over the batches, or a store would keep all that ever came."""
    found = 0
    for seed in seeds(SEEDS):
        join = drawn(text, seed)
        oracle = Oracle.of(join)
        for graph, policy, partitions in variants(join, seed, 1):
            runner = run(join, graph, partitions=partitions, driver=policy)
            wrong = differs(oracle, runner.results(), runner.metrics)
            assert not wrong, f"seed {seed}, {policy}, {partitions}: {wrong}: {text}"
            found += runner.results().num_rows
            assert most_kept(runner) <= ROWS * 2 // 3
    assert found > 10 * share_of(SEEDS)


def most_kept(runner: LocalRunner) -> int:
    """How many tuples one partition holds, at most, of an input that is counted per key."""
    plans = [plan for plan in runner.program.stores.values() if plan.per_key is not None]
    return max(
        sum(run.bounds.rows for run in state.earlier_runs(p)) for state in runner.states for p in plans
    )


def test_the_reference_counts_by_hand() -> None:
    """What the definition says, on few tuples: NULL is a key, NaN is one, and filtered tuples count."""
    catalog = Catalog((Stream("r", SCHEMA), Stream("t", SCHEMA)))
    query = parse_query(
        "SELECT a.id AS a FROM r [ROWS 1 PER d] AS a CROSS JOIN t [ROWS 1] AS b WHERE a.k > 0", catalog
    )
    nan = float("nan")
    left = _rows([1.0, None, nan, 1.0, None, nan, 2.0], [1, 1, 1, 0, 1, 1, 1], range(7))
    assert reference_join(query, {"a": left, "b": _rows([0.0], [1], [9])})["a"].to_pylist() == [4, 5, 6]
    assert reference_join(query, {"a": left, "b": _rows([0.0], [1], [2.5])})["a"].to_pylist() == [
        0,
        1,
        2,
        4,
        5,
        6,
    ]


def _rows(values: list[float | None], wanted: list[int], positions: Iterable[float]) -> pa.Table:
    count = len(values)
    columns = {field.name: pa.nulls(count, pa.int64()) for field in SCHEMA}
    columns |= {"id": pa.array(range(count)), "k": pa.array(wanted), "d": pa.array(values, from_pandas=False)}
    places = pa.array([int(place * 10) for place in positions])
    return pa.table({**columns, "__time": pa.array([0] * count), POSITION: places})
