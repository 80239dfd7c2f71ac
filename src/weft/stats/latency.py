"""How late results are: from the arrival of their last tuple, and from their event time, to their commit.

Guarantees: immutable, and added up like `Histogram`. Decision 41 says what counts from when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.stats.histogram import NEGATIVE, Histogram

__all__ = ["Latency"]


@dataclass(frozen=True, slots=True)
class Latency:
    """The latencies of results.

    ``processing`` is from the arrival of a result's last tuple to the commit of the result in its sink. ``event`` is
    from the result's event time, the largest of its tuples' (AJoin, 7), to the commit. ``ahead`` results had an event
    time later than the clock when their batch began; they count as if it had been then.
    """

    processing: Histogram = field(default_factory=Histogram)
    event: Histogram = field(default_factory=Histogram)
    ahead: int = 0

    @property
    def count(self) -> int:
        """How many results were measured."""
        return self.processing.count

    def __add__(self, other: Latency) -> Latency:
        return Latency(self.processing + other.processing, self.event + other.event, self.ahead + other.ahead)

    @classmethod
    def sum(cls, some: Iterable[Latency]) -> Latency:
        """What all of them count."""
        every = tuple(some)
        return cls(
            Histogram.sum(one.processing for one in every),
            Histogram.sum(one.event for one in every),
            sum(one.ahead for one in every),
        )

    def committed(self, micros: int) -> Latency:
        """The latencies of results whose ages are known at a moment and that are committed so much later."""
        ahead = self.ahead + self.event.classes.get(NEGATIVE, 0)
        later = max(0, micros)
        return Latency(self.processing.longer(later), self.event.longer(later), ahead)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        plain = {"processing": self.processing.to_list(), "event": self.event.to_list()}
        return {**plain, "ahead": self.ahead} if self.ahead else plain

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Latency:
        """What `to_dict` made, also after a way through JSON."""
        processing, event = (Histogram.from_list(data[name]) for name in ("processing", "event"))
        return cls(processing, event, data.get("ahead", 0))
