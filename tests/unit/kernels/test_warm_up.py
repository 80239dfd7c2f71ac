"""After warming up, the first batch of a stream does not wait for the compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import weft
from weft.bucket.bucket import build
from weft.bucket.index import by_hash
from weft.kernels.probe import equal, query_counts, ranges
from weft.kernels.probe.equality import in_order, probe
from weft.kernels.probe.ranges import Window
from weft.kernels.query_sets import cells, predicate_index, query_set
from weft.kernels.warm_up import Needs, needs_of, warm_up
from weft.logical.expr.conversion import literal
from weft.logical.expr.expression import Column
from weft.logical.expr.functions import call
from weft.logical.schema import DataType


def compiled_variants() -> list[int]:
    functions: list[Any] = [equal.find, equal.order_probes, ranges.fill]
    functions += [cells.number_cells, cells.text_cells, predicate_index._intersect]
    functions += [
        query_counts._count_pairs,
        query_set._put,
        query_set._count,
        query_set._list,
        query_set._look_up,
    ]
    return [len(function.signatures) for function in functions]


def share(numbers: Any) -> None:
    """Filters on numbers with and without NULLs and on texts, and what becomes of their query-sets."""
    data = {("t", "k"): pa.array(numbers), ("t", "n"): pa.array([*numbers[1:], None])}
    data["t", "s"] = data["t", "n"].cast(pa.string())
    long, string = DataType("long"), DataType("string")
    filters = {
        slot: (call("<", Column("t", name, long), literal(9)),) for slot, name in ((0, "k"), (70, "n"))
    }
    filters[9] = (call("=", Column("t", "s", string), literal("3")),)
    sets = predicate_index.PredicateIndex.from_filters(filters).query_sets(data, len(numbers))
    stored = query_set.sets_of([query_set.columns_of(sets)["$q1"]])
    for some, slot in ((sets, 70), (stored, 6)):
        assert query_set.rows_per_query(some, [slot])[1].tolist() == list(range(8))
    query_set.set_bit(sets, 3, query_set.nonempty(stored))
    query_set.by_thresholds(numbers, *query_set.thresholds({0: 3, 1: None}, 1))


def test_nothing_is_left_to_compile() -> None:
    warm_up()
    before = compiled_variants()
    batch = pa.record_batch({"k": np.arange(50), "ts": pa.array(np.arange(50), pa.timestamp("us"))})
    run = build(batch, layout=by_hash("k"), event_time="ts")
    matches = probe(
        in_order([batch.column("k")]), [run], by_hash("k"), window=Window.around(np.arange(50), 0, 0)
    )
    assert len(matches) == 50
    share(np.arange(50))
    assert compiled_variants() == before


def test_only_what_queries_need_is_compiled() -> None:
    """Joins by equality of one kind of key wait neither for texts nor for joins by order."""
    session = weft.Session()
    for name in ("a", "b"):
        session.stream(name, "k long, i int, t string, x double, ts timestamp", event_time="ts")

    def needs(*conditions: str) -> Needs:
        sql = "SELECT a.k FROM a [RANGE 1 MINUTE] AS a, b [RANGE 1 MINUTE] AS b WHERE "
        return needs_of([session.parse(sql + condition) for condition in conditions])

    assert needs("a.k = b.k") == Needs(("k",), order=False, sets=False)
    assert needs("a.t = b.t AND a.x > 1") == Needs(("k", "s"), order=False, sets=True)
    assert needs("a.i = b.i AND a.x < b.x", "a.k = b.k") == Needs(("k", "u"), order=True, sets=True)
    steps: list[tuple[int, int]] = []
    warm_up(lambda *done: steps.append(done), Needs(("k",), order=False, sets=False))
    assert steps[-1][0] == steps[-1][1]
    assert steps == sorted(steps)


@pytest.mark.ci
def test_a_cold_cache_is_filled_by_two_processes(tmp_path: Path) -> None:
    """What the other process compiled is loaded from the cache, and compiled no second time."""
    code = (
        "from weft.kernels import warm_up as w; from weft.kernels.ages import _count; "
        "from weft.kernels.route.sample import _least; "
        "w.os.cpu_count = lambda: 2; w.warm_up(None, w.Needs(('k',), False, False)); "
        "print(sum(_least.stats.cache_misses.values()), sum(_least.stats.cache_hits.values()) > 0)"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout == "0 True\n"
