"""The space of plans of one query, which every strategy searches.

Guarantees: inputs are numbered as in `Query.aliases` and sets of them are bit masks; query, statistics and options
determine the space, so the same question always has the same answer. Strategies end at its deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from weft.errors import ConfigError, PlanError
from weft.logical.arguments import check_fields
from weft.logical.expr.expression import Expr, aliases, columns
from weft.logical.expr.user_functions import has_user_call, user_calls
from weft.logical.query.query import Query
from weft.optimizer.cost import DEFAULT_WEIGHTS, Weights, call_cost, copies, crowding, step_cost
from weft.optimizer.deadline import NEVER, Deadline
from weft.optimizer.skew import Skew
from weft.plan.join_plan import Layout
from weft.plan.routing import Routing
from weft.plan.schedule import NO_KEY, ProbePlace, Spread
from weft.stats.estimate import Estimator, bits
from weft.stats.statistics import Statistics

__all__ = ["PROBE_ORDERS", "Options", "Space", "Tree", "check_inputs"]

PROBE_ORDERS = ("auto", "greedy", "exhaustive")

# A tree: each operator is the tuple of its stores' masks; inner operators come first, the root last.
Tree = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Options:
    """How queries are planned.

    ``strategy`` looks for plans of single queries (docs/strategies.md), and ``probe_orders`` for the orders within an
    operator ("greedy", "exhaustive", or "auto": by its size). State is in so many ``partitions``, worked on by so many
    ``tasks`` at once. All queries together may store ``budget`` tuples. ``weights`` are what a unit of each kind of
    work costs. ``scatter_heavy`` says whether heavy values of keys may be scattered, ``planning_seconds`` how long
    better plans are looked for, and ``most_inputs`` how many inputs a query may join.

    What is done to save work can be switched off, to see what it is worth: without ``share`` every query has stores and
    probes of its own, without ``group`` all queries share what they can whatever their filters have in common,
    without ``reorder`` stores are probed in the order of their inputs' names, as far as conditions lead there, and
    without ``replicate`` no store is kept whole in every partition where it can be divided among them. Those who know
    which queries lose by sharing give ``group`` as their groups by name; queries not named there are one group.
    """

    strategy: str = "auto"
    partitions: int = 4
    probe_orders: str = "auto"  # "greedy", "exhaustive", or "auto": by the size of the operator
    budget: float | None = None  # how many tuples may be stored; None: any number
    weights: Weights = DEFAULT_WEIGHTS
    scatter_heavy: bool = True  # whether heavy values of keys may be scattered
    tasks: int | None = None  # tasks that run at once; None: as many as partitions
    planning_seconds: float | None = (
        None  # time to look for better plans; None: 5, or 60 for the best plan there is
    )
    most_inputs: int = 32  # the most inputs that a query may join
    share: bool = True  # whether queries have stores and probes in common
    group: bool | Mapping[str, str] = (
        True  # whether queries that lose by sharing are kept apart, or their groups
    )
    reorder: bool = True  # whether probe orders are chosen by cost
    replicate: bool = True  # whether stores may be kept in every partition

    def __post_init__(self) -> None:
        check_fields(self, ConfigError)
        if self.partitions < 1:
            raise ConfigError(f"partitions is {self.partitions}", hint="use 1 or more")
        if self.probe_orders not in PROBE_ORDERS:
            raise ConfigError(f"probe_orders is {self.probe_orders!r}", hint="use auto, greedy or exhaustive")
        if self.tasks is not None and self.tasks < 1:
            raise ConfigError(f"tasks is {self.tasks}", hint="use 1 or more")
        if self.budget is not None and not self.budget >= 0:
            raise ConfigError(f"budget is {self.budget}", hint="use a number of tuples")
        if self.planning_seconds is not None and not self.planning_seconds >= 0:
            raise ConfigError(f"planning_seconds is {self.planning_seconds}", hint="use 0 or more")
        if self.most_inputs < 1:
            raise ConfigError(f"most_inputs is {self.most_inputs}", hint="use 1 or more")

    def told_groups(self, names: Iterable[str]) -> dict[str, str] | None:
        """The groups of queries of these names, or None where the planner forms groups."""
        if not self.share:
            return {name: name for name in names}
        if self.group is True:
            return None
        return {name: self.group.get(name, "") if self.group else "" for name in names}


def check_inputs(query: Query, options: Options) -> None:
    """Refuse a query of more inputs than may be joined: it would take too long to plan."""
    if len(query.inputs) > options.most_inputs:
        raise PlanError(
            f"the query joins {len(query.inputs)} inputs, more than most_inputs={options.most_inputs} allows",
            hint=f"join fewer, or raise the limit: weft.Options(most_inputs={len(query.inputs)})",
        )


class _Called(NamedTuple):
    """A condition that calls users' functions: its inputs and selectivity, and the inputs and seconds of every call."""

    mask: int
    selectivity: float
    calls: tuple[tuple[int, float], ...]

    def seconds(self, known: int, store: int) -> float:
        """The seconds that a pair takes; calls over one side alone are computed once per row, and do not count here."""
        return sum(cost for mask, cost in self.calls if mask & known and mask & store)


class Space:
    """Routing, connectivity and sizes over bit masks."""

    def __init__(
        self, query: Query, statistics: Statistics, options: Options, deadline: Deadline = NEVER
    ) -> None:
        self.query = query
        self.deadline = deadline
        self.options = options
        self.weights = options.weights
        self.partitions = options.partitions
        self.estimator = Estimator(query, statistics)
        self.tuples = self.estimator.tuples
        self.size = lru_cache(None)(self.estimator.size)
        # The answers of `evaluate`, so that nothing is computed twice.
        self.settled: dict[object, Any] = {}
        self.relaxed: dict[object, Any] = {}
        self.rates = self.estimator.rates
        self.count = len(query.aliases)
        self.full = (1 << self.count) - 1
        self._routing = Routing(query)
        self._ways = [self._ways_to(route) for route in range(len(self._routing.members))]
        self._owners = [self.estimator.mask(frozenset(route)) for route in self._routing.members]
        self._edges = self._hyperedges()
        self._apart = self.estimator.mask(frozenset(i.alias for i in query.inputs if i.counted_per))
        self._tables = self.estimator.mask(query.tables)
        self._called = self._calls(statistics)
        self.checks = lru_cache(None)(self._checks)
        self.linked = lru_cache(None)(self._linked)
        self.connected = lru_cache(None)(self._connected)
        self.next_steps = lru_cache(None)(self._next_steps)
        self.routable = lru_cache(None)(self._routable)
        self.spreads = lru_cache(None)(self._spreads)
        self.load = lru_cache(None)(self._load)
        tasks = options.partitions if options.tasks is None else options.tasks
        self.skew = Skew(
            query,
            self._routing,
            self.estimator,
            options.weights,
            options.partitions,
            tasks,
            options.scatter_heavy,
        )

    @property
    def budget(self) -> float:
        """How many tuples the strategies that spend a budget may store; by default twice the inputs."""
        if self.options.budget is not None:
            return self.options.budget
        return 2 * sum(self.size(1 << i) for i in range(self.count))

    def _ways_to(self, route: int) -> list[int]:
        """The sets of inputs from which a route's value, or a range of it, can be computed."""
        spans = self._routing.spans.get(route, ())
        needed = (*(source for source, _ in self._routing.sources(route)), *(span.needed for span in spans))
        return [self.estimator.mask(inputs) for inputs in needed]

    def _hyperedges(self) -> list[int]:
        predicates = (*self.query.predicates, *self.query.residuals)
        return [self.estimator.mask(aliases(predicate)) for predicate in predicates]

    def _calls(self, statistics: Statistics) -> list[_Called]:
        """The conditions between inputs that call users' functions."""
        conditions = (*self.query.predicates, *self.query.residuals)
        return [
            _Called(
                self.estimator.mask(aliases(condition)),
                statistics.selectivity(self.query, condition),
                tuple(
                    (self.estimator.mask(aliases(call)), statistics.function_cost(call.function))
                    for call in user_calls(condition)
                ),
            )
            for condition in conditions
            if has_user_call(condition)
        ]

    def _checks(self, known: int, store: int) -> tuple[tuple[float, float], ...]:
        """The selectivities and seconds of the conditions with users' functions that a step checks (`call_cost`)."""
        both = known | store
        here = [one for one in self._called if not one.mask & ~both and one.mask & known and one.mask & store]
        return tuple((one.selectivity, one.seconds(known, store)) for one in here)

    @property
    def calls_functions(self) -> bool:
        """Whether conditions between inputs call users' functions."""
        return bool(self._called)

    def call_cost(self, start: int, known: int, store: int) -> float:
        """The work of users' functions in a step."""
        checks = self.checks(known, store) if self._called else ()
        return call_cost(self.tuples(start, known | store), checks) if checks else 0.0

    def _linked(self, known: int, target: int) -> bool:
        """Whether some predicate can be checked once ``known`` meets ``target``."""
        if any(owners & known and owners & target for owners in self._owners):
            return True
        both = known | target
        return any(edge & known and edge & target and not edge & ~both for edge in self._edges)

    def _connected(self, mask: int) -> bool:
        """Whether the inputs of ``mask`` can be joined with no cross product on the way."""
        reached = mask & -mask
        grown = True
        while grown:
            steps = [1 << i for i in bits(mask & ~reached) if self.linked(reached, 1 << i)]
            grown = bool(steps)
            reached |= sum(steps)
        return reached == mask

    def storable(self, mask: int) -> bool:
        """Whether the join of some inputs may be stored: no cross product, no input counted per key, and no table.

        Which tuples of an input are the last of their key is known only where all tuples of the key are stored; a match
        may be stored in another partition. A table is replaced as a whole, and what was joined with it would stay.
        """
        return self.connected(mask) and (mask.bit_count() == 1 or not mask & (self._apart | self._tables))

    def _next_steps(self, known: int, remaining: tuple[int, ...]) -> tuple[int, ...]:
        """The stores worth probing next: those a predicate reaches, or any if none is."""
        return tuple(store for store in remaining if self.linked(known, store)) or remaining

    def _routable(self, key: int, known: int) -> bool:
        """Whether the value of a key follows from the inputs known."""
        return key != NO_KEY and any(not needed & ~known for needed in self._ways[key])

    def _spreads(self, mask: int) -> tuple[Spread, ...]:
        """The layouts a store may have (6.4.3): by a key that leads outside, else by a band or scattered; or
        replicated.

        If a key has heavy values, there are also layouts by this key that scatter them.
        """
        keys = [
            key
            for key, owners in enumerate(self._owners)
            if owners & mask and any(not needed & mask for needed in self._ways[key])
        ]
        if mask & self._apart:  # all tuples that are counted together must be in one partition
            keys = [key for key in keys if self._keeps_together(mask, key)]
        bands = [Spread("ranged", key) for key in keys if key in self._routing.spans]
        spread = [Spread("partitioned", key) for key in keys if key not in self._routing.spans]
        for plain in () if mask & self._apart else tuple(spread):
            spread += [plain._replace(heavy=heavy) for heavy in self.skew.heavy(plain.key, mask)]
        anywhere = () if mask & self._apart else (Spread("scattered"),)
        divided = (*(spread or (*bands, *anywhere)),)
        return divided if divided and not self.options.replicate else (*divided, Spread("replicated"))

    def _load(self, spread: Spread) -> float:
        """How much more than its share the busiest partition of a store has to do."""
        band = self._routing.bands.get(spread.key)
        if band is None:
            return 1.0
        return crowding(self.estimator.statistics.band(self.query, band), self.partitions)

    def _keeps_together(self, mask: int, key: int) -> bool:
        """Whether tuples that are counted together have the same value of a key."""
        (input_,) = (self.query.input(alias) for alias in self.names(mask))
        return set(columns(self._routing.members[key][input_.alias])) <= set(input_.counted_per)

    def names(self, mask: int) -> tuple[str, ...]:
        """The aliases of a mask, sorted."""
        return tuple(self.query.aliases[i] for i in bits(mask))

    def layout(self, mask: int, spread: Spread) -> Layout:
        """The layout a spread stands for, with the expression the store is partitioned by."""
        by: Expr | None = None
        if spread.key != NO_KEY:
            route = self._routing.members[spread.key]
            by = next(route[alias] for alias in self.names(mask) if alias in route)
        kind = "partitioned" if spread.kind == "ranged" else spread.kind
        heavy = self.skew.heavy(spread.key, mask)[spread.heavy] if spread.heavy else ()
        return Layout(kind, self.partitions, by, heavy)

    def even_work(self, known: int, spread: Spread, tuples: float, shipped: bool) -> float:
        """The cost of a step of some tuples, without the additional cost of heavy values."""
        count = copies(spread.kind, self.routable(spread.key, known), self.partitions)
        return step_cost(self.weights, tuples, count, shipped) * self.load(spread)

    def work(
        self,
        start: int,
        known: int,
        store: int,
        spread: Spread,
        place: ProbePlace,
        tuples: float,
        shipped: bool,
    ) -> float:
        """The cost of a step of some tuples."""
        extra = 0.0
        if spread.kind == "replicated" or self.routable(spread.key, known):
            extra = self.skew.extra(start, known, store, spread, place, tuples, shipped)
        return self.even_work(known, spread, tuples, shipped) + extra

    def copies(self, spread: Spread, known: int) -> float:
        """χ of a step, with the copies of tuples with heavy values included."""
        routable = self.routable(spread.key, known)
        if spread.heavy and routable:
            return self.skew.copies(spread, known)
        return copies(spread.kind, routable, self.partitions)

    def spread(self, layout: Layout) -> Spread:
        """The spread of a layout; the inverse of `layout`."""
        return self._routing.spread(layout)
