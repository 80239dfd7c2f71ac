"""Stores and probes as a program has them, prepared for execution.

Guarantees: plain values; what they hold follows from the graph alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.bucket.index import Order
from weft.logical.expr import Expr
from weft.logical.query import Query
from weft.plan.derive import retention_of
from weft.plan.graph import StoreNode
from weft.plan.join_plan import Names
from weft.plan.rules import ProbeRule
from weft.runtime.access import Access
from weft.runtime.batch import View, micros

__all__ = ["Lifetime", "Step", "StorePlan", "lifetime"]


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How long some query needs what is stored: so many microseconds beyond where these streams are; None: for ever."""

    span: int | None
    streams: tuple[str, ...]


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


def lifetime(query: Query, names: Names) -> Lifetime:
    """How long a query needs what is stored of some of its inputs."""
    spans = [micros(span) for span in retention_of(query, names) if span is not None]
    others = {query.input(alias).stream.name for alias in query.aliases if alias not in names}
    return Lifetime(min(spans, default=None), tuple(sorted(others)))
