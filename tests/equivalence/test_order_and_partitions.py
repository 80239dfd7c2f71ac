"""Under `ROWS`, answers depend on the order of the inputs: nothing but the tuples may decide it (design, D5)."""

from __future__ import annotations

import itertools
import random
from datetime import timedelta

import pytest

from tests.equivalence.oracle import run
from tests.equivalence.streams import SCHEMA, Join, random_table
from tests.shares import quick, seeds
from weft.logical.catalog import Catalog
from weft.logical.schema import Stream
from weft.optimizer.single.strategies import optimise
from weft.optimizer.space import Options
from weft.plan.physical.lower import lower
from weft.sql.bind import parse_query
from weft.stats.statistics import Statistics

ROWS = 120

QUERIES = (
    "SELECT a.id AS a, b.id AS b FROM r [ROWS {n}] AS a, t [ROWS {n}] AS b WHERE a.k = b.k",
    "SELECT a.id AS a, b.id AS b FROM r [ROWS {n}] AS a, t [RANGE 20 SECONDS] AS b"
    " WHERE a.n BETWEEN b.n - 1 AND b.n + 1",
    "SELECT a.id AS a, b.id AS b, c.id AS c FROM r [ROWS {n}] AS a, t [ROWS {m}] AS b, u [ROWS 2 PER k] AS c"
    " WHERE a.k = b.k AND b.n = c.n",
)


def drawn(text: str, seed: int) -> Join:
    """A query over random streams, in batches of random sizes."""
    rng = random.Random(seed)
    every = Catalog(
        tuple(Stream(name, SCHEMA, "ts", lateness=timedelta(seconds=30)) for name in ("r", "t", "u"))
    )
    query = parse_query(text.format(n=rng.randrange(10, 60), m=rng.randrange(10, 60)), every)
    catalog = Catalog(tuple(input_.stream for input_ in query.inputs))
    tables = {name: random_table(rng, ROWS, 8) for name in catalog.names}
    ends = sorted(rng.sample(range(1, ROWS), 11))
    cuts = [0, *ends, ROWS]
    batches = tuple(dict.fromkeys(tables, (first, last)) for first, last in itertools.pairwise(cuts))
    return Join(query, catalog, tables, batches)


@pytest.mark.parametrize("seed", quick(seeds(6)))
@pytest.mark.parametrize("text", QUERIES, ids=("rows", "range", "three"))
def test_partitions_and_plans_change_neither_the_order_nor_the_answer(text: str, seed: int) -> None:
    """What stores hold differs by how many there are and by when they forget: it may not order the inputs."""
    join = drawn(text, seed)
    policy = ("initial_output_size", "output_rate", "consumption_rate")[seed % 3]
    found = []
    for partitions, strategy in ((1, "flat"), (2, "flat"), (3, "left_deep"), (5, "auto")):
        options = Options(partitions=partitions, strategy=strategy)
        runner = run(
            join, lower(optimise(join.query, Statistics(), options)), partitions=partitions, driver=policy
        )
        rows = sorted(map(str, runner.results().to_pylist()))
        found.append(([metrics.order for metrics in runner.metrics], rows))
    assert found[0][1]
    assert all(one == found[0] for one in found[1:])
