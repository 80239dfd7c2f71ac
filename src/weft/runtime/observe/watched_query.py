"""What the metrics of batches tell of one query's predicates, worked out once from the graph that runs.

Guarantees: plain values, under the names that batches' metrics have: those of the graph, which queries may share.
Bounds on event times are no predicates here, since they count as part of the windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.logical.expr.expression import BOOLEAN, Expr, make_call
from weft.logical.expr.user_functions import has_user_call
from weft.logical.query.horizon import is_time_bound, time_bounds
from weft.logical.query.query import Query
from weft.plan.join_plan import Names
from weft.plan.physical.derive import filters_of
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.rules import ProbeRule
from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.observe.observations import probe_copies, store_copies
from weft.stats.known import PredicateSet
from weft.stats.predicate_sets import PredicateSets
from weft.stats.statistics import predicate_name

__all__ = ["Counter", "Reach", "WatchedFilters", "WatchedInput", "WatchedQuery", "WatchedStep", "watch"]


@dataclass(frozen=True, slots=True)
class Counter:
    """Counts the tuples that probe over an edge, or the matches that they find there."""

    edge: str
    copies: float = 1.0
    matches: bool = False

    def count(self, batch: BatchMetrics) -> float:
        """How many there were in a batch."""
        step = batch.steps.get(self.edge)
        if step is None:
            return 0.0
        return float(step.matches) if self.matches else step.tuples / self.copies


@dataclass(frozen=True, slots=True)
class WatchedInput:
    """An input, its stream, whether that has event times, and the store of its tuples, if it is stored."""

    alias: str
    stream: str
    timed: bool
    store: str | None


@dataclass(frozen=True, slots=True)
class WatchedFilters:
    """The filters of an input; the tuples that pass them are those that probe first, if the query probes."""

    alias: str
    names: PredicateSet
    passed: Counter | None


@dataclass(frozen=True, slots=True)
class Reach:
    """How many seconds the ``other`` tuple of a pair may be ``before`` the tuple that probes, or ``after`` it.

    A tuple that probes sees tuples of its own batch only if their input comes first in the driver order, and then also
    those that are after it. So if batches are not much shorter than windows, one input finds most of the pairs.
    """

    other: str
    before: float
    after: float

    def part(self, seconds: float, sees_batch: bool) -> float:
        """The pairs that a probe finds in a batch of so many seconds, by those that are before it."""
        if not (self.before > 0 and self.after >= 0 and seconds > 0):
            return 1.0
        if sees_batch:
            later = self.after - self.after**2 / (2 * seconds) if self.after <= seconds else seconds / 2
            return 1 + later / self.before
        if self.before <= seconds:
            return self.before / (2 * seconds)
        return 1 - seconds / (2 * self.before)


@dataclass(frozen=True, slots=True)
class WatchedStep:
    """A step that probes a store, and the predicates that it checks.

    ``adds`` says, for each input of the store, how tuples added on its behalf are counted. ``joined`` are the
    predicates of all inputs that are joined after the step, if they are more than two, and if every one of these inputs
    has steps that join just them: only all of them together find each combination once. ``fulfilled`` are those of them
    that are fulfilled before the step. ``place``, ``known`` and ``inside`` are what the estimates know the step by: the
    number of the input that started, and the masks of the inputs that are joined before it and that are stored.
    """

    probes: Counter
    start: str
    store: str
    store_copies: float
    adds: tuple[tuple[str, tuple[Counter, ...]], ...]
    checked: PredicateSet
    joined: PredicateSet
    fulfilled: PredicateSet
    place: int
    known: int
    inside: int
    reach: Reach | None = None

    @property
    def inputs(self) -> int:
        """How many inputs are joined after it; if they are two, no predicate has been checked before."""
        return (self.known | self.inside).bit_count()

    @property
    def identity(self) -> tuple[str, PredicateSet, PredicateSet]:
        """What makes it the same step in several queries that share it."""
        return self.probes.edge, self.checked, self.joined


@dataclass(frozen=True, slots=True)
class WatchedQuery:
    """All that is watched for a query.

    ``exact`` are the conditions that are counted one by one, as they call functions, ``conditions`` by name those that
    may be checked together.
    """

    name: str
    query: Query
    inputs: tuple[WatchedInput, ...]
    filters: tuple[WatchedFilters, ...]
    steps: tuple[WatchedStep, ...]
    exact: tuple[str, ...]
    conditions: Mapping[str, Expr]


def watch(graph: PhysicalGraph, name: str) -> WatchedQuery:
    """What can be watched for one query of a graph."""
    return _Watcher(graph, name).watched()


class _Watcher:
    def __init__(self, graph: PhysicalGraph, name: str) -> None:
        self._name, self._graph, self._query = name, graph, graph.member(name).query
        self._rules = [r for r in graph.rules if isinstance(r, ProbeRule) and name in r.users]
        self._sets, self._bounds = PredicateSets(self._query), time_bounds(self._query)
        self._places = {alias: place for place, alias in enumerate(self._query.aliases)}
        self._starts: dict[Names, set[str]] = {}
        for rule in self._rules:
            self._starts.setdefault(self._joins(rule), set()).add(rule.start)

    def watched(self) -> WatchedQuery:
        query = self._query
        checked = [(rule, self._checked(rule)) for rule in self._rules]
        filters = {alias: filters_of(query, alias) for alias in query.aliases}
        every = [p for found in (*(found for _, found in checked), *filters.values()) for p in found]
        return WatchedQuery(
            self._name,
            query,
            tuple(self._input(alias) for alias in query.driving),
            tuple(
                WatchedFilters(alias, self._names(found), self._passed(alias))
                for alias, found in filters.items()
                if found and (len(query.aliases) == 1 or self._passed(alias))
            ),
            tuple(self._step(rule, found) for rule, found in checked if found),
            tuple(sorted({predicate_name(query, p) for p in query.conditions if has_user_call(p)})),
            {predicate_name(query, p): p for p in every},
        )

    def _checked(self, rule: ProbeRule) -> tuple[Expr, ...]:
        """The predicates that a step checks."""
        equal = [make_call("=", (e.probe, e.stored), BOOLEAN) for e in rule.equalities]
        theta = [p for p in rule.predicates if not is_time_bound(self._query, p)]
        return tuple(sorted({*equal, *theta}, key=str))

    def _names(self, predicates: Sequence[Expr]) -> PredicateSet:
        return tuple(sorted(predicate_name(self._query, p) for p in predicates))

    def _input(self, alias: str) -> WatchedInput:
        input_ = self._query.input(alias)
        stores = [s.name for s in self._graph.stores if s.aliases == (alias,) and self._name in s.users]
        return WatchedInput(
            alias, input_.stream.name, input_.event_time is not None, stores[0] if stores else None
        )

    def _passed(self, alias: str) -> Counter | None:
        """Counts the tuples of an input that passed its filters, by its first probe."""
        first = next((rule for rule in self._rules if rule.known == (alias,)), None)
        return None if first is None else self._probes(first)

    def _probes(self, rule: ProbeRule) -> Counter:
        return Counter(rule.edge, probe_copies(self._graph, rule))

    def _step(self, rule: ProbeRule, checked: Sequence[Expr]) -> WatchedStep:
        inside, both = self._graph.store(rule.store).aliases, self._joins(rule)
        is_whole = len(both) > 2 and self._starts[both] == set(both) & set(self._query.driving)
        return WatchedStep(
            self._probes(rule),
            rule.start,
            rule.store,
            float(store_copies(self._graph, rule.store)),
            tuple((other, self._adds(inside, other)) for other in inside),
            self._names(checked),
            self._sets.names(self._mask(both)) if is_whole else (),
            tuple(
                sorted(name for part in (rule.known, inside) for name in self._sets.names(self._mask(part)))
            ),
            self._places[rule.start],
            self._mask(rule.known),
            self._mask(inside),
            self._reach(rule.start, inside[0]) if len(both) == 2 else None,
        )

    def _reach(self, start: str, other: str) -> Reach | None:
        before, after = self._bounds.get((start, other)), self._bounds.get((other, start))
        if before is None or after is None:
            return None
        return Reach(other, before.total_seconds(), after.total_seconds())

    def _mask(self, names: Names) -> int:
        return sum(1 << self._places[name] for name in names)

    def _adds(self, aliases: Names, start: str) -> tuple[Counter, ...]:
        """Counts the tuples that are added to a store of some inputs on behalf of one of them."""
        if len(aliases) == 1:
            passed = self._passed(start)
            return () if passed is None else (passed,)
        lasts = [rule for rule in self._rules if rule.start == start and self._joins(rule) == aliases]
        return tuple(Counter(rule.edge, matches=True) for rule in lasts)

    def _joins(self, rule: ProbeRule) -> Names:
        return tuple(sorted((*rule.known, *self._graph.store(rule.store).aliases)))
