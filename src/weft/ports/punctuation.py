"""The punctuations of an output: up to where it is complete.

Guarantees: the punctuations of a batch are kept as arrays, and the last one is about the end of the batch. No two of a
batch have the same number of rows: only the later one, which says more, is there.

A table with ordered rows has its punctuations in the metadata of its schema, under `KEY`, as JSON: `{"rows": […],
"tuples": […]}`, or `"times"` in microseconds since 1970 (UTC) if the order is that of event time. There are at most
`MOST` of them there, evenly chosen, the last one always among them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import pyarrow as pa

from weft.bucket.compiled import Longs
from weft.logical.query.ordering import LAST, Punctuation

__all__ = ["KEY", "MOST", "Punctuations"]

KEY = b"weft.punctuations"
MOST = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class Punctuations(Sequence[Punctuation]):
    """Some punctuations of an output, in order: after so many rows, so many tuples or this time (in microseconds)."""

    rows: Longs
    marks: Longs
    timed: bool = False

    def __len__(self) -> int:
        return int(self.rows.size)

    @overload
    def __getitem__(self, at: int) -> Punctuation: ...

    @overload
    def __getitem__(self, at: slice) -> Punctuations: ...

    def __getitem__(self, at: int | slice) -> Punctuation | Punctuations:
        if isinstance(at, slice):
            return Punctuations(self.rows[at], self.marks[at], self.timed)
        return Punctuation.from_mark(int(self.rows[at]), int(self.marks[at]), self.timed)

    @classmethod
    def none(cls, *, timed: bool = False) -> Punctuations:
        """No punctuations."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), timed)

    @classmethod
    def of_blocks(
        cls, blocks: Longs, lengths: Longs, size: int, before: tuple[int, int], after: int
    ) -> Punctuations:
        """The punctuations of a batch in an order of arrival.

        ``blocks`` are the blocks of its groups of rows, ascending, and ``lengths`` the rows of each group; a block has
        ``size`` tuples. ``before`` are the rows and tuples of all batches so far, ``after`` the tuples with this one.
        """
        starts = np.flatnonzero(np.diff(blocks, prepend=blocks[:1] - 1))
        ends = np.cumsum(np.append(0, lengths))
        marks = np.append(blocks[starts] * size, after)
        rows = np.append(ends[starts], ends[-1]) + before[0]
        news = marks > before[1]  # a block may have begun in an earlier batch
        news[-1] = True
        return cls(rows[news], marks[news])

    @classmethod
    def of_time(cls, rows: int, clock: int) -> Punctuations:
        """The punctuation of a batch in the order of event time: all rows with a time before the clock have left."""
        return cls(np.array([rows]), np.array([min(clock - 1, LAST)]), True)

    @classmethod
    def joined(cls, parts: Iterable[Punctuations]) -> Punctuations:
        """The punctuations of several batches, one batch after the other."""
        some = [part for part in parts if len(part)]
        if not some:
            return cls.none()
        rows, marks = (np.concatenate([getattr(one, name) for one in some]) for name in ("rows", "marks"))
        return cls(rows, marks, some[0].timed)

    def few(self) -> Punctuations:
        """At most `MOST` of them, the last one among them."""
        if len(self) <= MOST:
            return self
        chosen = np.linspace(0, len(self) - 1, MOST).astype(np.int64)
        return Punctuations(self.rows[chosen], self.marks[chosen], self.timed)

    def on(self, table: pa.Table) -> pa.Table:
        """The table with these punctuations in the metadata of its schema."""
        return table.replace_schema_metadata({**(table.schema.metadata or {}), KEY: self._text()})

    def on_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with these punctuations in the metadata of its schema."""
        return batch.replace_schema_metadata({**(batch.schema.metadata or {}), KEY: self._text()})

    def _text(self) -> bytes:
        some = self.few()
        marks = {"times" if self.timed else "tuples": some.marks.tolist()}
        return json.dumps({"rows": some.rows.tolist(), **marks}, separators=(",", ":")).encode()

    @classmethod
    def read(cls, schema: pa.Schema) -> Punctuations:
        """The punctuations that a schema carries: of a table, or of a Parquet file (`pyarrow.parquet.read_schema`).

        >>> table = Punctuations(np.array([2]), np.array([7])).on(pa.table({"a": [1, 2]}))
        >>> Punctuations.read(table.schema)[0]
        Punctuation(rows=2, tuples=7, time=None)
        """
        said = json.loads((schema.metadata or {}).get(KEY, b'{"rows":[],"tuples":[]}'))
        timed = "times" in said
        marks = said["times" if timed else "tuples"]
        return cls(np.array(said["rows"], np.int64), np.array(marks, np.int64), timed)
