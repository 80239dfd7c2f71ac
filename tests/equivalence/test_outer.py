"""Trees of joins: both readings of their definition agree, and what is printed is what was written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.equivalence.nested import nested_join
from tests.equivalence.oracle import PERIOD, Rows, rows_of, timed
from tests.equivalence.outer import Branch, OuterJoin, pads, random_outer
from tests.shares import quick, rare, seeds
from weft.logical.codec import LOGICAL, Codec
from weft.logical.query.join_tree import Join
from weft.logical.query.window import UNBOUNDED
from weft.sql.bind import parse_query
from weft.testing import reference_join
from weft.testing.reference import join_within_times, row_column

BLOCKS, SEEDS = 2, 30
PRINTED = 100

# What part of all cases, at least, must have each of these.
WANTED = {
    "results": 0.6,
    "padded rows": 0.3,
    "inner joins only": 0.03,
    "windows that matter": 0.1,
    "a left join": 0.2,
    "a full join": 0.1,
    "a semi join": 0.1,
    "an anti join": 0.1,
    "a bushy tree": 0.1,
    "more than one kind": 0.2,
}


def tables_of(outer: OuterJoin) -> dict[str, pa.Table]:
    """All tuples, by alias, with the times of their arrival."""
    join = outer.join
    arrivals = np.arange(len(join.batches), dtype=np.int64) * PERIOD
    return {i.alias: timed(join, i.stream.name, arrivals) for i in join.query.inputs}


@pytest.mark.parametrize("block", quick(range(BLOCKS)))
def test_both_references_agree_on_trees(block: int) -> None:
    """What outer joins mean: once by DuckDB after all reductions, once by nested loops as written."""
    met: Counter[str] = Counter()
    taken = seeds(SEEDS, block)
    for seed in taken:
        outer = random_outer(seed)
        tables = tables_of(outer)
        found, expected = rows_of(reference_join(outer.join.query, tables)), nested_join(outer, tables)
        assert found == expected, f"seed {seed}: {outer.text}, read as {outer.join.query}"
        met.update(_met(outer, tables, expected))
    too_rare = rare(met, WANTED, len(taken))
    assert not too_rare, f"of {len(taken)} cases too few have {too_rare}"


def test_both_references_agree_on_joins_of_every_pair() -> None:
    """A join ON TRUE would pad rows that have a partner, or leave out those that have none."""
    met: Counter[str] = Counter()
    for seed in seeds(SEEDS, least=SEEDS):
        outer = random_outer(seed, bare=0.6)
        tables = tables_of(outer)
        found, expected = rows_of(reference_join(outer.join.query, tables)), nested_join(outer, tables)
        assert found == expected, f"seed {seed}: {outer.text}, read as {outer.join.query}"
        query = outer.join.query
        assert parse_query(str(query), outer.join.catalog, cross=query.cross) == query
        met.update(_bare(query.outer) if query.outer is not None else ())
    assert all(met[kind] >= 3 for kind in ("left", "full", "semi", "anti")), met


def _bare(tree: Join | str) -> Iterator[str]:
    """The kinds of the joins ON TRUE."""
    if isinstance(tree, Join):
        yield from () if tree.on else (tree.kind,)
        yield from (*_bare(tree.left), *_bare(tree.right))


def test_trees_are_printed_as_they_are() -> None:
    """A query would come back from its text, or from a plan's file, as another."""
    codec = Codec(LOGICAL)
    for seed in seeds(PRINTED):
        outer = random_outer(seed)
        query = outer.join.query
        assert parse_query(str(query), outer.join.catalog, cross=True) == query
        assert codec.loads(codec.dumps(query)) == query
        assert query.renamed({alias: f"x{alias}" for alias in query.aliases}).renamed(
            {f"x{alias}": alias for alias in query.aliases}
        ) == query  # fmt: skip


def _met(outer: OuterJoin, tables: dict[str, pa.Table], expected: Rows) -> set[str]:
    query = outer.join.query
    kinds = set(_kinds(query.outer)) if query.outer is not None else set()
    rows = join_within_times(query, tables).select([row_column(alias) for alias in query.visible])
    unbounded = replace(query, inputs=tuple(replace(i, window=UNBOUNDED) for i in query.inputs))
    has = {
        "results": bool(expected),
        "padded rows": any(rows[name].null_count for name in rows.schema.names),
        "windows that matter": rows_of(reference_join(unbounded, tables)) != expected,
        "a bushy tree": isinstance(outer.tree.right, Branch),
        "inner joins only": query.outer is None and pads(outer.tree),
        "a left join": "left" in kinds,
        "a full join": "full" in kinds,
        "a semi join": "semi" in kinds,
        "an anti join": "anti" in kinds,
        "more than one kind": len(kinds) > 1,
    }
    return {what for what, there in has.items() if there}


def _kinds(node: Join | str) -> Iterator[str]:
    if isinstance(node, Join):
        yield node.kind
        yield from _kinds(node.left)
        yield from _kinds(node.right)
