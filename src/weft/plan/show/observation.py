"""What the batches of a query did, in the units in which the cost of its plan was estimated.

Guarantees: an observation is plain data about one graph. Tuples and probes are counted without copies, so that they
compare with `StepCost.incoming` and `StoreCost.size`; rates are per second of stream, as predicted ones are. ``clock``
says what the seconds are of: `EVENT_TIME`, the time that the tuples themselves cover, or `WALL_CLOCK`, where no input
has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from weft.errors import StatisticsError
from weft.logical.expr.user_functions import FunctionFigures
from weft.stats.input_figures import EdgeFigures, InputFigures

__all__ = ["EVENT_TIME", "WALL_CLOCK", "Observation", "StepSeen", "StoreSeen"]

EVENT_TIME, WALL_CLOCK = "event time", "wall-clock time"


@dataclass(frozen=True, slots=True)
class StepSeen:
    """Tuples that probed, each counted once however many copies were sent, and the matches they found."""

    probes: float
    matches: int

    @property
    def matches_per_probe(self) -> float | None:
        """How many matches a tuple had on average; None if there was no tuple."""
        return self.matches / self.probes if self.probes else None


@dataclass(frozen=True, slots=True)
class StoreSeen:
    """What a store holds after the last batch: tuples without copies, and the bytes of all copies."""

    rows: float
    bytes: int
    runs: int


@dataclass(frozen=True, slots=True)
class Observation:
    """An observation of ``batches`` batches: inputs by alias, steps by the name of their edge, stores by name.

    ``hops`` are mean seconds per hop, the sources' first; ``elapsed`` are mean seconds per batch. ``backlog``
    is how many parts of an input's stream wait, of those inputs of which that is known.
    """

    batches: int
    seconds: float
    clock: str
    results: int
    inputs: Mapping[str, InputFigures] = field(default_factory=dict)
    steps: Mapping[str, StepSeen] = field(default_factory=dict)
    stores: Mapping[str, StoreSeen] = field(default_factory=dict)
    hops: tuple[float, ...] = ()
    elapsed: float = 0.0
    closed: int = 0  # results that were found by closing rows, not by probes
    functions: Mapping[str, FunctionFigures] = field(default_factory=dict)  # users' functions, by name
    selectivities: Mapping[str, float] = field(default_factory=dict)  # of conditions that call them, by text
    backlog: Mapping[str, int] = field(default_factory=dict)
    edges: Mapping[str, EdgeFigures] = field(default_factory=dict)  # what was sent, by edge

    def __post_init__(self) -> None:
        if self.batches < 0 or not self.seconds >= 0:
            raise StatisticsError(f"{self.batches} batches in {self.seconds} seconds cannot be")
        if self.clock not in (EVENT_TIME, WALL_CLOCK):
            raise StatisticsError(f"there is no clock {self.clock!r}")

    def rate(self, count: float) -> float | None:
        """A count per second of stream; None if no time has passed."""
        return count / self.seconds if self.seconds else None
