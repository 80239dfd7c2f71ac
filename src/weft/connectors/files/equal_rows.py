"""Whether the files of two directories hold the same rows.

Guarantees: rows are compared bit by bit and as often as they occur, in whichever order and however they are spread over
files; where their order matters, that too, and what the files say of themselves, if rows are spread over as many. A
file that cannot be read is unlike any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = [
    "hold_equal_rows",
]

_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def hold_equal_rows(some: Sequence[Path], others: Sequence[Path], *, ordered: bool) -> bool:
    """Whether Parquet files have the rows of others; with ``ordered``, in the same order, with the same metadata.

    Where a repeated batch was divided otherwise, since there were other tasks, metadata are not compared: what each
    file says of its own rows is right.
    """
    try:
        if _count(some) != _count(others):
            return False
        one, two = _read(some), _read(others)
        alike = len(some) != len(others) or _metadata(some) == _metadata(others)
    except (OSError, pa.ArrowException):
        return False
    if ordered:
        return alike and bool(one.equals(two))
    return bool(one.schema.equals(two.schema) and _sorted(one).equals(_sorted(two)))


def _count(files: Sequence[Path]) -> int:
    return sum(pq.read_metadata(file).num_rows for file in files)


def _read(files: Sequence[Path]) -> pa.Table:
    tables = [pq.ParquetFile(file).read() for file in sorted(files)]
    whole = pa.concat_tables(tables)
    columns = [_as_bits(whole.column(place)) for place in range(whole.num_columns)]
    return pa.table(columns, names=whole.schema.names)


def _metadata(files: Sequence[Path]) -> list[dict[bytes, bytes] | None]:
    return [pq.read_schema(file).metadata for file in sorted(files)]


def _as_bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floating-point numbers as whole ones of the same bits, so that NaN is like NaN and 0.0 unlike -0.0."""
    bits = _BITS.get(column.type)
    return column if bits is None else pa.chunked_array([chunk.view(bits) for chunk in column.chunks], bits)


def _sorted(table: pa.Table) -> pa.Table:
    """The rows in an order that depends on nothing but their values."""
    keys = [(name, "ascending") for name in table.schema.names]
    kinds = (field for field in table.schema if not pa.types.is_null(field.type))
    known = {field.name for field in kinds}
    found = table.sort_by([key for key in keys if key[0] in known]) if known else table
    return found.combine_chunks()
