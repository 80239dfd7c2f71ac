"""One hop of a graph in one partition (design, D10).

Guarantees: pure but for the additions to the state it is given. Inputs are processed one after the other, in the driver
order: each first probes and is then stored. A probe on behalf of an input sees every run of earlier batches, and this
batch's additions made by inputs that come before it in the driver order, all of which are there by then; so it finds
each result exactly once: on behalf of its last tuple (design, D5). What it finds has left the task before anything is
done with the next input. A tuple whose key is NULL is not sent, since it joins nothing, except to stores from which
rows are closed. Where there are many queries, a tuple is sent over an edge iff some query that it is for uses the edge,
and a result goes to just those queries that it is for (design, D7).

Neither all that arrives for a probe nor all that it finds is held at once (design, D14): a portion of matches becomes
results, leaves for other partitions and goes through the probes that follow in the same task before the next portion is
made. Only matches that are to be stored in this partition wait for their rule. Matches that are only counted are not
made where ranges of an index say how many they are, also of several inputs that one tuple probes (`counting`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from weft.bucket.bucket import Bucket
from weft.errors import FunctionError
from weft.kernels.expr.user_functions import current
from weft.kernels.route.heavy import heavy_rows
from weft.plan.physical.rules import ProbeRule, ResultRule, Rule, StoreRule
from weft.plan.schedule import LOCAL
from weft.runtime.hop.census import count_keys
from weft.runtime.hop.closing import close_rows
from weft.runtime.hop.counting import count_for_queries, count_in_chain, count_matches
from weft.runtime.hop.groups.factorised import gather_factorised
from weft.runtime.hop.groups.group_hop import run_groups
from weft.runtime.hop.outcome import HopOptions, Outcome
from weft.runtime.hop.probe_step import Heaviest, MatchPortion, Probe, prepare
from weft.runtime.hop.projection import finish
from weft.runtime.hop.routing import filter_rows, rows_for, send
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.model.columns import along, concat, values_of
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.store_plans import Step
from weft.runtime.state.stores import State, make_run

__all__ = [
    "Here",
    "Probes",
    "run_hop",
    "visible_runs",
]


CLOSING = 1  # the hop in which rows are closed: all inputs are stored in it

Arrived = Mapping[str, Sequence[pa.RecordBatch]]


def run_hop(
    program: ExecutableGraph,
    hop: int,
    arrived: Arrived,
    state: State,
    batch_order: BatchOrder,
    options: HopOptions | None = None,
    partition: int = 0,
    outcome: Outcome | None = None,
) -> Outcome:
    """Apply the rules of a hop to what arrived in a partition; a hop after the graph's last one has no rules.

    A task that has several partitions adds what the hop gives in each of them to one ``outcome``.
    """
    outcome = Outcome(options) if outcome is None else outcome
    closes = hop == CLOSING and not outcome.options.at_boundary
    here: Here = {edge: list(batches) for edge, batches in arrived.items() if batches}
    if program.groups and hop == program.graph.hops:
        run_groups(program, here, state, batch_order, partition, outcome)
        return outcome.with_calls(current())
    if closes:
        _count(program, here, state, outcome)
    for name in list(here):
        for rider in program.piggybacked[name]:
            here[rider] = [*_riding(program, rider, here[name]), *here.get(rider, ())]
    rules = program.hops[hop] if hop < len(program.hops) else ()
    probes = Probes(program, state, batch_order, outcome, here)
    for rule in _in_driver_order(program, rules, batch_order):
        batches = [batch for batch in here.pop(rule.edge, ()) if batch.num_rows]
        if not batches or not outcome.options.uses(rule.edge):
            continue
        if isinstance(rule, StoreRule):
            batch, plan = concat(batches), program.stores[rule.store]
            stored = batch if plan.per_key else rows_for(program, rule.users, batch)
            with outcome.failing(rule.users):
                state.add(plan, program.starts[rule.edge], make_run(plan, stored, batch_order.number))
        elif isinstance(rule, ProbeRule):
            with outcome.failing(rule.users):
                probes.run(rule, batches)
    if closes:
        _close(program, state, batch_order, partition, outcome)
    return outcome.with_calls(current())


def _in_driver_order(program: ExecutableGraph, rules: Sequence[Rule], batch_order: BatchOrder) -> list[Rule]:
    """Rules by the inputs whose tuples they are for, in the driver order; the probes of an input before its stores.

    No probe needs what its own input adds in this batch, so results need not wait until tuples are stored.
    """
    ranks = {alias: rank for rank, alias in enumerate(batch_order.order)}
    return sorted(rules, key=lambda rule: (ranks[program.starts[rule.edge]], isinstance(rule, StoreRule)))


def _count(program: ExecutableGraph, here: Here, state: State, outcome: Outcome) -> None:
    """Count the keys of queries on one key, and set tuples aside whose keys would have too many results."""
    for sweep in program.sweeps:
        if sweep.on_one_key:
            arrived = {alias: here[edge] for alias, edge in sweep.entries.items() if here.get(edge)}
            with outcome.failing([sweep.member.name]):
                census, kept = count_keys(program, sweep, arrived, state, outcome.options.limits.key_results)
                outcome.add_census(sweep.member.name, census)
                here |= {sweep.entries[alias]: batches for alias, batches in kept.items()}


def _close(
    program: ExecutableGraph,
    state: State,
    batch_order: BatchOrder,
    partition: int,
    outcome: Outcome,
) -> None:
    """Close rows of queries with outer joins; a query for which that fails is stopped, and the others go on."""
    portion = outcome.options.limits.portion_bytes
    for sweep in program.sweeps:
        name = sweep.member.name
        try:
            for rows, times in close_rows(program, sweep, state, batch_order, partition, portion):
                if name in program.groups:
                    outcome.gather(name, program.groups[name].partials, rows)
                else:
                    outcome.close(name, rows, times)
        except Exception as error:
            outcome.fail([name], error)


def _riding(
    program: ExecutableGraph, rider: str, stored: Sequence[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The tuples that are piggybacked on those that an edge brings to a store.

    These are all of them or, if a value decides the partition, those whose value is not heavy: the source sends the
    others.
    """
    by, apart = program.edges[rider].by, program.heavy(rider)
    for batch in stored:
        if by is None:
            yield batch
            continue
        slim = batch.select([*program.carried[rider], *along(batch)])
        yield filter_rows(slim, ~heavy_rows(values_of(batch, by), apart.rides))


Here = dict[str, list[pa.RecordBatch]]  # what has arrived in a task, by edge


@dataclass
class Probes:
    """The probes of a hop.

    ``here`` are the batches in the task that wait for their rule, by edge. When an input probes, all that the inputs
    before it in the driver order add to stores in this hop is there.
    """

    program: ExecutableGraph
    state: State
    batch_order: BatchOrder
    outcome: Outcome
    here: Here
    _path: list[Probe] = field(
        default_factory=list, init=False
    )  # the probes that are under way, the first one first

    def run(self, rule: ProbeRule, batches: Sequence[pa.RecordBatch]) -> None:
        """Probe with batches that have arrived, and pass the matches on, within the task or to others."""
        for batch in _joined(batches, self.outcome.options.limits.portion_bytes):
            self._probe(rule, batch)

    def _probe(self, rule: ProbeRule, batch: pa.RecordBatch) -> None:
        if self._nobody_waits(rule):
            return
        try:
            runs = visible_runs(self.program, rule, self.state, self.batch_order)
            probe = prepare(self.program.steps[rule.edge], batch, runs, self.batch_order)
            with self._under_way(probe):
                self._pass_on_all(rule, probe)
        except FunctionError as error:
            self.outcome.fail(rule.users, error)

    def _pass_on_all(self, rule: ProbeRule, probe: Probe) -> None:
        """Pass on the matches of a probe, portion by portion."""
        onward = [name for name in rule.outputs if self.outcome.options.uses(name)]
        ends = [end for name in onward if isinstance(end := self.program.rules[name], ResultRule)]
        further = [name for name in onward if not isinstance(self.program.rules[name], ResultRule)]
        self.outcome.tally(rule.edge, probes=probe.tuples)
        if self._counted(rule, ends, probe) if not further else self._counted_in_chain(rule, probe):
            return
        if self._in_groups(rule, ends, further, probe):
            return
        for found in probe.portions(self.outcome.options.limits.portion_bytes):
            self.outcome.tally(rule.edge, matches=found.num_rows)
            self._pass_on(found, ends, further)
            if self._nobody_waits(rule):
                return

    def _nobody_waits(self, rule: ProbeRule) -> bool:
        """Whether all queries that a rule is for have failed."""
        failed = self.outcome.failed
        return bool(failed) and all(name in failed for name in rule.users)

    @contextmanager
    def _under_way(self, probe: Probe) -> Iterator[None]:
        self._path.append(probe)
        try:
            yield
        finally:
            self._path.pop()

    def _heaviest(self) -> Heaviest | None:
        """Of the keys of probes under way, the one with the most partners, which made the results so many."""
        found = [one for probe in self._path if (one := probe.heaviest()) is not None]
        return max(found, key=lambda one: one.matches, default=None)

    def _counted(self, rule: ProbeRule, ends: Sequence[ResultRule], probe: Probe) -> bool:
        """Count the results of a probe, if only their number is asked for and they need not be made; else False."""
        if not all(self.outcome.options.only_counts(end.users) for end in ends):
            return False
        if not self.program.sets:
            return count_matches(rule, ends, probe, self.outcome, self._heaviest)
        one = len(ends) == 1
        return one and count_for_queries(self.program, ends[0], probe, self.outcome, self._heaviest)

    def _counted_in_chain(self, rule: ProbeRule, probe: Probe) -> bool:
        """Count the results of a probe and those that follow it in the task, if they can stay ranges; else False."""
        chain, options = self.program.chains.get(rule.edge, ()), self.outcome.options
        names = [name for step in chain for name in step.rule.outputs]
        ends = [end for name in names if isinstance(end := self.program.rules[name], ResultRule)]
        if not ends or not all(map(options.uses, names)):
            return False
        if not all(options.only_counts(end.users) for end in ends):
            return False
        return count_in_chain(rule, ends, probe, chain, self._seen, self.outcome, self._heaviest)

    def _in_groups(
        self, rule: ProbeRule, ends: Sequence[ResultRule], further: Sequence[str], probe: Probe
    ) -> bool:
        """Gather the results of a probe and those that follow it as groups, if they need not be made; else False."""
        chain = self.program.chains.get(rule.edge, ()) if further else (probe.step,)
        names = [name for step in chain[1:] for name in step.rule.outputs]
        ends = [*ends, *(end for name in names if isinstance(end := self.program.rules[name], ResultRule))]
        if not chain or self.program.sets or len(ends) != 1 or not all(map(self.outcome.options.uses, names)):
            return False
        plan = self.program.groups.get(ends[0].users[0])
        return plan is not None and gather_factorised(plan, probe, chain, self._seen, self.outcome)

    def _seen(self, step: Step) -> list[Bucket]:
        return visible_runs(self.program, step.rule, self.state, self.batch_order)

    def _pass_on(self, found: MatchPortion, ends: Sequence[ResultRule], further: Sequence[str]) -> None:
        for end in ends:
            finish(self.program, end, found, self.batch_order, self.outcome, self._heaviest)
        if not further:
            return
        matches = found.to_batch()
        for name in further:
            edge, after = self.program.edges[name], self.program.rules[name]
            if edge.kind != LOCAL:
                send(
                    self.program,
                    edge,
                    rows_for(self.program, after.users, matches),
                    self.batch_order,
                    self.outcome,
                )
            elif isinstance(after, ProbeRule):
                self._probe(after, matches)
            else:
                self.here.setdefault(name, []).append(matches)


def visible_runs(
    program: ExecutableGraph, rule: ProbeRule, state: State, batch_order: BatchOrder
) -> list[Bucket]:
    """The runs that a probe sees: those of earlier batches, and of this batch those of inputs before its own."""
    plan = program.stores[rule.store]
    runs = list(state.earlier_runs(plan))
    for start in plan.node.aliases:
        if batch_order.sees(rule.start, start):
            runs += state.added(plan, start)
    return runs


def _joined(batches: Sequence[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """The rows of batches with the same columns, in few batches of at most so many bytes, or of one row."""
    some: list[pa.RecordBatch] = []
    held = 0
    for piece, taken in (found for batch in batches for found in _pieces(batch, size)):
        if some and held + taken > size:
            yield concat(some)
            some, held = [], 0
        some.append(piece)
        held += taken
    if some:
        yield concat(some)


def _pieces(batch: pa.RecordBatch, size: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """A batch, in pieces of at most so many bytes if it is larger, each with about how many bytes it takes."""
    whole = batch.nbytes
    if whole <= size:
        yield batch, whole
        return
    rows = max(1, size * batch.num_rows // whole)
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows), rows * whole // batch.num_rows
