"""A plan for many queries says which results are stored, and by which walks tuples reach them (CLASH 7.1).

Guarantees: queries are canonical, so equal stores, and walks that begin alike, are equal values whichever query they
belong to; equal work is done once. Every query has one walk per input that visits all its other inputs once (tables
have one while they are planned, and none when they are executed); every
stored intermediate result has one walk per input that computes it, from smaller stores only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from textwrap import shorten

from weft.errors import PlanError
from weft.logical.expr.expression import Expr, to_sql
from weft.logical.outer.outer import Closing
from weft.logical.query.canonical import joined_on
from weft.logical.query.query import Query
from weft.plan.homes import locate_rows
from weft.plan.join_plan import Cost, JoinPlan, Layout, Names, check_store, store_name

__all__ = [
    "Answer",
    "Filling",
    "SharedStore",
    "Upkeep",
    "Walk",
    "WorkloadPlan",
    "answer_of",
    "share",
    "store_identity",
]


@dataclass(frozen=True, slots=True)
class SharedStore:
    """A stored relation, whichever queries use it: its inputs, the predicates that join them, and its layout.

    Queries that have little in common may be in different groups; each group then has its own store of a relation.
    """

    aliases: Names
    layout: Layout
    on: tuple[Expr, ...] = ()
    group: str = ""

    def __post_init__(self) -> None:
        check_store(self.aliases, self.layout)

    @property
    def name(self) -> str:
        """What the relation is called; stores that differ in layout share it."""
        return store_name(self.aliases)

    @property
    def is_input(self) -> bool:
        """Whether it holds tuples as they arrive."""
        return len(self.aliases) == 1

    @property
    def identity(self) -> str:
        """A name that the store keeps for as long as it exists, whichever queries begin to use it or stop."""
        return store_identity(self.aliases, self.layout, self.on, self.group)


def store_identity(names: Names, layout: Layout, on: tuple[Expr, ...], group: str) -> str:
    """A text that is equal for equal stores."""
    joined = " AND ".join(map(to_sql, on))
    digest = f" {hashlib.blake2b(joined.encode(), digest_size=6).hexdigest()}" if joined else ""
    return f"{store_name(names)} {layout}{digest}{f' of {group}' if group else ''}"


@dataclass(frozen=True, slots=True)
class Walk:
    """The stores that tuples of an input visit, in this order."""

    start: str
    visits: tuple[SharedStore, ...]

    def __post_init__(self) -> None:
        if len(set(self.reached)) < len(self.reached):
            raise PlanError(f"a walk of {self.start} visits an input twice: {', '.join(self.reached)}")

    @property
    def reached(self) -> Names:
        """The inputs joined at its end, sorted."""
        return tuple(sorted((self.start, *(alias for store in self.visits for alias in store.aliases))))


@dataclass(frozen=True, slots=True)
class Upkeep:
    """How an intermediate result is computed: a walk per input of it."""

    store: SharedStore
    walks: tuple[Walk, ...]

    def __post_init__(self) -> None:
        if tuple(walk.start for walk in self.walks) != self.store.aliases:
            raise PlanError(f"store {self.store.name} does not have one walk per input")
        if any(walk.reached != self.store.aliases for walk in self.walks):
            raise PlanError(f"a walk does not compute {self.store.name}")


@dataclass(frozen=True, slots=True)
class Answer:
    """How a query is answered: a walk per input and, if rows that miss an input are closed, the stores for that."""

    name: str
    query: Query
    walks: tuple[Walk, ...]
    closing: Closing | None = None
    homes: tuple[SharedStore, ...] = ()

    def __post_init__(self) -> None:
        if self.query.outer is not None:
            raise PlanError("a plan is of the core of a query with outer joins")
        is_walked = self.closing is None or self.closing.walked
        ways = (self.query.aliases, self.query.driving) if is_walked else ((),)
        if tuple(walk.start for walk in self.walks) not in ways:
            raise PlanError(f"query {self.name} does not have one walk per input")
        self._check_homes()
        if any(walk.reached != self.query.aliases for walk in self.walks):
            raise PlanError(f"a walk does not answer {self.name}")
        for store in self.visited:
            if store.on != joined_on(self.query, store.aliases):
                raise PlanError(f"query {self.name} does not join {store.name} as its store does")

    def _check_homes(self) -> None:
        if [store.aliases for store in self.homes] != [(a,) for a in self.query.aliases if self.closing]:
            raise PlanError(f"query {self.name} is not closed from one store of each of its inputs")
        layouts = {store.aliases[0]: store.layout for store in self.homes}
        if self.closing and locate_rows(self.closing.tree, layouts) is None:
            raise PlanError(f"no partition alone can close the rows of {self.name}")

    @property
    def visited(self) -> frozenset[SharedStore]:
        """The stores its tuples visit, or are closed from."""
        return frozenset((*(store for walk in self.walks for store in walk.visits), *self.homes))


@dataclass(frozen=True, slots=True)
class Filling:
    """A store that new tuples are added to for a plan to come, and the queries that will be answered from it then."""

    store: SharedStore
    users: Names


@dataclass(frozen=True, slots=True)
class WorkloadPlan:
    """The answers to all queries, and the upkeep of the stores they visit; nothing is stored that no query needs.

    While one plan gives way to another, the stores that only the new one needs are ``filling``: they are kept up to
    date, and no answer visits them yet.
    """

    answers: tuple[Answer, ...]
    upkeep: tuple[Upkeep, ...] = ()
    cost: Cost | None = None
    filling: tuple[Filling, ...] = ()

    def __repr__(self) -> str:
        names = shorten(", ".join(answer.name for answer in self.answers), 120, placeholder=" …")
        return f"<WorkloadPlan of {names or 'no query'}: {len(self.stores)} stores>"

    def __post_init__(self) -> None:
        names = [answer.name for answer in self.answers]
        if len(set(names)) < len(names):
            raise PlanError(f"two queries of a plan have one name: {', '.join(sorted(names))}")
        if len({one.store for one in self.upkeep}) < len(self.upkeep):
            raise PlanError("a store is kept up to date twice")
        if any(not one.users or not set(one.users) <= set(names) for one in self.filling):
            raise PlanError("a store is filled for queries that there are not")
        if {store for store in self.users if not store.is_input} != {one.store for one in self.upkeep}:
            raise PlanError("the intermediate results of a plan are not just those that its queries need")

    def answer(self, name: str) -> Answer:
        """How a query is answered."""
        return next(answer for answer in self.answers if answer.name == name)

    def upkeep_of(self, store: SharedStore) -> Upkeep:
        """How an intermediate result is computed."""
        for one in self.upkeep:
            if one.store == store:
                return one
        raise PlanError(f"nothing computes store {store.name}")

    def stores_of(self, name: str) -> frozenset[SharedStore]:
        """The stores that a query needs: those it visits, and those that these are computed from."""
        return self._with_sources(self.answer(name).visited)

    def _with_sources(self, stores: Iterable[SharedStore]) -> frozenset[SharedStore]:
        """Some stores, and those that they are computed from."""
        found: set[SharedStore] = set()
        waiting = list(stores)
        while waiting:
            store = waiting.pop()
            if store not in found:
                found.add(store)
                if not store.is_input:
                    waiting += [visit for walk in self.upkeep_of(store).walks for visit in walk.visits]
        return frozenset(found)

    @property
    def stores(self) -> tuple[SharedStore, ...]:
        """All stores, inputs first."""
        return tuple(sorted(self.users, key=_place))

    @property
    def answering(self) -> dict[SharedStore, frozenset[str]]:
        """By store, the queries that are answered from it."""
        found: dict[SharedStore, set[str]] = {}
        for answer in self.answers:
            for store in self.stores_of(answer.name):
                found.setdefault(store, set()).add(answer.name)
        return {store: frozenset(names) for store, names in found.items()}

    @property
    def users(self) -> dict[SharedStore, frozenset[str]]:
        """By store, the queries that are answered from it, and those that it is filled for."""
        found = self.answering
        for one in self.filling:
            for store in self._with_sources([one.store]):
                found[store] = found.get(store, frozenset()) | set(one.users)
        return found

    def towards(self, target: WorkloadPlan) -> WorkloadPlan:
        """The plan by which these queries go on being answered as now, while the stores of another plan are filled."""
        now, then = self.answering, target.answering
        wanted = ((store, then[store] - now.get(store, frozenset())) for store in target.stores)
        filling = tuple(Filling(store, tuple(sorted(users))) for store, users in wanted if users)
        known = {one.store for one in self.upkeep}
        upkeep = (*self.upkeep, *(one for one in target.upkeep if one.store not in known))
        needed = _needed([*now, *(one.store for one in filling)], upkeep)
        return replace(self, upkeep=needed, filling=filling)

    def without_filling(self) -> WorkloadPlan:
        """The plan without the stores that are only filled for another one."""
        upkeep = _needed(self.answering, self.upkeep) if self.filling else self.upkeep
        return replace(self, upkeep=upkeep, filling=())

    def looked_up(self) -> WorkloadPlan:
        """The plan as it is executed: rows of tables are looked up, and walk nowhere."""
        if not any(answer.query.tables for answer in self.answers):
            return self
        answers = tuple(
            replace(a, walks=tuple(walk for walk in a.walks if walk.start in a.query.driving))
            for a in self.answers
        )
        kept = [store for answer in answers for store in answer.visited]
        needed = _needed([*kept, *(one.store for one in self.filling)], self.upkeep)
        return WorkloadPlan(answers, needed, self.cost, self.filling)

    def in_group(self, group: str) -> WorkloadPlan:
        """The plan with all its stores in one group."""
        answers = (
            replace(
                a,
                walks=_walks_in(a.walks, group),
                homes=tuple(replace(store, group=group) for store in a.homes),
            )
            for a in self.answers
        )
        upkeep = (Upkeep(replace(u.store, group=group), _walks_in(u.walks, group)) for u in self.upkeep)
        return WorkloadPlan(tuple(answers), tuple(upkeep), self.cost)

    def group_of(self, name: str) -> str:
        """The group that a query's stores are in; a query without stores is in none."""
        return next((store.group for store in self.answer(name).visited), "")

    def without(self, names: Iterable[str]) -> WorkloadPlan:
        """The plan for fewer queries."""
        gone = set(names)
        return _assembled([a for a in self.answers if a.name not in gone], self.upkeep)

    def with_answers(self, answers: Iterable[Answer], upkeep: Iterable[Upkeep]) -> WorkloadPlan:
        """The plan with more queries; stores that it has already keep their upkeep."""
        return _assembled((*self.answers, *answers), (*self.upkeep, *upkeep))


def _walks_in(walks: Iterable[Walk], group: str) -> tuple[Walk, ...]:
    return tuple(Walk(w.start, tuple(replace(store, group=group) for store in w.visits)) for w in walks)


def _place(store: SharedStore) -> tuple[int, Names, str, str, str]:
    on = " AND ".join(map(str, store.on))
    return len(store.aliases), store.aliases, str(store.layout), on, store.group


def _assembled(answers: Iterable[Answer], upkeep: Iterable[Upkeep]) -> WorkloadPlan:
    """A plan of answers and of the upkeep they need; if a store has two upkeeps, the first is taken."""
    kept = tuple(answers)
    return WorkloadPlan(kept, _needed((store for answer in kept for store in answer.visited), upkeep))


def _needed(stores: Iterable[SharedStore], upkeep: Iterable[Upkeep]) -> tuple[Upkeep, ...]:
    """The upkeep that some stores need; if a store has two upkeeps, the first is taken."""
    known: dict[SharedStore, Upkeep] = {}
    for one in upkeep:
        known.setdefault(one.store, one)
    needed: dict[SharedStore, Upkeep] = {}
    waiting = list(stores)
    while waiting:
        store = waiting.pop()
        if store.is_input or store in needed:
            continue
        if store not in known:
            raise PlanError(f"nothing computes store {store.name}")
        needed[store] = known[store]
        waiting += [visit for walk in known[store].walks for visit in walk.visits]
    return tuple(needed[store] for store in sorted(needed, key=_place))


def answer_of(name: str, plan: JoinPlan) -> tuple[Answer, tuple[Upkeep, ...]]:
    """The plan of one canonical query as walks, which join the probe orders of its operators end to end."""
    query = plan.query
    visits: dict[str, tuple[SharedStore, ...]] = dict.fromkeys(query.aliases, ())
    upkeep = []
    layouts = {store.aliases: store.layout for store in plan.stores}
    for operator in plan.operators:
        for order in operator.orders:
            visits[order.start] += tuple(_shared(query, names, layouts[names]) for names in order.visits)
        if operator.aliases in layouts:
            store = _shared(query, operator.aliases, layouts[operator.aliases])
            upkeep.append(Upkeep(store, tuple(Walk(alias, visits[alias]) for alias in store.aliases)))
    walks = tuple(Walk(alias, visits[alias]) for alias in query.aliases)
    homes = tuple(SharedStore(store.aliases, store.layout) for store in plan.homes)
    walked = walks if plan.closing is None or plan.closing.walked else ()
    return Answer(name, query, walked, plan.closing, homes), tuple(upkeep)


def _shared(query: Query, names: Names, layout: Layout) -> SharedStore:
    return SharedStore(names, layout, joined_on(query, names))


def share(plans: Mapping[str, JoinPlan]) -> WorkloadPlan:
    """The plans of single queries as one; what happens to be equal is shared, but no plan is changed to share more."""
    return _assembled(*_parts(plans.items()))


def _parts(plans: Iterable[tuple[str, JoinPlan]]) -> tuple[list[Answer], Iterator[Upkeep]]:
    found = [answer_of(name, plan) for name, plan in plans]
    return [answer for answer, _ in found], (one for _, upkeep in found for one in upkeep)
