"""The stores, probes and sweeps of a graph, prepared for execution.

Guarantees: plain values; what they hold follows from the graph alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from weft.bucket.index import Order
from weft.errors import PlanError
from weft.logical.expr.expression import Column, Expr, columns
from weft.logical.outer.asof import VersionChoice, asof_joins, choices
from weft.logical.outer.outer import Closing, joins
from weft.logical.outer.waiting import completing_inputs, reaches, waits
from weft.logical.query.join_tree import ASOF, TESTS
from weft.logical.query.query import Query
from weft.logical.query.window import Range
from weft.plan.homes import locate_rows
from weft.plan.join_plan import Names
from weft.plan.physical.derive import closed_retention, retention_of
from weft.plan.physical.graph import Member, StoreNode
from weft.plan.physical.rules import ProbeRule
from weft.runtime.model.batch_order import ENDED, Clock
from weft.runtime.model.columns import UNTIL, View, full_name, key_name, micros, per_key
from weft.runtime.program.access_paths import Access

__all__ = [
    "Lifetime",
    "Step",
    "StorePlan",
    "SweepPlan",
    "VersionUse",
    "closed_lifetime",
    "independent_steps",
    "lifetime",
    "sweep_plan",
    "version_uses",
]


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How long a query needs a stored tuple.

    It is needed until the watermarks of all ``streams`` are ``span`` microseconds past its time, and for ever if
    ``span`` is None. If ``query`` is given, that query needs it to close rows: then it is the query's clock, up to
    which its rows are closed, that has to be so far past its time.
    """

    span: int | None
    streams: tuple[str, ...] = ()
    query: str | None = None


@dataclass(frozen=True, slots=True)
class VersionUse:
    """A query that looks for the latest version in a store: its name and slot, and the columns of its keys."""

    query: str
    slot: int
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StorePlan:
    """A store as it is kept.

    ``columns`` are those it keeps of what arrives, ``computed`` the expressions whose values it keeps besides, and
    ``orders`` the indexes it is looked up by; rows are laid out in the first. ``time`` is the column with the (largest)
    time of a row. ``clock`` is the column that decides how long a row lives: the same one or, for an input with a
    `ROWS` window, the one with the number of the tuple; buckets have its bounds as those of their event time. ``sets``
    are the columns with query-sets, none if tuples carry none. ``view`` is what the users of the store see together,
    and ``lifetimes`` say how long each of them needs a row. A store of a table (``is_table``) is filled anew whenever
    the table becomes another. ``versions`` are the queries that look for the latest version in it and for nothing
    else. ``identity`` is the name under which manifests have its runs, the same in every graph that keeps the store.
    """

    node: StoreNode
    columns: tuple[str, ...]
    computed: tuple[Expr, ...]
    orders: tuple[Order, ...]
    time: str
    clock: str
    sets: tuple[str, ...]
    view: View
    lifetimes: tuple[Lifetime, ...]
    is_table: bool = False
    versions: tuple[VersionUse, ...] = ()
    identity: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "identity", self.node.identity)  # it is asked for often

    @property
    def name(self) -> str:
        """The store's name."""
        return self.node.name

    @property
    def counted(self) -> bool:
        """Whether the clock is the number of a tuple, and not a time."""
        return self.clock != self.time

    @property
    def per_key(self) -> tuple[int, tuple[str, ...]] | None:
        """How many of the last tuples of a key are kept, and the key's columns; None if it does not count per key."""
        return per_key(self.view, self.node.aliases[0]) if len(self.node.aliases) == 1 else None

    @property
    def by(self) -> Expr:
        """The value that it is partitioned by; an error if it is not partitioned by one."""
        by = self.node.layout.by
        if by is None:
            raise PlanError(f"store {self.name} is not partitioned by a value")
        return by

    @property
    def key(self) -> str:
        """The column with the value that it is partitioned by."""
        return key_name(self.by)


@dataclass(frozen=True, slots=True)
class Step:
    """A probe as it is executed.

    ``rule`` is the probe in the graph, ``store`` what it probes and ``access`` how it searches there. ``joined`` are
    the inputs of its matches. ``from_probe`` and ``from_store`` are the columns that its matches keep, and ``hidden``
    the hidden ones among them. ``view`` is what its queries see, ``slots`` are their places in query-sets, and ``sets``
    the columns with these. ``searched`` are the columns of a probe tuple that the search itself reads.
    """

    rule: ProbeRule
    store: StorePlan
    access: Access
    joined: Names
    from_probe: tuple[str, ...]
    from_store: tuple[str, ...]
    hidden: tuple[str, ...]
    view: View
    slots: tuple[int, ...]
    sets: tuple[str, ...]
    searched: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """How the rows of a query with outer, semi or anti joins are closed: its tree of joins, over stores of its inputs.

    ``member`` is the query, ``closing`` its tree, and ``homes`` the store of each input from which rows are closed.
    Times are in microseconds. ``waits`` say, by join and input, how long a tuple of the input waits for a partner;
    ``windows`` are the windows of the inputs; ``reaches`` say how much older than an input's tuple another tuple can be
    that still matters for its row. With ``everywhere``, all partitions hold the same tuples, so one of them closes the
    rows. ``entries`` are the edges by which tuples of each input come to its home. Tuples of the ``completing`` inputs
    can make rows that need not wait any more.
    """

    member: Member
    closing: Closing
    homes: Mapping[str, StorePlan]
    waits: Mapping[tuple[int, str], int | None]
    windows: Mapping[str, int | None]
    reaches: Mapping[str, int | None]
    everywhere: bool
    entries: Mapping[str, str]
    completing: frozenset[str]

    def is_table(self, alias: str) -> bool:
        """Whether an input is a table, all rows of which are there before any tuple."""
        return self.member.query.input(alias).stream.table

    @property
    def versions(self) -> frozenset[str]:
        """The inputs of which only the latest version matters."""
        return frozenset(use.versions for use in asof_joins(self.member.query, self.closing.tree))

    @property
    def choices(self) -> Mapping[int, VersionChoice]:
        """By the number of an ASOF join: by which value one of several versions is chosen."""
        return choices(self.member.query, self.closing.tree)

    @property
    def compared(self) -> tuple[Expr, ...]:
        """The expressions whose columns the joins read: those of ON and, to choose among versions, all others."""
        tree = self.closing.tree
        if not any(join.kind in ASOF for _, join in joins(tree)):
            return tree.conditions
        query = self.member.query
        return (*self.closing.conditions, *query.filters, *(output.expr for output in query.projection))

    def has_to_do(self, clock: Clock) -> bool:
        """Whether a batch can close rows: a wait may end, the input has ended, or new rows may not have to wait."""
        if clock.now >= ENDED or self.completing or not self.closing.walked:
            return True
        return clock.now > clock.before and any(wait is not None for wait in self.waits.values())

    @property
    def on_one_key(self) -> bool:
        """Whether all inputs are joined on one key, without windows, so that the keys can be counted (SOPJ)."""
        stays = all(window is None for window in self.windows.values())
        tests = any(join.kind in (*TESTS, *ASOF) for _, join in joins(self.closing.tree))
        return stays and not tests and all(store.node.layout.by is not None for store in self.homes.values())


def sweep_plan(member: Member, homes: Mapping[str, StorePlan], entries: Mapping[str, str]) -> SweepPlan:
    """Prepare how the rows of a query are closed."""
    closing = member.closing
    if closing is None:
        raise PlanError(f"query {member.name} has nothing to close")
    layouts = {alias: store.node.layout for alias, store in homes.items()}
    place = locate_rows(closing.tree, layouts)
    found = {key: _span(wait) for key, wait in waits(member.query, closing.tree).items()}
    windows = {
        input_.alias: micros(input_.window.duration) if isinstance(input_.window, Range) else None
        for input_ in member.query.inputs
    }
    back = {alias: _span(span) for alias, span in reaches(member.query, closing.tree).items()}
    everywhere = place is None or place.everywhere
    makers = completing_inputs(member.query, closing.tree)
    return SweepPlan(member, closing, homes, found, windows, back, everywhere, entries, makers)


def version_uses(members: Iterable[Member], alias: str) -> tuple[VersionUse, ...]:
    """The queries, of those that are closed from a store of an input, that look for its latest versions alone."""
    found = []
    for member in members:
        uses = [] if member.closing is None else list(asof_joins(member.query, member.closing.tree))
        for use in uses:
            if use.versions == alias and use.superseded:
                keys = tuple(full_name(key) for key in use.keys if isinstance(key, Column))
                found.append(VersionUse(member.name, member.slot, keys))
    return tuple(found)


def closed_lifetime(member: Member, names: Names) -> Lifetime | None:
    """How long stored tuples of an input are needed to close rows of a query; None if the query closes no rows."""
    if member.closing is None:
        return None
    (span,) = closed_retention(member.query, member.closing, names)
    return Lifetime(_span(span), query=member.name)


def _span(span: timedelta | None) -> int | None:
    return None if span is None else micros(span)


def lifetime(query: Query, names: Names) -> Lifetime:
    """How long a query needs the stored tuples, or matches, of some of its inputs for its results."""
    spans = [micros(span) for span in retention_of(query, names) if span is not None]
    others = {query.input(alias).stream.name for alias in query.driving if alias not in names}
    return Lifetime(min(spans, default=None), tuple(sorted(others)))


def independent_steps(known: Names, steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps as tuples of the inputs ``known`` make them by themselves; none if they cannot.

    A key that is a column of an earlier store is replaced by what that column was found equal to. Only whole keys are
    replaced: equal values are the same key, but not the same value to every function (0.0 and -0.0).
    """
    equal: dict[Expr, Expr] = {}
    found = []
    for step in steps:
        own = _on_its_own(step, known, equal)
        if own is None:
            return ()
        equal |= dict(zip(step.access.stored, own.access.keys, strict=True))
        found.append(own)
    return tuple(found)


def _on_its_own(step: Step, known: Names, equal: Mapping[Expr, Expr]) -> Step | None:
    """A step that reads nothing but columns of the inputs ``known``; None if it needs more, or pairs."""
    access, store = step.access, step.store
    plain = len(store.node.aliases) == 1 and not store.counted and store.per_key is None
    if not plain or UNTIL in store.columns or access.rest is not None or access.order is None:
        return None
    keys = tuple(equal.get(key, key) for key in access.keys)
    read = {
        item.alias for expr in (*keys, *(limit.value for limit in access.times)) for item in columns(expr)
    }
    if not keys or access.limits or access.grid or not read <= set(known):
        return None
    return replace(step, rule=replace(step.rule, known=known), access=replace(access, keys=keys))
