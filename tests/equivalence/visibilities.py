"""What queries that come and go must give, from the definitions of the design's section 3.

A query sees all that comes while it runs and, of what came before, what its sights say: tuples of a batch or later, of
a time (or number) or later. Its results are those of the tuples it sees, without those that lie wholly in the past
unless it asked for them. Each comes in the batch of its last tuple.

Rows of outer, semi and anti joins come when it is known that they are, at the end of the input at last. A query that
came later gives none but those over all tuples there ever were; so not those of which it cannot know.

Which tuples there are depends on the queries too: a stream that none reads is not read, so its watermark stands still
and its tuples are not counted; and an idle stream goes along with those that queries join it with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tests.equivalence.lateness import Flags, Source, go_along, times_of
from tests.equivalence.oracle import Rows, rows_of, rows_there
from tests.equivalence.streams import Join
from tests.equivalence.workloads import Life
from weft.logical.outer.outer import joins
from weft.logical.query.join_tree import TESTS
from weft.logical.query.query import Query
from weft.logical.query.window import Range as RangeWindow
from weft.logical.query.window import Rows as RowsWindow
from weft.plan.physical.graph import Member
from weft.testing.reference import TIME, groups_of, inside_counts, join_within_times, row_column

Longs = NDArray[np.int64]
Mask = NDArray[np.bool_]

MICROSECOND = timedelta(microseconds=1)
PAST = -1  # the batch, as it were, of results that lie wholly in the past


@dataclass(frozen=True)
class Tuples:
    """The tuples of a stream that take part, in the order in which they came."""

    rows: Longs
    batch: Longs
    time: Longs
    on_time: Mask


@dataclass(frozen=True)
class Matches:
    """The results of a query over all tuples up to its end, but for `ROWS` windows, and the tuples they are of."""

    table: pa.Table
    tuples: Mapping[str, Tuples]  # by alias
    groups: Mapping[str, Longs]  # by alias: which of them are counted together

    def of(self, alias: str, what: NDArray[np.generic]) -> NDArray[np.generic]:
        """A value of each result's tuple of an input, given that of all its tuples."""
        values: NDArray[np.generic] = what[self.table[row_column(alias)].to_numpy()]
        return values


@dataclass(frozen=True)
class Expected:
    """The results that must be found and those that may, each with its batch; how many are of old and new tuples."""

    least: Rows
    most: Rows
    across: int

    def whenever(self) -> Expected:
        """The same, whichever batch results come in."""
        return Expected(whenever(self.least), whenever(self.most), self.across)


def whenever(rows: Rows) -> Rows:
    """Results without the batch they came in."""
    found: Rows = Counter()
    for row, count in rows.items():
        found[row[:-1]] += count
    return found


class Chronicle:
    """What happened: the batches of streams, when they came, and which queries ran; and what follows for these."""

    def __init__(self, streams: Join, arrivals: Sequence[int], lives: Mapping[str, Life]) -> None:
        self.streams, self.lives = streams, lives
        self.arrivals = np.array(arrivals, np.int64)
        self._matches: dict[str, Matches] = {}

    def running(self, number: int) -> list[Query]:
        """The queries of a batch."""
        return [life.query for life in self.lives.values() if life.first <= number < life.last]

    @cached_property
    def tuples(self) -> Mapping[str, Tuples]:
        """The tuples that take part, by stream."""
        part, on_time = self._admitted()
        found = {}
        for name in self.streams.tables:
            rows = np.flatnonzero(part[name])
            sizes = [batch[name][1] - batch[name][0] for batch in self.streams.batches]
            batch = np.repeat(np.arange(len(sizes)), sizes)[rows]
            times = np.array([time or 0 for time in times_of(self.streams, name)], np.int64)
            timed = self.streams.catalog.stream(name).event_time is not None
            time = times[rows] if timed else self.arrivals[batch]
            found[name] = Tuples(rows, batch, time, on_time[name][rows])
        return found

    def _admitted(self) -> tuple[Flags, Flags]:
        sources = {s.name: Source(s, times_of(self.streams, s.name)) for s in self.streams.catalog.streams}
        known: set[str] = set()
        for number, batch in enumerate(self.streams.batches):
            now = int(self.arrivals[number])
            read = _components(self.running(number))
            for name in sorted({name for names in read for name in names}):
                if name not in known:
                    known.add(name)
                    sources[name].active = now
                sources[name].take(*batch[name], now)
            for name, source in sources.items():
                missed = batch[name][1] - len(source.part)
                source.part += [False] * missed
                source.on_time += [False] * missed
            for names in read:
                go_along([sources[name] for name in names], now)
        part = {name: np.array(source.part, np.bool_) for name, source in sources.items()}
        return part, {name: np.array(source.on_time, np.bool_) for name, source in sources.items()}

    def matches(self, name: str) -> Matches:
        """All that a query could find, were it there from the beginning."""
        if name not in self._matches:
            life = self.lives[name]
            tuples = {i.alias: _before(self.tuples[i.stream.name], life.last) for i in life.query.inputs}
            tables = {i.alias: self._table(i.stream.name, tuples[i.alias]) for i in life.query.inputs}
            found = join_within_times(life.query, tables)
            self._matches[name] = Matches(found, tuples, groups_of(life.query, tables))
        return self._matches[name]

    def _table(self, stream: str, tuples: Tuples) -> pa.Table:
        table = self.streams.tables[stream].take(tuples.rows)
        return table.append_column(TIME, pa.array(self.arrivals[tuples.batch]))

    def expected(self, member: Member, orders: Sequence[Sequence[str]]) -> Expected:
        """What a query must and what it may give; ``orders`` are those of all batches."""
        life, found = self.lives[member.name], self.matches(member.name)
        query, rows = life.query, found.table.num_rows
        seen, sure = np.ones(rows, np.bool_), np.ones(rows, np.bool_)
        first, last = np.full(rows, life.last, np.int64), np.full(rows, -1, np.int64)
        for input_ in query.inputs:
            tuples = found.tuples[input_.alias]
            seen &= found.of(input_.alias, _visible(tuples, member, input_.alias, life)).astype(np.bool_)
            sure &= found.of(input_.alias, tuples.on_time).astype(np.bool_)
            batch = found.of(input_.alias, tuples.batch).astype(np.int64)
            first, last = np.minimum(first, batch), np.maximum(last, batch)
        positions = {i.alias: _positions(found.tuples[i.alias], i.alias, orders) for i in query.inputs}
        seen &= inside_counts(query, found.table, positions, found.groups)
        if not life.backfill:
            seen &= last >= life.first
        came = np.where(last >= life.first, last, PAST)
        shown = found.table.select([output.name for output in query.projection])
        marked = shown.append_column("$came", pa.array(came))
        most = rows_of(marked.filter(pa.array(seen)))
        least = most if sure[seen].all() else rows_of(marked.filter(pa.array(seen & sure)))
        across = seen & (first < life.first) & (last >= life.first)
        return Expected(least, most, int(across.sum()))

    def expected_of_outer(self, member: Member) -> Expected:
        """The same of a query with outer, semi or anti joins, whichever batch results come in.

        Of rows that miss something only those must be there for which the query has seen all that could be it, and
        only if it is there when the input ends.
        """
        life, found = self.lives[member.name], self.matches(member.name)
        query, rows = life.query, found.table.num_rows
        kinds = {join.kind for _, join in joins(query.outer)} if query.outer else set()
        seen, known, whole = (np.ones(rows, np.bool_) for _ in range(3))
        last = np.full(rows, -1, np.int64)
        complete = max((s.complete for s in member.visibilities if s.complete is not None), default=None)
        for alias in query.visible:
            tuples = found.tuples[alias]
            numbers, there = rows_there(found.table, alias)
            seen[there] &= _visible(tuples, member, alias, life)[numbers]
            last[there] = np.maximum(last[there], tuples.batch[numbers])
            whole &= there
            if complete is not None:
                reach = _reach(query, alias)
                known[there] &= reach is not None and tuples.time[numbers] - (reach or 0) >= complete
        whole &= not kinds & set(TESTS)
        came = (last >= life.first) | life.backfill
        ends = life.last == len(self.streams.batches)
        shown = found.table.select([output.name for output in query.projection])
        least = came & seen & (whole | (known & ends))
        most = seen & (came | ("semi" in kinds))  # what it asks for may have come since
        across = came & ~whole & (life.first > 0)
        return Expected(
            rows_of(shown.filter(pa.array(least))),
            rows_of(shown.filter(pa.array(most))),
            int((least & across).sum()),
        )


def _reach(query: Query, alias: str) -> int | None:
    """How much older than a tuple something can be that it has to do with, by way of all other inputs at most."""
    windows = [input_.window for input_ in query.inputs if input_.alias != alias]
    spans = [window.duration // MICROSECOND for window in windows if isinstance(window, RangeWindow)]
    return sum(spans) if len(spans) == len(windows) else None


def _components(queries: Iterable[Query]) -> list[set[str]]:
    """The streams that queries read, those together that some query joins."""
    found: list[set[str]] = []
    for query in queries:
        names = {input_.stream.name for input_ in query.inputs}
        for other in [group for group in found if group & names]:
            found.remove(other)
            names |= other
        found.append(names)
    return found


def _before(tuples: Tuples, last: int) -> Tuples:
    kept = tuples.batch < last
    return Tuples(tuples.rows[kept], tuples.batch[kept], tuples.time[kept], tuples.on_time[kept])


def _visible(tuples: Tuples, member: Member, alias: str, life: Life) -> Mask:
    """The tuples that a query sees."""
    visibility = member.visibility(alias)
    seen = tuples.batch >= visibility.batch
    if visibility.since is not None:
        counted = isinstance(life.query.input(alias).window, RowsWindow)
        clock = np.arange(tuples.rows.size) if counted else tuples.time
        seen &= clock >= visibility.since
    visible: Mask = seen | (tuples.batch >= life.first)
    return visible


def _positions(tuples: Tuples, alias: str, orders: Sequence[Sequence[str]]) -> Longs:
    """The places of tuples in the total order; of batches in which the input was not there, the past will do."""
    ranks = [list(order).index(alias) if alias in order else 0 for order in orders]
    rank = np.array(ranks, np.int64)[tuples.batch]
    positions: Longs = (tuples.batch * 100 + rank) * 10_000 + tuples.rows
    return positions


def came_in(tables: Iterable[tuple[int, pa.Table]]) -> Rows:
    """Results with the batch they came in."""
    found: Rows = Counter()
    for came, table in tables:
        if table.num_rows:
            found += rows_of(table.append_column("$came", pa.array(np.full(table.num_rows, came))))
    return found


def difference(expected: Expected, found: Rows) -> str:
    """What is wrong with results; nothing if nothing is."""
    lost, wrong = expected.least - found, found - expected.most
    if not lost and not wrong:
        return ""
    return f"lost {lost.total()} {lost.most_common(3)}, not to be had {wrong.total()} {wrong.most_common(3)}"
