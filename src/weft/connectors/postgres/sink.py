"""Results as rows of a PostgreSQL table.

Guarantees: a batch is one transaction, which also notes the batch's number in the table `weft_batches`, under the
checkpoint's identity and the table's name. A batch that is noted is not added again, so every result is there once,
whatever crashed before. The numbers of a checkpoint's batches only grow, also when a query stops and another takes its
name or its table. Two drivers cannot add the same batch: each holds the table's note while it adds. A server that goes
away is waited for, a minute, and the batch is added once, also if it went away while it was told to commit.

The driver sends the results by COPY: into the table itself or, with a key, into a table of the transaction from which
rows are inserted that have a new key and updated that have a known one. The keys of groups that change (`keyed`) may be
NULL, which then is a value like any other: the table's index must say so, or its columns must not be NULL.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from weft.connectors.common import (
    Patience,
    Replays,
    SecretText,
    as_table,
    check_columns,
    check_flat,
    load_extra,
)
from weft.connectors.postgres.columns import (
    check_address,
    check_kind,
    check_table_columns,
    column_type,
    copy_text,
)
from weft.errors import SinkError
from weft.logical.arguments import checked
from weft.ports.sink import ResultRows

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = [
    "PostgresSink",
    "to_postgres",
]

_NULLS_COUNT = 150_000  # the first version of the server whose unique indexes may take NULL for a value
_PORTION = 1 << 16  # rows that are made into text at once
_PATIENCE = 60.0  # seconds for a server that is away, as while it restarts
_LOCK_TIMEOUT = (
    "SET lock_timeout = '60s'"  # with another driver that adds a batch, or has lost its connection
)
_BATCHES = """
    CREATE TABLE IF NOT EXISTS weft_batches (
        application text, target text, batch bigint NOT NULL, PRIMARY KEY (application, target)
    )
"""
_KIND = """
    SELECT relkind::text, has_table_privilege(%s::regclass, 'INSERT'),
           has_table_privilege(%s::regclass, 'SELECT') AND has_table_privilege(%s::regclass, 'UPDATE')
    FROM pg_class WHERE oid = %s::regclass
"""
_COLUMNS = """
    SELECT a.attname,
           CASE a.attgenerated WHEN '' THEN '' ELSE 'generated ' END || format_type(a.atttypid, a.atttypmod),
           a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
    FROM pg_attribute a
    WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""
_KEYS = """
    SELECT array_agg(a.attname::text ORDER BY a.attname),
           bool_and(a.attnotnull) OR coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::boolean, false)
    FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
    WHERE i.indrelid = %s::regclass AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
    GROUP BY i.indexrelid, i.*
"""


@dataclass(slots=True)
class PostgresSink:
    """A table of a PostgreSQL server; ``connection`` says where that is, or where that is written.

    With ``null_keys``, NULL is a value of the key like any other.
    """

    connection: SecretText
    table: str
    key: tuple[str, ...] = ()
    null_keys: bool = False
    _application: str = field(default="", compare=False)
    _schema: pa.Schema | None = field(default=None, compare=False)
    _replays: Replays = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._replays = Replays("to_postgres", self.table)

    @property
    def exactly_once(self) -> bool:
        """True: a batch that is noted is not added again."""
        return True

    def keyed(self, keys: Sequence[str]) -> PostgresSink:
        """The sink as it keeps one row for each group, by the keys of GROUP BY."""
        if self.key and set(self.key) != set(keys):
            raise SinkError(
                f"to_postgres: the key of {self.table} is {', '.join(self.key)}, "
                f"but groups are told apart by {', '.join(keys) or 'nothing'}",
                hint="leave out key: it is that of GROUP BY",
            )
        if not keys:
            raise SinkError(
                f"to_postgres: the one group of all rows has no key by which {self.table} could replace it",
                hint="group by a column, or use to_kafka, to_delta, to_memory or foreach_batch",
            )
        return replace(self, key=tuple(keys), null_keys=True)

    def open(self, schema: pa.Schema, owner: str | None = None) -> None:
        """Make the table, or refuse results that do not fit the one that is there."""
        check_columns("to_postgres", schema, self.key)
        check_flat("to_postgres", schema)
        self._application, self._schema = f"weft-{owner or uuid.uuid4().hex}", schema
        with self._naming(), self._transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('weft_batches'))")
            connection.execute(_BATCHES)
            if not self._is_there(connection):
                self._make(connection, schema)
            self._check(connection, schema)

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Turn errors of the server's into errors that name the table, and nothing that is secret."""
        try:
            yield
        except load_extra("psycopg", "to_postgres", "postgres").Error as error:
            said = self.connection.hidden_in(str(error).strip())
            raise SinkError(
                f"to_postgres: {self.table} at {self.connection.reference}: {said}",
                hint="see what the server says; a batch is in the table as a whole or not at all",
            ) from None

    @contextmanager
    def _transaction(self) -> Iterator[Connection[Any]]:
        """A connection whose work is one transaction."""
        psycopg = load_extra("psycopg", "to_postgres", "postgres")
        text = self.connection.read()
        check_address(text)
        opened = psycopg.connect(text, client_encoding="utf8")
        with closing(opened), opened as connection:
            connection.execute(_LOCK_TIMEOUT)
            yield connection

    def _is_there(self, connection: Connection[Any]) -> bool:
        row = connection.execute("SELECT to_regclass(%s)", [self._quoted]).fetchone()
        return row is not None and row[0] is not None

    def _make(self, connection: Connection[Any], schema: pa.Schema) -> None:
        columns = [f"{_quote(column.name)} {column_type(column.type)}" for column in schema]
        if self.key:
            columns.append(f"{self._uniqueness(connection)} ({_listed(self.key)})")
        connection.execute(f"CREATE TABLE {self._quoted} ({', '.join(columns)})".encode())

    def _uniqueness(self, connection: Connection[Any]) -> str:
        """What a table that is made says of its key; before PostgreSQL 15, no index takes NULL for a value."""
        if self.null_keys and connection.info.server_version >= _NULLS_COUNT:
            return "UNIQUE NULLS NOT DISTINCT"
        return "PRIMARY KEY"

    def _check(self, connection: Connection[Any], schema: pa.Schema) -> None:
        """Refuse a table with other columns, or without a unique index over the key."""
        what = connection.execute(_KIND, [self._quoted] * 4).fetchone()
        check_kind(self.table, *(what or ("", False, False)), merged=bool(self.key))
        columns = connection.execute(_COLUMNS, [self._quoted]).fetchall()
        check_table_columns(self.table, schema, {name: (kind, needed) for name, kind, needed in columns})
        found = connection.execute(_KEYS, [self._quoted]).fetchall()
        unique = [sorted(names) for names, sure in found if sure or not self.null_keys]
        if self.key and sorted(self.key) in [sorted(names) for names, _ in found if not unique]:
            raise SinkError(
                f"to_postgres: the unique index of {self.table} takes no two NULLs for the same key",
                hint="make it UNIQUE NULLS NOT DISTINCT, or the columns of the key NOT NULL",
            )
        if self.key and sorted(self.key) not in unique:
            raise SinkError(
                f"to_postgres: the table {self.table} has no unique index over {', '.join(self.key)}",
                hint="make one, or leave out the key",
            )

    def recover(self, last_committed: int) -> None:
        """Batches that the checkpoint cannot have made are an error."""
        with self._naming(), self._transaction() as connection:
            self._replays.recover(last_committed, self._last_batch(connection))

    def _last_batch(self, connection: Connection[Any]) -> int:
        """The last batch of this checkpoint's that the table has; until the transaction ends, nobody else adds one."""
        writer = [self._application, self.table]
        connection.execute("INSERT INTO weft_batches VALUES (%s, %s, -1) ON CONFLICT DO NOTHING", writer)
        noted = "SELECT batch FROM weft_batches WHERE application = %s AND target = %s FOR UPDATE"
        row = connection.execute(noted, writer).fetchone()
        return -1 if row is None else int(row[0])

    def last_batch(self) -> int:
        """The last batch of this checkpoint's that the table has; -1 without one."""
        with self._naming(), self._transaction() as connection:
            return self._last_batch(connection)

    def begin(self, batch_id: int) -> None:
        """Nothing is to be prepared: an attempt that did not commit has left nothing."""

    def commit(self, batch_id: int, rows: ResultRows) -> None:
        """Add the rows and note the batch in one transaction, unless it is noted; a batch without rows is not."""
        table = as_table(rows, self._schema)
        if not table.num_rows:
            return
        away = load_extra("psycopg", "to_postgres", "postgres").OperationalError
        with self._naming():
            for last_chance in Patience(_PATIENCE):
                try:
                    self._commit_once(batch_id, table)
                except away:  # it restarts, is full, or has closed the connection
                    if last_chance:
                        raise
                    continue
                return

    def _commit_once(self, batch_id: int, table: pa.Table) -> None:
        with self._transaction() as connection:
            if self._replays.is_there(batch_id, self._last_batch(connection)):
                return
            connection.execute(f"LOCK TABLE {self._quoted} IN ROW EXCLUSIVE MODE".encode())  # as COPY does
            self._check(connection, table.schema)
            self._add(connection, table)
            connection.execute(
                "UPDATE weft_batches SET batch = %s WHERE application = %s AND target = %s",
                [batch_id, self._application, self.table],
            )

    def _add(self, connection: Connection[Any], rows: pa.Table) -> None:
        """Copy rows into the table, or merge them by the key; of rows with one key in a batch, the last one stays."""
        columns = _listed(rows.column_names)
        if not self.key:
            _copy(connection, self._quoted, columns, rows)
            return
        number = next(name for name in map("weft_row{}".format, count()) if name not in rows.column_names)
        connection.execute(
            f"CREATE TEMPORARY TABLE weft_staging ON COMMIT DROP AS SELECT {columns}, 0::bigint AS {number} "
            f"FROM {self._quoted} WITH NO DATA".encode()
        )
        numbered = rows.append_column(number, pa.array(np.arange(rows.num_rows, dtype=np.int64)))
        _copy(connection, "weft_staging", f"{columns}, {number}", numbered)
        others = [name for name in rows.column_names if name not in self.key]
        changes = ", ".join(f"{_quote(name)} = EXCLUDED.{_quote(name)}" for name in others)
        key = _listed(self.key)
        connection.execute(
            f"INSERT INTO {self._quoted} ({columns}) "
            f"SELECT DISTINCT ON ({key}) {columns} FROM weft_staging ORDER BY {key}, {number} DESC "
            f"ON CONFLICT ({key}) DO {f'UPDATE SET {changes}' if changes else 'NOTHING'}".encode()
        )

    @property
    def _quoted(self) -> str:
        return ".".join(_quote(name) for name in self.table.split("."))

    def describe(self) -> dict[str, object]:
        """What is needed to make it again; no secret."""
        return {
            "kind": "postgres",
            "connection": self.connection.reference,
            "table": self.table,
            "key": list(self.key),
            **({"null_keys": True} if self.null_keys else {}),
        }


def _copy(connection: Connection[Any], target: str, columns: str, rows: pa.Table) -> None:
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY {target} ({columns}) FROM STDIN (FORMAT csv, ENCODING 'UTF8')".encode()) as copy,
    ):
        for start in range(0, rows.num_rows, _PORTION):
            copy.write(copy_text(rows.slice(start, _PORTION)))


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _listed(names: Sequence[str]) -> str:
    return ", ".join(_quote(name) for name in names)


@checked(SinkError)
def to_postgres(dsn: str, table: str, *, key: str | Sequence[str] = ()) -> PostgresSink:
    """Results as rows of a PostgreSQL table, each exactly once; `pip install "weft[postgres]"`.

    ``dsn`` is a connection string without a password, or says where one is: `env:NAME` or `file:PATH`, read whenever a
    connection is made. ``table`` may have a schema (`sales.trolls`), and is made if it is not there. With ``key``, a
    row replaces the one with the same values in these columns; for `mode="update"` that is the keys of GROUP BY.

    >>> to_postgres("env:WAREHOUSE", "trolls", key="vid").describe()["connection"]
    'env:WAREHOUSE'
    """
    names = table.split(".")
    if len(names) > 2 or not all(name.strip() for name in names):
        raise SinkError(f"to_postgres: {table!r} is no name of a table", hint="as in trolls or sales.trolls")
    columns = (key,) if isinstance(key, str) else tuple(key)
    check_address(dsn)
    return PostgresSink(SecretText(dsn, "to_postgres"), table, columns)
