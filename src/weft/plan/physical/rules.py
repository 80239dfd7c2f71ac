"""What happens to a tuple that arrives over an edge (CLASH 8.3.1).

Guarantees: a rule is plain data. Rules name edges, and edges name nodes; ``users`` are the sorted names of the queries
that a rule is for. `PhysicalGraph` checks that the names fit.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import PlanError
from weft.logical.expr.bounds import measured_in_cells
from weft.logical.expr.expression import Call, Expr, Literal
from weft.plan.join_plan import Names, StepCost
from weft.plan.routing import Equality
from weft.plan.schedule import ALL, GROUP_BY, LOCAL, SHUFFLE, SPAN

__all__ = ["RESULT", "Edge", "ProbeRule", "ResultRule", "Rule", "StoreRule", "Sweep", "Users"]

# The node where results arrive.
RESULT = "result"

Users = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """The way of tuples from one node to another, and the hop at its end.

    Tuples go to the task that the value ``by`` decides (``group-by``), to the tasks of all cells from ``by`` up to
    ``until`` (``span``), to ``all`` tasks, to any one (``shuffle``), or stay where they are (``local``). A local edge
    out of a source ``rides`` on an edge that stores, since that brings its tuples there anyway. With ``nulls``, tuples
    whose value is NULL are sent too, because some query does not join on that value.

    Tuples with a value of ``heavy`` are scattered over the store at the edge's end: tuples to be stored are dealt out,
    and tuples that probe go to all tasks. Not all tuples of a local edge with a value ride: the source itself sends
    those whose value is heavy in the store at the edge's end, or in the store that the other edge leads to.
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
        """The values that decide where a tuple goes."""
        return tuple(value for value in (self.by, self.until) if value is not None)

    def __str__(self) -> str:
        if self.by is not None and self.until is not None:
            return f"{self.kind} {' to '.join(map(_bound, self.values))}"
        scattered = f", {len(self.heavy)} heavy apart" if self.heavy else ""
        return f"{self.kind} {self.by}{scattered}" if self.kind == GROUP_BY else f"{self.kind}{scattered}"


def _bound(end: Expr) -> str:
    """The value that a span ends at, as its author wrote it: without its cell, and without its value on overflow."""
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

    ``start`` is the input whose tuples began the walk, ``known`` the inputs joined so far. Stored tuples are looked up
    by ``equalities``; ``predicates`` filter the pairs.
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
    """Give what arrives, which started from tuples of ``start``, to its queries as results."""

    edge: str
    start: str
    users: Users = ()


Rule = StoreRule | ProbeRule | ResultRule


@dataclass(frozen=True, slots=True)
class Sweep:
    """Close the rows of a query with outer joins, by its tree, from the stores of its inputs in their order."""

    query: str
    homes: tuple[str, ...]
