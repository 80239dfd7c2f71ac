"""Batches in this process, one at a time, by the loop, the tasks and the commit that run on Spark (design, D10).

Guarantees: the answer depends on the input alone, not on the number of partitions or on the driver policy (design,
section 3, says what it is). It reads no clock but to measure itself: the arrival time of a batch is given. Nothing is
kept beyond the process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any, TypeAlias

import pyarrow as pa

from weft.bucket.bucket import Bucket
from weft.connectors.memory.sink import MemorySink
from weft.connectors.memory.source import TableSource
from weft.errors import CatalogError, nearest
from weft.kernels.expr.arrow import result_schema
from weft.kernels.expr.user_functions import Function
from weft.logical.expr.node import BOOLEAN
from weft.logical.expr.user_functions import UserFunction
from weft.plan.physical.graph import Member, PhysicalGraph
from weft.ports.punctuation import Punctuations
from weft.runtime.local import LocalExecutor
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import HeldRun, Manifest
from weft.runtime.loop.batch_planner import BatchPlanner
from weft.runtime.loop.config import RunConfig
from weft.runtime.loop.driver_order import DEFAULT
from weft.runtime.loop.loop import Loop
from weft.runtime.loop.scaling import FixedScale, Scaler
from weft.runtime.model.limits import LIMIT, PORTION_BYTES
from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.store_plans import StorePlan
from weft.runtime.queries.active import ActiveQueries
from weft.runtime.queries.changelog import Changes
from weft.runtime.queries.migration import StateMigration
from weft.runtime.queries.request import QueryRequest
from weft.runtime.queries.visibility import StateFacts
from weft.runtime.state.open_segments import open_segments_of
from weft.runtime.wire.functions import PackedFunction

__all__ = ["LocalRunner"]

Data: TypeAlias = "pa.RecordBatch | pa.Table"

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class _Given(BatchPlanner):
    """Decides nothing: the next graph is given."""

    given: tuple[ActiveQueries, StateMigration] | None = None

    def next_queries(
        self,
        changes: Changes,  # noqa: ARG002
        before: Manifest,  # noqa: ARG002
    ) -> tuple[ActiveQueries, StateMigration, str] | None:
        """What was given since the last batch."""
        found, self.given = self.given, None
        return None if found is None else (*found, "")


@dataclass(frozen=True, slots=True)
class _Partition:
    """The stores of a partition."""

    loop: Loop
    number: int

    def earlier_runs(self, plan: StorePlan) -> Sequence[Bucket]:
        """The runs of a store, oldest first."""
        before = self.loop.before
        segments, program = open_segments_of(self.loop.log.storage), self.loop.active_queries.program
        assert program is not None
        manifest = segments.manifest(self.number, before.partitions.get(self.number))
        runs = manifest.since(before.begun).get(plan.identity, ())
        return [segments.open_for(self.number, run, program, plan) for run in runs]


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
        scaler: Scaler | None = None,
        before: Manifest | None = None,
    ) -> None:
        layouts = [store.layout.partitions for store in graph.stores]
        self.partitions = partitions or max(layouts, default=1)
        self.driver, self.limit, self.functions = driver, limit, dict(functions or {})
        self._now, self._sinks = 0, dict[str, MemorySink]()
        packed = {
            name: PackedFunction(UserFunction(name, BOOLEAN, 1, None), function)
            for name, function in self.functions.items()
        }
        config = RunConfig(
            {},
            {},
            decide=_undecided,
            restore=_unmade,
            describe=lambda _: None,
            partitions=self.partitions,
            driver=driver,
            key_limit=limit,
            functions=packed,
            batch_bytes=1 << 62,
            portion_bytes=portion_bytes,
            scaler=scaler or FixedScale(),
        )
        self.loop = Loop(config, Checkpoint.in_memory(), LocalExecutor(self.partitions), overlapping=False)
        self.loop.batch_planner = self._batch_planner = _Given(config, self.loop.log, self.loop.history)
        self._batch_planner.clock = lambda: self._now
        self.loop.start({})
        self.loop.before = before or Manifest()
        self._give(graph, StateMigration())

    @property
    def program(self) -> ExecutableGraph:
        """The graph of the next batch, prepared for execution."""
        active_queries = (
            self._batch_planner.given[0] if self._batch_planner.given else self.loop.active_queries
        )
        assert active_queries.program is not None
        return active_queries.program

    @property
    def graph(self) -> PhysicalGraph:
        """The graph of the next batch."""
        return self.program.graph

    @property
    def metrics(self) -> list[BatchMetrics]:
        """The metrics of every batch so far."""
        return [metrics for _, metrics in self.loop.history.batches]

    @property
    def facts(self) -> StateFacts:
        """What is known of the state before the next batch."""
        return StateFacts.after(self.loop.before)

    @property
    def states(self) -> list[_Partition]:
        """The stores, by partition."""
        return [_Partition(self.loop, number) for number in range(self.loop.before.ranges or self.partitions)]

    @property
    def dealt(self) -> dict[str, int]:
        """How many tuples have been dealt out to the partitions of each store."""
        return {store: sum(tasks.values()) for store, tasks in self.loop.before.dealt.items()}

    @property
    def waiting(self) -> dict[str, tuple[HeldRun, ...]]:
        """The runs of results that are held back, by query."""
        return dict(self.loop.before.held)

    @property
    def punctuations(self) -> dict[str, Punctuations]:
        """Up to where results are complete, by query."""
        return {
            name: sink.punctuations()
            for name, sink in self._sinks.items()
            if self.graph.member(name).ordering
        }

    def resume_at(self, graph: PhysicalGraph, number: int) -> LocalRunner:
        """A runner that goes on with the batch of that number, after batches in which no query ran.

        Its stores are empty; what the manifest knows of the streams is kept.
        """
        last = self.loop.before
        state = dict[str, Any](partitions={}, stores={}, begun={}, kept={}, evicted={}, held={}, dealt={})
        before = replace(last, number=number - 1, metrics={}, **state)
        runner = LocalRunner(
            graph,
            partitions=self.partitions,
            driver=self.driver,
            limit=self.limit,
            functions=self.functions,
            portion_bytes=self.loop.config.portion_bytes,
            scaler=self.loop.config.scaler,
            before=replace(before, blueprint=""),
        )
        runner.loop.history.batches, runner.loop.history.graphs = self.loop.history.batches, {}
        return runner

    def _give(self, graph: PhysicalGraph, migration: StateMigration) -> None:
        """Go on by a graph from the next batch on."""
        requests = {member.name: _request_of(member) for member in graph.members}
        for name, one in requests.items():
            if name not in self.loop.sinks:
                self._sinks[name] = sink = MemorySink()
                self.loop.sinks.add(name, sink)
                sink.open(result_schema(one.query))
        for input_ in (i for one in requests.values() for i in one.query.inputs):
            name = input_.stream.name
            if name not in self.loop.config.streams:
                self.loop.config.streams[name] = replace(input_.stream, ahead=None)  # its clock is given
                self.loop.config.sources[name] = TableSource(input_.stream.schema)
                self.loop.intake.open(name, self.loop.config.sources[name], {})
        self._batch_planner.given = ActiveQueries(requests, None, ExecutableGraph(graph)), migration

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
        streams = {input_.alias: input_.stream.name for input_ in query.inputs}
        named = {streams.get(name, name): table for name, table in data.items()}
        return self._batch(named, now)[self.graph.members[0].name]

    def process_all(self, data: Mapping[str, Data], *, now: datetime | int = 0) -> dict[str, pa.Table]:
        """The results of a batch, by query; tables are by stream."""
        return self._batch(data, now)

    def end(self, *, now: datetime | int = 0) -> dict[str, pa.Table]:
        """The results, by query, that follow from nothing more coming: rows that still waited for a partner."""
        self._batch_planner.ending = True
        return self._batch({}, now)

    def _batch(self, data: Mapping[str, Data], now: datetime | int) -> dict[str, pa.Table]:
        self._now = now if isinstance(now, int) else (_aware(now) - _EPOCH) // timedelta(microseconds=1)
        sources = self.loop.config.sources
        for name, table in data.items():
            if name in sources:
                source = sources[name]
                assert isinstance(source, TableSource)
                source.offer(table)
        self.loop.run_next(also_empty=True)
        batch = self.loop.last_batch
        assert batch is not None
        for error in batch.executed.reports.answers.broken.values():
            raise error
        number = batch.number
        return {m.name: self._results_of(m, number) for m in self.graph.members}

    def _results_of(self, member: Member, number: int) -> pa.Table:
        return self._sinks[member.name].results_of(number)

    def results(self, name: str | None = None) -> pa.Table:
        """The results of all batches so far, of a query or of the only one."""
        member = self.graph.member(name) if name else self.graph.members[0]
        return self._sinks[member.name].results()

    def change(self, graph: PhysicalGraph, migration: StateMigration) -> None:
        """Go on by another graph from the next batch on, which then also has what queries asked for of the past."""
        self._give(graph, migration)

    def past(self, name: str) -> pa.Table:
        """The unordered results of a query in the last batch that lie in the stored past which it asked for."""
        return pa.Table.from_batches(
            self.loop.past.answers.results(name, self.loop.log.storage),
            result_schema(self.graph.member(name).query),
        )


def _request_of(member: Member) -> QueryRequest:
    return QueryRequest(member.query, (), None, bool(member.backfill), None, member.ordering)


def _undecided(*_: Any) -> Any:
    raise NotImplementedError("the graph is given")


def _unmade(_: Mapping[str, Any]) -> Any:
    raise NotImplementedError("a run in this process is not resumed")


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
