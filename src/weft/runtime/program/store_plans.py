"""Stores and probes as a program has them, prepared for execution.

Guarantees: plain values; what they hold follows from the graph alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from weft.bucket.index import Order
from weft.errors import PlanError
from weft.logical.expr import Expr
from weft.logical.join import TESTS
from weft.logical.outer import Closing, joins
from weft.logical.query import Query
from weft.logical.waiting import completing, reaches, waits
from weft.logical.window import Range
from weft.plan.derive import closed_retention, retention_of
from weft.plan.graph import Member, StoreNode
from weft.plan.homes import located
from weft.plan.join_plan import Names
from weft.plan.rules import ProbeRule
from weft.runtime.model.batch_order import ENDED, Clock
from weft.runtime.model.columns import View, key_name, micros, per_key
from weft.runtime.program.access_paths import Access

__all__ = ["Lifetime", "Step", "StorePlan", "SweepPlan", "closed_lifetime", "lifetime", "sweep_plan"]


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How long a query needs a stored tuple: until all of ``streams`` are ``span`` microseconds past its time.

    If ``span`` is None, it is needed for ever. If ``query`` is given, that query needs it to close rows: then the time
    up to which rows of the query are closed has to be so far past its time.
    """

    span: int | None
    streams: tuple[str, ...] = ()
    query: str | None = None


@dataclass(frozen=True, slots=True)
class StorePlan:
    """A store as it is kept: its columns, those computed for it, its orders and the columns that tell its time.

    ``time`` holds the (largest) time of a row; ``clock``, which buckets are told is the event time, is the same or,
    for an input with a `ROWS` window, the number of the tuple, since that is what decides how long it lives. ``sets``
    are the columns with query-sets, none if there is but one query.
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

    @property
    def name(self) -> str:
        """The store's name."""
        return self.node.name

    @property
    def identity(self) -> str:
        """What its runs are filed under."""
        return self.node.identity

    @property
    def counted(self) -> bool:
        """Whether the clock counts tuples."""
        return self.clock != self.time

    @property
    def per_key(self) -> tuple[int, tuple[str, ...]] | None:
        """How many of the last tuples of every key are kept, and the columns of the key; None: it does not count so."""
        return per_key(self.view, self.node.aliases[0]) if len(self.node.aliases) == 1 else None

    @property
    def by(self) -> Expr:
        """The value that it is partitioned by; it must be."""
        by = self.node.layout.by
        if by is None:
            raise PlanError(f"store {self.name} is not partitioned by a value")
        return by

    @property
    def key(self) -> str:
        """The column with that value."""
        return key_name(self.by)


@dataclass(frozen=True, slots=True)
class Step:
    """A probe as it is executed; ``from_probe`` and ``from_store`` are the columns its matches keep.

    ``view`` is what its queries see, ``slots`` their places in query-sets, ``sets`` the columns with these;
    ``searched`` are the columns of a probe tuple that the search itself reads.
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
    """How the rows of a query are closed: its tree over the stores of its inputs.

    All times are in microseconds: ``waits`` by join and input, ``windows`` by input, and ``reaches``, how much older
    than an input's tuple something can be that it has to do with. With ``everywhere``, all partitions have the same,
    so that one of them is enough. ``entries`` are the edges by which tuples come to their home. Tuples of the
    ``completing`` inputs can make rows that need not wait any more.
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

    def has_to_do(self, clock: Clock) -> bool:
        """Whether a batch can close rows: some wait ends, all do, or its tuples make rows that do not wait."""
        if clock.now >= ENDED or self.completing or not self.closing.walked:
            return True
        return clock.now > clock.before and any(wait is not None for wait in self.waits.values())

    @property
    def on_one_key(self) -> bool:
        """Whether all inputs are joined on one key, without windows: then its keys can be counted."""
        stays = all(window is None for window in self.windows.values())
        tests = any(join.kind in TESTS for _, join in joins(self.closing.tree))
        return stays and not tests and all(store.node.layout.by is not None for store in self.homes.values())


def sweep_plan(member: Member, homes: Mapping[str, StorePlan], entries: Mapping[str, str]) -> SweepPlan:
    """What closes a query, prepared."""
    closing = member.closing
    if closing is None:
        raise PlanError(f"query {member.name} has nothing to close")
    layouts = {alias: store.node.layout for alias, store in homes.items()}
    place = located(closing.tree, layouts)
    found = {key: _span(wait) for key, wait in waits(member.query, closing.tree).items()}
    windows = {
        input_.alias: micros(input_.window.duration) if isinstance(input_.window, Range) else None
        for input_ in member.query.inputs
    }
    back = {alias: _span(span) for alias, span in reaches(member.query, closing.tree).items()}
    everywhere = place is None or place.everywhere
    makers = completing(member.query, closing.tree)
    return SweepPlan(member, closing, homes, found, windows, back, everywhere, entries, makers)


def closed_lifetime(member: Member, names: Names) -> Lifetime | None:
    """How long what is stored of an input is needed to close a query; None if that has nothing to close."""
    if member.closing is None:
        return None
    (span,) = closed_retention(member.query, member.closing, names)
    return Lifetime(_span(span), query=member.name)


def _span(span: timedelta | None) -> int | None:
    return None if span is None else micros(span)


def lifetime(query: Query, names: Names) -> Lifetime:
    """How long a query needs what is stored of some of its inputs."""
    spans = [micros(span) for span in retention_of(query, names) if span is not None]
    others = {query.input(alias).stream.name for alias in query.aliases if alias not in names}
    return Lifetime(min(spans, default=None), tuple(sorted(others)))
