"""Trials in which files are appended while a session runs, as they are drawn from a seed.

A trial writes files of two or three streams one by one, in one of three ways, while a session joins them. Meanwhile the
session may be stopped and started again, queries come and go, and tasks fail or are killed, each file and each part
once. `tests.spark.appending` runs them.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

from weft.connectors.files.parquet_sink import ParquetPart, ParquetSink
from weft.connectors.files.source import FilesSource
from weft.connectors.formats.records import Decoded
from weft.ports.source import Part

__all__ = ["SCHEMA", "WINDOWS", "FaultySink", "FaultySource", "Trial", "append", "random_sql"]

SCHEMA = "id long, k long, j long, ts timestamp"
START = 1_700_000_000_000_000  # microseconds since 1970
STEP = 1_000  # microseconds between two tuples of a stream
MOST_FAULTS = 3  # in a trial: the loop tries a batch four times
LONG = "[RANGE 1 HOUR]"  # longer than any trial's streams
WINDOWS = ("[RANGE 1 SECOND]", "[RANGE 2 SECONDS]", "[RANGE 5 SECONDS]", "[RANGE 12 SECONDS]", LONG, "")

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # tasks need not find the tests


@dataclass(frozen=True)
class Trial:
    """What is appended, how, and what happens meanwhile."""

    seed: int
    execution: str  # jobs, resident or local
    streams: int
    files: int
    rows: int  # of a file
    keys: int
    skewed: bool
    jitter: int  # microseconds by which tuples are out of order
    writing: str  # rename, plain or pieces
    pause: float  # seconds, at most, between two files
    most_files: int | None
    row_group: int
    partitions: int
    strategy: str
    queries: tuple[str, ...]
    restarts: int
    changes: int
    faulty: bool
    keeps_all: bool  # whether stores of one input have all of its tuples in the end

    @classmethod
    def drawn(cls, seed: int, execution: str) -> Trial:
        """The trial of a seed."""
        rng = random.Random(f"{execution} {seed}")
        streams = rng.choice((2, 2, 3))
        skewed = streams == 2 and rng.random() < 0.3
        windows, changes = rng.choice(((LONG,), WINDOWS)), rng.choice((0, 2, 4))
        return cls(
            seed,
            execution,
            streams,
            files=rng.randint(8, 16),
            rows=100 if skewed else rng.choice((300, 1_000)),
            keys=rng.choice((1_000, 5_000)) if streams == 2 else 5_000,
            skewed=skewed,
            jitter=rng.choice((0, 1_000, 500_000)),
            writing=rng.choice(("rename", "plain", "pieces")),
            pause=rng.choice((0.0, 0.02, 0.1)),
            most_files=rng.choice((None, None, 1, 2, 3)),
            row_group=rng.choice((100, 10_000)),
            partitions=rng.choice((2, 3, 4)),
            strategy=rng.choice(("auto", "flat", "left_deep")),
            queries=tuple(random_sql(rng, streams, windows) for _ in range(rng.choice((1, 2, 3)))),
            restarts=rng.choice((0, 1, 2)),
            changes=changes,
            faulty=rng.random() < 0.5,
            keeps_all=windows == (LONG,) and changes == 0,
        )

    def table(self, stream: int, number: int) -> pa.Table:
        """The tuples of a file."""
        rng, first = np.random.default_rng([self.seed, stream, number]), number * self.rows
        ids = np.arange(first, first + self.rows)
        late = rng.integers(0, self.jitter + 1, self.rows)
        keys = [
            np.minimum(rng.zipf(1.5, self.rows), 10**6)
            if self.skewed
            else rng.integers(0, self.keys, self.rows)
            for _ in "kj"
        ]
        times = pa.array(START + ids * STEP - late).cast(pa.timestamp("us", "UTC"))
        return pa.table({"id": ids, "k": keys[0], "j": keys[1], "ts": times})

    def whole(self, stream: str) -> pa.Table:
        """All tuples of a stream."""
        return pa.concat_tables(self.table(int(stream[1:]), number) for number in range(self.files))


def random_sql(rng: random.Random, streams: int, windows: Collection[str]) -> str:
    """A join of two or three of the streams."""
    where = ["s0.k = s1.k", "s0.k = s1.k AND s0.j < s1.j", "s0.j = s1.j AND s0.k = s1.k"]
    if streams == 3:
        where += ["s0.k = s1.k AND s1.j = s2.j", "s0.k = s1.k AND s1.k = s2.k"] * 2
    condition = rng.choice(where)
    names = [f"s{number}" for number in range(streams) if f"s{number}." in condition]
    inputs = ", ".join(f"{name} {rng.choice(tuple(windows))} AS {name}" for name in names)
    return f"SELECT {', '.join(f'{n}.id AS {n}' for n in names)} FROM {inputs} WHERE {condition}"


def append(file: Path, data: bytes, writing: str, rng: random.Random) -> None:
    """Write a file: under another name first, at once, or in pieces with pauses between them."""
    if writing == "rename":
        partial = file.with_name(f".{file.name}")
        partial.write_bytes(data)
        partial.rename(file)
    elif writing == "plain":
        file.write_bytes(data)
    else:
        cuts = sorted({0, *(rng.randrange(len(data)) for _ in range(3)), len(data)})
        with file.open("wb", buffering=0) as out:
            for first, last in pairwise(cuts):
                out.write(data[first:last])
                time.sleep(rng.random() * 0.02)


# What fails in tasks


def fails(root: Path, what: str) -> bool:
    """Whether a thing is to fail now: some do, each once, and no more than a trial may have."""
    marks = root / "faults"
    if random.Random(f"{root.name}{what}").random() > 0.2 or len(os.listdir(marks)) >= MOST_FAULTS:
        return False
    with suppress(FileExistsError):
        (marks / what).touch(exist_ok=False)
        return True
    return False


class FaultySource(FilesSource):
    """Files of which some are read slowly, and some fail when they have been read for the first time."""

    __slots__ = ()

    def read(
        self,
        stream: str,
        part: Part,
        event_time: str | None = None,
        columns: Collection[str] | None = None,
        latest: int | None = None,
    ) -> Decoded:
        """The rows of a part."""
        time.sleep(random.random() * 0.3 if random.random() < 0.2 else 0.0)
        found = FilesSource.read(self, stream, part, event_time, columns, latest)
        file = Path(part.what["file"])
        if fails(file.parent.parent, f"{stream}-{file.name}"):
            raise RuntimeError(f"{file.name} cannot be read this time")
        return found


class FaultyPart(ParquetPart):
    """A part whose task may be killed when it is written and not closed."""

    def close(self) -> str:
        """The file's name."""
        root = self.path.parents[4]
        time.sleep(random.random() * 0.3 if random.random() < 0.2 else 0.0)
        name = super().close()
        if fails(root, "-".join([self.path.parents[3].name, self.path.parent.name, name[:10]])):
            os.kill(os.getpid(), signal.SIGKILL)
        return name


class FaultySink(ParquetSink):
    """Parquet files whose tasks may be killed. A sink that raises would be stopped with its query."""

    __slots__ = ()

    def open_part(self, batch_id: int, partition: int) -> ParquetPart:
        """Begin a part."""
        return FaultyPart(self._place, batch_id, partition, self.compression)
