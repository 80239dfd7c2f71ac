"""The planner of a session: one plan for all its queries, when they start and whenever they change.

Guarantees: what is decided is a function of what runs, what is to run and what is known; the planner only remembers
what saves it time. The plan that `start_plan` shows before a session starts is the one that its first batch runs by.
A new query shares what it can at once. When more than half of the queries have changed, all are planned afresh, and,
if by then it was measured what the filters of most have in common, in groups (AJoin, section 4): new queries are placed
by cost and the others stay where they are; groups are formed or revised only from what was measured (`GroupQuestion`).
This is the one place where planning meets a clock (`deadline_of`); the optimiser itself has none.

If the joint optimiser fails, whatever it throws, queries that run keep the plan they have and new ones are planned
alone, which a warning says. Only what fails then as well is an error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from weft.logical.expr.expression import Expr
from weft.logical.outer.outer import Closing, core_and_closing
from weft.logical.query.query import Query
from weft.optimizer.closing_layouts import choose_homes
from weft.optimizer.deadline import Deadline
from weft.optimizer.groups.assignment import assigned_groups, revised_groups, separate_groups
from weft.optimizer.groups.overlap import Estimated, Measured, Overlap
from weft.optimizer.joint.incremental import changed_too_much
from weft.optimizer.joint.methods import JointResult, optimise_all, optimise_alone, options_of_group
from weft.optimizer.joint.space.workspace import Workspace
from weft.optimizer.ranking import rank_predicates
from weft.optimizer.skew import heavy_as_laid_out
from weft.optimizer.space import Options
from weft.plan.join_plan import Store
from weft.plan.physical.graph import Member, PhysicalGraph
from weft.plan.physical.lower import lower_workload
from weft.plan.workload import Answer, SharedStore, WorkloadPlan
from weft.runtime.queries.request import QueryRequest
from weft.stats.statistics import Statistics

if TYPE_CHECKING:
    from weft.runtime.queries.active import ActiveQueries, Decision, Samples
    from weft.runtime.queries.visibility import StateFacts

__all__ = [
    "GroupQuestion",
    "Planner",
    "PreparedPlans",
    "StartPlan",
    "deadline_of",
]


# Seconds that planning may take, unless the user says otherwise.
USUAL = 5.0
# The same for users who ask for the best plan there is.
THOROUGH = 60.0


def deadline_of(options: Options, method: str = "auto", strategies: Iterable[str] = ()) -> Deadline:
    """Until when to look for better plans, if that begins now; ``strategies`` are those that single queries ask for."""
    best = method == "exact" or "exhaustive" in (options.strategy, *strategies)
    usual = THOROUGH if best else USUAL
    seconds = usual if options.planning_seconds is None else options.planning_seconds
    return Deadline.after(seconds, time.monotonic)


@dataclass(frozen=True, slots=True)
class GroupQuestion:
    """The plan that runs, the queries that are to run, and what is known of them; ``samples`` are of query-sets."""

    running: WorkloadPlan | None
    queries: Mapping[str, Query]
    statistics: Statistics
    samples: Samples | None
    options: Options

    def groups(self, *, revise: bool, afresh: bool) -> tuple[dict[str, str], bool]:
        """The group of every query, and whether running queries change theirs.

        With ``revise``, better groups are looked for, beginning with those there are; with ``afresh``, from nothing.
        Users may say in their options which queries are in a group.
        """
        stay = self._staying()
        told = self.options.told_groups(self.queries)
        if told is not None:
            return told, any(told[name] != group for name, group in stay.items())
        overlap = self._overlap()
        given = (self.queries, stay, overlap, self.statistics)
        if 2 * sum(map(overlap.is_measured, self.queries)) > len(self.queries):
            if revise:
                revised = revised_groups(*given, budget=self.options.budget)
                if revised is not None:
                    return revised, True
            if afresh:
                return separate_groups(
                    self.queries, overlap, self.statistics, stay, self.options.budget
                ), True
        return assigned_groups(*given, budget=self.options.budget), False

    def has_changed_too_much(self, changes: int) -> bool:
        """Whether more than half of the queries have come or gone, those counted in ``changes`` included."""
        stay = self._staying()
        gone = len(self.running.answers) - len(stay) if self.running else 0
        return changed_too_much(changes + gone + len(self.queries) - len(stay), len(self.queries))

    def _staying(self) -> dict[str, str]:
        """The groups of the queries that go on."""
        answers = self.running.answers if self.running else ()
        return {
            a.name: self.running.group_of(a.name) for a in answers if a.name in self.queries and self.running
        }

    def _overlap(self) -> Overlap:
        estimated = Estimated(self.queries, self.statistics)
        if self.samples is None:
            return estimated
        return Measured(self.samples.names, self.samples.sets, estimated)


_LOG = logging.getLogger("weft")


@dataclass(frozen=True, slots=True)
class StartPlan:
    """The plan and the graph by which queries begin where none runs yet, with what they were planned from."""

    requests: Mapping[str, QueryRequest]
    statistics: Statistics
    plan: WorkloadPlan
    graph: PhysicalGraph
    results: Mapping[str, JointResult] = field(repr=False, compare=False)  # of the joint optimiser, by group


@dataclass(frozen=True, slots=True)
class _Running:
    """What runs, as far as the optimiser is concerned; ``changes`` counts queries since all were planned afresh."""

    plan: WorkloadPlan | None = None
    graph: PhysicalGraph | None = None
    changes: int = 0


@dataclass(frozen=True, slots=True)
class _Planned:
    """A plan for all queries, the ranking of predicates to search stores by, and the optimiser's result per group."""

    plan: WorkloadPlan
    ranks: tuple[Expr, ...]
    results: Mapping[str, JointResult]
    changes: int  # how many queries came or went since all were planned afresh


@dataclass(frozen=True, slots=True)
class PreparedPlans:
    """Plans for a query that is about to be added, worked out in another process: alone, and beside those that run.

    ``beside`` is for exactly the queries of ``requests`` where those of the plan ``running`` run; None: none ran.
    """

    alone: StartPlan
    requests: Mapping[str, QueryRequest]
    running: WorkloadPlan | None
    beside: _Planned | None

    def fits(self, running: WorkloadPlan | None, requests: Mapping[str, QueryRequest]) -> bool:
        """Whether the plan beside others is for these queries, and those that run are still the ones it expects."""
        return self.beside is not None and self.running == running and self.requests == requests


class Planner:
    """Plans a session's queries by its options and by the statistics that it is handed.

    A ``quick`` planner never plans all queries afresh because some have come or gone: someone else does that, later.
    """

    def __init__(self, options: Options, method: str = "auto", *, quick: bool = False) -> None:
        self._options, self._method, self._quick = options, method, quick
        self._start: StartPlan | None = None
        self._first: tuple[Mapping[str, QueryRequest], Statistics, _Planned] | None = None
        self._prepared: PreparedPlans | None = None
        self._known: dict[str, Workspace] = {}
        self.last: dict[str, JointResult] = {}

    def start_plan(self, requests: Mapping[str, QueryRequest], statistics: Statistics) -> StartPlan:
        """The plan by which queries begin where none runs; it is made once for the same queries and statistics."""
        prepared = self._prepared
        if prepared is not None and prepared.alone.requests == requests:
            return prepared.alone
        known = self._start
        if known is None or known.requests != requests or known.statistics != statistics:
            planned = self._first_plan(requests, statistics)
            answers = sorted(planned.plan.answers, key=lambda answer: answer.name)
            members = [
                Member(
                    answer.name,
                    answer.query,
                    slot,
                    closing=answer.closing,
                    backfill=requests[answer.name].backfill,
                    ordering=requests[answer.name].ordering,
                )
                for slot, answer in enumerate(answers)
            ]
            graph = lower_workload(planned.plan, members, tracked=len(members) > 1, ranked=planned.ranks)
            known = StartPlan(dict(requests), statistics, planned.plan, graph, planned.results)
            self._start = known
        return known

    def check(self, requests: Mapping[str, QueryRequest], statistics: Statistics) -> None:
        """Refuse queries that cannot be planned; their plan is lowered only when `start_plan` asks for it."""
        if self._prepared is None or self._prepared.alone.requests != requests:
            self._first_plan(requests, statistics)

    def _first_plan(self, requests: Mapping[str, QueryRequest], statistics: Statistics) -> _Planned:
        """A plan where no query runs; the last one is remembered."""
        known = self._first
        if known is None or known[0] != requests or known[1] != statistics:
            planned = self._planned(_Running(), requests, statistics, {})
            known = self._first = (dict(requests), statistics, planned)
        return known[2]

    def __call__(
        self,
        active_queries: ActiveQueries,
        requests: Mapping[str, QueryRequest],
        statistics: Statistics,
        facts: StateFacts,
        samples: Samples | None = None,
        afresh: bool = False,
    ) -> Decision:
        """The plan for the queries that are to run, given those that do; ``afresh``: plan even if none has changed."""
        from weft.runtime.program.executable import ExecutableGraph  # which load the kernels
        from weft.runtime.queries.active import Decision
        from weft.runtime.queries.migration import StateMigration, migration_between
        from weft.runtime.queries.visibility import members_of_plan

        if active_queries.plan is None and facts.number == 0 and samples is None:
            start = self.start_plan(requests, statistics)
            self._remember(start.results)
            return Decision(start.plan, start.graph, StateMigration(), 0)
        before = active_queries.program
        running = _Running(active_queries.plan, before.graph if before else None, active_queries.fresh)
        prepared, planned = self._prepared, None
        if prepared is not None and not afresh and prepared.fits(running.plan, requests):
            planned = prepared.beside
            self._known.clear()  # what saved time was about the queries before
        if planned is None:
            planned = self._planned_beside(running, requests, statistics, self._known, samples, afresh=afresh)
        self._remember(planned.results)
        backfill = [n for n, one in requests.items() if one.backfill and n not in active_queries.requests]
        orders = {name: one.ordering for name, one in requests.items() if one.ordering is not None}
        members = members_of_plan(before, planned.plan, facts, backfill, orders)
        tracked = facts.number > 0 or len(requests) > 1
        graph = lower_workload(planned.plan, members, tracked=tracked, ranked=planned.ranks)
        migration = migration_between(before, ExecutableGraph(graph), backfill)
        return Decision(planned.plan, graph, migration, planned.changes)

    def _planned_beside(
        self,
        running: _Running,
        requests: Mapping[str, QueryRequest],
        statistics: Statistics,
        known: dict[str, Workspace],
        samples: Samples | None,
        *,
        afresh: bool = False,
    ) -> _Planned:
        """A plan for queries of which some run already, whose layouts new ones are to share."""
        if running.plan is not None and not afresh:
            statistics = heavy_as_laid_out(statistics, running.plan)
        return self._planned(running, requests, statistics, known, samples, afresh=afresh)

    def prepare(
        self,
        name: str,
        requests: Mapping[str, QueryRequest],
        statistics: Statistics,
        running: tuple[WorkloadPlan | None, PhysicalGraph | None, int] | None,
        samples: Samples | None = None,
    ) -> PreparedPlans:
        """The plans of a query of that name, for another planner to take by `expect`.

        ``running`` is the plan that runs, its graph and how many queries have changed since all were planned afresh;
        None if no session runs. What the optimiser remembers to save time cannot be handed over and is left out.
        """
        alone = replace(self.start_plan({name: requests[name]}, statistics), results={})
        if running is None:
            return PreparedPlans(alone, requests, None, None)
        before = _Running(*running)
        beside = self._planned_beside(before, requests, statistics, {}, samples)
        return PreparedPlans(alone, requests, before.plan, replace(beside, results={}))

    def expect(self, prepared: PreparedPlans) -> None:
        """Take plans that another planner has prepared; they are used if exactly what they are for is asked for."""
        self._prepared = prepared

    def plan_again(
        self,
        running: WorkloadPlan,
        requests: Mapping[str, QueryRequest],
        statistics: Statistics,
        samples: Samples | None = None,
    ) -> tuple[WorkloadPlan, tuple[Expr, ...]]:
        """The best plan that is found for queries that run, and the ranking of their predicates."""
        before = _Running(running, lower_workload(running))
        planned = self._planned(before, requests, statistics, {}, samples, afresh=True)
        return planned.plan, planned.ranks

    def _remember(self, results: Mapping[str, JointResult]) -> None:
        self.last.update(results)
        self._known.update({group: result.workspace for group, result in results.items()})

    def _planned(
        self,
        running: _Running,
        requests: Mapping[str, QueryRequest],
        statistics: Statistics,
        known: dict[str, Workspace],
        samples: Samples | None = None,
        *,
        afresh: bool = False,
    ) -> _Planned:
        """A joint plan; or, if that fails, one in which new queries are planned alone and the others go on as is.

        Workspaces of earlier plans are removed from ``known`` before use, so that none is used again after a failure.
        """
        try:
            return self._all_planned(running, requests, statistics, known, samples, afresh=afresh)
        except Exception as error:
            if afresh:
                raise  # there is a plan already
            planned = self._all_planned(running, requests, statistics, None, None)
            name = type(error).__name__
            _LOG.warning(
                "the queries cannot be planned together, new ones are planned alone: %s: %s", name, error
            )
            _LOG.debug("why they cannot be planned together", exc_info=error)
            return planned

    def _all_planned(
        self,
        running: _Running,
        requests: Mapping[str, QueryRequest],
        statistics: Statistics,
        known: dict[str, Workspace] | None,
        samples: Samples | None,
        *,
        afresh: bool = False,
    ) -> _Planned:
        """As `_planned`, without a second attempt; where ``known`` is None, new queries are planned alone."""
        parts = {name: core_and_closing(one.query) for name, one in sorted(requests.items())}
        queries = {name: core for name, (core, _) in parts.items()}
        question = GroupQuestion(running.plan, queries, statistics, samples, self._options)
        afresh_too = not self._quick and question.has_changed_too_much(running.changes)
        groups, regrouped = question.groups(revise=afresh, afresh=afresh_too)
        probed = {name: one for name, one in requests.items() if _is_walked(parts[name][1])}
        cores = {name: replace(one, query=queries[name]) for name, one in probed.items()}
        anew = replace(running, plan=None) if afresh or regrouped else running
        plan, results = self._optimised(anew, cores, groups, statistics, known)
        plan = self._closed(running.plan, plan, parts, groups, statistics)
        ranks = rank_predicates(queries.values(), statistics, running.graph)
        changes = max((result.changes for result in results.values()), default=0)
        return _Planned(plan, ranks, results, changes)

    def _optimised(
        self,
        running: _Running,
        requests: Mapping[str, QueryRequest],
        groups: Mapping[str, str],
        statistics: Statistics,
        known: dict[str, Workspace] | None,
    ) -> tuple[WorkloadPlan, dict[str, JointResult]]:
        """The plans of all groups together, and what the optimiser says of each group."""
        own = {n: replace(self._options, strategy=a.strategy) for n, a in requests.items() if a.strategy}
        deadline = deadline_of(self._options, self._method, [one.strategy for one in own.values()])
        plan, results = WorkloadPlan(()), dict[str, JointResult]()
        every = sorted({groups[name] for name in requests})
        asked = {g: {n: one.query for n, one in sorted(requests.items()) if groups[n] == g} for g in every}
        for count, (group, queries) in enumerate(asked.items()):
            waiting = list(asked.values())[count + 1 :]
            options = options_of_group(self._options, results, waiting, statistics)
            before = _group_plan(running.plan, group)
            until = deadline.part(1 / (len(every) - count))
            if known is None:
                result = optimise_alone(
                    queries,
                    statistics,
                    options,
                    own=own,
                    running=before,
                    changes=running.changes,
                    deadline=until,
                )
            else:
                result = optimise_all(
                    queries,
                    statistics,
                    options,
                    method=self._method,
                    own=own,
                    running=before,
                    changes=running.changes,
                    known=known.pop(group, None),
                    deadline=until,
                    quick=self._quick,
                )
            part = result.plan.in_group(group) if group else result.plan
            plan, results[group] = plan.with_answers(part.answers, part.upkeep), result
        return plan, results

    def _closed(
        self,
        running: WorkloadPlan | None,
        plan: WorkloadPlan,
        parts: Mapping[str, tuple[Query, Closing | None]],
        groups: Mapping[str, str],
        statistics: Statistics,
    ) -> WorkloadPlan:
        """The plan with stores from which unmatched rows of outer joins are found; queries that run keep theirs."""
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


def _group_plan(plan: WorkloadPlan | None, group: str) -> WorkloadPlan | None:
    """A group's part of a plan, as the optimiser knows it."""
    if plan is None:
        return None
    walked = [a for a in plan.answers if _is_walked(a.closing) and plan.group_of(a.name) == group]
    answers = [Answer(answer.name, answer.query, answer.walks) for answer in walked]
    part = WorkloadPlan(()).with_answers(answers, plan.upkeep)
    return part.in_group("") if part.answers else None


def _is_walked(closing: Closing | None) -> bool:
    return closing is None or closing.walked
