"""Samples of an input's tuples that read tasks take for the optimiser.

Guarantees: a function of the tuples and of the number of the batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import column
from weft.errors import FunctionError
from weft.kernels.expr.select import Columns, evaluate
from weft.kernels.query_sets.query_set import sets_of
from weft.kernels.route.sample import draw_rows, frequent, least_hashes, ordered_values
from weft.logical.expr.expression import Column, columns
from weft.runtime.model.columns import full_name
from weft.runtime.program.executable import ExecutableGraph
from weft.stats.sampling.attributes import JoinAttribute
from weft.stats.sampling.samples import AttributeSample, Common
from weft.stats.skew import key_column

__all__ = ["SAMPLED", "sample_column", "sample_query_sets", "sample_values"]

SAMPLED = 8  # query-sets are sampled in every eighth batch
SAMPLE = 500  # about so many tuples are sampled per input and read task

EVERY = 4  # values are sampled in one of every so many batches, or fewer if an input has more attributes than that
LOOKED = 500_000  # a task looks at most at so many tuples
KEPT = 256  # a coordinated sample has so many values, an ordered one at most so many
DRAWN = 10_000  # the commonest values are looked for among so many tuples
TOLD = 64  # so many of the commonest values are reported
SEVERAL = 5  # a value must occur so often to be reported as common; fewer occurrences may be chance
LONGEST = 100  # a text with more characters is reported as common by its hash alone


def sample_query_sets(program: ExecutableGraph, batch: pa.RecordBatch) -> dict[str, int]:
    """Sample query-sets: how many of the sampled tuples have each, by the query-set as a hexadecimal number."""
    step = max(1, batch.num_rows // SAMPLE)
    sets = sets_of([column(batch, name) for name in program.sets])[::-1, ::step]
    found, counts = np.unique(np.ascontiguousarray(sets.T), axis=0, return_counts=True)
    words = found.view(np.uint64).tolist()
    return {"".join(f"{word:016x}" for word in one): n for one, n in zip(words, counts.tolist(), strict=True)}


def sample_values(
    program: ExecutableGraph, alias: str, batch: pa.RecordBatch, number: int
) -> list[AttributeSample]:
    """Sample the attributes of an input that queries join on, before any filter, in some of the batches.

    The more attributes an input has, the fewer batches are sampled: on average at most one attribute a batch.
    """
    attributes, rows = program.sampled[alias], batch.num_rows
    if not rows or not attributes or number % max(EVERY, len(attributes)):
        return []
    read = dict.fromkeys(item for one in attributes for item in columns(one.expr))
    some = {(item.alias, item.name): column(batch, full_name(item)) for item in read}
    drawn = draw_rows(rows, LOOKED, number)
    if drawn is not None:
        some = {name: values.take(pa.array(drawn)) for name, values in some.items()}
    values = {one: _values(one, some, min(rows, LOOKED)) for one in attributes}
    return [sample_column(one, found, rows, number) for one, found in values.items() if found is not None]


def _values(one: JoinAttribute, some: Columns, looked: int) -> Any:
    """The values of an attribute; None if they cannot be computed for some tuple."""
    if isinstance(one.expr, Column):
        return some[one.expr.alias, one.expr.name]
    try:
        return evaluate(one.expr, some, looked)
    except FunctionError:
        return None


def sample_column(one: JoinAttribute, values: Any, rows: int, seed: int, kept: int = KEPT) -> AttributeSample:
    """Sample an attribute whose values are those of the tuples that a task looks at, out of so many ``rows``."""
    looked = len(values)
    ordered = tuple(ordered_values(values, kept, seed).tolist()) if one.ordered else ()
    if not one.equal:
        return AttributeSample(one.attribute, rows, looked, values.null_count, ordered=ordered)
    often = frequent(values, DRAWN, TOLD, seed)
    several = sum(count >= SEVERAL for count in often.counts)
    least = least_hashes(values, kept, often.hashes[:several])
    named = key_column(one.expr) is not None
    common = tuple(
        Common(value if named and not _is_long(value) else None, hashed, count)
        for value, hashed, count in zip(often.values, often.hashes, least.others.tolist(), strict=False)
    )
    return AttributeSample(
        one.attribute,
        rows,
        looked,
        looked - least.rows,
        least.threshold,
        tuple(least.hashes.tolist()),
        tuple(least.counts.tolist()),
        common,
        ordered,
    )


def _is_long(value: object) -> bool:
    return isinstance(value, str) and len(value) > LONGEST
