"""The path of a query, on one screen: parse, bind, optimise, lower.

Guarantees: a query that is refused leaves the session as it was. Everything a session holds is immutable but for the
session itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from weft.errors import QueryError, WeftError
from weft.logical.catalog import Catalog
from weft.logical.query import Query
from weft.logical.schema import Schema, Stream
from weft.logical.window import parse_duration
from weft.optimizer.optimizer import STRATEGIES, optimise
from weft.optimizer.space import Options
from weft.plan.explain import compare, diagram, explain
from weft.plan.graph import PhysicalGraph
from weft.plan.join_plan import Cost, JoinPlan
from weft.plan.lower import lower
from weft.sql.bind import parse_query
from weft.sql.builder import Builder
from weft.stats.statistics import Statistics

__all__ = ["PlannedQuery", "Session"]


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query with the plan it is answered by."""

    name: str
    query: Query
    plan: JoinPlan
    graph: PhysicalGraph

    def explain(self) -> str:
        """The plan as text: stores, probe orders, expected rates and costs."""
        return explain(self.graph, self.name, self.plan.strategy)

    def diagram(self) -> str:
        """The plan as a Mermaid flowchart."""
        return diagram(self.graph)


class Session:
    """Streams, what is known of them, and the queries over them."""

    def __init__(self, *, statistics: Statistics | None = None, options: Options | None = None) -> None:
        self.catalog = Catalog()
        self.statistics = statistics or Statistics()
        self.options = options or Options()
        self._queries: dict[str, PlannedQuery] = {}

    def stream(
        self,
        name: str,
        schema: Schema | str,
        *,
        event_time: str | None = None,
        lateness: timedelta | str = timedelta(0),
    ) -> None:
        """Register a stream that queries can name."""
        columns = Schema.parse(schema) if isinstance(schema, str) else schema
        late = parse_duration(lateness) if isinstance(lateness, str) else lateness
        self.catalog = self.catalog.add(Stream(name, columns, event_time, late))

    def query(
        self,
        text: str | Builder,
        *,
        name: str | None = None,
        strategy: str | None = None,
        cross: bool = False,
    ) -> PlannedQuery:
        """Plan a query, given as SQL or by the builder; ``cross`` permits a cross product."""
        chosen = name or f"query_{len(self._queries) + 1}"
        if chosen in self._queries:
            raise QueryError(f"there is already a query {chosen!r}", hint="choose another name")
        options = replace(self.options, strategy=strategy) if strategy else self.options
        planned = self._plan(self.parse(text, cross=cross), chosen, options)
        self._queries[chosen] = planned
        return planned

    def parse(self, text: str | Builder, *, cross: bool = False) -> Query:
        """A text or builder, parsed and bound to this session's streams."""
        if isinstance(text, Builder):
            return (text.cross() if cross else text).build(self.catalog)
        return parse_query(text, self.catalog, cross=cross)

    def _plan(self, query: Query, name: str, options: Options) -> PlannedQuery:
        plan = optimise(query, self.statistics, options)
        return PlannedQuery(name, query, plan, lower(plan))

    @property
    def queries(self) -> tuple[PlannedQuery, ...]:
        """All planned queries, oldest first."""
        return tuple(self._queries.values())

    def explain(self) -> str:
        """The plans of all queries."""
        return "\n".join(planned.explain() for planned in self.queries) or "No queries yet.\n"

    def compare(self, query: Query) -> str:
        """What every strategy would make of a query, the cheapest first."""
        costs: dict[str, Cost | WeftError] = {}
        for strategy in STRATEGIES:
            try:
                plan = optimise(query, self.statistics, replace(self.options, strategy=strategy))
            except WeftError as error:
                costs[strategy] = error
            else:
                costs[strategy] = plan.cost or Cost(0.0, 0.0, 0.0, 0.0, 0.0, 0)
        return compare(costs)
