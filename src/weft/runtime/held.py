"""Results that are held back until the watermarks pass them.

Guarantees: what leaves at a clock are all results of earlier times that have been found, in the order of their times;
what stays are a few sorted runs. So if nothing that is found later is of an earlier time than the clock, which is so
where late tuples are dropped, all that ever leaves is in order. A run is the time of every result, in its first column,
and the results. On Spark, runs are files that the manifest names (design, D3), written once and read from the front on.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from weft.kernels.materialise import taken
from weft.kernels.order import merge_runs
from weft.runtime.batch import longs
from weft.runtime.checkpoint import HeldRun

__all__ = ["Held", "merged", "opened", "release", "written"]


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A run that waits; ``file`` is where it is, from row ``first`` on, if it is in one."""

    run: pa.RecordBatch
    file: str = ""
    first: int = 0

    @property
    def time(self) -> int:
        """The first time in it."""
        return int(longs(self.run.column(0))[0])


def merged(runs: Sequence[pa.RecordBatch], keys: int) -> list[pa.RecordBatch]:
    """Sorted runs as one: a list of batches, each after the other, sorted by their first columns."""
    some = [run for run in runs if run.num_rows]
    if len(some) < 2:
        return some
    some.sort(key=lambda run: [longs(run.column(place))[0] for place in range(keys)])
    numbers = np.stack([np.concatenate([longs(run.column(place)) for run in some]) for place in range(keys)])
    order = merge_runs(numbers, np.cumsum([0, *(run.num_rows for run in some)]).tolist())
    if order is None:
        return some
    whole = pa.concat_batches(some)
    columns = [taken(whole.column(place), order) for place in range(whole.num_columns)]
    return [pa.RecordBatch.from_arrays(columns, schema=whole.schema)]


def release(
    waiting: Iterable[Held], new: Sequence[pa.RecordBatch], clock: int
) -> tuple[list[pa.RecordBatch], list[Held]]:
    """The results of times before a clock, in order, and what waits on; ``new`` are sorted runs, too."""
    leaving, staying, late = [], [], []
    for one in waiting:
        cut = _cut(one.run, clock)
        leaving.append(one.run.slice(0, cut))
        if cut < one.run.num_rows:
            staying.append(Held(one.run.slice(cut), one.file, one.first + cut))
    for run in new:
        cut = _cut(run, clock)
        leaving.append(run.slice(0, cut))
        late.append(run.slice(cut))
    if any(run.num_rows for run in late):
        staying.append(Held(pa.concat_batches(merged(late, 1))))
    while len(staying) > 1 and staying[-2].run.num_rows < 2 * staying[-1].run.num_rows:
        last = [one.run for one in staying[-2:]]  # so there are few runs, and a row is copied a few times
        staying[-2:] = [Held(pa.concat_batches(merged(last, 1)))]
    return merged(leaving, 1), staying


def _cut(run: pa.RecordBatch, clock: int) -> int:
    return int(np.searchsorted(longs(run.column(0)), clock, "left"))


def opened(folder: Path, runs: Iterable[HeldRun]) -> list[Held]:
    """What waits in files."""
    found = []
    for run in runs:
        with pa.memory_map(str(folder / run.name)) as file, pa.ipc.open_file(file) as reader:
            batch = reader.get_batch(0)
        found.append(Held(batch.slice(run.first), run.name, run.first))
    return found


def written(folder: Path, number: int, waiting: Iterable[Held]) -> tuple[HeldRun, ...]:
    """Where what waits is; what is in no file gets one, under a name that no other attempt at the batch has."""
    found = []
    for one in waiting:
        name, first = one.file, one.first
        if not name:
            name, first = f"{number}-held-{uuid.uuid4().hex}", 0
            partial = folder / f"{name}.tmp"
            with pa.OSFile(str(partial), "wb") as file, pa.ipc.new_file(file, one.run.schema) as writer:
                writer.write_batch(one.run)
            partial.rename(folder / name)
        found.append(HeldRun(name, first, one.run.num_rows, one.time, one.run.nbytes))
    return tuple(found)
