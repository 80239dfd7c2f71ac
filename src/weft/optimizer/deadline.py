"""Until when a search for a better plan may go on.

Guarantees: apart from the solver, the optimiser reads no clock but that of the deadline it is given. Every search has a
plan before it first looks at its deadline, and once that is over it ends with the best plan it has. The work that is
needed to have any plan at all is bounded not by the deadline but by the number of inputs of a query
(`Options.most_inputs`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

__all__ = ["NEVER", "Deadline"]


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment at which a search must end, in seconds of a clock.

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
        """The deadline that is so many seconds from now."""
        return cls(clock() + seconds, clock)

    @property
    def over(self) -> bool:
        """Whether the deadline has come."""
        return self.clock() >= self.at

    @property
    def left(self) -> float:
        """The seconds until the deadline; 0 if it has come."""
        return max(0.0, self.at - self.clock())

    def part(self, share: float) -> Deadline:
        """An earlier deadline, after this share of the time that is left."""
        return self if self.at == inf else Deadline.after(self.left * share, self.clock)


def _no_time() -> float:
    return 0.0


# A deadline that never comes.
NEVER = Deadline(inf, _no_time)
