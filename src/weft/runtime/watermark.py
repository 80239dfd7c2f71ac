"""How far each source is in time, and what may therefore be forgotten.

Guarantees: a source's watermark never falls. Every tuple that is on time is at or after the watermark its source had
when the batch began, so what `forgettable` lets go can be part of no later result of tuples that are on time. A source
that has been silent for longer than `idle_after` is taken along by the others: it does not hold them back, and what it
brings later is late if they have passed it. A source without event time is where the clock is, and is never idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from weft.logical.query import Query
from weft.logical.schema import Stream
from weft.runtime.batch import longest, micros, seq_name
from weft.runtime.program import Program, StorePlan
from weft.runtime.state import Forget
from weft.runtime.turn import Turn

__all__ = ["Watermarks", "forgettable"]


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Per stream: its watermark in microseconds (absent: nothing seen yet), and when it last brought something."""

    marks: Mapping[str, int] = field(default_factory=dict)
    active: Mapping[str, int] = field(default_factory=dict)

    def of(self, stream: str) -> int | None:
        """The watermark of a stream."""
        return self.marks.get(stream)

    def advance(
        self, query: Query, newest: Mapping[str, int], now: int, idle_after: timedelta | None = None
    ) -> Watermarks:
        """The watermarks after a batch whose newest tuples, by stream, are of these times."""
        streams = {input_.stream.name: input_.stream for input_ in query.inputs}
        active = {name: now if name in newest else self.active.get(name, now) for name in streams}
        marks = dict(self.marks)
        for name, stream in streams.items():
            mark = _own(stream, newest.get(name), now)
            if mark is not None:
                marks[name] = max(mark, marks.get(name, mark))
        timed = {name: stream for name, stream in streams.items() if stream.event_time is not None}
        spans = {name: stream.idle_after or idle_after for name, stream in timed.items()}
        idle = {name for name, span in spans.items() if span and now - active[name] > micros(span)}
        marks |= _taken_along(marks, streams, idle)
        return Watermarks(marks, active)


def _own(stream: Stream, newest: int | None, now: int) -> int | None:
    """What a stream's own tuples say; without event time, the next one arrives now or later."""
    if stream.event_time is None:
        return now
    return None if newest is None else newest - micros(stream.lateness)


def _taken_along(marks: Mapping[str, int], streams: Mapping[str, Stream], idle: set[str]) -> dict[str, int]:
    """The watermarks of idle streams: where the others are."""
    awake = [name for name in streams if name not in idle]
    if not awake or any(name not in marks for name in awake):
        return {}
    least = min(marks[name] for name in awake)
    return {name: max(least, marks.get(name, least)) for name in sorted(idle)}


def forgettable(program: Program, plan: StorePlan, watermarks: Watermarks, turn: Turn) -> Forget:
    """What a store need not keep after a batch.

    A row is dead when, for some tuple in it, all that can still come of the inputs outside the store is later than
    that tuple's time and its retention. In a match the largest time stands for all, which errs on the safe side.
    """
    query, node = program.query, plan.node
    if plan.counted:
        return Forget(since=_oldest(query, node.aliases[0], turn))
    numbers = {
        seq_name(alias): oldest
        for alias in node.aliases
        if (oldest := _oldest(query, alias, turn)) is not None
    }
    spans = [micros(span) for span in node.retention if span is not None]
    others = [query.input(alias).stream.name for alias in query.aliases if alias not in node.aliases]
    marks = [watermarks.of(name) for name in others]
    known = [mark for mark in marks if mark is not None]
    if not spans:
        return Forget(numbers=numbers)
    reach = max(1, min(spans) // 4)
    if len(known) < len(marks):
        return Forget(None, reach, numbers)
    return Forget(min(known) - min(spans), reach, numbers)


def _oldest(query: Query, alias: str, turn: Turn) -> int | None:
    """The first number of an input's tuple that the next batch can still see."""
    rows = longest(query, alias)
    return None if rows is None else sum(turn.counts[alias]) - rows
