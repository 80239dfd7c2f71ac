"""Results in the driver's memory.

Guarantees: `results` is what was committed, each batch once and in the order of the batches, however often a batch
was replayed in this process. Nothing outlives the process. Safe to read while a query runs. Results of more bytes than
the limit are refused, with those of their batch, and their query stops; what was there before stays. Large results of a
batch are mapped from files of the batch rather than read, but count like others.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from weft.bucket.memory_limits import bytes_of, machine_memory
from weft.connectors.common import as_table
from weft.errors import ResultLimitError, SinkError
from weft.logical.arguments import checked
from weft.ports.sink import ResultRows

if TYPE_CHECKING:
    from weft.ports.punctuation import Punctuations

__all__ = [
    "MemorySink",
    "last_rows",
    "to_memory",
]


class MemorySink:
    """Results kept as Arrow tables."""

    exactly_once = True

    def __init__(self, limit: int | None = None) -> None:
        if limit is not None and limit < 1:
            raise SinkError(f"to_memory: no results fit into {limit:,} bytes", hint="give 1 byte or more")
        self._given = limit
        self.limit = machine_memory() // 2 if limit is None else limit
        self._schema: pa.Schema | None = None
        self._tables: dict[int, pa.Table] = {}
        self._bytes = 0  # of all tables
        self._punctuations: dict[int, Punctuations] = {}
        self._keys: tuple[str, ...] | None = None  # None: no row is replaced
        self._lock = threading.Lock()

    def keyed(self, keys: Sequence[str]) -> MemorySink:
        """The sink, of whose rows `results` gives the last ones with the same keys."""
        self._keys = tuple(keys)
        return self

    def open(self, schema: pa.Schema, owner: str | None = None) -> None:  # noqa: ARG002
        """Learn what an empty result looks like."""
        if self._schema is not None and not self._schema.equals(schema):
            raise SinkError(
                "to_memory: this sink already holds other columns", hint="make one sink for each query"
            )
        self._schema = schema

    def recover(self, last_committed: int) -> None:
        """Forget batches that will come again."""
        with self._lock:
            self._tables = {batch: table for batch, table in self._tables.items() if batch <= last_committed}
            self._bytes = sum(table.nbytes for table in self._tables.values())
            self._punctuations = {
                n: punctuations for n, punctuations in self._punctuations.items() if n <= last_committed
            }

    def begin(self, batch_id: int) -> None:
        """Nothing to prepare."""

    def commit(self, batch_id: int, rows: ResultRows) -> None:
        """Keep the rows of a batch."""
        table = as_table(rows, self._schema)
        with self._lock:
            replaced = self._tables.get(batch_id)
            size = self._bytes - (0 if replaced is None else replaced.nbytes) + table.nbytes
            if table.num_rows and size > self.limit:
                raise ResultLimitError(
                    f"to_memory: with batch {batch_id}, results have {size:,} bytes, and the limit is {self.limit:,}",
                    hint='write them with to_parquet, keep the last ones with to_recent, or give limit="…"',
                )
            self._tables[batch_id], self._bytes = table, size

    def commit_ordered(self, batch_id: int, rows: ResultRows, punctuations: Punctuations) -> None:
        """Keep the rows of a batch, and up to where they are complete."""
        self.commit(batch_id, rows)
        with self._lock:
            self._punctuations[batch_id] = punctuations

    def describe(self) -> dict[str, object]:
        """What is needed to make it again, empty."""
        limit = {} if self._given is None else {"limit": self._given}
        return {"kind": "memory", **limit, **({} if self._keys is None else {"keys": list(self._keys)})}

    def results(self) -> pa.Table:
        """All rows so far; of those that replace each other, the last ones."""
        with self._lock:
            tables = [self._tables[batch] for batch in sorted(self._tables)]
        found = pa.concat_tables(tables) if tables else self._nothing()
        return found if self._keys is None else last_rows(found, self._keys)

    def results_of(self, batch_id: int) -> pa.Table:
        """The rows of a batch; none if it gave none."""
        with self._lock:
            table = self._tables.get(batch_id)
        return self._nothing() if table is None else table

    def _nothing(self) -> pa.Table:
        return pa.table({}) if self._schema is None else self._schema.empty_table()

    def punctuations(self) -> Punctuations:
        """Up to where ordered results are complete: what was said with each batch."""
        from weft.ports.punctuation import (
            Punctuations,  # which a session that only plans need not load
        )

        with self._lock:
            return Punctuations.joined(self._punctuations[batch] for batch in sorted(self._punctuations))


def last_rows(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each value of some columns; without columns, the last of all rows."""
    if not keys:
        return table.slice(max(0, table.num_rows - 1))
    numbered = table.append_column("__row", pa.array(range(table.num_rows), pa.int64()))
    last = numbered.group_by(list(keys), use_threads=False).aggregate([("__row", "max")])
    return table.take(last["__row_max"].sort())


@checked(SinkError)
def to_memory(limit: str | int | None = None) -> MemorySink:
    """Results in memory, for `results()`: at most so many bytes, by default half of what the machine has.

    A query with more is stopped, and says so; `to_recent` keeps the last results of any number.

    >>> to_memory().results().num_rows
    0
    >>> to_memory(limit="2 GB").limit
    2147483648
    """
    return MemorySink(None if limit is None else bytes_of(limit, "limit of to_memory"))
