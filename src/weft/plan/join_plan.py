"""A plan says which results are stored, how, and in which order each arriving tuple probes them.

Guarantees: the operators form a tree (CLASH 5.2) whose leaves are the query's inputs; every operator has, for each
of its inputs, exactly one probe order, and that order visits every store it must and no other. A plan that contradicts
itself cannot be built.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import PlanError
from weft.logical.expr.bounds import measured_in_cells
from weft.logical.expr.expression import Expr, Literal, aliases, to_sql
from weft.logical.outer.outer import Closing
from weft.logical.query.query import Query

__all__ = [
    "CallCost",
    "Cost",
    "JoinPlan",
    "Layout",
    "Operator",
    "ProbeOrder",
    "StepCost",
    "Store",
    "StoreCost",
    "check_store",
    "store_name",
]

Names = tuple[str, ...]


def store_name(names: Names) -> str:
    """What a store of some inputs is called.

    >>> store_name(("v", "w"))
    'v⋈w'
    """
    return "⋈".join(names)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a store is spread: ``partitioned`` by an expression, ``scattered`` at random, ``replicated`` everywhere.

    In a partitioned store, tuples with a value of ``heavy`` are scattered, since one task could not cope with all of
    them.
    """

    kind: str
    partitions: int
    by: Expr | None = None
    heavy: tuple[Literal, ...] = ()

    KINDS = ("partitioned", "scattered", "replicated")

    def __post_init__(self) -> None:
        if self.kind not in self.KINDS or (self.by is not None) != (self.kind == "partitioned"):
            raise PlanError(f"a {self.kind} layout by {self.by} cannot be")
        if self.partitions < 1:
            raise PlanError(f"a store in {self.partitions} partitions cannot be")
        if self.heavy and (self.by is None or list(self.heavy) != sorted(set(self.heavy), key=to_sql)):
            raise PlanError(
                f"a {self.kind} layout with heavy values {', '.join(map(str, self.heavy))} cannot be"
            )

    def __str__(self) -> str:
        found = measured_in_cells(self.by) if self.by is not None else None
        if found is not None:
            return f"{self.kind} by ranges of {found[0]}, {found[1]:.15g} each"
        by = f" by {self.by}" if self.by is not None else ""
        heavy = f", heavy {', '.join(map(str, self.heavy))} scattered" if self.heavy else ""
        return f"{self.kind}{by}{heavy}"


def check_store(names: Names, layout: Layout) -> None:
    """Refuse a store without inputs, with an input twice, or partitioned by an expression over other inputs."""
    if list(names) != sorted(set(names)) or not names:
        raise PlanError(f"a store of {names} cannot be")
    if layout.by is not None and not aliases(layout.by) <= set(names):
        raise PlanError(
            f"store {store_name(names)} cannot be partitioned by {layout.by}, which it does not have"
        )


@dataclass(frozen=True, slots=True)
class Store:
    """A stored relation: an input, or the join of several."""

    aliases: Names
    layout: Layout

    def __post_init__(self) -> None:
        check_store(self.aliases, self.layout)

    @property
    def name(self) -> str:
        """The store's name."""
        return store_name(self.aliases)


@dataclass(frozen=True, slots=True)
class ProbeOrder:
    """The stores, by their aliases, that tuples of ``start`` visit within one operator, in this order."""

    start: str
    visits: tuple[Names, ...]


@dataclass(frozen=True, slots=True)
class Operator:
    """A MultiStream operator (CLASH 5.1): its stores, and a probe order for every input below it."""

    stores: tuple[Store, ...]
    orders: tuple[ProbeOrder, ...]

    def __post_init__(self) -> None:
        if len(self.stores) < 2:
            raise PlanError("an operator joins at least two stores")
        if len(set(self.aliases)) != len(self.aliases):
            raise PlanError(f"the stores of operator {self.name} overlap")
        if [order.start for order in self.orders] != list(self.aliases):
            raise PlanError(f"operator {self.name} does not have one probe order per input")
        for order in self.orders:
            self._check_order(order)

    def _check_order(self, order: ProbeOrder) -> None:
        others = [store.aliases for store in self.stores if order.start not in store.aliases]
        if sorted(order.visits) != sorted(others):
            raise PlanError(
                f"the probe order of {order.start} does not visit every store of {self.name} once"
            )

    @property
    def aliases(self) -> Names:
        """The inputs below, sorted."""
        return tuple(sorted(alias for store in self.stores for alias in store.aliases))

    @property
    def name(self) -> str:
        """The name of the relation it computes."""
        return store_name(self.aliases)


@dataclass(frozen=True, slots=True)
class StepCost:
    """What one step of a probe order is expected to do per second.

    ``incoming`` tuples are sent as ``copies`` each, through a shuffle iff ``shipped``; ``outgoing`` results come out.
    """

    start: str
    store: Names
    hop: int
    incoming: float
    copies: float
    shipped: bool
    outgoing: float
    cost: float


@dataclass(frozen=True, slots=True)
class StoreCost:
    """What a store is expected to hold at once, and to take in per second.

    It needs so many ``tasks`` (CLASH 5.5.2), each of which copes with ``capacity`` of its tuples (CLASH 5.5.3); None
    where that is not known.
    """

    store: Names
    size: float
    rate: float
    tasks: int = 1
    capacity: float | None = None


@dataclass(frozen=True, slots=True)
class CallCost:
    """The expected cost of a user's function: seconds per row, and the part of rows that its condition lets through.

    ``condition`` is the text of the condition that calls it, empty where the call is in the select list; ``name`` is
    the name under which measurements of the condition are kept.
    """

    function: str
    seconds: float
    condition: str = ""
    name: str = ""
    selectivity: float = 1.0


@dataclass(frozen=True, slots=True)
class Cost:
    """A plan's expected cost; ``total`` weighs the others (optimizer/cost.py says how)."""

    total: float
    storage: float
    probes: float
    shipped: float
    latency: float
    hops: int
    steps: tuple[StepCost, ...] = ()
    stores: tuple[StoreCost, ...] = ()

    def __repr__(self) -> str:
        counts = f"{self.storage:.3g} tuples stored, {self.probes:.3g} probes/s, {self.hops} hops"
        return f"<Cost {self.total:.3g}: {counts}>"


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """A query with the tree of operators that answers it, inner ones first, the root last.

    For a query with outer joins, ``query`` is the core; ``homes`` are the stores of its inputs from which it is closed.
    """

    query: Query
    operators: tuple[Operator, ...]
    strategy: str
    cost: Cost | None = None
    closing: Closing | None = None
    homes: tuple[Store, ...] = ()

    def __post_init__(self) -> None:
        if self.query.outer is not None:
            raise PlanError("a plan is of the core of a query with outer joins")
        if [store.aliases for store in self.homes] != [(a,) for a in self.query.aliases if self.closing]:
            raise PlanError("a query is closed from one store of each of its inputs")
        if len(self.query.inputs) == 1 or (self.closing and not self.closing.walked):
            if self.operators:
                raise PlanError("where nothing is probed, there is no operator")
            return
        self._check_tree()

    def _check_tree(self) -> None:
        computed: set[Names] = set()
        for operator in self.operators:
            for store in operator.stores:
                if len(store.aliases) > 1 and store.aliases not in computed:
                    raise PlanError(f"nothing computes store {store.name} before {operator.name} needs it")
                computed.discard(store.aliases)
            computed.add(operator.aliases)
        if computed != {self.query.aliases}:
            raise PlanError("the operators do not form one tree over the query's inputs")

    @property
    def stores(self) -> tuple[Store, ...]:
        """All stores, inputs first."""
        every = [store for operator in self.operators for store in operator.stores]
        return tuple(sorted(every, key=lambda store: (len(store.aliases), store.aliases)))
