"""The execution of a batch's tasks, which are run again if they are lost.

Guarantees: a killed worker or a lost executor does not end the queries: the batch is run again from the manifest it
began with, and files that failed attempts wrote are not part of the state. The same holds if tasks cannot be started;
while there is no room for them at all, a batch waits. A `WeftError`, which another attempt would meet again, is raised
as it is, and no further attempt is made.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from weft.errors import WeftError
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import BatchPlan, Manifest
from weft.runtime.loop.config import MACHINE, RunConfig
from weft.runtime.loop.executor import Executor, NoRoomError, spread
from weft.runtime.loop.query_sinks import QuerySinks
from weft.runtime.loop.task_reports import TaskReports
from weft.runtime.queries.active import ActiveQueries
from weft.runtime.task.collecting import Merge
from weft.runtime.task.exchange import Exchange
from weft.runtime.task.job import Job, Setup
from weft.runtime.task.messages import Message
from weft.runtime.task.reports import Collected, FailedQuery, TaskError, read_report
from weft.storage.storage import Memory

__all__ = ["TaskRunner", "reason_of"]

_LOG = logging.getLogger("weft")

_T = TypeVar("_T")

ATTEMPTS = 4  # so many are made at a batch
LONGEST = 300  # letters of a reason in the log
PATIENCE = 0.5  # seconds before the third attempt, twice that before the fourth


@dataclass
class TaskRunner:
    """Runs the tasks of batches with an executor.

    ``identity`` is that of the log, once it is open. When ``stopping``, no further attempt is made.
    """

    config: RunConfig
    log: Checkpoint
    executor: Executor
    sinks: QuerySinks
    identity: str = ""
    stopping: bool = False
    _setup: Setup | None = field(default=None, init=False)  # the one that the executor was started with last

    def run(
        self, plan: BatchPlan, before: Manifest, queries: ActiveQueries, *, boundary: bool
    ) -> TaskReports:
        """Run the tasks of a batch, or those of the job at its boundary, and return what they reported.

        An error of a user's function stops its queries; if none is left, it is raised.
        """
        reports = self._reports(plan, before, queries, boundary)
        if reports.errors:
            raise reports.errors[0]
        broken = reports.answers.broken
        if broken and broken.keys() >= queries.requests.keys():  # no other query goes on
            raise next(iter(broken.values()))
        return reports

    def _reports(
        self, plan: BatchPlan, before: Manifest, queries: ActiveQueries, boundary: bool
    ) -> TaskReports:
        parts = () if boundary else tuple(plan.parts)
        hops = queries.program.graph.hops if queries.program else 0

        def run() -> TaskReports:
            if boundary or plan.migration is None:
                for name in queries.requests:
                    self.sinks[name].begin(plan.number)
            job = self.job(plan, before, queries, boundary=boundary)
            messages = self.executor.run(job, spread(parts, self.executor.readers), hops)
            found = TaskReports.from_messages(messages)  # may fetch results from other machines
            if found.answers.files:
                self.log.folders.note(plan.number)
            return found

        return self._attempts(plan.number, run)

    def collect(
        self, plan: BatchPlan, before: Manifest, queries: ActiveQueries, merges: Sequence[Merge]
    ) -> list[Collected | FailedQuery]:
        """Have tasks merge ranges of a batch's ordered results, and return what they reported.

        Tasks that are lost meanwhile are replaced; the batch need not be run again, since its files are there.
        """

        def run() -> list[Message]:
            job, tasks = self.job(plan, before, queries), self.executor.tasks
            self.log.folders.note(plan.number)
            return self.executor.collect(job, [merges[task::tasks] for task in range(tasks)])

        found = list[Collected | FailedQuery]()
        for report in map(read_report, self._attempts(plan.number, run)):
            if isinstance(report, TaskError):
                raise report.error
            if isinstance(report, Collected | FailedQuery):
                found.append(report)
        return found

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
        functions = {name: one.data for name, one in dict(self.config.functions).items()}
        own = {name: sink for name, sink in self.sinks.writable() if self.config.describe(sink) is None}
        sources, streams = dict(self.config.sources), dict(self.config.streams)
        setup = Setup(self.log.storage, self.identity, sources, streams, self.config.restore, own, functions)
        if self._setup is None or _differs(setup, self._setup) or self.executor.is_outgrown:
            self._setup = None  # until it has started
            self.executor.start(setup)
            self._setup = setup
        return self._setup

    def job(
        self, plan: BatchPlan, before: Manifest, queries: ActiveQueries, *, boundary: bool = False
    ) -> Job:
        """A batch as its tasks are given it, or the job at its boundary."""
        running = {name: self.sinks.output(name) for name in queries.requests}
        writing = {
            name: sink
            for name, output in running.items()
            if (sink := output.parts if queries.requests[name].ordering is None else output.in_order)
            is not None
        }
        in_memory = isinstance(self.log.storage, Memory)
        return Job(
            self._started(),
            plan,
            before,
            writing,
            frozenset(name for name, output in running.items() if output.counting is not None),
            frozenset(name for name, request in queries.requests.items() if request.ordering is not None),
            Exchange(direct=True) if in_memory else Exchange(self.log.folders.path(plan.number)),
            boundary,
            self.config.limits,
            self.executor.tasks,
            self.executor.stays,
            self.config.durability == MACHINE,
        )


def _differs(one: Setup, other: Setup) -> bool:
    """Whether two setups differ in their sources, functions or sinks."""
    return (
        one.sources.keys() != other.sources.keys()
        or one.functions != other.functions
        or one.sinks.keys() != other.sinks.keys()
        or any(one.sinks[name] is not other.sinks[name] for name in one.sinks)
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
    lines = [found for line in str(error).splitlines() if (found := line.strip(" :\t"))]
    told = [line for line in lines if not line.startswith("An error occurred while calling")]
    return (told or (["Spark lost its tasks"] if lines else [type(error).__name__]))[0][:LONGEST]
