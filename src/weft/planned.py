"""A query as a session has planned it.

Guarantees: the plan never changes; how the query is getting on, and its results, are asked for where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from weft.errors import ConfigError
from weft.logical.ordering import Ordering
from weft.logical.query import Query
from weft.optimizer.expected_cost import estimated
from weft.optimizer.space import Options
from weft.plan.diagram import diagram
from weft.plan.explain import explain
from weft.plan.graph import PhysicalGraph
from weft.plan.join_plan import CallCost, JoinPlan
from weft.plan.observation import Observation
from weft.plan.shared import shared_text
from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.observe.observed import observed
from weft.runtime.observe.progress import QueryProgress
from weft.sinks.memory import MemorySink
from weft.sinks.protocol import Sink
from weft.stats.statistics import Statistics

if TYPE_CHECKING:
    import pyarrow as pa

    from weft.ports.punctuation import Punctuations

__all__ = ["Owner", "PlannedQuery", "explained"]


class Owner(Protocol):
    """The session that a query belongs to."""

    def stop_query(self, name: str) -> None:
        """Run a query no longer."""

    def query_progress(self, name: str) -> QueryProgress:
        """How a query is getting on."""


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query with the plan it is answered by; of one that runs together with others, its part of what they share."""

    name: str
    query: Query
    plan: JoinPlan
    graph: PhysicalGraph
    sink: Sink | None = field(default=None, repr=False, compare=False)
    session: Owner | None = field(default=None, repr=False, compare=False)
    calls: tuple[CallCost, ...] = ()  # what is expected of users' functions
    ordering: Ordering | None = None

    def explain(self, observed: Observation | None = None) -> str:
        """The plan as text: stores, probe orders, expected rates and costs, beside what was observed of them."""
        strategy = self.plan.strategy
        return explain(self.graph, self.name, strategy, observed, self.query, self.calls, self.ordering)

    def diagram(self) -> str:
        """The plan as a Mermaid flowchart."""
        return diagram(self.graph)

    def results(self) -> pa.Table:
        """What is in the query's memory sink."""
        if not isinstance(self.sink, MemorySink):
            raise ConfigError(
                f"query {self.name} does not keep its results", hint="use sink=weft.to_memory()"
            )
        return self.sink.results()

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
        self._owner().stop_query(self.name)

    @property
    def progress(self) -> QueryProgress:
        """How the query is getting on."""
        return self._owner().query_progress(self.name)

    def _owner(self) -> Owner:
        if self.session is None:
            raise ConfigError(
                f"query {self.name} belongs to no session", hint="session.query gives one that does"
            )
        return self.session


def explained(
    queries: Iterable[PlannedQuery],
    seen: Mapping[str, tuple[PhysicalGraph, Sequence[BatchMetrics]]],
    running: PhysicalGraph | None,
    statistics: Statistics,
    options: Options,
) -> str:
    """The plans of queries: what is expected of every step and, where ``seen`` has batches, what was observed.

    ``running`` is the graph that they share, if they run.
    """
    parts = [shared_text(running)] if running is not None and len(running.members) > 1 else []
    for planned in queries:
        graph, batches = seen.get(planned.name, (planned.graph, []))
        other = graph.edges != planned.graph.edges
        shown = replace(planned, graph=estimated(graph, statistics, options) if other else planned.graph)
        parts.append(shown.explain(observed(graph, batches) if batches else None))
    return "\n".join(parts) or "No queries yet.\n"
