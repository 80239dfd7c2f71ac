"""Which tuples take part, and which of them are late, from the definitions of the design's section 3.

Written tuple by tuple and without the runtime's code: a source's watermark is its largest event time of earlier batches
minus its lateness. A source from which nothing has come for longer than `idle_after` goes along with the least
watermark of the others. A source without event time is told by the clock: it is never late, and never idle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from tests.equivalence.streams import Join
from weft.logical.schema import Stream

Flags = dict[str, NDArray[np.bool_]]


@dataclass
class Source:
    """What is known of a source while batches come."""

    stream: Stream
    times: list[int | None]
    mark: int | None = None
    active: int = 0
    part: list[bool] = field(default_factory=list)
    on_time: list[bool] = field(default_factory=list)

    def take(self, first: int, last: int, now: int) -> None:
        """A batch's tuples, judged by the watermark of the batches before."""
        newest = self.mark
        for time in self.times[first:last]:
            on_time = self._is_on_time(time)
            takes_part = on_time or (time is not None and self.stream.late == "join")
            self.on_time.append(on_time)
            self.part.append(takes_part)
            if takes_part:
                self.active = now
            if takes_part and self.stream.event_time is not None and time is not None:
                own = time - self.stream.lateness // timedelta(microseconds=1)
                newest = own if newest is None else max(newest, own)
        self.mark = newest if self.stream.event_time is not None else now

    def _is_on_time(self, time: int | None) -> bool:
        if self.stream.event_time is None:
            return True
        return time is not None and (self.mark is None or time >= self.mark)

    def is_idle(self, now: int) -> bool:
        """Whether it must not hold the others back."""
        patience = self.stream.idle_after
        if patience is None or self.stream.event_time is None:
            return False
        return now - self.active > patience // timedelta(microseconds=1)


def admitted(join: Join, arrivals: NDArray[np.int64]) -> tuple[Flags, Flags]:
    """By stream, which tuples take part, and which are on time."""
    sources = sources_after(join, arrivals, len(join.batches))
    part = {name: np.array(source.part, np.bool_) for name, source in sources.items()}
    return part, {name: np.array(source.on_time, np.bool_) for name, source in sources.items()}


def sources_after(join: Join, arrivals: NDArray[np.int64], count: int) -> dict[str, Source]:
    """What is known of the streams of one query after so many batches."""
    sources = {stream.name: Source(stream, times_of(join, stream.name)) for stream in join.catalog.streams}
    for number, batch in enumerate(join.batches[:count]):
        now = int(arrivals[number])
        for name, source in sources.items():
            if not number:
                source.active = now
            source.take(*batch[name], now)
        go_along(list(sources.values()), now)
    return sources


def times_of(join: Join, stream: str) -> list[int | None]:
    """The event times of a stream's tuples, in their order."""
    times: list[int | None] = join.tables[stream]["ts"].cast("int64").to_pylist()
    return times


def go_along(sources: list[Source], now: int) -> None:
    """Sources that are joined, after a batch: the idle ones do not hold the others back."""
    marks = [source.mark for source in sources if not source.is_idle(now)]
    known = [mark for mark in marks if mark is not None]
    if known and len(known) == len(marks):
        for source in sources:
            if source.is_idle(now):
                source.mark = min(known) if source.mark is None else max(source.mark, min(known))
