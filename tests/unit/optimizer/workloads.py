"""Random workloads: many queries over one graph of streams, so that they have sub-joins in common."""

from __future__ import annotations

import random

from weft.logical.catalog import Catalog
from weft.logical.query.canonical import canonical
from weft.logical.query.query import Query
from weft.logical.schema import Schema, Stream
from weft.sql.bind import parse_query
from weft.stats.statistics import Statistics, StreamStatistics


def workload(
    seed: int,
    count: int,
    *,
    streams: int = 8,
    inputs: tuple[int, int] = (3, 5),
    filters: float = 0.0,
    faster: float = 1.0,
) -> tuple[dict[str, Query], Statistics]:
    """So many canonical queries, each over connected streams, and figures for all of them.

    The graph of streams is a tree with a few edges more; every edge has a column of its own, or of its end's. Each
    query filters an input with the probability given. ``faster`` streams have as many more keys.
    """
    rng = random.Random(seed)
    edges = [(rng.randrange(i), i, rng.random() < 0.5) for i in range(1, streams)]
    more = [sorted(rng.sample(range(streams), 2)) for _ in range(streams // 4)]
    edges += [(left, right, False) for left, right in more]
    columns: dict[int, dict[str, None]] = {i: {"f": None} for i in range(streams)}
    texts: dict[tuple[int, int], str] = {}
    for left, right, own in edges:
        mine = f"k{left}" if own else f"c{left}_{right}"
        columns[left][mine] = columns[right][f"c{left}_{right}"] = None
        texts[left, right] = f"s{left}.{mine} = s{right}.c{left}_{right}"
    catalog = Catalog(
        tuple(
            Stream(f"s{i}", Schema.parse(", ".join(f"{name} long" for name in names)))
            for i, names in columns.items()
        )
    )
    figures = {
        f"s{i}": StreamStatistics(
            faster * round(10 ** rng.uniform(1, 3)),
            {name: faster * round(10 ** rng.uniform(2, 4)) for name in names},
        )
        for i, names in columns.items()
    }
    queries = {}
    for number in range(count):
        chosen = _connected(rng, texts, rng.randint(*inputs), streams)
        where = [text for (left, right), text in texts.items() if {left, right} <= chosen]
        where += [f"s{i}.f < {rng.randint(1, 3)}" for i in sorted(chosen) if rng.random() < filters]
        tables = ", ".join(f"s{i} [RANGE 1 MINUTE]" for i in sorted(chosen))
        text = f"SELECT * FROM {tables} WHERE {' AND '.join(where)}"
        queries[f"q{number}"] = canonical(parse_query(text, catalog)).query
    return queries, Statistics(figures, origin="given")


def _connected(rng: random.Random, edges: dict[tuple[int, int], str], count: int, streams: int) -> set[int]:
    chosen = {rng.randrange(streams)}
    while len(chosen) < count:
        near = sorted({node for pair in edges for node in pair if set(pair) & chosen} - chosen)
        chosen.add(rng.choice(near))
    return chosen
