"""What a run is given: one value from the session to the loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.logical.schema import Stream
from weft.ports.sink import Sink
from weft.ports.source import Source
from weft.runtime.hop.limits import LIMIT, PORTION_BYTES, TaskLimits
from weft.runtime.loop.driver import DEFAULT
from weft.runtime.queries.active import Decide, ReplanTest, never
from weft.runtime.queries.resume import Restore
from weft.runtime.task.functions import PackedFunction

__all__ = ["Describe", "RunConfig", "SetAside"]

# What a task needs to make a sink again; None if it cannot be made again.
Describe = Callable[[Sink], Mapping[str, Any] | None]

SetAside = Callable[[int, bytes, int, int], None]


@dataclass(frozen=True, slots=True)
class RunConfig:
    """How queries run over streams.

    ``decide`` plans the queries that are to run, ``should_replan`` says when heavy values are a reason to plan them
    again; ``restore`` makes a sink again that a query had before a crash, ``describe`` says what it needs for that.
    ``set_aside`` takes a batch's bad records as JSON lines, and how many of all records so far were bad; it may raise.
    ``streams``, ``sources`` and ``functions`` may gain entries while the queries run.
    """

    streams: dict[str, Stream]
    sources: dict[str, Source]
    decide: Decide
    restore: Restore
    describe: Describe
    partitions: int
    driver: str = DEFAULT
    set_aside: SetAside | None = None
    state_limit: int | None = None  # bytes per query
    key_limit: int = LIMIT  # results of one key
    batch_bytes: int = 1 << 30  # of input in one batch
    portion_bytes: int = PORTION_BYTES  # that a task looks at together
    result_limit: int | None = None  # results of one query in one batch
    functions: Mapping[str, PackedFunction] = field(default_factory=dict)  # those that are registered by now
    should_replan: ReplanTest = never
    spark: Any = None  # for sources that need it

    @property
    def limits(self) -> TaskLimits:
        """What of it tasks are given: how much they may hold and give."""
        return TaskLimits(self.key_limit, self.portion_bytes, self.result_limit)
