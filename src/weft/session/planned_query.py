"""A query that a session has planned, and the graph that answers it.

Guarantees: a `PlannedQuery` never changes; its graph, its progress and its results are looked up where they are. Before
the session starts the graph is the query's part of the one that the first batch will run by, afterwards its part of
the one that runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Protocol

from weft.connectors.memory.sink import MemorySink
from weft.errors import ConfigError, QueryError, ResultError
from weft.logical.arguments import checked
from weft.logical.nested.flatten import Note
from weft.logical.query.ordering import Ordering
from weft.logical.query.query import Query
from weft.optimizer.expected_cost import calls_of
from weft.plan.join_plan import CallCost
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.show.diagram import diagram
from weft.plan.show.explain import explain
from weft.plan.show.observation import Observation
from weft.plan.show.shared import filling_text, shared_text
from weft.plan.show.svg import picture
from weft.ports.sink import Sink
from weft.runtime.observe.analysis import Analysis
from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.observe.observations import observed
from weft.runtime.observe.progress import QueryProgress, progress_html
from weft.stats.statistics import Statistics

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from weft.ports.punctuation import Punctuations

__all__ = ["Owner", "PlannedQuery", "explain_queries"]


class Owner(Protocol):
    """The session that a query belongs to."""

    @property
    def statistics(self) -> Statistics:
        """What the session was told of its data."""

    def graph_of(self, name: str) -> PhysicalGraph:
        """The graph that answers a query, under its author's names, with what is expected of every step."""

    def analysis(self) -> Analysis:
        """Where time and memory went, step by step and query by query."""

    def stop_query(self, name: str) -> None:
        """Run a query no longer."""

    def query_progress(self, name: str) -> QueryProgress:
        """How a query is getting on."""

    def failure_of(self, name: str) -> ResultError | None:
        """Why the results of a query are not complete and never will be; None unless it failed or reached a limit."""

    def frame_of(self, name: str) -> Any:
        """A streaming DataFrame over the results of a query."""


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query of a session; if others run with it, its graph is its part of what they share.

    ``notes`` say what became of its sub-selects.
    """

    name: str
    query: Query
    strategy: str
    session: Owner = field(repr=False, compare=False)
    sink: Sink | None = field(default=None, repr=False, compare=False)
    ordering: Ordering | None = None
    notes: tuple[Note, ...] = field(default=(), compare=False)

    def __repr__(self) -> str:
        progress = self.progress
        results = f", {progress.results:,} results" if progress.batches else ""
        sql = shorten(str(self.query), 120, placeholder=" …")
        return f"<PlannedQuery {self.name} ({progress.status}{results}): {sql}>"

    def _repr_html_(self) -> str:
        sql = f"<code>{escape(str(self.query))}</code>"
        return f"<p><b>{escape(self.name)}</b> {sql}</p>{progress_html([self.progress])}{picture(self.graph)}"

    @property
    def graph(self) -> PhysicalGraph:
        """The query's part of the graph that the session's queries run by, or will run by.

        A query without a sink, and one that waits to join others that run, has the graph it would have alone.
        """
        return self.session.graph_of(self.name)

    @property
    def calls(self) -> tuple[CallCost, ...]:
        """What is expected of users' functions."""
        return calls_of(self.query, self.session.statistics)

    @checked(ConfigError)
    def explain(self, observed: Observation | None = None, *, analyze: bool = False) -> str:
        """The plan as text: stores, probe orders, expected rates and costs, beside what was observed of them.

        With ``analyze``, it is where the query's time and memory went: its steps, the costliest first, and its bill.
        """
        if analyze:
            return str(self.session.analysis().of(self.name))
        given = (self.graph, self.name, self.strategy, observed, self.query, self.calls, self.ordering)
        return "".join((explain(*given), *(f"  {note}\n" for note in self.notes)))

    def diagram(self) -> str:
        """The plan as a Mermaid flowchart."""
        return diagram(self.graph)

    def results(self) -> pa.Table:
        """What is in the query's memory sink; raises a `ResultError` if the query failed or reached a limit.

        What it gave before is still in ``query.sink``.
        """
        if not isinstance(self.sink, MemorySink):
            raise ConfigError(
                f"query {self.name} does not keep its results", hint="use sink=weft.to_memory()"
            )
        if (failure := self.session.failure_of(self.name)) is not None:
            raise failure
        return self.sink.results()

    @checked(QueryError)
    def head(self, rows: int = 10) -> pa.Table:
        """The first rows of the results in the query's memory sink."""
        return self.results().slice(0, max(0, rows))

    def to_pandas(self) -> Any:
        """The results in the query's memory sink as a DataFrame of pandas."""
        _need("pandas", self.name)
        return self.results().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """The results in the query's memory sink as a DataFrame of Polars."""
        polars = _need("polars", self.name)
        frame: pl.DataFrame = polars.from_arrow(self.results())
        return frame

    def dataframe(self) -> Any:
        """A streaming DataFrame of Spark's over the results, for what Weft leaves to Spark.

        As in ``query.dataframe().withWatermark("ts", "1 minute").groupBy(window("ts", "1 minute")).count()``. The
        query has a Parquet sink, or none: then it gets one, in the checkpoint, and runs with the session.
        """
        return self.session.frame_of(self.name)

    def punctuations(self) -> Punctuations:
        """Up to where the results in the query's memory sink are complete: a sequence of `weft.Punctuation`.

        Rows are counted since the query's first batch, also if an earlier process had the first of them.
        """
        if not isinstance(self.sink, MemorySink) or self.ordering is None:
            raise ConfigError(
                f"query {self.name} has no punctuations in memory",
                hint='use sink=weft.to_memory() and order="outer", "inner" or "event"',
            )
        return self.sink.punctuations()

    def stop(self) -> None:
        """Run no longer, from the next batch on; the other queries go on. Results that are held back are dropped."""
        self.session.stop_query(self.name)

    @property
    def progress(self) -> QueryProgress:
        """How the query is getting on."""
        return self.session.query_progress(self.name)


def _need(module: str, query: str) -> Any:
    """A library that the caller asks for by name; if it is not installed, the remedy is named."""
    try:
        return import_module(module)
    except ImportError:
        raise ConfigError(
            f"the results of query {query} cannot be given to {module}, which is not installed",
            hint=f"pip install {module}, or use results(), which gives a pyarrow.Table",
        ) from None


def explain_queries(
    queries: Iterable[PlannedQuery],
    shared: PhysicalGraph | None,
    seen: Mapping[str, tuple[PhysicalGraph, Sequence[BatchMetrics]]],
) -> str:
    """The plans of queries: what is expected of every step and, where ``seen`` has batches, what was observed.

    ``shared`` is the graph that they run by together, or will run by.
    """
    parts = [shared_text(shared)] if shared is not None and len(shared.members) > 1 else []
    for planned in queries:
        graph, batches = seen.get(planned.name, (None, ()))
        parts.append(planned.explain(observed(graph, batches) if graph and batches else None))
    if shared is not None and (filling := filling_text(shared)):
        parts.append(filling)
    return "\n".join(parts) or "No queries yet.\n"
