"""What a hop gives: parcels for later hops, results of queries, figures.

Guarantees: a result goes to just those queries it is for (design, D7), with the columns each of them selects; a query
that cannot be answered fails alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from weft.bucket.bucket import column
from weft.bucket.columns import taken
from weft.bucket.compiled import Ints
from weft.errors import FunctionError, QueryError
from weft.kernels.expr.select import Columns, evaluate
from weft.kernels.expr.user_functions import CallCounts
from weft.kernels.query_sets.query_set import count_per_query, rows_per_query, sets_of
from weft.logical.expr import columns
from weft.logical.query import Query
from weft.plan.graph import Member
from weft.plan.rules import ResultRule
from weft.runtime.hop.census import Census
from weft.runtime.hop.probe_step import Found, Heaviest
from weft.runtime.hop.sorting import arranged
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.model.columns import full_name
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.window_limits import refined
from weft.stats.heavy import Counted

__all__ = [
    "Boundary",
    "Matches",
    "Outcome",
    "Outlet",
    "Parcel",
    "StepCount",
    "Tuples",
    "finish",
    "too_many_results",
]


Why = Callable[[], "Heaviest | None"]


def _unknown() -> None:
    return None


class Matches(Protocol):
    """Results, as `_finish` sees them."""

    @property
    def num_rows(self) -> int: ...

    def column(self, name: str, rows: Ints | None = None) -> Any: ...


@dataclass(frozen=True, slots=True, eq=False)
class Parcel:
    """A batch on its way over an edge to a partition."""

    edge: str
    partition: int
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class StepCount:
    """How many tuples a probe had, and how many matches it found; ``copies`` of them were sent beyond one of each."""

    edge: str
    probes: int
    matches: int
    copies: int = 0


@dataclass(frozen=True, slots=True)
class Boundary:
    """The job at a boundary: the edges it uses, the queries it answers, those of which it counts the results only."""

    edges: Collection[str]
    answering: Collection[str]
    counting: Collection[str] = ()


class Outlet(Protocol):
    """Takes what a hop gives as it is found, so that a task need not hold all of it (design, D14)."""

    def send(self, parcel: Parcel) -> None:
        """A batch for another partition, or for a later hop."""
        ...

    def give(self, query: str, rows: pa.RecordBatch) -> None:
        """Results of a query; what this raises stops the query, and no other."""
        ...


@dataclass
class Outcome:
    """What a hop gives in one partition: parcels for later hops, results by query, and what its probes did.

    Of queries in ``counting``, results are counted and not made. A query in ``failed`` could not be answered; one that
    gives more than ``result_limit`` results is among them. With an ``outlet``, parcels and results go there, and
    ``sent`` and ``results`` stay empty.
    """

    counting: Collection[str] = ()
    answering: Collection[str] | None = None  # None: all
    outlet: Outlet | None = None
    result_limit: int | None = None  # of one query, in this task
    sent: list[Parcel] = field(default_factory=list)
    results: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    closed: dict[str, int] = field(default_factory=dict)  # how many of these were closed
    census: dict[str, Census] = field(default_factory=dict)  # of the keys of queries on one key
    sample: dict[str, int] = field(default_factory=dict)  # how many of some tuples have which query-set
    heavy: list[Counted] = field(default_factory=list)  # how often some tuples have which key
    failed: dict[str, Exception] = field(default_factory=dict)
    calls: CallCounts = field(default_factory=CallCounts)  # of users' functions
    dealt: dict[str, int] = field(default_factory=dict)  # how many tuples were dealt out, by store
    _dealt: dict[str, int] = field(default_factory=dict)  # the same of what probes found, by edge
    _steps: dict[str, StepCount] = field(default_factory=dict)

    @property
    def steps(self) -> list[StepCount]:
        """What probes did, by edge; of one that came in portions, the sum."""
        return list(self._steps.values())

    def tally(self, edge: str, *, probes: int = 0, matches: int = 0, copies: int = 0) -> None:
        """A probe did this, too."""
        old = self._steps.get(edge, StepCount(edge, 0, 0))
        self._steps[edge] = StepCount(edge, old.probes + probes, old.matches + matches, old.copies + copies)

    def fail(self, names: Iterable[str], error: Exception) -> None:
        """Queries cannot be answered."""
        for name in names:
            self.failed.setdefault(name, error)

    @contextmanager
    def failing(self, names: Iterable[str]) -> Iterator[None]:
        """A part of a hop; if a function fails in it, these queries cannot be answered, and the others go on."""
        try:
            yield
        except FunctionError as error:
            self.fail(names, error)

    def answers(self, name: str) -> bool:
        """Whether results of a query are wanted."""
        return self.answering is None or name in self.answering

    def only_counts(self, names: Iterable[str]) -> bool:
        """Whether nothing but the number of results is asked for by some queries."""
        return all(name in self.counting for name in names)

    def send(self, parcel: Parcel) -> None:
        """A batch goes on its way."""
        if self.outlet is None:
            self.sent.append(parcel)
        else:
            self.outlet.send(parcel)

    def deal(self, edge: str, rows: int, first: int) -> int:
        """Where to go on dealing out so many rows over an edge, whose first row began with partition ``first``."""
        before = self._dealt.get(edge, 0)
        self._dealt[edge] = before + rows
        return first + before

    def close(self, name: str, made: pa.RecordBatch) -> None:
        """Rows of a query that are closed."""
        if self.count(name, made.num_rows):
            self.closed[name] = self.closed.get(name, 0) + made.num_rows
            self._give(name, made)

    def count(self, name: str, rows: int, why: Why = _unknown) -> bool:
        """Whether so many more results of a query are wanted; they are counted."""
        if not rows or name in self.failed or not self.answers(name):
            return False
        self.counts[name] = self.counts.get(name, 0) + rows
        if self.result_limit is not None and self.counts[name] > self.result_limit:
            self.failed[name] = too_many_results(name, self.result_limit, why())
            return False
        return True

    def add(
        self,
        program: ExecutableGraph,
        rule: ResultRule,
        name: str,
        found: Matches,
        rows: Ints | None,
        batch_order: BatchOrder,
        why: Why = _unknown,
    ) -> None:
        """Results of a query: matches, or some of them; ``why`` says what made them so many, if they are too many."""
        count = found.num_rows if rows is None else rows.size
        if not self.count(name, count, why) or name in self.counting:
            return
        try:
            made = _made(program, program.members[name], rule.start, found, rows, count, batch_order)
            self._give(name, made)
        except Exception as error:  # it is this query's, and the others go on
            self.failed[name] = error

    def _give(self, name: str, made: pa.RecordBatch) -> None:
        if name in self.counting:
            return
        if self.outlet is None:
            self.results.setdefault(name, []).append(made)
        else:
            self.outlet.give(name, made)


def too_many_results(name: str, limit: int, heaviest: Heaviest | None = None) -> QueryError:
    """Why a query is stopped that gives too many results in a batch."""
    culprit = "" if heaviest is None else f"; the most come of {heaviest}"
    return QueryError(
        f"query {name} gives more than {limit:,} results in one batch{culprit}",
        hint="raise Session(result_limit=…), narrow the query's windows, or leave out that key with a condition",
    )


@dataclass(frozen=True, slots=True, eq=False)
class Tuples:
    """Tuples of one input as results."""

    batch: pa.RecordBatch

    @property
    def num_rows(self) -> int:
        return int(self.batch.num_rows)

    def column(self, name: str, rows: Ints | None = None) -> Any:
        values = column(self.batch, name)
        return values if rows is None else taken(values, rows)


def finish(
    program: ExecutableGraph,
    rule: ResultRule,
    found: Matches,
    batch_order: BatchOrder,
    outcome: Outcome,
    why: Why = _unknown,
) -> None:
    """Results, to every query they are for."""
    if not program.sets:
        outcome.add(program, rule, rule.users[0], found, None, batch_order, why)
        return
    held = found.sets if isinstance(found, Found) else None
    sets = sets_of([found.column(name) for name in program.sets]) if held is None else held
    sets = refined(program.limits[rule.edge], program.view, sets, found.column, batch_order, rule.start)
    slots = program.slots(rule.users)
    if outcome.only_counts(rule.users):
        for name, count in zip(rule.users, count_per_query(sets, slots).tolist(), strict=True):
            outcome.count(name, count, why)
        return
    offsets, rows = rows_per_query(sets, slots)
    for name, first, last in zip(rule.users, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        outcome.add(program, rule, name, found, rows[first:last], batch_order, why)


def _made(
    program: ExecutableGraph,
    member: Member,
    start: str,
    found: Matches,
    rows: Ints | None,
    count: int,
    batch_order: BatchOrder,
) -> pa.RecordBatch:
    """Results as they leave: if that is in an order, sorted, and with their keys."""
    if member.ordering is None:
        return pa.RecordBatch.from_pydict(_projected(member.query, found, rows, count))
    keys, found, rows = arranged(member, program.view, start, found, rows, batch_order)
    made = _projected(member.query, found, rows, count)
    names = [f"$key{number}" for number in range(len(keys))]
    return pa.RecordBatch.from_arrays([*map(pa.array, keys), *made.values()], [*names, *made])


def _projected(query: Query, found: Matches, rows: Ints | None, count: int) -> dict[str, Any]:
    """The columns of a query's result."""
    projection = query.projection
    read: Columns = {
        (item.alias, item.name): found.column(full_name(item), rows)
        for item in dict.fromkeys(item for output in projection for item in columns(output.expr))
    }
    return {output.name: evaluate(output.expr, read, count) for output in projection}
