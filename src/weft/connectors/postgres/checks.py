"""What is checked of a PostgreSQL table before results are written to it.

Guarantees: an error names the column, the right or the address that does not fit; nothing is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

from weft.connectors.postgres.columns import column_type, wider_types
from weft.errors import SinkError

__all__ = ["check_address", "check_kind", "check_table_columns"]

_ADDRESS = re.compile(r"(?P<jdbc>jdbc:)?(?P<kind>[a-z][\w.-]*)(?P<driver>\+\w+)?:(?(jdbc)|//)", re.IGNORECASE)
_TABLES = ("r", "p", "f")  # tables, partitioned and foreign ones, in the words of pg_class


def check_address(connection: str) -> None:
    """Refuse the address of another kind of database; what else a connection has to be, the client knows."""
    found = _ADDRESS.match(connection)
    if found is None or (kind := found["kind"].lower()) in ("env", "file"):
        return
    if kind not in ("postgresql", "postgres"):
        raise SinkError(
            f"to_postgres: the connection is to {kind}, and only PostgreSQL can be written to",
            hint="for others use weft.foreach_batch, and note the batch's number in the transaction that adds its rows",
        )
    if found["jdbc"] or found["driver"]:
        raise SinkError(
            f"to_postgres: a connection that begins with {found[0]} is for another client",
            hint="begin it with postgresql://",
        )


def check_kind(table: str, kind: str, may_insert: bool, may_update: bool, *, merged: bool) -> None:
    """Refuse what is no table, and one whose rows the user must not add to, or must not change if rows are merged."""
    if kind not in _TABLES:
        raise SinkError(
            f"to_postgres: {table} is not a table", hint="write to a table, and not to a view of it"
        )
    if not may_insert or (merged and not may_update):
        rights = "INSERT, SELECT and UPDATE" if merged else "INSERT"
        raise SinkError(
            f"to_postgres: the user of the connection lacks rights on the table {table}",
            hint=f"GRANT {rights.replace(' and', ',')} ON {table} TO …",
        )


def check_table_columns(place: str, schema: pa.Schema, there: Mapping[str, tuple[str, bool]]) -> None:
    """Refuse a table whose columns do not hold the results; ``there`` has their types and whether a value is needed."""
    for column in schema:
        if column.name not in there:
            raise SinkError(
                f"to_postgres: the results have a column {column.name}, the table {place} has none",
                hint=f"its columns are {', '.join(there)}: fit the query to them, or write to another table",
            )
        wanted, found = column_type(column.type), there[column.name][0]
        if found not in (wanted, *wider_types(column.type)):
            raise SinkError(
                f"to_postgres: column {column.name} of the table {place} has the type {found}, results {wanted}",
                hint="CAST it in the query, or write to another table",
            )
    needed = [name for name, (_, required) in there.items() if required and name not in schema.names]
    if needed:
        raise SinkError(
            f"to_postgres: the table {place} needs a value for {needed[0]}, the results have none",
            hint="select it in the query, or give the column a default",
        )
