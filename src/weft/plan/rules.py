"""What happens to a tuple that arrives over an edge (CLASH 8.3.1).

Guarantees: a rule is plain data. Rules name edges, edges name nodes, ``users`` are the names of the queries a rule is
for, sorted; `PhysicalGraph` checks that the names fit.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import PlanError
from weft.logical.expr import Call, Expr, Literal
from weft.logical.limits import measured_in_cells
from weft.plan.join_plan import Names, StepCost
from weft.plan.routing import Equality
from weft.plan.schedule import ALL, GROUP_BY, LOCAL, SHUFFLE, SPAN

__all__ = ["RESULT", "Edge", "ProbeRule", "ResultRule", "Rule", "StoreRule", "Sweep", "Users"]

# The node where results arrive.
RESULT = "result"

Users = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """A way tuples take, and the hop at its end.

    They go to the task a value decides (``group-by``), to those of all values from one ``until`` another (``span``), to
    ``all``, to any one (``shuffle``), or stay (``local``).
    A local edge out of a source ``rides`` on one that stores: its tuples are there anyway. With ``nulls``, tuples
    without a value go somewhere too, since not everybody looks for it.

    Tuples with a value of ``heavy`` are scattered in the store at its end: those that are stored there are dealt out,
    those that probe it go to all. A local edge with a value has tuples that do not ride: the source sends those with a
    value that is heavy at its end, or in the store it rides to.
    """

    name: str
    source: str
    target: str
    kind: str
    hop: int
    by: Expr | None = None
    rides: str | None = None
    nulls: bool = False
    until: Expr | None = None
    heavy: tuple[Literal, ...] = ()

    def __post_init__(self) -> None:
        known = self.kind in (LOCAL, GROUP_BY, SPAN, ALL, SHUFFLE)
        may = self.kind in (GROUP_BY, SPAN) or (self.kind == LOCAL and self.rides is not None)
        must = self.kind in (GROUP_BY, SPAN) or bool(self.heavy)
        if not known or not must <= (self.by is not None) <= may:
            raise PlanError(f"edge {self.name}: {self.kind} by {self.by} cannot be")
        cells = [measured_in_cells(value) for value in self.values]
        if (self.until is not None) != (self.kind == SPAN) or (self.kind == SPAN and None in cells):
            raise PlanError(f"edge {self.name}: {self.kind} until {self.until} cannot be")

    @property
    def values(self) -> tuple[Expr, ...]:
        """What decides where a tuple goes."""
        return tuple(value for value in (self.by, self.until) if value is not None)

    def __str__(self) -> str:
        if self.by is not None and self.until is not None:
            return f"{self.kind} {' to '.join(map(_bound, self.values))}"
        scattered = f", {len(self.heavy)} heavy apart" if self.heavy else ""
        return f"{self.kind} {self.by}{scattered}" if self.kind == GROUP_BY else f"{self.kind}{scattered}"


def _bound(end: Expr) -> str:
    """The value that a span ends at, as its author wrote it: not by its cell, nor what it is where it overflows."""
    found = measured_in_cells(end)
    value = end if found is None else found[0]
    if isinstance(value, Call) and value.function == "coalesce":
        value = value.args[0]
    return str(value)


@dataclass(frozen=True, slots=True)
class StoreRule:
    """Add what arrives to a store."""

    edge: str
    store: str
    users: Users = ()


@dataclass(frozen=True, slots=True)
class ProbeRule:
    """Probe a store with what arrives, and send the matches on over every edge of ``outputs``.

    ``start`` is the input whose tuples set out, ``known`` the inputs joined so far. ``equalities`` look stored tuples
    up; ``predicates`` filter the pairs.
    """

    edge: str
    store: str
    start: str
    known: Names
    equalities: tuple[Equality, ...]
    predicates: tuple[Expr, ...]
    outputs: tuple[str, ...]
    users: Users = ()
    estimate: StepCost | None = None


@dataclass(frozen=True, slots=True)
class ResultRule:
    """What arrives, set out by a tuple of ``start``, is a result of all its queries."""

    edge: str
    start: str
    users: Users = ()


Rule = StoreRule | ProbeRule | ResultRule


@dataclass(frozen=True, slots=True)
class Sweep:
    """Close rows of a query with outer joins: by its tree, out of the stores of its inputs, in their order."""

    query: str
    homes: tuple[str, ...]
