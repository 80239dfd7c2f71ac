"""The configuration of a run, which the session hands to the loop as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.errors import QueryError
from weft.logical.schema import Stream
from weft.ports.sink import Sink
from weft.ports.source import Source
from weft.ports.table import RegisteredTable
from weft.runtime.loop.adapter import Adapter, StaticPlan
from weft.runtime.loop.driver_order import DEFAULT
from weft.runtime.loop.scaling import FixedScale, Scaler
from weft.runtime.model.limits import LIMIT, MERGE_SECONDS, PORTION_BYTES, TaskLimits
from weft.runtime.observe.recent_statistics import RecentStatistics
from weft.runtime.queries.active import Decide
from weft.runtime.queries.resume import Restore
from weft.runtime.wire.functions import PackedFunction

__all__ = ["DURABILITIES", "MACHINE", "PROCESS", "DeriveSource", "Describe", "RunConfig", "SetAside"]

# What a committed batch survives: the death of all processes, or also that of the machine.
PROCESS, MACHINE = "process", "machine"
DURABILITIES = (PROCESS, MACHINE)

# Describes a sink so that a task or a later session can make it again; None if that is not possible.
Describe = Callable[[Sink], Mapping[str, Any] | None]

# Takes a batch's number, its bad records as lines of JSON, and how many of how many records so far were bad.
SetAside = Callable[[int, bytes, int, int], None]

# Makes the source of a derived stream or union, given where the results of each of its queries are.
DeriveSource = Callable[[Stream, tuple[str, ...]], Source]


def _underivable(stream: Stream, _: tuple[str, ...]) -> Source:
    raise QueryError(f"{stream.name} is no source", hint="derived streams need a session")


SMALL_PART = 16 << 20  # bytes, of which some tasks read a hundred million a second


@dataclass(frozen=True, slots=True)
class RunConfig:
    """How queries run over streams.

    ``decide`` plans the queries that are to run, and ``adapter`` says when they go on by another plan. ``describe``
    describes a sink, and ``restore`` makes it again from the description. ``driver`` is the policy that chooses the
    driver order. ``set_aside`` takes the bad records of each batch, and raises an error if there are too many.
    ``state_limit`` bounds the bytes of a query's state, ``key_limit`` the results of one key, ``result_limit`` the
    results of a query in one batch, ``batch_bytes`` the input of a batch, and ``portion_bytes`` what a task looks at
    together. ``spark`` is the Spark session, for sources that need it. ``derive_source`` makes the source of a derived
    stream, whose queries put their results at some places. ``durability`` is one of `DURABILITIES`. ``streams``,
    ``sources``, ``tables`` and ``functions`` may gain entries while the queries run. With ``idle``, the run goes on
    also when no query does. ``statistics`` is what is known of the data, which the loop adds to. ``latency`` is within
    how many seconds results are wanted after their last tuple came (None: no target), and ``every`` how many seconds
    lie between the beginnings of two batches (None: as soon as something waits). ``too_slow`` says what becomes of a
    query that cannot meet its target: "report" or "stop". ``scaler`` decides how many tasks there are.
    """

    streams: dict[str, Stream]
    sources: dict[str, Source]
    decide: Decide
    restore: Restore
    describe: Describe
    partitions: int
    driver: str = DEFAULT
    set_aside: SetAside | None = None
    state_limit: int | None = None
    key_limit: int = LIMIT
    batch_bytes: int = 1 << 30
    portion_bytes: int = PORTION_BYTES
    result_limit: int | None = None
    merge_seconds: float = MERGE_SECONDS
    functions: Mapping[str, PackedFunction] = field(default_factory=dict)
    adapter: Adapter = field(default_factory=StaticPlan)
    spark: Any = None
    durability: str = PROCESS
    derive_source: DeriveSource = _underivable
    tables: dict[str, RegisteredTable] = field(default_factory=dict)
    idle: bool = False
    statistics: RecentStatistics = field(default_factory=RecentStatistics)
    latency: float | None = None
    every: float | None = None
    too_slow: str = "report"
    scaler: Scaler = field(default_factory=FixedScale)

    @property
    def sheds(self) -> tuple[str, ...]:
        """The streams of which only a sample is read where not all can be in time."""
        return tuple(name for name, stream in self.streams.items() if stream.shed != "none")

    @property
    def part_bytes(self) -> int:
        """How large parts are that batches are made of: small ones, where results are wanted within a time."""
        return self.batch_bytes if self.latency is None else min(self.batch_bytes, SMALL_PART)

    @property
    def limits(self) -> TaskLimits:
        """The limits that tasks are given: how much they may hold and give."""
        return TaskLimits(self.key_limit, self.portion_bytes, self.result_limit, self.merge_seconds)
