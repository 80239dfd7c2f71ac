"""What queries over tables, latest versions and other queries must have given, however often their run was killed.

A result of a query with a table that has versions has the one that was in force in the batch of its last tuple. A tuple
of a union is one of the batch that took it, which is later than the batch that gave it; both are read from the records.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tests.recovery.records import FOLDER, Life, batches_of, lives, recorded
from tests.recovery.table_story import FILES, FIXED, TABLE, TableStory
from weft.logical.query.query import Query
from weft.logical.schema import Stream
from weft.testing.reference import BATCH, FROM, TIME, UNTIL, join_within_times, row_column

Rows = Counter[tuple[Any, ...]]
Longs = NDArray[np.int64]
_BASE = {
    "id": pa.int64(),
    "k": pa.int64(),
    "v": pa.string(),
    "ts": pa.timestamp("us", "UTC"),
    BATCH: pa.int64(),
}
_NEVER = 1 << 60  # the batch of what was not taken


class Told:
    """A story that has come to its end, as its records tell it."""

    def __init__(self, story: TableStory, root: Path) -> None:
        self.story, self.root = story, root
        self.batches = len(list((root / FOLDER).glob("*.json")))
        self.records = [recorded(root, number) for number in range(self.batches)]
        self.lives = lives(root)

    def check(self) -> int:
        """Compare every query with the definition; how many results they gave."""
        session, total = self.story.session(self.root), 0
        assert set(self.story.first) <= set(self.lives)
        for name, text in self.story.texts.items():
            found = self.found(name)
            wanted = self.wanted(session.parse(text), self.lives[name]) if name in self.lives else Counter()
            assert not wanted - found, f"{name} lacks {(wanted - found).most_common(3)}: {text}"
            assert not found - wanted, f"{name} has besides {(found - wanted).most_common(3)}: {text}"
            total += found.total()
        return total

    def found(self, name: str) -> Rows:
        """What the sink of a query shows."""
        files = sorted((self.root / "out" / name).glob("batch=*/*.parquet"))
        tables = [pq.ParquetFile(file).read() for file in files]
        return Counter(tuple(row.values()) for table in tables for row in table.to_pylist())

    def wanted(self, query: Query, life: Life) -> Rows:
        """What a query had to give in the batches that it was in."""
        rows = self.answer(query)
        if query.tables and "t" in {query.input(alias).stream.name for alias in query.tables}:
            batch = rows[BATCH].to_numpy()
            rows = rows.filter(pa.array((batch >= life.first) & (batch <= life.last)))
        shown = rows.select([output.name for output in query.projection])
        return Counter(tuple(row.values()) for row in shown.to_pylist())

    def answer(self, query: Query) -> pa.Table:
        """The results of a query, with the time of the last tuple of each, and its batch."""
        given = {input_.alias: self.table_of(input_.stream) for input_ in query.inputs}
        found = join_within_times(query, given)
        seen = [alias for alias in query.visible if alias in query.driving]
        rows = {alias: found[row_column(alias)].fill_null(-1).to_numpy().astype(np.int64) for alias in seen}
        times = _last([_at(_micros(query, alias, given[alias]), rows[alias]) for alias in seen])
        batches = _last([_at(given[alias][BATCH].to_numpy(), rows[alias]) for alias in seen])
        return found.append_column(TIME, pa.array(times)).append_column(BATCH, pa.array(batches))

    def table_of(self, stream: Stream) -> pa.Table:
        """The rows of a stream or table; those of a table with the batches between which they were in force."""
        if stream.name == "f":
            return FIXED
        if stream.table:
            return self.versions()
        return self.base(stream.name) if not stream.definition else self.derived(stream)

    def versions(self) -> pa.Table:
        """The versions that were in force; they are versions of the story, in their order."""
        rows, number, began = list[dict[str, Any]](), -1, 0
        known = [version.to_pylist() for version in self.story.versions]
        for batch in range(self.batches + 1):
            now = self.records[batch]["tables"]["t"] if batch < self.batches else None
            if number < 0 or now != known[number]:
                rows += [{**row, FROM: began, UNTIL: batch} for row in known[number]] if number >= 0 else []
                number = next((n for n, one in enumerate(known) if n > number and one == now), -1)
                assert now is None or number >= 0, f"in batch {batch}, the table is {now}"
                began = batch
        return pa.Table.from_pylist(
            rows, TABLE.append(pa.field(FROM, pa.int64())).append(pa.field(UNTIL, pa.int64()))
        )

    def base(self, name: str) -> pa.Table:
        """The tuples of a stream that is read from files."""
        came = batches_of(self.root, name, FILES)
        rows = [
            {**row, "ts": datetime.fromisoformat(f"{row['ts']}+00:00"), BATCH: came[file]}
            for file, row in self.story.tuples(name)
        ]
        return pa.Table.from_pylist(rows, schema=pa.schema(list(_BASE.items())))

    def derived(self, stream: Stream) -> pa.Table:
        """The rows of a derived stream or union, with the batches that took them, where that can be known."""
        names = [name for name in stream.schema.names if name != stream.hidden]
        parts = []
        for query in stream.definition:
            rows = self.answer(query)
            shown = [output.name for output in query.projection]
            rows = rows.select([*shown, TIME, BATCH]).rename_columns([*names, TIME, BATCH])
            parts.append(rows if query.outer is not None else self._taken(stream, rows))
        whole = pa.concat_tables(parts)
        if stream.hidden:
            times = pa.array(whole[TIME].to_numpy(), pa.timestamp("us", "UTC"))
            whole = whole.append_column(stream.hidden, times)
        return whole

    def _taken(self, stream: Stream, rows: pa.Table) -> pa.Table:
        """Rows with the batch that took them, in place of that which gave them."""
        when = {
            given: batch
            for batch, one in enumerate(self.records)
            for given in one["taken"].get(stream.name, ())
        }
        batches = [when.get(given, _NEVER) for given in rows[BATCH].to_pylist()]
        return rows.set_column(rows.schema.get_field_index(BATCH), BATCH, pa.array(batches, pa.int64()))


def _at(values: Longs, rows: Longs) -> Longs:
    """The values of rows; of those that are missing, one before all others."""
    return np.append(values.astype(np.int64), -_NEVER)[rows]


def _last(values: list[Longs]) -> Longs:
    found: Longs = np.max(values, axis=0)
    return found


def _micros(query: Query, alias: str, table: pa.Table) -> Longs:
    name = query.input(alias).stream.event_time
    assert name is not None
    return np.asarray(table[name].cast(pa.int64()).to_numpy())
