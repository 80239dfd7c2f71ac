"""A sink that keeps what each batch gave, for tests in this process."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from weft.ports.punctuation import Punctuations
from weft.ports.sink import Rows

__all__ = ["KeptResults"]


@dataclass
class KeptResults:
    """The results of a query by batch, and the punctuations among them if they leave in an order."""

    exactly_once: bool = True
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    tables: dict[int, pa.Table] = field(default_factory=dict)
    marks: list[Punctuations] = field(default_factory=list)

    def open(self, schema: pa.Schema, owner: str | None = None) -> None:  # noqa: ARG002
        """Take results of these columns."""
        self.schema = schema

    def recover(self, last_committed: int) -> None:
        """Nothing is kept beyond the process, so there is nothing to forget."""

    def begin(self, batch_id: int) -> None:
        """Do nothing: a batch needs no preparation."""

    def commit(self, batch_id: int, rows: Rows) -> None:
        """Keep the results of a batch."""
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches(list(rows), self.schema)
        self.tables[batch_id] = table

    def commit_ordered(self, batch_id: int, rows: Rows, punctuations: Punctuations) -> None:
        """Keep the results of a batch, which are in order, and up to where they are complete."""
        self.commit(batch_id, rows)
        self.marks.append(punctuations)

    def results_of(self, batch_id: int) -> pa.Table:
        """The results of a batch; none if it gave none."""
        return self.tables.get(batch_id, self.schema.empty_table())

    def all(self) -> pa.Table:
        """The results of all batches, oldest first."""
        tables = [self.tables[number] for number in sorted(self.tables)]
        return pa.concat_tables(tables) if tables else self.schema.empty_table()
