"""Random workloads on Spark: a session over many of them that is stopped and started again, and what it did."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
import weft.session.run
from tests import executing
from tests.equivalence.files import Layout, write
from tests.equivalence.options import random_options
from tests.equivalence.oracle import rows_of
from tests.equivalence.planned import Planned
from tests.equivalence.streams import Join
from tests.equivalence.visibilities import Chronicle, difference
from tests.equivalence.workloads import Change, Life, Wish, Workload
from tests.restless import made_restless, restless
from weft.connectors.files.parquet_sink import ParquetSink
from weft.plan.physical.graph import Member
from weft.runtime.loop.driver_order import POLICIES
from weft.runtime.observe.metrics import BatchMetrics

STEPS = 4
RESTART = 2  # before this step
Range = tuple[int, int]


@dataclass(frozen=True)
class Case:
    """A workload under names of its own, and how its streams are written."""

    workload: Workload
    layouts: Mapping[str, Layout]
    wishes: Mapping[str, Wish]


@dataclass
class Report:
    """What ran: the steps each stream brought in each batch; figures and members by batch; and the sinks."""

    files: dict[int, dict[str, Range]] = field(default_factory=dict)  # up to, but not, the last
    metrics: dict[int, BatchMetrics] = field(default_factory=dict)
    members: dict[int, Mapping[str, Member]] = field(default_factory=dict)
    sinks: dict[str, Any] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)  # steps, by stream

    def take(self, session: weft.Session) -> None:
        """What a session can tell that has run: when it is stopped, since batches may follow that no input asks for."""
        running = session._last_run
        assert running is not None
        log = running.loop.log
        assert isinstance(log, Planned)
        for number, inputs in sorted(log.inputs.items()):
            brought = self.files.setdefault(number, {})
            for name, parts in inputs.items():
                if parts:
                    first = self.taken.get(name, 0)
                    brought[name] = (first, first + len(parts))
                    self.taken[name] = first + len(parts)
        history = running.loop.history
        for number, metrics in history.batches:
            self.metrics[metrics.number] = metrics
            self.members[metrics.number] = {member.name: member for member in history.graphs[number].members}

    @property
    def batches(self) -> range:
        """All batches; the first that brought nothing any more was none."""
        return range(
            1 + max(n for n, brought in self.files.items() if any(a < b for a, b in brought.values()))
        )

    @property
    def arrivals(self) -> list[int]:
        """When they came."""
        known = [self.metrics.get(number) for number in self.batches]
        return [round(one.started * 1e6) if one else 0 for one in known]

    def lives(self, case: Case) -> tuple[dict[str, Life], dict[str, Member]]:
        """When the queries of a case ran, and as what."""
        lives: dict[str, Life] = {}
        found: dict[str, Member] = {}
        for number, members in sorted(self.members.items()):
            for name in case.wishes.keys() & members.keys():
                found.setdefault(name, members[name])
                backfill = case.wishes[name].backfill
                lives[name] = Life(members[name].query, members[name].first, number + 1, backfill)
        return lives, found

    def streams(self, planned: Join) -> Join:
        """The streams of a case in the batches in which they came."""
        batches = []
        for number in self.batches:
            brought = self.files.get(number, {})
            steps = {name: brought.get(name, (0, 0)) for name in planned.tables}
            batches.append({name: _rows(planned, name, one) for name, one in steps.items()})
        return replace(planned, batches=tuple(batches))

    def wrong(self, case: Case) -> Iterator[str]:
        """What is wrong with the results of a case."""
        lives, members = self.lives(case)
        known = [self.metrics.get(number) for number in self.batches]
        chronicle = Chronicle(self.streams(case.workload.streams), self.arrivals, lives)
        orders = [one.order if one else () for one in known]
        for name, member in members.items():
            expected = chronicle.expected(member, orders).whenever()
            text = difference(expected, rows_in(self.sinks[name]))
            if text:
                yield f"{name} in [{lives[name].first}, {lives[name].last}): {text}: {member.query}"


def _rows(planned: Join, name: str, steps: Range) -> Range:
    """The rows that the files of some steps have."""
    if steps[0] >= steps[1]:
        before = planned.batches[steps[0] - 1][name][1] if steps[0] else 0
        return before, before
    return planned.batches[steps[0]][name][0], planned.batches[steps[1] - 1][name][1]


def rows_in(sink: Any) -> Any:
    """What a sink was given."""
    if not isinstance(sink, ParquetSink):
        return rows_of(sink.results())
    parts = [part for b in sink.batches() for part in sorted(sink.batch_directory(b).glob("*.parquet"))]
    return (
        rows_of(pa.concat_tables([pq.ParquetFile(part).read() for part in parts]))
        if parts
        else rows_of(pa.table({}))
    )


class Stage:
    """A session over the streams of many cases, that is stopped and started again."""

    def __init__(self, spark: Any, root: Path, method: str, cases: list[Case], seed: int) -> None:
        self.spark, self.root, self.method, self.cases = spark, root, method, cases
        self.rng = random.Random(seed)
        self.options = replace(random_options(seed, "auto"), probe_orders="auto", partitions=2)
        self.driver = self.rng.choice(list(POLICIES))
        self.restless = self.rng.random() < 0.5
        self.report = Report()
        for case in cases:
            write(case.workload.streams, dict(case.layouts), root / "staged", seed)
            for name in case.layouts:
                (root / "in" / name).mkdir(parents=True)
        self.session = self._open()

    def _open(self) -> weft.Session:
        session = weft.Session(
            checkpoint=self.root / "ck",
            spark=self.spark,
            options=self.options,
            joint=self.method,
            driver=self.driver,
            execution=executing.current(),
            **(restless(self.rng, epochs=(3, 5, 8)) if self.restless else {}),
        )
        for case in self.cases:
            for stream in case.workload.streams.catalog.streams:
                layout = case.layouts[stream.name]
                folder = str(self.root / "in" / stream.name)
                session.stream(
                    stream.name,
                    weft.files(
                        layout.format,
                        folder,
                        schema=stream.schema,
                        max_files_per_batch=1,
                        unfinished_after="0 seconds",
                    ),
                    event_time=stream.event_time,
                    lateness=stream.lateness,
                    late=stream.late,
                    idle_after=stream.idle_after,
                )
        if self.restless:
            names = [stream.name for case in self.cases for stream in case.workload.streams.catalog.streams]
            made_restless(session, self.rng, dict.fromkeys(names, ("k", "n")))
        return session

    def run(self) -> Report:
        """All steps."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                weft.session.run, "Checkpoint", Planned
            )  # sessions remember what input their batches took
            return self._run()

    def _run(self) -> Report:
        for step in range(STEPS):
            if step == RESTART:
                self._restart()
            for case in self.cases:
                self._change(case.workload.changes[step], case)
            if not step:
                self.session.start()
            self._deliver(step)
            self.session.process_all_available()
        self.report.take(self.session)
        return self.report

    def _change(self, change: Change, case: Case) -> None:
        for name in change.stop:
            self.session.stop_query(name)
        for name in change.begin:
            sink: Any = weft.to_memory()
            if self.rng.random() < 0.3:
                sink = weft.to_parquet(self.root / "out" / name)
            self.report.sinks[name] = sink
            self._ask(name, case.wishes[name])

    def _ask(self, name: str, wish: Wish) -> None:
        sink = self.report.sinks[name]
        self.session.query(wish.text, name=name, sink=sink, strategy=wish.strategy, backfill=wish.backfill)

    def _restart(self) -> None:
        """Stop, and go on by a session that is told of some queries only: those in files need not be."""
        running = sorted(self.session._run_under_way().loop.active_queries.requests)
        self.session.stop()
        self.report.take(self.session)
        self.session = self._open()
        wishes = {name: wish for case in self.cases for name, wish in case.wishes.items()}
        for name in running:
            forgotten = isinstance(self.report.sinks[name], ParquetSink) and self.rng.random() < 0.7
            if not forgotten:
                self._ask(name, wishes[name])
        self._begin()
        assert {query.name for query in self.session.queries} == set(running)

    def _begin(self) -> None:
        self.session.start()

    def _deliver(self, step: int) -> None:
        """The files of a step, one of each stream."""
        for case in self.cases:
            for name, layout in case.layouts.items():
                file = f"{step:03}.{layout.format}"
                os.rename(self.root / "staged" / name / file, self.root / "in" / name / file)
