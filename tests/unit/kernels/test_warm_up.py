"""After warming up, the first batch of a stream does not wait for the compiler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import build
from weft.bucket.index import by_hash
from weft.kernels.probe import equal, ranges
from weft.kernels.probe.equality import in_order, probe
from weft.kernels.probe.ranges import Window
from weft.kernels.query_sets import cells, predicate_index, query_set
from weft.kernels.warm_up import warm_up
from weft.logical.expr.conversion import literal
from weft.logical.expr.expression import Column
from weft.logical.expr.functions import call
from weft.logical.schema import DataType


def compiled_variants() -> list[int]:
    functions: list[Any] = [equal.find, equal.order_probes, ranges.fill]
    functions += [cells.number_cells, cells.text_cells, predicate_index._intersect]
    functions += [query_set._put, query_set._count, query_set._list, query_set._look_up]
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
