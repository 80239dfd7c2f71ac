"""Samples of an input's tuples that read tasks take for the optimiser.

Guarantees: a function of the tuples and of the number of the batch.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import column
from weft.kernels.query_sets.query_set import sets_of
from weft.kernels.route.sample import frequent
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.model.columns import full_name
from weft.runtime.program.executable import ExecutableGraph
from weft.stats import heavy

__all__ = ["SAMPLED", "count_values", "sample_query_sets"]

SAMPLED = 8  # query-sets are sampled in every eighth batch
SAMPLE = 500  # about so many tuples are sampled per input and read task


def sample_query_sets(program: ExecutableGraph, batch: pa.RecordBatch) -> dict[str, int]:
    """Sample query-sets: how many of the sampled tuples have each, by the query-set as a hexadecimal number."""
    step = max(1, batch.num_rows // SAMPLE)
    sets = sets_of([column(batch, name) for name in program.sets])[::-1, ::step]
    found, counts = np.unique(np.ascontiguousarray(sets.T), axis=0, return_counts=True)
    words = found.view(np.uint64).tolist()
    return {"".join(f"{word:016x}" for word in one): n for one, n in zip(words, counts.tolist(), strict=True)}


def count_values(
    program: ExecutableGraph, alias: str, batch: pa.RecordBatch, batch_order: BatchOrder
) -> list[heavy.Counted]:
    """Count the commonest values, in a sample, of the columns that decide the partition of an input's tuples."""
    stream, found = program.graph.input(alias).stream.name, []
    for item in program.watched(alias):
        values = column(batch, full_name(item))
        sampled, counts = frequent(values, heavy.SAMPLE, heavy.TOLD, batch_order.number)
        often = tuple((value, count) for value, count in counts if count >= heavy.SEVERAL)
        found.append(heavy.Counted(stream, item.name, batch.num_rows, sampled, often))
    return found
