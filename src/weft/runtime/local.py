"""The runner without Spark: partitions are objects, a shuffle is a dictionary (design, D10).

Guarantees: the same interpreter, routing and order as on Spark, in one process; the answer depends on the input alone,
not on the number of partitions or on the driver policy (design, section 3, says what it is). It reads no clock but to
measure itself: the arrival time of a batch is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from time import perf_counter
from typing import TypeAlias

import pyarrow as pa

from weft.errors import CatalogError, nearest
from weft.kernels.arrow import arrow_type
from weft.plan.graph import PhysicalGraph
from weft.runtime.batch import longest
from weft.runtime.driver import DEFAULT, Observed, driver_order
from weft.runtime.interpret import Outcome, Parcel, StepCount, leave_source, run_hop
from weft.runtime.metrics import BatchMetrics, InputMetrics, sum_steps, sum_stores
from weft.runtime.program import Program
from weft.runtime.source import Admitted, admit, numbered
from weft.runtime.state import PartitionState
from weft.runtime.turn import Count, Turn
from weft.runtime.watermark import Watermarks, forgettable

__all__ = ["LocalRunner"]

Data: TypeAlias = "pa.RecordBatch | pa.Table"

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class _Done:
    began: float
    results: list[pa.RecordBatch]
    steps: list[StepCount]
    seconds: list[float]


class LocalRunner:
    """Runs batches through a graph, in this process."""

    def __init__(
        self,
        graph: PhysicalGraph,
        *,
        partitions: int | None = None,
        driver: str = DEFAULT,
    ) -> None:
        self.program = Program(graph)
        self.query = graph.query
        layouts = [store.layout.partitions for store in graph.stores]
        self.partitions = partitions or max(layouts, default=1)
        self.driver = driver
        self.states = [PartitionState() for _ in range(self.partitions)]
        self.watermarks = Watermarks()
        self.arrived = dict.fromkeys(self.query.aliases, 0)
        self.metrics: list[BatchMetrics] = []
        self._results: list[pa.RecordBatch] = []

    def process(self, data: Mapping[str, Data], *, now: datetime | int = 0) -> pa.Table:
        """The results of a batch: tables by alias, or by stream for all of its aliases.

        ``now`` is the arrival time (an integer: microseconds), which counts for streams without event time and
        for idle ones.
        """
        began = perf_counter()
        time = now if isinstance(now, int) else (_aware(now) - _EPOCH) // timedelta(microseconds=1)
        admitted = {alias: self._admit(alias, table, time) for alias, table in self._by_alias(data).items()}
        turn = self._turn(admitted)
        done = self._run(admitted, turn, began)
        self._commit(admitted, turn, time, done)
        self._results += done.results
        return self._table(done.results)

    def results(self) -> pa.Table:
        """The results of all batches so far."""
        return self._table(self._results)

    def _table(self, batches: list[pa.RecordBatch]) -> pa.Table:
        fields = [(output.name, arrow_type(output.expr.type)) for output in self.query.projection]
        return pa.Table.from_batches(batches, pa.schema(fields))

    def _by_alias(self, data: Mapping[str, Data]) -> dict[str, Data]:
        found: dict[str, Data] = {}
        for name, table in data.items():
            names = [i.alias for i in self.query.inputs if name == i.alias] or [
                i.alias for i in self.query.inputs if name == i.stream.name
            ]
            if not names:
                known = {*self.query.aliases, *(i.stream.name for i in self.query.inputs)}
                raise CatalogError(f"the query reads no stream {name!r}", hint=nearest(name, known))
            found |= dict.fromkeys(names, table)
        return found

    def _admit(self, alias: str, table: Data, now: int) -> Admitted:
        mark = self.watermarks.of(self.query.input(alias).stream.name)
        return admit(self.program, alias, table, now=now, watermark=mark)

    def _turn(self, admitted: Mapping[str, Admitted]) -> Turn:
        rows = {a: admitted[a].batch.num_rows if a in admitted else 0 for a in self.query.aliases}
        oldest = {alias: one.oldest for alias, one in admitted.items() if one.oldest is not None}
        results = sum(metrics.results for metrics in self.metrics)
        seen = Observed(len(self.metrics), rows, oldest, self._stored(), self.arrived, results)
        counted = [alias for alias in rows if longest(self.query, alias) is not None]
        counts = {alias: Count(self.arrived[alias], rows[alias]) for alias in counted}
        return Turn(len(self.metrics), driver_order(self.driver, seen), self.partitions, counts)

    def _stored(self) -> dict[str, int]:
        """How many tuples of each input are stored, copies aside."""
        held = self.metrics[-1].stores if self.metrics else {}
        copies = {
            plan.name: self.partitions if plan.node.layout.kind == "replicated" else 1
            for plan in self.program.stores.values()
        }
        return {alias: held[alias].rows // copies[alias] for alias in self.query.aliases if alias in held}

    def _run(self, admitted: Mapping[str, Admitted], turn: Turn, began: float) -> _Done:
        waiting: dict[tuple[int, int], dict[str, list[pa.RecordBatch]]] = {}
        done = _Done(began, [], [], [])
        for alias, one in admitted.items():
            batch = numbered(self.query, alias, one.batch, self.arrived[alias])
            self._take(leave_source(self.program, alias, batch, turn), waiting, done)
        done.seconds.append(perf_counter() - began)
        for hop in range(1, len(self.program.hops)):
            began = perf_counter()
            for partition, state in enumerate(self.states):
                arrived = waiting.pop((hop, partition), {})
                self._take(run_hop(self.program, hop, arrived, state, turn), waiting, done)
            done.seconds.append(perf_counter() - began)
        return done

    def _take(
        self, outcome: Outcome, waiting: dict[tuple[int, int], dict[str, list[pa.RecordBatch]]], done: _Done
    ) -> None:
        done.results.extend(outcome.results)
        done.steps.extend(outcome.steps)
        parcel: Parcel
        for parcel in outcome.sent:
            place = (self.program.edges[parcel.edge].hop, parcel.partition)
            waiting.setdefault(place, {}).setdefault(parcel.edge, []).append(parcel.batch)

    def _commit(self, admitted: Mapping[str, Admitted], turn: Turn, now: int, done: _Done) -> None:
        began = perf_counter()
        newest: dict[str, int] = {}
        for alias, one in admitted.items():
            self.arrived[alias] += one.batch.num_rows
            stream = self.query.input(alias).stream.name
            if one.newest is not None:
                newest[stream] = max(one.newest, newest.get(stream, one.newest))
        self.watermarks = self.watermarks.advance(self.query, newest, now)
        for plan in self.program.stores.values():
            forget = forgettable(self.program, plan, self.watermarks, turn)
            for state in self.states:
                state.commit(plan, turn.order, forget)
        done.seconds.append(perf_counter() - began)
        self.metrics.append(self._measured(admitted, turn, now, done))

    def _measured(self, admitted: Mapping[str, Admitted], turn: Turn, now: int, done: _Done) -> BatchMetrics:
        held = [(s, run.bounds) for state in self.states for s, runs in state.runs.items() for run in runs]
        return BatchMetrics(
            turn.number,
            turn.order,
            {alias: _input_metrics(one) for alias, one in admitted.items()},
            sum_steps(done.steps),
            sum_stores(held),
            sum(batch.num_rows for batch in done.results),
            dict(self.watermarks.marks),
            tuple(done.seconds),
            now / 1e6,
            perf_counter() - done.began,
        )


def _input_metrics(one: Admitted) -> InputMetrics:
    return InputMetrics(one.batch.num_rows, one.late, one.untimed, oldest=one.oldest, newest=one.newest)


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
