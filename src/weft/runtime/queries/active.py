"""The queries that run, and how they are planned anew when queries begin or stop.

Guarantees: `ActiveQueries` survives a crash: `to_blueprint` and `from_blueprint` are inverse. A query that cannot be
planned is refused, and the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from weft.errors import WeftError
from weft.logical.codec import decode, encode
from weft.logical.query.query import Query
from weft.plan.physical.graph import CODEC, PhysicalGraph
from weft.plan.workload import WorkloadPlan
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import Blueprint
from weft.runtime.program.executable import ExecutableGraph, program_of
from weft.runtime.queries.changelog import Changes
from weft.runtime.queries.migration import StateMigration
from weft.runtime.queries.request import QueryRequest, is_inner
from weft.runtime.queries.transition import Transition
from weft.runtime.queries.visibility import StateFacts
from weft.stats.statistics import Statistics

__all__ = [
    "ActiveQueries",
    "Decide",
    "Decision",
    "Samples",
    "find_refused",
    "plan_changes",
]

_LOG = logging.getLogger("weft")


@dataclass(frozen=True, slots=True)
class ActiveQueries:
    """The queries that run, with the plan and the executable graph that they run by, which are None if there are none.

    ``stopped`` says why each query that ran before was stopped, and ``former`` has the fingerprint of each. ``fresh``
    counts the changes of queries since all of them were last planned together. ``transition`` is the change of plan
    for which stores are being filled; None if there is none.
    """

    requests: Mapping[str, QueryRequest] = field(default_factory=dict)
    plan: WorkloadPlan | None = None
    program: ExecutableGraph | None = None
    stopped: Mapping[str, str] = field(default_factory=dict)
    fresh: int = 0
    former: Mapping[str, str] = field(default_factory=dict)
    transition: Transition | None = None

    def to_blueprint(self) -> Blueprint:
        """The blueprint that the log keeps of them."""
        graph = self.program.graph.to_json() if self.program else ""
        plan = CODEC.dumps(self.plan) if self.plan else ""
        requests = {name: encode(one) for name, one in sorted(self.requests.items())}
        transition = encode(self.transition) if self.transition else None
        return Blueprint(graph, plan, requests, dict(self.stopped), dict(self.former), self.fresh, transition)

    @property
    def of_users(self) -> dict[str, Query]:
        """The queries that users asked for, by name: without those that make the tuples of derived streams."""
        return {name: request.query for name, request in self.requests.items() if not is_inner(request)}

    @classmethod
    def from_blueprint(cls, blueprint: Blueprint) -> ActiveQueries:
        """What `to_blueprint` made."""
        requests = {name: decode(QueryRequest, one) for name, one in blueprint.requests.items()}
        plan = CODEC.loads(blueprint.plan) if blueprint.plan else None
        program = program_of(blueprint.graph) if blueprint.graph else None
        transition = decode(Transition, blueprint.transition) if blueprint.transition else None
        known = (blueprint.stopped, blueprint.fresh, blueprint.former, transition)
        return cls(requests, plan, program, *known)

    @classmethod
    def read(cls, checkpoint: Checkpoint, blueprint: str) -> ActiveQueries:
        """Read the queries of a log's blueprint; there are none if the name is empty."""
        return cls.from_blueprint(checkpoint.blueprint(blueprint)) if blueprint else cls()


@dataclass(frozen=True, slots=True)
class Decision:
    """The plan and graph for a set of queries, and how the state there is becomes that of the new graph."""

    plan: WorkloadPlan
    graph: PhysicalGraph
    migration: StateMigration
    fresh: int


@dataclass(frozen=True, slots=True)
class Samples:
    """How many sampled tuples of each input have which query-set, in which bit i stands for the i-th of ``names``."""

    names: tuple[str, ...]
    sets: Mapping[str, Mapping[int, float]]


# Plans queries, given those that run, those that are to run, what is known of the data and of the state, and a sample
# of query-sets, if there is one. If the last argument is true, all of them are planned afresh; else a change may keep
# most of the plan.
Decide = Callable[
    [ActiveQueries, Mapping[str, QueryRequest], Statistics, StateFacts, Samples | None, bool], Decision
]


def plan_changes(
    active_queries: ActiveQueries,
    changes: Changes,
    decide: Decide,
    statistics: Statistics,
    facts: StateFacts,
    samples: Samples | None,
) -> tuple[ActiveQueries, StateMigration]:
    """Plan the queries that run after some have begun and stopped, and say how their state is migrated.

    A new query that cannot be planned beside the others, whatever the planner raises, is refused, and the others go on.
    If even the queries that run cannot be planned any more, they go on by the plan they have, and none of them stops.
    """
    stopped = {name: why for name, why in changes.stop.items() if name not in active_queries.stopped}
    requests = {name: one for name, one in active_queries.requests.items() if name not in stopped}
    begun = changes.begin
    gone = {name: why for name, why in {**active_queries.stopped, **stopped}.items() if name not in begun}
    former = {
        **active_queries.former,
        **{name: one.fingerprint for name, one in active_queries.requests.items() if name in stopped},
        **{name: one.fingerprint for name, one in changes.dropped.items()},
    }
    wanted = {**requests, **begun}

    def decided(queries: Mapping[str, QueryRequest]) -> Decision | None:
        return decide(active_queries, queries, statistics, facts, samples, False) if queries else None

    try:
        decision = decided(wanted)
    except Exception:
        for name, why in find_refused(decided, requests, begun).items():
            _LOG.warning("query %s is refused: %s", name, why)
            gone[name], former[name] = f"refused: {why}", begun[name].fingerprint
            del wanted[name]
        try:
            decision = decided(wanted)
        except Exception as error:
            if active_queries.program is None:
                raise
            _LOG.warning("the queries go on by the plan they have, none can stop: %s", _reason(error))
            refusals = {name: why for name, why in gone.items() if name not in stopped}
            return replace(active_queries, stopped=refusals), StateMigration()
    former = {name: one for name, one in former.items() if name in gone}
    if decision is None:
        return ActiveQueries(stopped=gone, former=former), StateMigration()
    program = ExecutableGraph(decision.graph)
    return ActiveQueries(wanted, decision.plan, program, gone, decision.fresh, former), decision.migration


def find_refused(
    decide: Callable[[Mapping[str, QueryRequest]], object],
    requests: Mapping[str, QueryRequest],
    new: Mapping[str, QueryRequest],
) -> dict[str, str]:
    """Try new queries one after the other beside the others; return those that cannot be planned, and why."""
    wanted, found = dict(requests), {}
    for name, one in new.items():
        try:
            decide({**wanted, name: one})
            wanted[name] = one
        except Exception as error:
            found[name] = _reason(error)
    return found


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, WeftError) else f"{type(error).__name__}: {error}"
