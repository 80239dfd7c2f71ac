"""Until when a search for a better plan may go on.

Guarantees: the optimiser has no clock of its own (the solver's aside); whoever asks for a plan hands one over. Every
search has a plan before it looks at its deadline, and ends with the best one it has once that is over. What must be
done to have any plan is not bounded by it, but by the number of inputs of a query (`Options.most_inputs`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

__all__ = ["NEVER", "Deadline"]


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment, in seconds of a clock.

    >>> from itertools import count
    >>> ticks = count()
    >>> deadline = Deadline.after(2.0, lambda: float(next(ticks)))
    >>> [deadline.over for _ in range(3)]
    [False, True, True]
    """

    at: float
    clock: Callable[[], float]

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float]) -> Deadline:
        """So many seconds from now."""
        return cls(clock() + seconds, clock)

    @property
    def over(self) -> bool:
        """Whether it has come."""
        return self.clock() >= self.at

    @property
    def left(self) -> float:
        """The seconds until then; 0 if it has come."""
        return max(0.0, self.at - self.clock())

    def part(self, share: float) -> Deadline:
        """A deadline that leaves the rest of the time to others."""
        return self if self.at == inf else Deadline.after(self.left * share, self.clock)


def _no_time() -> float:
    return 0.0


# Nothing is cut short.
NEVER = Deadline(inf, _no_time)
