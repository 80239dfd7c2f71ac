"""What a change of queries leads to: plan, graph, and what becomes of the state.

Guarantees: a function of what runs, what is to run and what is known; the planner only remembers what saves it time.
A new query shares what it can at once. When more than half of the queries have changed, all are planned afresh, and,
if by then it was measured what their filters have in common, in groups (AJoin, section 4).

If the optimiser fails, whatever it throws, queries that run keep the plan they have and new ones are planned alone,
which a warning says. Only what fails then as well is an error.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from weft.logical.outer import Closing, core_and_closing
from weft.logical.query import Query
from weft.optimizer.closing_layouts import choose_homes
from weft.optimizer.deadline import Deadline
from weft.optimizer.groups.grouping import Estimated, Measured
from weft.optimizer.groups.separation import apart, closest
from weft.optimizer.joint.incremental import changed_too_much
from weft.optimizer.joint.methods import JointResult, optimise_all, optimise_alone
from weft.optimizer.joint.workspace import Workspace
from weft.optimizer.ranking import ranked
from weft.optimizer.skew import BOUNDS
from weft.optimizer.space import Options
from weft.patience import deadline_of
from weft.plan.join_plan import Store
from weft.plan.lower import lower_workload
from weft.plan.workload import Answer, SharedStore, WorkloadPlan
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.active import ActiveQueries, Decision, Samples
from weft.runtime.queries.migration import migration_between
from weft.runtime.queries.request import QueryRequest
from weft.runtime.queries.visibility import StateFacts, newcomers
from weft.stats.skew import HeavyValue, key_column
from weft.stats.statistics import Statistics

__all__ = ["Planner"]

_LOG = logging.getLogger("weft")

# Of what a partition has on average, what is enough for the optimiser to scatter a value.
HEAVY = 1.5 * min(BOUNDS)


class Planner:
    """Decides for a session: by its options, and by what it knows of the data at that moment."""

    def __init__(self, statistics: Callable[[], Statistics], options: Options, method: str = "auto") -> None:
        self._statistics, self._options, self._method = statistics, options, method
        self._known: dict[str, Workspace | None] = {}
        self.last: dict[str, JointResult] = {}

    def __call__(
        self,
        active_queries: ActiveQueries,
        requests: Mapping[str, QueryRequest],
        facts: StateFacts,
        samples: Samples | None = None,
        afresh: bool = False,
    ) -> Decision:
        """The plan for the queries that are to run, given those that do; ``afresh``, though these have not changed."""
        try:
            return self._decision(active_queries, requests, facts, samples, afresh)
        except Exception as error:
            if afresh:
                raise  # there is a plan already
            found = self._decision(active_queries, requests, facts, None, afresh, alone=True)
            name = type(error).__name__
            _LOG.warning(
                "the queries cannot be planned together, new ones are planned alone: %s: %s", name, error
            )
            _LOG.debug("why they cannot be planned together", exc_info=error)
            return found

    def _decision(
        self,
        active_queries: ActiveQueries,
        requests: Mapping[str, QueryRequest],
        facts: StateFacts,
        samples: Samples | None,
        afresh: bool,
        *,
        alone: bool = False,
    ) -> Decision:
        """As `__call__`; ``alone``: new queries are planned alone, and the others go on as they are."""
        parts = {name: core_and_closing(one.query) for name, one in sorted(requests.items())}
        queries = {name: core for name, (core, _) in parts.items()}
        statistics = self._statistics()
        if active_queries.plan is not None and not afresh:
            statistics = _as_laid_out(statistics, active_queries.plan)
        groups, regrouped = self._groups(active_queries, queries, statistics, samples)
        walked = {name: one for name, one in requests.items() if _is_walked(parts[name][1])}
        cores = {name: replace(one, query=queries[name]) for name, one in walked.items()}
        plan, changes = self._plan(active_queries, cores, groups, statistics, afresh or regrouped, alone)
        plan = self._closed(active_queries.plan, plan, parts, groups, statistics)
        new = [name for name in queries if name not in active_queries.requests]
        backfill = [name for name in new if requests[name].backfill]
        orders = {name: one.ordering for name, one in requests.items() if one.ordering is not None}
        members = newcomers(active_queries.program, plan, facts, backfill, orders)
        tracked = facts.number > 0 or len(queries) > 1
        ranks = ranked(
            queries.values(), statistics, active_queries.program.graph if active_queries.program else None
        )
        graph = lower_workload(plan, members, tracked=tracked, ranked=ranks)
        migration = migration_between(active_queries.program, ExecutableGraph(graph), backfill)
        return Decision(plan, graph, migration, changes)

    def _groups(
        self,
        active_queries: ActiveQueries,
        queries: Mapping[str, Query],
        statistics: Statistics,
        samples: Samples | None,
    ) -> tuple[dict[str, str], bool]:
        """The group of every query, and whether all were grouped anew."""
        running = active_queries.plan
        known = {a.name: running.group_of(a.name) for a in running.answers} if running else {}
        stay = {name: group for name, group in known.items() if name in queries}
        gone, came = len(known) - len(stay), len(queries) - len(stay)
        if samples is not None and changed_too_much(active_queries.fresh + gone + came, len(queries)):
            measured = Measured(samples.names, samples.sets, Estimated(queries, statistics))
            return apart(queries, measured, statistics), True
        return {n: stay[n] if n in stay else closest(q, queries, stay) for n, q in queries.items()}, False

    def _plan(
        self,
        active_queries: ActiveQueries,
        requests: Mapping[str, QueryRequest],
        groups: Mapping[str, str],
        statistics: Statistics,
        fresh: bool,
        alone: bool,
    ) -> tuple[WorkloadPlan, int]:
        """The plans of all groups together, and how many changes there were since they were fresh."""
        plan, changes, deadline = WorkloadPlan(()), 0, deadline_of(self._options, self._method)
        every = sorted({groups[name] for name in requests})
        for count, group in enumerate(every):
            mine = {name: one for name, one in sorted(requests.items()) if groups[name] == group}
            running, until = (
                None if fresh else _part(active_queries.plan, group),
                deadline.part(1 / (len(every) - count)),
            )
            found = self._optimised(mine, running, active_queries.fresh, statistics, group, until, alone)
            part = found.plan.in_group(group) if group else found.plan
            plan = plan.with_answers(part.answers, part.upkeep)
            changes = max(changes, found.changes)
        return plan, changes

    def _closed(
        self,
        running: WorkloadPlan | None,
        plan: WorkloadPlan,
        parts: Mapping[str, tuple[Query, Closing | None]],
        groups: Mapping[str, str],
        statistics: Statistics,
    ) -> WorkloadPlan:
        """The plan, with what closes queries with outer joins; those that run are closed from where they were."""
        known = {answer.name: answer for answer in running.answers} if running else {}
        for name, (core, closing) in parts.items():
            if closing is None:
                continue
            group = groups[name]
            homes = known[name].homes if name in known else ()
            if not homes or homes[0].group != group:
                here = [Store(s.aliases, s.layout) for s in plan.stores if s.is_input and s.group == group]
                chosen = choose_homes(core, closing, statistics, self._options.partitions, here)
                homes = tuple(SharedStore(store.aliases, store.layout, group=group) for store in chosen)
            walks = plan.answer(name).walks if closing.walked else ()
            answer = Answer(name, core, walks, closing, homes)
            upkeep = plan.upkeep
            plan = plan.without([name]).with_answers([answer], upkeep)
        return plan

    def _optimised(
        self,
        requests: Mapping[str, QueryRequest],
        running: WorkloadPlan | None,
        changes: int,
        statistics: Statistics,
        group: str,
        deadline: Deadline,
        alone: bool,
    ) -> JointResult:
        queries = {name: one.query for name, one in requests.items()}
        own = {n: replace(self._options, strategy=a.strategy) for n, a in requests.items() if a.strategy}
        if alone:
            found = optimise_alone(
                queries,
                statistics,
                self._options,
                own=own,
                running=running,
                changes=changes,
                deadline=deadline,
            )
        else:
            found = optimise_all(
                queries,
                statistics,
                self._options,
                method=self._method,
                own=own,
                running=running,
                changes=changes,
                known=self._known.pop(group, None),
                deadline=deadline,
            )
        self._known[group], self.last[group] = found.workspace, found
        return found


def _as_laid_out(statistics: Statistics, plan: WorkloadPlan) -> Statistics:
    """The statistics in which just those values are heavy that a plan scatters, in the columns in which it does.

    New queries could not share its stores if a value more or less were heavy by now.
    """
    streams = {i.alias: i.stream.name for answer in plan.answers for i in answer.query.inputs}
    found: dict[str, dict[str, dict[HeavyValue, float]]] = {}
    for store in plan.stores:
        column, values = key_column(store.layout.by), [literal.value for literal in store.layout.heavy]
        if column is None or not values:
            continue
        stream = streams[column.alias]
        known, least = statistics.stream(stream).heavy.get(column.name, {}), HEAVY / store.layout.partitions
        shares = {v: max(known.get(v, 0.0), least) for v in values if isinstance(v, HeavyValue)}
        total = max(1.0, math.fsum(shares.values()))
        found.setdefault(stream, {})[column.name] = {v: share / total for v, share in shares.items()}
    return statistics.with_heavy(found)


def _part(plan: WorkloadPlan | None, group: str) -> WorkloadPlan | None:
    """A group's part of a plan, as the optimiser knows it."""
    if plan is None:
        return None
    mine = [a for a in plan.answers if _is_walked(a.closing) and plan.group_of(a.name) == group]
    answers = [Answer(answer.name, answer.query, answer.walks) for answer in mine]
    part = WorkloadPlan(()).with_answers(answers, plan.upkeep)
    return part.in_group("") if part.answers else None


def _is_walked(closing: Closing | None) -> bool:
    return closing is None or closing.walked
