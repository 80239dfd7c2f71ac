"""Queries over queries, flattened, give what the definition gives: inner results as tables, then the outer query."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.equivalence.sub_selects import (
    Shape,
    answer,
    base_streams,
    flattened,
    random_query,
    random_tables,
)
from tests.shares import quick, seeds
from weft.errors import WeftError
from weft.logical.catalog import Catalog
from weft.logical.query.query import Query
from weft.sql.bind import parse_query


def _rows(table: pa.Table, query: Query) -> Counter[tuple[Any, ...]]:
    shown = table.select([output.name for output in query.projection])
    return Counter(tuple(row.values()) for row in shown.to_pylist())


@pytest.mark.parametrize("seed", quick(seeds(60), 20))
def test_flattened(seed: int) -> None:
    """A sub-select would change the answer by being flattened, or be another query when printed and read again."""
    rng, shape = random.Random(seed), Shape()
    streams = base_streams(shape)
    query = random_query(rng, streams, shape, rng.choice((1, 1, 2)))
    flat = flattened(query)
    tables = random_tables(rng, streams, 8)
    assert _rows(answer(flat, tables), flat) == _rows(answer(query, tables), query)
    catalog = Catalog(tuple(streams))
    again = _unless("no tuples can satisfy", lambda: parse_query(str(flat), catalog, cross=True))
    assert again in (None, flat)


def _unless(message: str, make: Callable[[], Query]) -> Query | None:
    """What is made; None if that is refused with a message."""
    try:
        return make()
    except WeftError as error:
        if not re.search(message, error.message):
            raise
        return None
