"""The rows of a batch as one table, for sinks that want one."""

from __future__ import annotations

import pyarrow as pa

from weft.ports.sink import Rows

__all__ = ["as_table"]


def as_table(rows: Rows, schema: pa.Schema | None = None) -> pa.Table:
    """Rows as one table; a list of no batches needs the schema."""
    return rows if isinstance(rows, pa.Table) else pa.Table.from_batches(list(rows), schema)
