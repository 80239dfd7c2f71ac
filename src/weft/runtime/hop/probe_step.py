"""One probe, executed on whole batches.

Guarantees: a probe finds the matches of a batch with the runs it is given, each once. They come in portions of bounded
size (design, D14), so that the memory of a probe does not grow with its matches. A match is first two row numbers; its
columns are made last, and only those that are read later (design, D9).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import Bucket, column
from weft.bucket.columns import longs, taken
from weft.bucket.compiled import Ints, Longs
from weft.bucket.memory import take
from weft.kernels.probe.materialise import stored_column
from weft.kernels.probe.ranges import Matches, match_portions
from weft.kernels.query_sets.query_set import bits_of, columns_of, compact, meet, nonempty, only, sets_of
from weft.runtime.hop.search import Search
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.model.columns import (
    AGE,
    FOREVER,
    MAX,
    UNTIL,
    full,
    per_key,
    seq_name,
    shortest_range,
    values_of,
)
from weft.runtime.program.store_plans import Step
from weft.runtime.state.ranks import ranks_of

__all__ = ["Heaviest", "MatchPortion", "Probe", "prepare"]


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """A batch that is about to probe the runs it may see.

    ``rows`` are the rows of the batch that probe, because they are for a query of the step; None if all of them do.
    ``tuples`` is how many these are. ``search`` is None if there is nothing to be found.
    """

    step: Step
    batch: pa.RecordBatch
    rows: Ints | None
    runs: Sequence[Bucket]
    tuples: int
    search: Search | None

    def counts(self) -> Longs | None:
        """How many matches each row has, if ranges of an index say so; None if pairs have to be looked at."""
        if self.step.sets or self.step.store.per_key is not None:
            return None
        totals = np.zeros(self.tuples, np.int64)
        for run in self.runs if self.search is not None else ():
            found = self.search.ranges(run) if self.search is not None else None
            if found is None:
                return None
            totals[found.probe] += found.stop - found.start
        return totals

    def portions(self, size: int) -> Iterator[MatchPortion]:
        """The matches, in portions that take about so many bytes with all their columns."""
        search = self.search
        if search is None:
            return
        rows = max(1, size // self._width())
        pairs = (search.pairs(run, rows) for run in self.runs)
        for matches in match_portions(pairs, len(self.runs), rows):
            found: MatchPortion | None = MatchPortion(search, self.batch, self.rows, matches, self.runs)
            if found is not None and self.step.sets:
                found = found.shared()
            if found is not None and self.step.store.per_key is not None:
                found = found.recent()
            if found is not None:
                yield found

    def _width(self) -> int:
        """About how many bytes a match takes with all columns of its tuples, and its row numbers."""
        stored = max(run.batch.nbytes // run.bounds.rows for run in self.runs)
        return int(8 + stored + self.batch.nbytes // self.batch.num_rows)

    def heaviest(self) -> Heaviest | None:
        """The key of the probe tuple with the most stored tuples of its key; None if the probe has no key."""
        search = self.search
        if search is None or search.keys is None:
            return None
        totals = np.zeros(search.batch.num_rows, np.int64)
        for run in self.runs:
            found = search.key_ranges(run)
            totals[found.probe] += found.stop - found.start
        row = int(totals.argmax())
        values = [values_of(search.batch.slice(row, 1), key)[0].as_py() for key in self.step.access.keys]
        return Heaviest(tuple(values), int(totals[row]))


@dataclass(frozen=True, slots=True)
class Heaviest:
    """A key, and how many partners one tuple with it has."""

    key: tuple[Any, ...]
    matches: int

    def __str__(self) -> str:
        shown = repr(self.key[0]) if len(self.key) == 1 else repr(self.key)
        return f"key {shown}, of which one tuple has {self.matches:,} partners"


def prepare(step: Step, batch: pa.RecordBatch, runs: Sequence[Bucket], batch_order: BatchOrder) -> Probe:
    """Prepare a probe with the rows of a batch that are for any query of the step."""
    runs = [run for run in runs if run.bounds.rows]
    rows, probes = _of_use(step, batch)
    search = Search(step, probes, batch_order) if probes.num_rows and runs else None
    return Probe(step, batch, rows, runs, probes.num_rows, search)


def _of_use(step: Step, batch: pa.RecordBatch) -> tuple[Ints | None, pa.RecordBatch]:
    """The rows that are for any query of the step, None if all are; and of these, the columns that the search reads."""
    if not step.sets or not batch.num_rows:
        return None, batch
    sets = sets_of([column(batch, name) for name in step.sets])
    kept = nonempty(only(sets, step.slots))
    if kept.all():
        return None, batch
    rows = np.flatnonzero(kept).astype(np.int32)
    names = [name for name in step.searched if name in batch.schema.names]
    return rows, pa.RecordBatch.from_pydict({name: taken(column(batch, name), rows) for name in names})


@dataclass(frozen=True, slots=True, eq=False)
class MatchPortion:
    """The matches of a probe: row numbers, from which columns are made when something reads them (design, D9).

    ``matches`` are numbers of probe tuples and of rows in the ``runs``. ``rows`` says which row of the batch each probe
    tuple is; None if they have the same numbers. ``sets`` are the query-sets of the matches, if tuples carry them.
    ``ranks`` are the ranks of the stored tuples, where tuples are counted per key (`weft.runtime.state.ranks`).
    """

    search: Search
    batch: pa.RecordBatch
    rows: Ints | None
    matches: Matches
    runs: Sequence[Bucket]
    sets: Longs | None = None
    ranks: Longs | None = (
        None  # where tuples are counted per key: how many of theirs have come since, and they
    )

    @property
    def num_rows(self) -> int:
        """How many matches there are."""
        return len(self.matches)

    def shared(self) -> MatchPortion | None:
        """The matches whose two tuples are for a common query, with their query-sets; None if there are none."""
        step, matches = self.search.step, self.matches
        sets = np.empty((len(step.sets), len(matches)), np.int64)
        for word, name in enumerate(step.sets):
            mine = longs(column(self.batch, name))
            mine = mine if self.rows is None else take(mine, self.rows)
            for number, run in enumerate(self.runs):
                part = slice(matches.splits[number], matches.splits[number + 1])
                meet(mine, longs(column(run.batch, name)), *matches.of_run(number), sets[word, part])
        probe, stored = matches.probe.copy(), matches.stored.copy()
        splits = compact(sets, bits_of(step.slots, len(step.sets)), probe, stored, matches.splits)
        if not splits[-1]:
            return None
        kept = Matches(probe[: splits[-1]], stored[: splits[-1]], tuple(splits))
        return replace(self, matches=kept, sets=np.ascontiguousarray(sets[:, : splits[-1]]))

    def recent(self) -> MatchPortion | None:
        """The matches whose stored tuple is among the last of its key that the probe sees; None if there are none."""
        (alias,) = self.search.step.store.node.aliases
        window = per_key(self.search.view, alias)
        if window is None:
            return self
        ranks = ranks_of(self.search.step.store, self.matches, self.runs)
        rows = np.flatnonzero(ranks <= window[0]).astype(np.int32)
        if not rows.size:
            return None
        sets = None if self.sets is None else np.ascontiguousarray(self.sets[:, rows])
        return replace(self, matches=_only(self.matches, rows), sets=sets, ranks=take(ranks, rows))

    def column(self, name: str, rows: Ints | None = None) -> Any:
        """A column of the matches, or of some of them, in order."""
        if self.ranks is not None and name == seq_name(self.search.step.store.node.aliases[0]):
            return self._number(self.ranks if rows is None else take(self.ranks, rows))
        if name == MAX:
            newest = self._newest()
            return pa.array(newest if rows is None else take(newest, rows))
        matches = self.only(rows)
        if name in self.batch.schema.names:
            return taken(column(self.batch, name), self.origins(matches))
        return stored_column(matches, self.runs, name)

    def _number(self, ranks: Longs) -> Any:
        """The numbers that tuples counted per key would have if only tuples of their key had come since.

        With these, `weft.runtime.program.window_limits` checks windows that count per key like any other `ROWS` window.
        """
        search = self.search
        (alias,) = search.step.store.node.aliases
        return pa.array(search.batch_order.arrived(alias, search.step.rule.start) - ranks)

    def only(self, rows: Ints | None) -> Matches:
        """All matches, or those of the given numbers, which ascend."""
        return self.matches if rows is None else _only(self.matches, rows)

    def origins(self, matches: Matches) -> Ints:
        """The rows of the batch that the probe tuples of matches are."""
        return matches.probe if self.rows is None else take(self.rows, matches.probe)

    def _newest(self) -> Longs:
        store = self.search.step.store
        stored = longs(stored_column(self.matches, self.runs, store.time))
        return np.maximum(take(self.search.newest, self.matches.probe), stored)

    def to_batch(self) -> pa.RecordBatch:
        """The matches as a batch, with the columns that later hops and steps read."""
        step = self.search.step
        found = {name: self.column(name) for name in (*step.from_probe, *step.from_store)}
        if MAX in step.hidden:
            found[MAX] = self.column(MAX)
        if UNTIL in step.hidden:
            found[UNTIL] = pa.array(self._until())
        if self.sets is not None:
            found |= columns_of(self.sets)
        if AGE in self.batch.schema.names:
            found[AGE] = self.column(AGE)
        return pa.RecordBatch.from_pydict(found)

    def _until(self) -> Longs:
        store, until_ = self.search.step.store, self.search.until
        mine = None if until_ is None else take(until_, self.matches.probe)
        shortest = shortest_range(self.search.view, store.node.aliases)
        if UNTIL in store.columns:
            theirs = longs(stored_column(self.matches, self.runs, UNTIL))
        elif len(store.node.aliases) == 1 and shortest is not None:
            theirs = longs(stored_column(self.matches, self.runs, store.time)) + shortest
        else:
            return full(len(self.matches), FOREVER) if mine is None else mine
        return theirs if mine is None else np.minimum(mine, theirs)


def _only(matches: Matches, rows: Ints) -> Matches:
    """The matches of the given numbers, which ascend."""
    splits = np.searchsorted(rows, np.asarray(matches.splits)).tolist()
    return Matches(take(matches.probe, rows), take(matches.stored, rows), tuple(splits))
