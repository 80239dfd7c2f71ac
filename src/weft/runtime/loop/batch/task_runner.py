"""The execution of a batch's tasks, which are run again if they are lost.

Guarantees: a killed worker or a lost executor does not end the queries: the batch is run again from the manifest it
began with, and files that failed attempts wrote are not part of the state. The same holds if tasks cannot be started;
while there is no room for them at all, a batch waits. A `WeftError`, which another attempt would meet again, is raised
as it is, and no further attempt is made.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from weft.errors import SinkError, WeftError
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import BatchPlan, Manifest
from weft.runtime.loop.batch.executed_batch import ExecutedBatch, StreamProgress
from weft.runtime.loop.batch.task_reports import TaskReports
from weft.runtime.loop.config import MACHINE, RunConfig
from weft.runtime.loop.executor import Executor, NoRoomError, spread
from weft.runtime.loop.scaling import TaskScaling
from weft.runtime.output.merge_task import Merge
from weft.runtime.output.ordered_results import OrderedResults, UnorderedBatch, order_results
from weft.runtime.output.query_sinks import QueryOutput, QuerySinks
from weft.runtime.output.sink_errors import sink_error
from weft.runtime.queries.active import ActiveQueries
from weft.runtime.wire.exchange import Exchange
from weft.runtime.wire.messages import Message
from weft.runtime.wire.reports import Failure, MergedRange, read_report
from weft.runtime.wire.task_input import Job, Setup
from weft.storage.storage import Memory, Storage

__all__ = ["BatchRun", "TaskRunner", "reason_of"]

_LOG = logging.getLogger("weft")

_T = TypeVar("_T")

ATTEMPTS = 4  # so many are made at a batch
LONGEST = 300  # letters of a reason in the log
PATIENCE = 0.5  # seconds before the third attempt, twice that before the fourth


@dataclass(frozen=True, slots=True)
class BatchRun:
    """A batch that is run: its plan, the manifest that it begins with, its queries, and where their results go.

    Results of queries that have no output are only counted.
    """

    plan: BatchPlan
    before: Manifest
    queries: ActiveQueries
    outputs: Mapping[str, QueryOutput]


@dataclass
class TaskRunner:
    """Runs the tasks of batches with an executor.

    ``identity`` is that of the log, once it is open. When ``stopping``, no further attempt is made.
    """

    config: RunConfig
    log: Checkpoint
    executor: Executor
    sinks: QuerySinks
    scaling: TaskScaling
    identity: str = ""
    stopping: bool = False
    _setup: Setup | None = field(default=None, init=False)  # the one that the executor was started with last

    def run(self, batch: BatchRun, *, boundary: bool = False) -> TaskReports:
        """Run the tasks of a batch, or those of the job at its boundary, and return what they reported.

        An error of a user's function stops its queries; if none is left, it is raised.
        """
        reports = self._attempts(batch.plan.number, partial(self._run_once, batch, boundary))
        if reports.errors:
            raise reports.errors[0]
        broken = reports.answers.broken
        if broken and broken.keys() >= batch.queries.requests.keys():  # no other query goes on
            raise next(iter(broken.values()))
        return reports

    def _run_once(self, batch: BatchRun, boundary: bool) -> TaskReports:
        """Make one attempt at a batch, or at the job at its boundary."""
        plan, program = batch.plan, batch.queries.program
        parts = () if boundary else tuple(plan.parts)
        refused = _begin(batch.outputs, plan.number) if boundary or plan.migration is None else {}
        job = self.job(batch, boundary=boundary)
        hops = program.graph.hops if program else 0
        messages = self.executor.run(job, spread(parts, self.executor.readers), hops)
        reports = TaskReports.from_messages(messages)  # may fetch results from other machines
        if reports.answers.files:
            self.log.folders.note(plan.number)
        answers = replace(reports.answers, refused={**reports.answers.refused, **refused})
        return replace(reports, answers=answers)

    def order_results(
        self, batch: BatchRun, executed: ExecutedBatch, progress: StreamProgress
    ) -> tuple[ExecutedBatch, dict[str, OrderedResults]]:
        """Bring the results of ordered queries into order, after their batch was run.

        What a sink refuses is merged once more, for the driver, and the batch then says so. Results that are only
        counted have no order.
        """
        requests, program = batch.queries.requests, executed.program
        wanted = {n: one for n, one in batch.outputs.items() if requests[n].ordering and one.counting is None}
        if program is None or progress.order is None or not wanted:
            return executed, {}
        answers, counts = executed.reports.answers, executed.reports.read.counts
        before, after = executed.before, (progress.order, progress.watermarks)
        to_order = UnorderedBatch(executed.plan, before, program.members, answers, counts, *after)
        ordered, refused = order_results(to_order, wanted, _BatchTasks(self, batch))
        answers = replace(answers, refused={**refused, **answers.refused})
        return replace(executed, reports=replace(executed.reports, answers=answers)), ordered

    def merge(self, job: Job, merges: Sequence[Merge]) -> list[MergedRange | Failure]:
        """Have tasks merge ranges of the ordered results of a batch, and return what they reported.

        Tasks that are lost meanwhile are replaced; the batch need not be run again, since its files are there.
        """

        def run() -> list[Message]:
            tasks = self.executor.tasks
            self.log.folders.note(job.number)
            again = replace(job, setup=self._started(), tasks=tasks)
            return self.executor.collect(again, [merges[task::tasks] for task in range(tasks)])

        merged = list[MergedRange | Failure]()
        for report in map(read_report, self._attempts(job.number, run)):
            if isinstance(report, Failure) and report.query is None:
                raise report.error
            if isinstance(report, MergedRange | Failure):
                merged.append(report)
        return merged

    def _attempts(self, number: int, run: Callable[[], _T]) -> _T:
        """Run tasks of a batch, several times if they are lost."""
        attempt = 1
        while True:
            try:
                return run()
            except WeftError:
                raise
            except NoRoomError as error:
                if self.stopping:
                    raise
                _LOG.warning("batch %d waits: %s", number, error)
            except Exception as error:
                if self.stopping or attempt == ATTEMPTS:
                    raise
                why = reason_of(error)
                _LOG.warning("batch %d failed (attempt %d) and is run again: %s", number, attempt, why)
                self._setup = None
                self.log.list_files(number)  # what this attempt left is named nowhere
                time.sleep(PATIENCE * (attempt - 1))
                attempt += 1

    def _started(self) -> Setup:
        """The setup that the executor was started with.

        It is started again if a stream, function or sink is new, or if there is room for more tasks.
        """
        functions = {name: packed.data for name, packed in dict(self.config.functions).items()}
        own = {name: sink for name, sink in self.sinks.writable() if self.config.describe(sink) is None}
        sources, streams = dict(self.config.sources), dict(self.config.streams)
        setup = Setup(self.log.storage, self.identity, sources, streams, self.config.restore, own, functions)
        if self._setup is None or _differs(setup, self._setup) or self.executor.is_outgrown:
            self._setup = None  # until it has started
            self.executor.start(setup)
            self._setup = setup
        return self._setup

    def job(self, batch: BatchRun, *, boundary: bool = False) -> Job:
        """A batch as its tasks are given it, or the job at its boundary."""
        requests, outputs = batch.queries.requests, batch.outputs
        writing = {
            name: sink
            for name, output in outputs.items()
            if (sink := output.parts if requests[name].ordering is None else output.in_order) is not None
        }
        in_memory = isinstance(self.log.storage, Memory)
        job = Job(
            self._started(),
            batch.plan,
            batch.before,
            writing,
            frozenset(n for n in requests if n not in outputs or outputs[n].counting is not None),
            frozenset(name for name, request in requests.items() if request.ordering is not None),
            Exchange(direct=True) if in_memory else Exchange(self.log.folders.path(batch.plan.number)),
            boundary,
            self.config.limits,
            self.executor.tasks,
            self.executor.stays,
            self.config.durability == MACHINE,
        )
        if batch.plan.batch_order is None:
            return job
        return replace(job, owners=self.scaling.owners(job.partitions, job.tasks))


@dataclass(frozen=True, slots=True)
class _BatchTasks:
    """The tasks of a batch that ran, for merging its results."""

    runner: TaskRunner
    batch: BatchRun

    @property
    def storage(self) -> Storage:
        """Where the files of the batch are."""
        return self.runner.log.storage

    @property
    def count(self) -> int:
        """How many tasks there are."""
        return self.runner.executor.tasks

    def job(self, outputs: Mapping[str, QueryOutput]) -> Job:
        """The batch as its tasks are given it, with other sinks."""
        return self.runner.job(replace(self.batch, outputs=outputs))

    def merge(self, job: Job, merges: Sequence[Merge]) -> list[MergedRange | Failure]:
        """Have tasks merge ranges, and return what they reported."""
        return self.runner.merge(job, merges)


def _begin(outputs: Mapping[str, QueryOutput], number: int) -> dict[str, SinkError]:
    """Have sinks get ready for a batch; returns the errors of those that cannot."""
    refused: dict[str, SinkError] = {}
    for name, output in outputs.items():
        if not output.handed_over:
            try:
                output.sink.begin(number)
            except Exception as error:  # whatever a sink raises, only its query is concerned
                refused[name] = sink_error(name, output.sink, error)
    return refused


def _differs(new: Setup, old: Setup) -> bool:
    """Whether two setups differ in their sources, functions or sinks."""
    return (
        new.sources.keys() != old.sources.keys()
        or new.functions != old.functions
        or new.sinks.keys() != old.sinks.keys()
        or any(new.sinks[name] is not old.sinks[name] for name in new.sinks)
    )


def reason_of(error: BaseException) -> str:
    """The line of an error that says what happened, for people: not the one that says which call reported it.

    >>> reason_of(RuntimeError("An error occurred while calling o7.getResult.\\n: java.lang.Exception: gone\\n\\tat x"))
    'java.lang.Exception: gone'
    >>> reason_of(RuntimeError("An error occurred while calling o7.getResult."))
    'Spark lost its tasks'
    >>> reason_of(ValueError("")), reason_of(ValueError("one\\ntwo"))
    ('ValueError', 'one')
    """
    lines = [text for line in str(error).splitlines() if (text := line.strip(" :\t"))]
    told = [line for line in lines if not line.startswith("An error occurred while calling")]
    return (told or (["Spark lost its tasks"] if lines else [type(error).__name__]))[0][:LONGEST]
