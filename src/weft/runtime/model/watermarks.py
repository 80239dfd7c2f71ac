"""The watermark of each stream.

Guarantees: a stream's watermark never falls. Every tuple that is on time is at or after the watermark its stream had
when the batch began. A stream that has been silent for longer than `idle_after` gets the watermark of the streams it is
joined with: it does not hold them back, and what it brings later is late if it is older than that. The watermark of a
stream without event time is the wall-clock time, and such a stream is never idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from weft.logical.query.query import Query, connected
from weft.logical.schema import Stream
from weft.plan.physical.graph import PhysicalGraph
from weft.runtime.model.batch_order import ENDED, NEVER, UNKNOWN, Clock
from weft.runtime.model.columns import micros

__all__ = ["Watermarks", "clocks", "connected_streams", "joined_streams"]


@dataclass(frozen=True, slots=True)
class Watermarks:
    """By stream: its watermark in microseconds, absent until it is known, and when it last brought something."""

    marks: Mapping[str, int] = field(default_factory=dict)
    active: Mapping[str, int] = field(default_factory=dict)

    def mark_of(self, stream: str) -> int | None:
        """The watermark of a stream; None if it is not known yet."""
        return self.marks.get(stream)

    def advance(
        self, components: Iterable[Iterable[Stream]], newest: Mapping[str, int], now: int
    ) -> Watermarks:
        """The watermarks after a batch whose newest tuples, by stream, are of the times in ``newest``.

        ``components`` are groups of streams that queries join: an idle stream gets the watermark of its group.
        """
        marks, active = dict(self.marks), dict(self.active)
        for component in components:
            streams = {stream.name: stream for stream in component}
            active |= {name: now if name in newest else self.active.get(name, now) for name in streams}
            for name, stream in streams.items():
                mark = _own(stream, newest.get(name), now)
                if mark is not None:
                    marks[name] = max(mark, marks.get(name, mark))
            idle = {name for name, stream in streams.items() if _is_idle(stream, now - active[name])}
            marks |= _taken_along(marks, streams, idle)
        return Watermarks(marks, active)


def connected_streams(graphs: Iterable[PhysicalGraph]) -> list[list[Stream]]:
    """The streams of graphs, grouped as those of their queries."""
    return joined_streams(member.query for graph in graphs for member in graph.members)


def joined_streams(queries: Iterable[Query]) -> list[list[Stream]]:
    """The streams of queries, grouped so that streams which a query joins, directly or by others, are together.

    Tables have no watermarks, and connect nothing.
    """
    joined = [[query.input(alias).stream for alias in query.driving] for query in queries]
    streams = {stream.name: stream for some in joined for stream in some}
    edges = [frozenset(stream.name for stream in some) for some in joined]
    found: list[list[Stream]] = []
    left = sorted(streams)
    while left:
        names = connected(left[0], edges)
        found.append([streams[name] for name in sorted(names)])
        left = [name for name in left if name not in names]
    return found


def clocks(
    graph: PhysicalGraph, watermarks: Watermarks, closed: Mapping[str, int], *, ended: bool = False
) -> dict[str, Clock]:
    """The clocks of a batch, by query: the time up to which its rows can be closed.

    That is the least watermark of the query's streams, where that of a stream whose input has ended is `ENDED`. Queries
    whose results are held back, sorted, or groups, have a clock too: results before it may leave. ``closed`` says up to
    which time each query was closed before the batch.
    """
    found: dict[str, Clock] = {}
    held = [
        member.name
        for member in graph.members
        if member.held or member.query.grouping is not None or member.query.sorting is not None
    ]
    for query in dict.fromkeys((*(sweep.query for sweep in graph.sweeps), *held)):
        asked = graph.member(query).query
        streams = {stream.name: stream for stream in (asked.input(one).stream for one in asked.driving)}
        marks = [
            ENDED if ended and not stream.definition else watermarks.mark_of(name)
            for name, stream in streams.items()
        ]
        known = [mark for mark in marks if mark is not None]
        now = min(known) if len(known) == len(marks) else UNKNOWN
        before = closed.get(query, NEVER)
        found[query] = Clock(before, max(before, now))
    return found


def _own(stream: Stream, newest: int | None, now: int) -> int | None:
    """The watermark by a stream's own tuples, if it brought any; without event time, it is the wall-clock time."""
    if stream.definition:
        return None  # it follows from those of the streams that its queries read
    if stream.event_time is None:
        return now
    return None if newest is None else newest - micros(stream.lateness)


def _is_idle(stream: Stream, silence: int) -> bool:
    """Whether a stream has been silent for too long; a stream without event time never is."""
    if stream.event_time is None or stream.idle_after is None:
        return False
    return silence > micros(stream.idle_after)


def _taken_along(marks: Mapping[str, int], streams: Mapping[str, Stream], idle: set[str]) -> dict[str, int]:
    """The watermarks of the idle streams of a group: the least of the others, if all of these are known."""
    awake = [name for name in streams if name not in idle]
    if not awake or any(name not in marks for name in awake):
        return {}
    least = min(marks[name] for name in awake)
    return {name: max(least, marks.get(name, least)) for name in sorted(idle)}
