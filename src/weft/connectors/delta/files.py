"""The Parquet files of a Delta table: what tasks write, and what the table's log says of each file.

Guarantees: a file has a name that no other has, and belongs to the table only when a transaction of the driver names
it. Values of partition columns are in the log, not in the file, as Delta wants it. Statistics are those of the
Parquet footer; where a bound would not be exact there is none.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from weft.connectors.files.file_place import FilePlace, NewFile
from weft.connectors.files.parquet_files import ParquetFile
from weft.errors import SinkError

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = [
    "DeltaFile",
    "DeltaPart",
    "check_partition_columns",
    "check_table",
    "read_part",
    "split_by_values",
]


_COMPRESSION = "snappy"


@dataclass(frozen=True, slots=True)
class DeltaFile:
    """A file as the log of a table describes it: ``path`` is relative to the table, ``statistics`` are JSON."""

    path: str
    size: int
    values: Mapping[str, str | None]
    statistics: str


class DeltaPart:
    """A task's results of a batch: one file for each combination of values that the partition columns have."""

    def __init__(self, place: FilePlace, batch_id: int, partition: int, columns: Sequence[str]) -> None:
        self._place, self._columns = place, tuple(columns)
        self._prefix = f"part-{batch_id:010d}-{partition:05d}"
        self._open: dict[tuple[str | None, ...], tuple[str, NewFile, ParquetFile]] = {}

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Add results."""
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        for values, portion in split_by_values(table, self._columns):
            if values not in self._open:
                name = f"{self._prefix}-{uuid.uuid4().hex}.parquet"
                file = self._place.new_file(name)
                self._open[values] = name, file, ParquetFile(file.path, _COMPRESSION)
            self._open[values][-1].write(portion)

    def close(self) -> str:
        """Complete the files; gives a description of them as JSON, which `read_part` reads."""
        written = []
        for values, (name, file, rows) in self._open.items():
            rows.close()
            described = dict(zip(self._columns, values, strict=True))
            written.append([name, file.path.stat().st_size, described, _statistics(file.path)])
            file.finish()
        return json.dumps(written)

    def abort(self) -> None:
        """Delete what is there."""
        for _, file, rows in self._open.values():
            rows.abort()
            file.drop()


def read_part(name: str) -> list[DeltaFile]:
    """The files of a part, from what closing it gave."""
    return [DeltaFile(*described) for described in json.loads(name)]


def split_by_values(
    table: pa.Table, columns: Sequence[str]
) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    """The rows of each combination of values of some columns, without these, and the values as Delta writes them."""
    if not table.num_rows:
        return
    if not columns:
        yield (), table
        return
    codes = np.zeros(table.num_rows, dtype=np.int64)
    for name in columns:
        column = table[name].combine_chunks().dictionary_encode(null_encoding="encode")
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        codes = codes * len(column.dictionary) + column.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(codes, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    sorted_rows = table.take(pa.array(order))
    rest = sorted_rows.drop_columns(list(columns))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        values = tuple(_partition_value(sorted_rows[name][int(start)]) for name in columns)
        yield values, rest.slice(start, end - start)


def _partition_value(value: pa.Scalar) -> str | None:
    """A value as the log of a Delta table writes it; an empty text is NULL there."""
    if not value.is_valid:
        return None
    return str(pc.cast(value, pa.string()).as_py()) or None


def _statistics(path: Path) -> str:
    """The number of rows of a file, and of each column the number of NULLs and the bounds, where they are exact."""
    footer = pq.read_metadata(path)
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for column, name in enumerate(footer.schema.to_arrow_schema().names):
        statistics = [
            footer.row_group(group).column(column).statistics for group in range(footer.num_row_groups)
        ]
        if all(each is not None and each.has_null_count for each in statistics):
            nulls[name] = sum(each.null_count for each in statistics)
        bounds = [(each.min, each.max) for each in statistics if each is not None and each.has_min_max]
        if len(bounds) == len(statistics) and all(_is_exact(value) for pair in bounds for value in pair):
            least[name] = _as_json(min(low for low, _ in bounds))
            most[name] = _as_json(max(high for _, high in bounds))
    counted = {"numRecords": footer.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}
    return json.dumps(counted)


def _is_exact(value: object) -> bool:
    """Whether a bound in a Parquet footer is a value of the column: texts may be cut off, and NaN has no order."""
    return isinstance(value, (int, date)) and not isinstance(value, bool)


def _as_json(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value.isoformat() if isinstance(value, date) else value


# What the log of a table may ask of its writers and plain appends fulfil.
_FEATURES = frozenset({"appendOnly", "invariants", "changeDataFeed", "timestampNtz", "deletionVectors"})
# What tables list when they are brought to a newer version, whether they use it or not: uses of it are looked for.
_LISTED = frozenset(
    {
        "checkConstraints",
        "generatedColumns",
        "identityColumns",
        "columnMapping",
        "variantType",
        "v2Checkpoint",
    }
)
_RULES_OF_COLUMNS = ("delta.generation", "delta.identity", "delta.invariants")


def check_partition_columns(schema: pa.Schema, columns: Sequence[str]) -> None:
    """Refuse partition columns whose values have no exact text, and tables without any other column."""
    kinds = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date)
    for name in columns:
        if not any(kind(schema.field(name).type) for kind in kinds):
            raise SinkError(
                f"to_delta: {name} cannot be in partition_by, since it is a {schema.field(name).type}",
                hint="partition by texts, whole numbers, booleans or dates",
            )
    if len(set(columns)) == len(schema):
        raise SinkError("to_delta: every column is in partition_by", hint="leave one out")


def check_table(path: Path | str, table: DeltaTable, schema: pa.Schema, partition_by: Sequence[str]) -> None:
    """Refuse a table that has other columns, other partition columns, or rules that results might break."""
    there = pa.schema(table.schema())
    columns = {field.name: field for field in there}
    for field in schema:
        other = columns.pop(field.name, None)
        if other is None or other.type != field.type:
            kind = "no such column" if other is None else f"it as {other.type}"
            raise SinkError(
                f"to_delta: the results have a column {field.name} of type {field.type}, the table {path} has {kind}",
                hint=f"the table's columns are {_listed(there)}: fit the query to them, or write to another table",
            )
        if not other.nullable:
            raise SinkError(
                f"to_delta: column {field.name} of the table {path} must not be NULL, which results may be",
                hint="write to a table without that rule",
            )
    if columns:
        raise SinkError(
            f"to_delta: the table {path} has a column {next(iter(columns))}, the results have none",
            hint="select it in the query, or write to another table",
        )
    if tuple(table.metadata().partition_columns) != tuple(partition_by):
        raise SinkError(
            f"to_delta: the table {path} is partitioned by {table.metadata().partition_columns}",
            hint="give the same columns as partition_by",
        )
    _check_rules(path, table)


def _check_rules(path: Path | str, table: DeltaTable) -> None:
    """Refuse a table whose log asks for more than plain appends: constraints, computed or renamed columns."""
    settings, protocol = table.metadata().configuration, table.protocol()
    asked = {name for name in settings if name.startswith("delta.constraints.")}
    asked |= {"delta.columnMapping.mode"} & {name for name, value in settings.items() if value != "none"}
    if protocol.min_writer_version >= 7:
        asked |= set(protocol.writer_features or ()) - _FEATURES - _LISTED
    for field in table.schema().fields:
        asked |= {name for name in field.metadata if name.startswith(_RULES_OF_COLUMNS)}
    if asked:
        raise SinkError(
            f"to_delta: the table {path} asks its writers for {', '.join(sorted(asked))}",
            hint="write to a table without it",
        )


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
