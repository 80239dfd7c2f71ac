"""What is checked of a Delta table before results are written to it.

Guarantees: an error names the column or the rule that does not fit; nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from weft.errors import SinkError

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["check_partition_columns", "check_table"]

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
