"""The runner without Spark: partitions are objects, a shuffle is a dictionary (design, D10).

Guarantees: the same interpreter, routing and order as on Spark, in one process; the answer depends on the input alone,
not on the number of partitions or on the driver policy (design, section 3, says what it is). It reads no clock but to
measure itself: the arrival time of a batch is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from time import perf_counter
from typing import TypeAlias

import pyarrow as pa

from weft.errors import CatalogError, nearest
from weft.kernels.arrow import arrow_type
from weft.logical.query import Query
from weft.plan.graph import PhysicalGraph
from weft.runtime.driver import DEFAULT, Observed, driver_order
from weft.runtime.interpret import Outcome, Parcel, StepCount, leave_source, run_hop
from weft.runtime.metrics import BatchMetrics, InputMetrics, sum_steps, sum_stores
from weft.runtime.program import Program
from weft.runtime.source import Admitted, admit, numbered
from weft.runtime.state import PartitionState
from weft.runtime.turn import Count, Turn
from weft.runtime.watermark import Watermarks, connected_streams, forgettable

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


class LocalRunner:
    """Runs batches through a graph, in this process; the graph may change between them."""

    def __init__(
        self,
        graph: PhysicalGraph,
        *,
        partitions: int | None = None,
        driver: str = DEFAULT,
    ) -> None:
        self.program = Program(graph)
        layouts = [store.layout.partitions for store in graph.stores]
        self.partitions = partitions or max(layouts, default=1)
        self.driver = driver
        self.states = [PartitionState() for _ in range(self.partitions)]
        self.watermarks = Watermarks()
        self.arrived: dict[str, int] = {}  # by stream
        self.newest: dict[str, int] = {}
        self.metrics: list[BatchMetrics] = []
        self._results: dict[str, list[pa.RecordBatch]] = {}

    @property
    def graph(self) -> PhysicalGraph:
        """What runs."""
        return self.program.graph

    def process(self, data: Mapping[str, Data], *, now: datetime | int = 0) -> pa.Table:
        """The results of a batch of a graph of one query: tables by alias, or by stream for all of its aliases.

        ``now`` is the arrival time (an integer: microseconds), which counts for streams without event time and
        for idle ones.
        """
        found = self.process_all(data, now=now)
        return found[self.graph.members[0].name]

    def process_all(self, data: Mapping[str, Data], *, now: datetime | int = 0) -> dict[str, pa.Table]:
        """The results of a batch, by query."""
        began = perf_counter()
        time = now if isinstance(now, int) else (_aware(now) - _EPOCH) // timedelta(microseconds=1)
        admitted = {alias: self._admit(alias, table, time) for alias, table in self._by_alias(data).items()}
        turn = self._turn(admitted)
        done = self._run(admitted, turn, began)
        self._commit(admitted, turn, time, done)
        for name, batches in done.results.items():
            self._results.setdefault(name, []).extend(batches)
        return {m.name: _table(m.query, done.results.get(m.name, [])) for m in self.graph.members}

    def results(self, name: str | None = None) -> pa.Table:
        """The results of all batches so far, of a query or of the only one."""
        member = self.graph.member(name) if name else self.graph.members[0]
        return _table(member.query, self._results.get(member.name, []))

    def _by_alias(self, data: Mapping[str, Data]) -> dict[str, Data]:
        found: dict[str, Data] = {}
        streams = {alias: self.graph.input(alias).stream.name for alias in self.graph.aliases}
        for name, table in data.items():
            names = [alias for alias in streams if name == alias] or [
                alias for alias, stream in streams.items() if name == stream
            ]
            if not names and len(self.graph.members) == 1:
                known = {*streams, *streams.values()}
                raise CatalogError(f"the query reads no stream {name!r}", hint=nearest(name, known))
            found |= dict.fromkeys(names, table)
        return found

    def _admit(self, alias: str, table: Data, now: int) -> Admitted:
        mark = self.watermarks.of(self.graph.input(alias).stream.name)
        return admit(self.program, alias, table, now=now, watermark=mark)

    def _turn(self, admitted: Mapping[str, Admitted]) -> Turn:
        rows = {a: admitted[a].batch.num_rows if a in admitted else 0 for a in self.graph.aliases}
        oldest = {alias: one.oldest for alias, one in admitted.items() if one.oldest is not None}
        results = sum(metrics.results for metrics in self.metrics)
        before = {alias: self._before(alias) for alias in rows}
        seen = Observed(len(self.metrics), rows, oldest, self._stored(), before, results)
        counts = {alias: Count(before[alias], rows[alias]) for alias in self.program.counted}
        return Turn(len(self.metrics), driver_order(self.driver, seen), self.partitions, counts)

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
            self._take(leave_source(self.program, alias, batch, turn), waiting, done)
        done.seconds.append(perf_counter() - began)
        for hop in range(1, len(self.program.hops)):
            began = perf_counter()
            for partition, state in enumerate(self.states):
                arrived = waiting.pop((hop, partition), {})
                self._take(run_hop(self.program, hop, arrived, state, turn), waiting, done)
            done.seconds.append(perf_counter() - began)
        return done

    def _take(self, outcome: Outcome, waiting: Waiting, done: _Done) -> None:
        for name, batches in outcome.results.items():
            done.results.setdefault(name, []).extend(batches)
        done.steps.extend(outcome.steps)
        parcel: Parcel
        for parcel in outcome.sent:
            place = (self.program.edges[parcel.edge].hop, parcel.partition)
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
        self.newest |= {name: max(time, self.newest.get(name, time)) for name, time in newest.items()}
        self.watermarks = self.watermarks.advance(connected_streams([self.graph]), newest, now)
        for plan in self.program.stores.values():
            forget = forgettable(plan, self.watermarks, turn)
            for state in self.states:
                state.commit(plan, turn.order, forget)
        done.seconds.append(perf_counter() - began)
        self.metrics.append(self._measured(admitted, turn, now, done))

    def _measured(self, admitted: Mapping[str, Admitted], turn: Turn, now: int, done: _Done) -> BatchMetrics:
        names = {plan.identity: plan.name for plan in self.program.stores.values()}
        held = [
            (names[s], run.bounds)
            for state in self.states
            for s, runs in state.runs.items()
            if s in names
            for run in runs
        ]
        return BatchMetrics(
            turn.number,
            turn.order,
            {alias: _input_metrics(one) for alias, one in admitted.items()},
            sum_steps(done.steps),
            sum_stores(held),
            sum(batch.num_rows for batches in done.results.values() for batch in batches),
            dict(self.watermarks.marks),
            tuple(done.seconds),
            now / 1e6,
            perf_counter() - done.began,
        )


def _table(query: Query, batches: list[pa.RecordBatch]) -> pa.Table:
    fields = [(output.name, arrow_type(output.expr.type)) for output in query.projection]
    return pa.Table.from_batches(batches, pa.schema(fields))


def _input_metrics(one: Admitted) -> InputMetrics:
    return InputMetrics(one.batch.num_rows, one.late, one.untimed, oldest=one.oldest, newest=one.newest)


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
