"""The runner without Spark: partitions are objects, a shuffle is a dictionary (design, D10).

Guarantees: the same interpreter, routing and order as on Spark, in one process; the answer depends on the input alone,
not on the number of partitions or on the driver policy (design, section 3, says what it is). It reads no clock but to
measure itself: the arrival time of a batch is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from time import perf_counter
from typing import TypeAlias

import pyarrow as pa

from weft.bucket.bucket import Bucket
from weft.errors import CatalogError, nearest
from weft.kernels.arrow import result_schema
from weft.kernels.punctuation import Punctuations
from weft.kernels.user_functions import CallCounts, Function, calling
from weft.logical.query import Query
from weft.plan.graph import PhysicalGraph
from weft.runtime.census import Census
from weft.runtime.driver import DEFAULT, Observed, driver_order
from weft.runtime.gather import gathered
from weft.runtime.heavy import Counted, next_heavy
from weft.runtime.held import Held
from weft.runtime.interpret import LIMIT, leave_past, leave_source, run_hop
from weft.runtime.metrics import (
    BatchMetrics,
    InputMetrics,
    next_keys,
    sum_conditions,
    sum_functions,
    sum_steps,
    sum_stores,
)
from weft.runtime.outcome import Boundary, Outcome, Parcel, StepCount
from weft.runtime.prepared import StorePlan
from weft.runtime.program import Program
from weft.runtime.refresh import past_rows, refreshed
from weft.runtime.relay import Facts, Relay, edges_for, evicted_after, kept_after
from weft.runtime.source import Admitted, admit, numbered
from weft.runtime.state import Forget, PartitionState
from weft.runtime.step import PORTION_BYTES
from weft.runtime.turn import ENDED, Count, Turn
from weft.runtime.watermark import Watermarks, clocks, connected_streams, forgettable

__all__ = ["LocalRunner"]

Data: TypeAlias = "pa.RecordBatch | pa.Table"

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


Waiting: TypeAlias = "dict[tuple[int, int], dict[str, list[pa.RecordBatch]]]"  # by hop and partition; by edge


@dataclass(frozen=True, slots=True)
class _Done:
    began: float
    results: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    steps: list[StepCount] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    closed: dict[str, int] = field(default_factory=dict)
    census: list[tuple[str, Census]] = field(default_factory=list)
    calls: list[CallCounts] = field(default_factory=list)
    heavy: list[Counted] = field(default_factory=list)


class LocalRunner:
    """Runs batches through a graph, in this process; the graph may change between them."""

    def __init__(
        self,
        graph: PhysicalGraph,
        *,
        partitions: int | None = None,
        driver: str = DEFAULT,
        limit: int = LIMIT,
        functions: Mapping[str, Function] | None = None,
        portion_bytes: int = PORTION_BYTES,
    ) -> None:
        self.program, self.portion_bytes = Program(graph), portion_bytes
        layouts = [store.layout.partitions for store in graph.stores]
        self.partitions = partitions or max(layouts, default=1)
        self.driver, self.limit, self.functions = driver, limit, functions or {}
        self.states = [PartitionState() for _ in range(self.partitions)]
        self.watermarks = Watermarks()
        self.arrived: dict[str, int] = {}  # by stream
        self.newest: dict[str, int] = {}
        self.oldest: dict[str, int] = {}
        self.kept = kept_after(None, self.program, Relay(), Facts())
        self.evicted: dict[str, int] = {}
        self.closed: dict[str, int] = {}  # by query: up to which time
        self.dealt: dict[str, int] = {}  # by store: how many tuples have been dealt out to its partitions
        self.waiting: dict[str, list[Held]] = {}  # results that are held back, by query
        self.punctuations: dict[str, Punctuations] = {}  # of all batches, by query
        self.metrics: list[BatchMetrics] = []
        self.number = 0  # of the next batch
        self._results: dict[str, list[pa.RecordBatch]] = {}

    @property
    def graph(self) -> PhysicalGraph:
        """What runs."""
        return self.program.graph

    def resumed(self, graph: PhysicalGraph, number: int) -> LocalRunner:
        """A runner that goes on with a batch after some in which no query ran: nothing is stored any more.

        What is known of the streams is still known.
        """
        runner = LocalRunner(
            graph,
            partitions=self.partitions,
            driver=self.driver,
            limit=self.limit,
            functions=self.functions,
            portion_bytes=self.portion_bytes,
        )
        runner.watermarks, runner.arrived = self.watermarks, self.arrived
        runner.newest, runner.oldest = self.newest, self.oldest
        runner.number, runner.metrics, runner.closed = number, self.metrics, self.closed
        runner.punctuations = self.punctuations
        return runner

    def process(self, data: Mapping[str, Data], *, now: datetime | int = 0) -> pa.Table:
        """The results of a batch of a graph of one query: tables by alias, or by stream for all of its aliases.

        ``now`` is the arrival time (an integer: microseconds), which counts for streams without event time and
        for idle ones.
        """
        query = self.graph.query
        known = {*query.aliases, *(input_.stream.name for input_ in query.inputs)}
        for name in data:
            if name not in known:
                raise CatalogError(f"the query reads no stream {name!r}", hint=nearest(name, known))
        named = {
            input_.alias: data[input_.stream.name] for input_ in query.inputs if input_.stream.name in data
        }
        named |= {alias: data[alias] for alias in query.aliases if alias in data}
        return self._batch(named, now)[self.graph.members[0].name]

    def process_all(self, data: Mapping[str, Data], *, now: datetime | int = 0) -> dict[str, pa.Table]:
        """The results of a batch, by query; tables are by stream."""
        streams = {alias: self.graph.input(alias).stream.name for alias in self.graph.aliases}
        return self._batch({alias: data[name] for alias, name in streams.items() if name in data}, now)

    def end(self, *, now: datetime | int = 0) -> dict[str, pa.Table]:
        """The results, by query, that follow from nothing more coming: rows that still waited for a partner."""
        return self._batch({}, now, ended=True)

    def _batch(
        self, data: Mapping[str, Data], now: datetime | int, ended: bool = False
    ) -> dict[str, pa.Table]:
        began = perf_counter()
        time = now if isinstance(now, int) else (_aware(now) - _EPOCH) // timedelta(microseconds=1)
        admitted = {alias: self._admit(alias, table, time) for alias, table in data.items()}
        turn = self._turn(admitted, ended)
        with calling(self.functions):
            done = self._run(admitted, turn, began)
        self._commit(admitted, turn, time, done)
        for name, batches in done.results.items():
            self._results.setdefault(name, []).extend(batches)
        return {m.name: _table(m.query, done.results.get(m.name, [])) for m in self.graph.members}

    def results(self, name: str | None = None) -> pa.Table:
        """The results of all batches so far, of a query or of the only one."""
        member = self.graph.member(name) if name else self.graph.members[0]
        return _table(member.query, self._results.get(member.name, []))

    @property
    def facts(self) -> Facts:
        """What is known of the state before the next batch."""
        marks = dict(self.watermarks.marks)
        return Facts(self.number, self.kept, self.evicted, marks, self.newest, self.oldest, self.arrived)

    def change(self, graph: PhysicalGraph, relay: Relay) -> dict[str, pa.Table]:
        """Go on by another graph from the next batch on; what queries have in the stored past, if they asked for it."""
        old, new, facts = self.program, Program(graph), self.facts
        self.kept = kept_after(old, new, relay, facts)
        self.evicted = evicted_after(new, relay, facts)
        with calling(self.functions) as calls:
            filled, done = self._relayed(new, relay)
            for state, made in zip(self.states, filled, strict=True):
                runs = {
                    plan.identity: tuple(self._refreshed(new, plan, state)) for plan in new.stores.values()
                }
                state.runs = {
                    name: made.runs.get(name, ()) if name in relay.fills else runs[name] for name in runs
                }
            for error in calls.failed.values():
                raise error
        self.program = new
        for name in [name for name in done.results if new.members[name].held]:
            self.waiting[name] = [Held(run) for run in done.results.pop(name)]
        for name, batches in done.results.items():
            self._results.setdefault(name, []).extend(batches)
        return {name: _table(new.members[name].query, done.results.get(name, [])) for name in relay.backfill}

    def _refreshed(self, new: Program, plan: StorePlan, state: PartitionState) -> Iterator[Bucket]:
        for run in state.settled(plan):
            yield refreshed(new, plan, run, self.number - 1)

    def _relayed(self, new: Program, relay: Relay) -> tuple[list[PartitionState], _Done]:
        """The stores to be filled, by running what is stored through the new graph as one batch."""
        states = [PartitionState() for _ in self.states]
        turn = Turn(self.number, new.graph.aliases, self.partitions, dict.fromkeys(new.counted, Count(0, 0)))
        job = Boundary(edges_for(new.graph, relay), relay.backfill)
        waiting: Waiting = {}
        done = _Done(0.0)
        for read in relay.reads:
            for partition, state in enumerate(self.states):
                for run in state.runs.get(read.store, ()) if read.is_read_in(partition) else ():
                    rows = past_rows(new, read.alias, run.batch, turn.number - 1, read.users, read.copies)
                    self._take(leave_past(new, read.alias, rows, turn, job, self.dealt), waiting, done, new)
        for hop in range(1, len(new.hops)):
            for partition, state in enumerate(states):
                arrived = waiting.pop((hop, partition), {})
                outcome = run_hop(new, hop, arrived, state, turn, (), job, portion_bytes=self.portion_bytes)
                self._take(outcome, waiting, done, new)
        for plan in new.stores.values():
            for state in states:
                state.commit(plan, turn.order, Forget())
        return states, done

    def _admit(self, alias: str, table: Data, now: int) -> Admitted:
        mark = self.watermarks.of(self.graph.input(alias).stream.name)
        return admit(self.program, alias, table, now=now, watermark=mark)

    def _turn(self, admitted: Mapping[str, Admitted], ended: bool) -> Turn:
        rows = {a: admitted[a].batch.num_rows if a in admitted else 0 for a in self.graph.aliases}
        oldest = {alias: one.oldest for alias, one in admitted.items() if one.oldest is not None}
        results = sum(metrics.results for metrics in self.metrics)
        before = {alias: self._before(alias) for alias in rows}
        seen = Observed(self.number, rows, oldest, self._stored(), before, results)
        counts = {alias: Count(before[alias], rows[alias]) for alias in self.program.counted}
        times = clocks(self.graph, self.watermarks, self.closed, ended=ended)
        return Turn(self.number, driver_order(self.driver, seen), self.partitions, counts, times)

    def _before(self, alias: str) -> int:
        return self.arrived.get(self.graph.input(alias).stream.name, 0)

    def _stored(self) -> dict[str, int]:
        """How many tuples of each input are stored, copies aside."""
        held = self.metrics[-1].stores if self.metrics else {}
        copies = {
            plan.name: self.partitions if plan.node.layout.kind == "replicated" else 1
            for plan in self.program.stores.values()
        }
        named = {p.node.aliases[0]: p.name for p in self.program.stores.values() if len(p.node.aliases) == 1}
        return {alias: held[name].rows // copies[name] for alias, name in named.items() if name in held}

    def _run(self, admitted: Mapping[str, Admitted], turn: Turn, began: float) -> _Done:
        waiting: Waiting = {}
        done = _Done(began)
        for alias, one in admitted.items():
            batch = numbered(self.program, alias, one.batch, self._before(alias))
            self._take(leave_source(self.program, alias, batch, turn, dealt=self.dealt), waiting, done)
        done.seconds.append(perf_counter() - began)
        for hop in range(1, len(self.program.hops)):
            began = perf_counter()
            for partition, state in enumerate(self.states):
                arrived = waiting.pop((hop, partition), {})
                outcome = run_hop(
                    self.program,
                    hop,
                    arrived,
                    state,
                    turn,
                    partition=partition,
                    limit=self.limit,
                    portion_bytes=self.portion_bytes,
                )
                self._take(outcome, waiting, done)
            done.seconds.append(perf_counter() - began)
        return done

    def _take(self, outcome: Outcome, waiting: Waiting, done: _Done, program: Program | None = None) -> None:
        for error in outcome.failed.values():
            raise error
        for name, batches in outcome.results.items():
            done.results.setdefault(name, []).extend(batches)
        done.steps.extend(outcome.steps)
        done.calls.append(outcome.calls)
        done.census.extend(outcome.census.items())
        done.heavy.extend(outcome.heavy)
        for store, rows in outcome.dealt.items():
            self.dealt[store] = self.dealt.get(store, 0) + rows
        for name, rows in outcome.closed.items():
            done.closed[name] = done.closed.get(name, 0) + rows
        parcel: Parcel
        for parcel in outcome.sent:
            place = ((program or self.program).edges[parcel.edge].hop, parcel.partition)
            waiting.setdefault(place, {}).setdefault(parcel.edge, []).append(parcel.batch)

    def _commit(self, admitted: Mapping[str, Admitted], turn: Turn, now: int, done: _Done) -> None:
        began = perf_counter()
        newest: dict[str, int] = {}
        before = dict(self.arrived)
        for alias, one in admitted.items():
            stream = self.graph.input(alias).stream.name
            self.arrived[stream] = before.get(stream, 0) + one.batch.num_rows
            if one.newest is not None:
                newest[stream] = max(one.newest, newest.get(stream, one.newest))
            if one.oldest is not None:
                self.oldest[stream] = min(one.oldest, self.oldest.get(stream, one.oldest))
        self.newest |= {name: max(time, self.newest.get(name, time)) for name, time in newest.items()}
        self.watermarks = self.watermarks.advance(connected_streams([self.graph]), newest, now)
        for plan in self.program.stores.values():
            forget = forgettable(plan, self.watermarks, turn)
            if forget.since is not None:
                self.evicted[plan.identity] = max(forget.since, self.evicted.get(plan.identity, forget.since))
            for state in self.states:
                state.commit(plan, turn.order, forget)
        self.closed = {name: clock.now for name, clock in turn.clocks.items()}
        self._gather(turn, done)
        done.seconds.append(perf_counter() - began)
        self.metrics.append(self._measured(admitted, turn, now, done))
        self.number += 1

    def _gather(self, turn: Turn, done: _Done) -> None:
        """Bring the results of ordered queries into order; some of them wait."""
        for name, member in self.program.members.items():
            if member.ordering is None:
                continue
            known = self.punctuations.get(name, Punctuations.none())
            rows = sum(batch.num_rows for batch in self._results.get(name, []))
            waiting = self.waiting.get(name, [])
            found = gathered(member, done.results.get(name, []), turn, rows, self.watermarks, waiting)
            done.results[name] = found.table.to_batches()
            self.waiting[name] = list(found.waiting)
            self.punctuations[name] = Punctuations.joined([known, found.punctuations])

    def _measured(self, admitted: Mapping[str, Admitted], turn: Turn, now: int, done: _Done) -> BatchMetrics:
        names = {plan.identity: plan.name for plan in self.program.stores.values()}
        held = [
            (names[s], run.bounds)
            for state in self.states
            for s, runs in state.runs.items()
            if s in names
            for run in runs
        ]
        answers = {
            member: sum(batch.num_rows for batch in done.results.get(member, []))
            for member in self.program.members
        }
        return BatchMetrics(
            turn.number,
            turn.order,
            {alias: _input_metrics(one) for alias, one in admitted.items()},
            sum_steps(done.steps),
            sum_stores(held),
            sum(answers.values()),
            answers,
            dict(self.watermarks.marks),
            tuple(done.seconds),
            now / 1e6,
            perf_counter() - done.began,
            closed=done.closed,
            functions=sum_functions(done.calls),
            conditions=sum_conditions(done.calls, self.graph),
            heavy=next_heavy(self.metrics[-1].heavy if self.metrics else {}, done.heavy),
            keys=next_keys(
                self.metrics[-1].keys if self.metrics else {},
                done.census,
                [name for name, clock in turn.clocks.items() if clock.now >= ENDED],
            ),
        )


def _table(query: Query, batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, result_schema(query))


def _input_metrics(one: Admitted) -> InputMetrics:
    return InputMetrics(one.batch.num_rows, one.late, one.untimed, oldest=one.oldest, newest=one.newest)


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
