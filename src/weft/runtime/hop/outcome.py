"""What a hop gives: parcels for later hops, results of queries, figures.

Guarantees: a query that cannot be answered fails alone, and gives no results from then on. Results are made of matches
in `weft.runtime.hop.projection`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from weft.bucket.compiled import Ints, Longs
from weft.errors import FunctionError, QueryError, StateError
from weft.kernels.expr.user_functions import CallCounts, FunctionCalls
from weft.kernels.groups.partials import PartialGroups
from weft.runtime.hop.census import Census
from weft.runtime.hop.groups.gathered import GatheredRows
from weft.runtime.hop.latency import BatchAges, LatencyCounts
from weft.runtime.hop.probe_step import Heaviest
from weft.runtime.model.limits import TaskLimits
from weft.stats.input_figures import EdgeFigures, StepFigures
from weft.stats.sampling.samples import AttributeSample

__all__ = ["HopOptions", "Outcome", "Outlet", "Parcel", "Why", "too_many_results", "unknown"]

# Finds the key that made the results of a query so many, if that is known.
Why = Callable[[], "Heaviest | None"]


def unknown() -> None:
    """A `Why` that knows no such key."""
    return


@dataclass(frozen=True, slots=True, eq=False)
class Parcel:
    """A batch on its way over an edge.

    ``targets`` are the partitions of its rows, where a row with a negative one goes nowhere; None stands for all
    partitions. With ``owners``, ``targets`` has an entry for every copy of a row, and ``owners`` says of which row.
    """

    edge: str
    batch: pa.RecordBatch
    targets: Ints | None = None
    owners: Ints | None = None

    def copies(self, partitions: int) -> int:
        """How many tuples are sent, each counted for every one of so many partitions that it goes to."""
        if self.targets is None:
            return int(self.batch.num_rows) * partitions
        return int(np.count_nonzero(self.targets >= 0))

    def bytes_sent(self, partitions: int) -> int:
        """About how many bytes the columns of all copies have."""
        rows, size = self.batch.num_rows, int(self.batch.nbytes)
        return round(size * self.copies(partitions) / rows) if rows else 0

    def rows_for(self, partition: int) -> pa.RecordBatch:
        """The rows that go to a partition."""
        if self.targets is None:
            return self.batch
        rows = np.flatnonzero(self.targets == partition)
        return self.batch.take(pa.array(rows if self.owners is None else self.owners[rows]))


class Outlet(Protocol):
    """Takes what a hop gives as it is found, so that a task need not hold all of it (design, D14)."""

    def send(self, parcel: Parcel) -> None:
        """Take a batch for another partition, or for a later hop."""
        ...

    def give(self, query: str, rows: pa.RecordBatch) -> None:
        """Take results of a query; an error raised here stops the query, and no other."""
        ...


@dataclass(frozen=True, slots=True)
class HopOptions:
    """What is asked of a hop.

    Of queries in ``counting``, results are counted and not made. With an ``outlet``, parcels and results go there;
    without one, the outcome keeps them. At a boundary, where stored tuples are run through the graph once more,
    ``edges`` are those that are used and ``answering`` the queries that are answered; None stands for all. ``ages`` say
    how old the batch's input is; without them no latency is measured. Of queries in ``grouped``, rows are gathered
    into groups, and it is the groups that are counted.
    """

    counting: Collection[str] = ()
    outlet: Outlet | None = None
    limits: TaskLimits = field(default_factory=TaskLimits)
    edges: Collection[str] | None = None
    answering: Collection[str] | None = None
    ages: BatchAges | None = None
    grouped: Collection[str] = ()

    @property
    def at_boundary(self) -> bool:
        """Whether the hop is one of a job at a boundary."""
        return self.edges is not None

    def uses(self, edge: str) -> bool:
        """Whether tuples go over an edge."""
        return self.edges is None or edge in self.edges

    def wants(self, query: str) -> bool:
        """Whether results of a query are asked for."""
        return self.answering is None or query in self.answering

    def only_counts(self, queries: Iterable[str]) -> bool:
        """Whether nothing but the number of results is asked for by some queries."""
        return all(query in self.counting and query not in self.grouped for query in queries)


class Outcome:
    """What a hop gives in the partitions of a task: parcels, results by query, and what its probes did.

    ``sent`` are the parcels and ``results`` the results; both are empty if there is an outlet for them. ``counts`` is
    how many results each query has, and ``closed`` how many of them are closed rows. A query in ``failed`` could not be
    answered. ``census`` is of the keys of queries on one key, ``sample`` of query-sets, and ``values`` samples;
    ``calls`` counts what users' functions did. ``dealt`` counts the tuples that were dealt out to partitions, by store.
    ``latency`` counts results by age. By edge, ``steps`` is what probes did and ``edges`` what was sent.
    ``grouped`` are the rows of queries with aggregates, as partial groups.
    """

    def __init__(self, options: HopOptions | None = None) -> None:
        self.options = options or HopOptions()
        self.sent: list[Parcel] = []
        self.results: dict[str, list[pa.RecordBatch]] = {}
        self.counts: dict[str, int] = {}
        self.closed: dict[str, int] = {}
        self.census: dict[str, Census] = {}
        self.sample: dict[str, int] = {}
        self.values: list[AttributeSample] = []
        self.failed: dict[str, Exception] = {}
        self.calls = CallCounts()
        self.dealt: dict[str, int] = {}
        self.latency = LatencyCounts(self.options.ages)
        self.grouped: dict[str, GatheredRows] = {}
        self._dealt: dict[str, int] = {}  # how many matches of probes were dealt out, by edge
        self.steps: dict[str, StepFigures] = {}
        self.edges: dict[str, EdgeFigures] = {}

    def tally(self, edge: str, *, probes: int = 0, matches: int = 0, copies: int = 0) -> None:
        """Add to the counts of a probe."""
        self.steps[edge] = self.steps.get(edge, StepFigures()) + StepFigures(probes, matches, copies)

    def fail(self, names: Iterable[str], error: Exception) -> None:
        """Note that queries cannot be answered, because of an error; one of the checkpoint is raised instead."""
        if isinstance(error, StateError):
            raise error
        for name in names:
            self.failed.setdefault(name, error)

    @contextmanager
    def failing(self, names: Iterable[str]) -> Iterator[None]:
        """A context in which an error of a user's function fails these queries, and the others go on."""
        try:
            yield
        except FunctionError as error:
            self.fail(names, error)

    def send(self, parcel: Parcel, partitions: int) -> None:
        """Count a parcel for some of so many partitions, and pass it to the outlet, or keep it if there is none."""
        sent = EdgeFigures(parcel.copies(partitions), parcel.bytes_sent(partitions))
        self.edges[parcel.edge] = self.edges.get(parcel.edge, EdgeFigures()) + sent
        if self.options.outlet is None:
            self.sent.append(parcel)
        else:
            self.options.outlet.send(parcel)

    def deal(self, edge: str, rows: int, first: int) -> int:
        """Note that so many more rows are dealt out over an edge, and return the partition to begin with.

        ``first`` is the partition that the first row of the hop goes to.
        """
        before = self._dealt.get(edge, 0)
        self._dealt[edge] = before + rows
        return first + before

    def close(self, name: str, rows: pa.RecordBatch, times: Longs) -> None:
        """Give rows of a query that are closed as results, with their event times."""
        if self.count(name, rows.num_rows):
            self.closed[name] = self.closed.get(name, 0) + rows.num_rows
            self.latency.add_closed(name, times)
            self.give(name, rows)

    def gather(self, name: str, partials: PartialGroups, rows: pa.RecordBatch) -> None:
        """Take rows of a query whose groups are asked for."""
        if rows.num_rows and name not in self.failed and self.options.wants(name):
            self._gathered(name, partials).add(rows)

    def gather_groups(self, name: str, partials: PartialGroups, groups: pa.RecordBatch) -> None:
        """Take partial groups of a query whose groups are asked for."""
        if groups.num_rows and name not in self.failed and self.options.wants(name):
            self._gathered(name, partials).add_groups(groups)

    def _gathered(self, name: str, partials: PartialGroups) -> GatheredRows:
        if name not in self.grouped:
            self.grouped[name] = GatheredRows(partials, self.options.limits.portion_bytes)
        return self.grouped[name]

    def count(self, name: str, rows: int, why: Why = unknown) -> bool:
        """Count so many more results of a query, and return whether they are wanted; a query with too many fails."""
        if not rows or name in self.failed or not self.options.wants(name):
            return False
        self.counts[name] = self.counts.get(name, 0) + rows
        limit = self.options.limits.query_results
        if limit is not None and self.counts[name] > limit:
            self.failed[name] = too_many_results(name, limit, why())
            return False
        return True

    def give(self, name: str, rows: pa.RecordBatch) -> None:
        """Pass on results of a query, which have been counted; they are dropped if only their number is asked for."""
        if name in self.options.counting:
            return
        if self.options.outlet is None:
            self.results.setdefault(name, []).append(rows)
        else:
            self.options.outlet.give(name, rows)

    def add_census(self, name: str, census: Census) -> None:
        """Add to the census of a query's keys."""
        self.census[name] = self.census.get(name, Census()).plus(census)

    def with_calls(self, calls: FunctionCalls) -> Outcome:
        """Add what users' functions did in the hop, fail the queries for which one failed, and return the outcome."""
        self.calls = self.calls.plus(calls.take_counts())
        for name, error in calls.take_failed().items():
            self.fail([name], error)
        return self


def too_many_results(name: str, limit: int, heaviest: Heaviest | None = None) -> QueryError:
    """The error of a query that gives too many results in a batch."""
    culprit = "" if heaviest is None else f"; the most come of {heaviest}"
    return QueryError(
        f"query {name} gives more than {limit:,} results in one batch{culprit}",
        hint="raise Session(result_limit=…), narrow the query's windows, or leave out that key with a condition",
    )
