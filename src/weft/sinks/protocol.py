"""Rows of a batch as sinks take them; what is asked of a sink is in `weft.ports.sink`."""

from __future__ import annotations

import pyarrow as pa

from weft.ports.sink import OrderedSink, PartOpener, PartSink, PartWriter, Rows, Sink

__all__ = ["OrderedSink", "PartOpener", "PartSink", "PartWriter", "Rows", "Sink", "as_table"]


def as_table(rows: Rows, schema: pa.Schema | None = None) -> pa.Table:
    """Rows as one table; a list of no batches needs the schema."""
    return rows if isinstance(rows, pa.Table) else pa.Table.from_batches(list(rows), schema)
