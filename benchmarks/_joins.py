"""The joins that are measured, and the task that a contender is given.

Guarantees: every contender answers the same question: all tuples of a result lie within five seconds of event time of
each other, which is what `[RANGE 5 SECONDS]` on every input means. The results carry the row numbers of their tuples.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

RATE = 100_000  # tuples a second of event time, per stream
KEYS = 1_000_000
WINDOW = 5  # seconds


@dataclass(frozen=True, slots=True)
class Join:
    """Streams, each joined with one before it on a column both have."""

    name: str
    streams: tuple[str, ...]
    on: tuple[tuple[str, str, str], ...]  # (stream, next stream, column)
    state_target: float | None = None  # how many times as fast as Spark's faster state store Weft shall be
    batch_target: float | None = None  # how many times as fast as the batch join Weft shall be

    @property
    def outputs(self) -> tuple[tuple[str, str], ...]:
        """The selected columns: the row number of every tuple, and a payload of the first."""
        return (*((stream, "n") for stream in self.streams), (self.streams[0], "price"))

    def weft_sql(self) -> str:
        """The join for Weft."""
        shown = ", ".join(f"{stream}.{column} AS {stream}_{column}" for stream, column in self.outputs)
        inputs = ", ".join(f"{stream} [RANGE {WINDOW} SECONDS]" for stream in self.streams)
        equal = " AND ".join(f"{left}.{column} = {right}.{column}" for left, right, column in self.on)
        return f"SELECT {shown} FROM {inputs} WHERE {equal}"

    def batch_sql(self) -> str:
        """The join for Spark, over views of the streams' names."""
        shown = ", ".join(f"{stream}.{column} AS {stream}_{column}" for stream, column in self.outputs)
        equal = " AND ".join(f"{left}.{column} = {right}.{column}" for left, right, column in self.on)
        times = ", ".join(f"{stream}.ts" for stream in self.streams)
        spread = f"greatest({times}) - least({times}) <= INTERVAL {WINDOW} SECONDS"
        return f"SELECT {shown} FROM {', '.join(self.streams)} WHERE {equal} AND {spread}"


_CHAIN = (("v", "w", "vid"), ("w", "c", "uid"))
_STAR = (("v", "w", "vid"), ("w", "c", "vid"))
JOINS = {
    join.name: join
    for join in (
        Join("chain3", ("v", "w", "c"), _CHAIN, state_target=35, batch_target=5),
        Join("star3", ("v", "w", "c"), _STAR, state_target=45, batch_target=5),
        Join("pair", ("v", "w"), _CHAIN[:1], state_target=30, batch_target=5),
    )
}


@dataclass(frozen=True, slots=True)
class Task:
    """The task of one contender."""

    join: str
    contender: str
    data: str  # the directory with a directory of files for each stream
    work: str  # the directory for results, in `out`, and checkpoints
    rows: int  # per stream
    files_per_batch: int
    cores: int
    memory: str
    join_state_format: int  # the format of Spark's RocksDB state
    keys: int = KEYS
    rate: int = RATE
    launched: float = 0.0  # when the process was started, in seconds since 1970

    @property
    def out(self) -> str:
        """Where the results go."""
        return str(Path(self.work, "out"))

    @property
    def checkpoint(self) -> str:
        """Where the checkpoint goes."""
        return str(Path(self.work, "checkpoint"))
