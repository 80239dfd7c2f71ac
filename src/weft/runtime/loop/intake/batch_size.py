"""How much of what waits the next batch takes, so that its results are there in time (decision 66).

Guarantees: a size is a function of what was measured and of what waits; the loop chooses parts by it, and the plan of
the batch names them, so a batch that is repeated takes the same. Without a target, a batch takes all that memory
allows.

A batch takes some seconds however little it reads, and some for every byte: both are fitted to the last batches, those
long past counting little. A tuple waits for the batch under way before its own begins, so that each may take a bit less
than half of the target. Where what waits is late anyway, batches are as large as it takes to come close to the speed
of the largest ones, and no larger: results still come early, and little of what comes meanwhile has to wait.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BatchSize", "BatchTimes"]

SHARE = (
    0.4  # of the target, that a batch may take: its tuples have waited for as long, and are then committed
)
SPEED = 0.95  # of the speed of batches without an end, that those have which catch up
FADING = 0.9  # by which what was measured counts less with every further batch
FIRST = 8 << 20  # bytes of the first batch, of which nothing is known
EVEN = 1e-2  # sizes that vary by less, as a part of their squares, tell nothing of small batches
GROWTH = (
    4  # times the largest batch so far, that the next one may have: nobody knows how long larger ones take
)


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """Sums over the last batches, from which a line is fitted: the seconds of a batch by its bytes.

    >>> times = BatchTimes()
    >>> for size in (1000, 2000, 4000):
    ...     times = times.plus(size, 0.5 + size / 1000)
    >>> fixed, each = times.line()
    >>> round(fixed, 3), round(each * 1000, 3)
    (0.5, 1.0)
    """

    count: float = 0.0
    size: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0
    products: float = 0.0
    largest: int = 0

    def plus(self, size: int, seconds: float) -> BatchTimes:
        """With one more batch."""
        sums = (self.count, self.size, self.seconds, self.squares, self.products)
        more = (1.0, float(size), seconds, float(size) ** 2, size * seconds)
        count, sizes, spent, squares, products = (
            FADING * known + new for known, new in zip(sums, more, strict=True)
        )
        return BatchTimes(count, sizes, spent, squares, products, max(size, self.largest))

    def line(self, known: float | None = None) -> tuple[float | None, float]:
        """The seconds of a batch however small, and those of a byte.

        Where sizes are too much alike to tell, the former are what is ``known`` of them, None if nothing is.
        """
        spread = self.count * self.squares - self.size**2
        if spread > EVEN * self.count * self.squares:
            each = (self.count * self.products - self.size * self.seconds) / spread
            fixed = (self.seconds - each * self.size) / self.count
            if each > 0 and fixed >= 0:
                return fixed, each
        most = 0.9 * self.seconds / self.count
        return known, (self.seconds / self.count - min(known or 0.0, most)) / (self.size / self.count)


class BatchSize:
    """Chooses the size of the next batch, of at most ``most_bytes``."""

    def __init__(self, most_bytes: int) -> None:
        self._most, self._times = most_bytes, BatchTimes()
        self._fixed: float | None = None  # the seconds of a batch however small, once sizes have told
        self._each = 0.0  # the seconds of a byte

    def measured(self, size: int, seconds: float) -> None:
        """Learn from a batch that took so many bytes."""
        if size > 0 and seconds > 0:
            self._times = self._times.plus(size, seconds)
            self._fixed, self._each = self._times.line(self._fixed)

    def next_bytes(self, target: float | None, waited: float) -> int:
        """How many bytes the next batch may take, where what came first has waited for so many seconds."""
        if target is None:
            return self._most
        if not self._each:
            return min(self._most, FIRST)
        size = self._in_time(target)
        if waited > target:
            size = max(size, self._at_speed())
        return max(1, min(self._most, size, GROWTH * self._times.largest))

    def seconds_for(self, size: int) -> float:
        """About how long so many bytes take in batches of the right size; 0 before the first batch."""
        return self._each * size / SPEED

    def _in_time(self, target: float) -> int:
        """The size of a batch that ends in time; where none does, that of one that takes twice what any takes."""
        fixed = self._fixed or 0.0
        return round(max(SHARE * target - fixed, fixed) / self._each)

    def _at_speed(self) -> int:
        """The size at which a byte takes little longer than in the largest batch; larger ones, until that is known."""
        if self._fixed is None:
            return self._most
        speed = SPEED * self._most / (self._fixed + self._each * self._most)
        return round(speed * self._fixed / (1 - speed * self._each))
