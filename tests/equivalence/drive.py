"""A workload through the local runner, its changes decided as in production."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tests.equivalence.options import random_options
from tests.equivalence.oracle import PERIOD
from tests.equivalence.portions import random_portion
from tests.equivalence.visibilities import PAST
from tests.equivalence.workloads import Change, Workload
from tests.local_runner import LocalRunner
from tests.random_statistics import random_statistics
from tests.restless_tasks import random_scale
from weft.adapting.adoption import adopted, filled, side_by_side
from weft.adapting.planner import Planner
from weft.optimizer.reordering import reordered
from weft.optimizer.space import Options
from weft.plan.physical.graph import Member
from weft.runtime.log.values import Manifest
from weft.runtime.loop.adapter import Situation
from weft.runtime.loop.driver_order import POLICIES
from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.observe.progress import History
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.active import ActiveQueries, Decision, Samples
from weft.runtime.queries.migration import StateMigration
from weft.runtime.queries.request import QueryRequest
from weft.runtime.queries.transition import Transition, can_be_filled, is_filled
from weft.runtime.queries.visibility import StateFacts
from weft.stats.statistics import Statistics, StreamStatistics


@dataclass(frozen=True)
class Setting:
    """How a workload is run."""

    method: str
    options: Options
    driver: str
    statistics: Callable[[], Statistics]
    seed: int = 0
    afresh: float = 0.0  # how often all is planned anew though no query changes
    beside: float = 0.0  # how often the stores of a plan made anew are filled side by side, where they can be


@dataclass(frozen=True)
class Boundary:
    """A change of queries as it was decided: what ran before, and what was made of it."""

    number: int
    before: ExecutableGraph | None
    facts: StateFacts
    decision: Decision


@dataclass
class Course:
    """A workload as it ran: results by query with their batches, members as they were taken in, figures by batch."""

    results: dict[str, list[tuple[int, pa.Table]]] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    metrics: dict[int, BatchMetrics] = field(default_factory=dict)
    boundaries: list[Boundary] = field(default_factory=list)
    pauses: int = 0  # how often no query ran
    filled: int = 0  # how often stores that were filled side by side took over
    backfilled: dict[str, int] = field(
        default_factory=dict
    )  # the batch in which a query got results of the past

    def take(self, came: int, found: Mapping[str, pa.Table]) -> None:
        """Results of a batch."""
        for name, table in found.items():
            self.results.setdefault(name, []).append((came, table))


def rates_only(rng: random.Random, names: Sequence[str]) -> Statistics:
    """Rates that differ, and nothing else."""
    return Statistics({name: StreamStatistics(rate=10 ** rng.uniform(0, 4)) for name in names})


def any_statistics(rng: random.Random, names: Sequence[str]) -> Statistics:
    """Whatever may be known, or believed, of streams: see `tests/random_statistics.py`."""
    return random_statistics(rng, dict.fromkeys(names, ("k", "n")))


def random_setting(
    workload: Workload,
    method: str,
    seed: int,
    drawn: Callable[[random.Random, Sequence[str]], Statistics] = any_statistics,
) -> Setting:
    """Any options, weights, statistics and driver policy; mostly the joint optimiser is free to choose."""
    rng = random.Random(seed)
    options = random_options(rng.randrange(1 << 40), "auto")
    if rng.random() < 0.8:
        options = replace(options, probe_orders="auto")
    names = [stream.name for stream in workload.streams.catalog.streams]
    restless = rng.random() < 0.3

    def draw() -> Statistics:
        return drawn(rng, names)

    first = draw()
    driver = rng.choice(list(POLICIES))
    return Setting(method, options, driver, draw if restless else lambda: first, rng.randrange(1 << 40))


def run(workload: Workload, setting: Setting) -> Course:
    """All batches, and the changes between them; then the input ends."""
    return _Drive(workload, setting).run()


class _Drive:
    """The state of a run, as the loop has it."""

    def __init__(self, workload: Workload, setting: Setting) -> None:
        self.workload, self.setting = workload, setting
        self.decide = Planner(setting.options, setting.method)
        self.active_queries = ActiveQueries()
        self.rng = random.Random(setting.seed)
        self.runner: LocalRunner | None = None
        self.course = Course()
        self.backfill: tuple[str, ...] = ()  # queries that the next batch gives results of the past to

    def run(self) -> Course:
        for number, change in enumerate(self.workload.changes):
            again = self.setting.afresh > 0 and self.rng.random() < self.setting.afresh
            if change.begin or change.stop:
                self._change(number, change)
            elif self.active_queries.transition is not None:
                self._end_transition(number, self.active_queries.transition)
            elif again and self.active_queries.program is not None:
                self._change_plan(number)
            if self.active_queries.program is not None and self.runner is not None:
                tables, batch = self.workload.streams.tables, self.workload.streams.batches[number]
                data = {
                    name: tables[name].slice(first, last - first) for name, (first, last) in batch.items()
                }
                self._process(number, self.runner.process_all(data, now=number * PERIOD))
                self.course.metrics[number] = self.runner.metrics[-1]
        if self.active_queries.program is not None and self.runner is not None:
            number = len(self.workload.changes)
            self._process(number, self.runner.end(now=number * PERIOD))
        return self.course

    def _process(self, number: int, found: Mapping[str, pa.Table]) -> None:
        """The results of a batch; those of the past that queries asked for are told apart."""
        assert self.runner is not None
        past, self.backfill = {name: self.runner.past(name) for name in self.backfill}, ()
        self.course.take(PAST, past)
        self.course.backfilled.update(dict.fromkeys(past, number))
        rest = {name: found[name].slice(past[name].num_rows if name in past else 0) for name in found}
        self.course.take(number, rest)

    def _change(self, number: int, change: Change) -> None:
        requests = {
            name: one for name, one in self.active_queries.requests.items() if name not in change.stop
        }
        for name, wish in change.begin.items():
            requests[name] = QueryRequest(wish.query, (), wish.strategy, wish.backfill, None, wish.ordering)
        if not requests:
            self.active_queries = ActiveQueries()
            self.course.pauses += 1
            return
        self._decided(number, requests, self._samples(requests), False)

    def _change_plan(self, number: int) -> None:
        """Plan all queries anew, and go over to the new plan at once, or by filling its stores side by side."""
        running = self.active_queries.plan
        assert running is not None
        planned = self.decide.plan_again(running, self.active_queries.requests, self.setting.statistics())
        if self.rng.random() < 0.25:
            planned = reordered(running, self.setting.statistics(), self.setting.options), planned[1]
        situation = self._situation(number)
        decision, transition = adopted(situation, *planned), None
        if self.rng.random() < self.setting.beside and can_be_filled(running, decision.plan):
            transition = Transition.beginning(decision.plan, situation.facts)
            meanwhile = running
            other = reordered(running, self.setting.statistics(), self.setting.options)
            if self.rng.random() < 0.5 and can_be_filled(other, decision.plan):
                meanwhile = other
            decision = side_by_side(situation, decision, meanwhile)
        self._adopt(number, situation, decision, transition)

    def _end_transition(self, number: int, transition: Transition) -> None:
        """Go over to a plan whose stores have been filled, if they have."""
        situation, program = self._situation(number), self.active_queries.program
        assert program is not None
        if is_filled(transition, program.graph, situation.facts):
            self.course.filled += 1
            self._adopt(number, situation, filled(situation, transition), None)

    def _situation(self, number: int) -> Situation:
        return Situation(self.active_queries, Manifest(), self._facts(number), History())

    def _adopt(
        self, number: int, situation: Situation, decision: Decision, transition: Transition | None
    ) -> None:
        before = self.active_queries.program
        self.course.boundaries.append(Boundary(number, before, situation.facts, decision))
        self._go_on(number, decision)
        program = ExecutableGraph(decision.graph)
        self.active_queries = replace(
            self.active_queries,
            plan=decision.plan,
            program=program,
            fresh=decision.fresh,
            transition=transition,
        )

    def _decided(
        self, number: int, requests: Mapping[str, QueryRequest], samples: Samples | None, afresh: bool
    ) -> None:
        facts = self._facts(number)
        statistics = self.setting.statistics()
        decision = self.decide(self.active_queries, requests, statistics, facts, samples, afresh)
        self.course.boundaries.append(Boundary(number, self.active_queries.program, facts, decision))
        self._go_on(number, decision)
        for member in decision.graph.members:
            self.course.members.setdefault(member.name, member)
        self.active_queries = ActiveQueries(
            requests, decision.plan, ExecutableGraph(decision.graph), {}, decision.fresh
        )

    def _samples(self, requests: Mapping[str, QueryRequest]) -> Samples | None:
        """At times, as if tuples had been seen that are for some of the queries or for the others, never for both."""
        if self.rng.random() < 0.5:
            return None
        names = tuple(requests)
        some = self.rng.randrange(1 << len(names))
        halves = {some: 50.0, (1 << len(names)) - 1 - some: 50.0}
        return Samples(names, {alias: halves for one in requests.values() for alias in one.query.aliases})

    def _facts(self, number: int) -> StateFacts:
        """What is known; if no query ran, of the streams only."""
        if self.runner is None:
            return StateFacts()
        facts = self.runner.facts
        return facts if self.active_queries.program else replace(facts, number=number, kept={}, evicted={})

    def _go_on(self, number: int, decision: Decision) -> None:
        partitions, driver = self.setting.options.partitions, self.setting.driver
        if self.runner is None:
            portion = random_portion(self.setting.seed)
            self.runner = LocalRunner(
                decision.graph,
                partitions=partitions,
                driver=driver,
                portion_bytes=portion,
                scaler=random_scale(self.setting.seed),
            )
        elif self.active_queries.program is None:
            assert decision.migration == StateMigration()
            self.runner = self.runner.resume_at(decision.graph, number)
        else:
            self.runner.change(decision.graph, decision.migration)
            self.backfill = tuple(
                member.name
                for member in decision.graph.members
                if member.name in decision.migration.backfill and not member.held
            )
