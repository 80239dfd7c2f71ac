"""How often a client may ask: a bucket of tokens each, which fills at a rate.

Guarantees: memory is bounded, however many clients there are: those that have not asked for longest are forgotten, and
a forgotten client begins with a full bucket. The clock is passed in.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["RateLimit"]

CLIENTS = 10_000


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class RateLimit:
    """So many requests a second for each client, after a burst; for one thread, such as that of an event loop."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float]) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait(self, client: str) -> float:
        """Count a request of a client; returns 0, or the seconds after which it may ask again."""
        now = self._clock()
        bucket = self._buckets.pop(client, None) or _Bucket(float(self._burst), now)
        self._buckets[client] = bucket
        if len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)
        bucket.left = min(float(self._burst), bucket.left + (now - bucket.at) * self._rate)
        bucket.at = now
        if bucket.left < 1:
            return (1 - bucket.left) / self._rate
        bucket.left -= 1
        return 0.0
