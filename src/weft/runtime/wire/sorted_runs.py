"""Sorted runs of an ordered query's results: what is known of one without opening it, and ranges of several.

Guarantees: a run is sorted by its first columns, its keys, of which the very first is its head. Runs are cut by value,
so that of all runs the rows before a cut come before all other rows. `merged_portions` merges runs portion by portion,
in the order of their rows, and holds one portion at a time; what is mapped needs no memory (design, D14).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from weft.bucket.columns import longs
from weft.bucket.compiled import Longs
from weft.kernels.order.merging import merge
from weft.runtime.log.values import HeldRun

__all__ = ["RunSlice", "SortedRun", "counts_by_head", "merged_portions", "sample_of"]

SAMPLE = 17  # heads of a run that are told with it
FINENESS = 8  # so many rows of a run are looked at for every portion of it

Cut = tuple[int, ...]  # the first keys of a row; only the head, or all


def sample_of(run: pa.RecordBatch) -> tuple[int, ...]:
    """The heads of some rows of a run, evenly chosen, the first and the last among them."""
    heads = longs(run.column(0))
    places = np.linspace(0, heads.size - 1, min(SAMPLE, heads.size)).astype(np.int64)
    return tuple(heads[places].tolist())


@dataclass(frozen=True, slots=True)
class SortedRun:
    """A run in a file, from its row ``first`` on: how many ``rows`` and ``bytes`` that is, and a ``sample`` of heads.

    The file is one of results that are ``held`` back, or of the batch. Where the heads in the file are numbers of
    tuples within a read task, a head stands for (head + ``shift``) // ``block``; the sample has what heads stand for.
    """

    name: str
    first: int
    rows: int
    bytes: int
    sample: tuple[int, ...]
    shift: int = 0
    block: int = 1
    held: bool = False

    @classmethod
    def of_batch(cls, name: str, run: pa.RecordBatch) -> SortedRun:
        """What is known of a run, which is in a file of that name."""
        return cls(name, 0, run.num_rows, run.nbytes, sample_of(run))

    @classmethod
    def of_held(cls, run: HeldRun) -> SortedRun:
        """The run that a manifest names; one of an earlier version has no sample but the time of its first row."""
        sample = tuple(time for time in run.sample if time > run.time)
        return cls(run.name, run.first, run.rows, run.bytes, (run.time, *sample), held=True)

    def numbered(self, shift: int, block: int) -> SortedRun:
        """The same run, whose heads are numbers of tuples within a read task, as numbers of blocks within the stream.

        ``shift`` is how many tuples of the stream came before those of the task, and a ``block`` has so many tuples.
        """
        sample = tuple((head + shift) // block for head in self.sample)
        return replace(self, sample=sample, shift=shift, block=block)


@dataclass(frozen=True, slots=True, eq=False)
class RunSlice:
    """Some consecutive rows of a run, which begin at row ``start`` of its file; heads stand for numbers as there."""

    batch: pa.RecordBatch
    start: int = 0
    shift: int = 0
    block: int = 1

    @classmethod
    def of_run(cls, run: SortedRun, batch: pa.RecordBatch) -> RunSlice:
        """The rows of a run, given all that is in its file."""
        return cls(batch.slice(run.first), run.first, run.shift, run.block)

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return int(self.batch.num_rows)

    def place(self, cut: Cut) -> int:
        """How many rows come before a cut."""
        low, high = 0, self.num_rows
        for at, value in enumerate(cut):
            wanted = value * self.block - self.shift if at == 0 else value
            keys = longs(self.batch.column(at))[low:high]
            size = self.block if at == 0 else 1  # so many numbers of the file stand for one head
            high = low + int(np.searchsorted(keys, wanted + size, "left"))
            low += int(np.searchsorted(keys, wanted, "left"))
        return low

    def between(self, low: Cut | None, high: Cut | None) -> RunSlice:
        """The rows from one cut up to another; None stands for the first or for the last row."""
        first = 0 if low is None else self.place(low)
        last = self.num_rows if high is None else self.place(high)
        return replace(self, batch=self.batch.slice(first, max(0, last - first)), start=self.start + first)

    def heads(self) -> Longs:
        """What the heads of the rows stand for."""
        found = longs(self.batch.column(0))
        return found if (self.shift, self.block) == (0, 1) else (found + self.shift) // self.block

    def rows(self) -> pa.RecordBatch:
        """The rows, with what their heads stand for."""
        if (self.shift, self.block) == (0, 1):
            return self.batch
        return self.batch.set_column(0, self.batch.schema.field(0), pa.array(self.heads()))

    def samples(self, keys: int, size: int) -> Longs:
        """The keys of rows that lie about ``size`` bytes apart; a row for every key."""
        step = max(1, self.num_rows * size // max(1, self.batch.nbytes))
        places = slice(step // 2, None, step)
        heads = (longs(self.batch.column(0))[places] + self.shift) // self.block
        return np.stack([heads, *(longs(self.batch.column(at))[places] for at in range(1, keys))])


def merged_portions(
    slices: Sequence[RunSlice], keys: int, size: int, *, keep: bool = False
) -> Iterator[pa.RecordBatch]:
    """Merge runs, and give their rows in order, about ``size`` bytes at a time; keys are dropped, unless ``keep``."""
    for mine in portions(slices, keys, size):
        if found := merge([one.rows() for one in mine], keys, keep=keep):
            yield found[0] if len(found) == 1 else pa.concat_batches(found)


def portions(slices: Sequence[RunSlice], keys: int, size: int) -> Iterator[list[RunSlice]]:
    """Cut runs into portions of about so many bytes of all of them, in order."""
    some = [one for one in slices if one.num_rows]
    if sum(one.batch.nbytes for one in some) <= size:
        yield some
        return
    found = np.concatenate([one.samples(keys, size // FINENESS) for one in some], axis=1)
    found = found[:, np.lexsort(found[::-1])][:, FINENESS - 1 :: FINENESS]
    cuts = list(dict.fromkeys(tuple(cut) for cut in found.T.tolist()))
    for low, high in pairwise([None, *cuts, None]):
        mine = [part for one in some if (part := one.between(low, high)).num_rows]
        if mine:
            yield mine


def counts_by_head(slices: Sequence[RunSlice]) -> tuple[Longs, Longs]:
    """The heads of runs, ascending, each once, and how many rows have each."""
    heads, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for one in slices:
        mine = one.heads()
        starts = np.flatnonzero(np.diff(mine, prepend=mine[:1] - 1))
        heads.append(mine[starts])
        sizes.append(np.diff(starts, append=mine.size))
    values, places = np.unique(np.concatenate(heads), return_inverse=True)
    counts = np.zeros(values.size, np.int64)
    np.add.at(counts, places, np.concatenate(sizes))
    return values, counts
