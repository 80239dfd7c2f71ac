"""The commit of a batch: first its results, in their sinks, then its manifest, in the log.

Guarantees: results are committed before the manifest, so a crash in between repeats the batch, and sinks are made for
that; batches are committed one after the other, in their order. Sinks whose parts tasks have written are committed at
the same time. A sink that fails suspends its query and no other: its results are kept in files that the manifest names,
and given when the sink works again (`weft.runtime.output.suspended`). Results that only the failing sink has are
computed again first, by the loop's thread. While a batch is committed, the next one may run.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field, replace

from weft.errors import ResultLimitError, SinkError
from weft.logical.codec import encode
from weft.ports.sink import RememberingSink, Sink, hurried
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.loop.batch.delivery import deliver, deliver_kept, results_to_keep
from weft.runtime.loop.batch.executed_batch import ExecutedBatch
from weft.runtime.loop.batch.finished_batch import BatchEnd
from weft.runtime.loop.batch.task_reports import Answered
from weft.runtime.output.ordered_output import Gathered
from weft.runtime.output.query_sinks import Output, QuerySinks
from weft.runtime.output.sink_errors import name_of, sink_error
from weft.runtime.output.suspended import Suspensions
from weft.runtime.queries.changelog import Changelog

__all__ = [
    "Committer",
    "Ended",
    "FoundAgain",
    "with_latencies",
]


_LOG = logging.getLogger("weft")

SINKS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Ended:
    """A batch that is to be committed.

    ``ran`` is the batch and ``left`` what it leaves; ``outputs`` are the sinks of its queries, by name; ``began`` is
    when it began (`time.perf_counter`).
    """

    ran: ExecutedBatch
    left: BatchEnd
    outputs: Mapping[str, Output]
    began: float


@dataclass(frozen=True, slots=True)
class FoundAgain:
    """Results of some queries in a batch that were computed once more, all of which are with the driver."""

    answers: Answered
    ordered: Mapping[str, Gathered]
    outputs: Mapping[str, Output]


@dataclass
class Committer:
    """Commits one batch after the other; if ``overlapping``, in a thread, so that the next batch can run meanwhile.

    ``compute_again`` gives the results of some queries in a batch once more; it is called in the loop's thread.
    ``last`` is the last committed batch. ``clock`` is in microseconds since 1970; by it the latencies of results are
    measured.
    """

    log: Checkpoint
    changelog: Changelog
    compute_again: Callable[[Ended, Iterable[str]], FoundAgain]
    overlapping: bool = True
    clock: Callable[[], int] = lambda: time.time_ns() // 1000
    last: int = -1
    suspended: Suspensions = field(init=False)
    given: dict[str, tuple[str, int]] = field(default_factory=dict, init=False)  # as in `Manifest`
    has_resumed: bool = field(default=False, init=False)  # a query has, which no manifest says yet
    _stopped: dict[str, str] = field(
        default_factory=dict, init=False
    )  # whose sinks take nothing again, and why
    _pending: Future[None] | None = field(default=None, init=False)
    _thread: ThreadPoolExecutor | None = field(default=None, init=False)
    _pool: ThreadPoolExecutor | None = field(default=None, init=False)
    _asked: _Questions = field(init=False)

    def __post_init__(self) -> None:
        self.suspended, self._asked = Suspensions(self.log.storage), _Questions()

    def begin(self, ended: Ended, after: Callable[[Ended], None]) -> None:
        """Commit a batch as soon as the one before it is committed; ``after`` is called with it when it is."""
        self.wait()
        if not self.overlapping:
            self._commit_and_tell(ended, after)
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "weft-commit")
        self._pending = self._thread.submit(self._commit_and_tell, ended, after)
        self._pending.add_done_callback(self._asked.finish)

    def _commit_and_tell(self, ended: Ended, after: Callable[[Ended], None]) -> None:
        committed = self._commit(ended)
        after(committed)
        self.log.tidy(committed.left.manifest)

    def wait(self) -> None:
        """Wait until all batches are committed; an error in doing so is raised here.

        Only the thread of the loop may call this: it computes results again, if the commit asks for them.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            self._asked.answer(self.compute_again)
            pending.result()

    @property
    def is_done(self) -> bool:
        """Whether no batch is being committed."""
        return self._pending is None or self._pending.done()

    def close(self) -> None:
        """End the threads, after the commit that they are at."""
        self._asked.close()
        for pool in (self._thread, self._pool):
            if pool is not None:
                pool.shutdown(wait=True)
        self._thread = self._pool = None

    def _commit(self, ended: Ended) -> Ended:
        """Commit a batch, and return it with the latencies of its results."""
        committed: dict[str, int] = {}
        refused = {**self._deliver(ended, committed), **ended.ran.reports.answers.refused}
        final = {name: one for name, one in refused.items() if isinstance(one, ResultLimitError)}
        self._keep(ended, {name: one for name, one in refused.items() if name not in final})
        ended = replace(ended, left=with_latencies(ended.ran, ended.left, committed))
        self._note_given(ended, committed)
        given = {name: list(one) for name, one in self.given.items() if name in ended.outputs}
        manifest = replace(ended.left.manifest, suspended=self.suspended.values(), given=given)
        self._stop({name: f"{type(one).__name__}: {one.message}" for name, one in final.items()})
        failed = {name: why for name, why in self._stopped.items() if name in ended.outputs}
        if failed:
            results = {name: rows for name, rows in manifest.results.items() if name not in failed}
            manifest = replace(manifest, failed={**manifest.failed, **failed}, results=results)
        self.log.commit(manifest)
        self.last, self.has_resumed = manifest.number, False
        _LOG.debug("batch %d committed after %.4f s", manifest.number, time.perf_counter() - ended.began)
        return ended

    def _note_given(self, ended: Ended, committed: Iterable[str]) -> None:
        """Note the sinks that were given rows of a batch."""
        for name in committed:
            if _has_rows(ended, name):
                self.given[name] = name_of(ended.outputs[name].sink), ended.ran.number

    def check_complete(self, query: str, sink: Sink) -> None:
        """Refuse a sink that has lost results: the last batch that it was given, or all that were there."""
        place, last = self.given.get(query, ("", -1))
        if isinstance(sink, RememberingSink) and place == name_of(sink) and sink.last_batch() < last:
            raise SinkError(
                f"{place} has lost results of query {query}: batch {last}, which it was given, is not there",
                hint="put it back as it was; to go on without what is lost, let the query write to another place",
            )

    def _deliver(self, ended: Ended, committed: dict[str, int]) -> dict[str, SinkError]:
        """Give the results to their sinks and note when; returns the errors of those that cannot take them."""
        refused: dict[str, SinkError] = {}
        at_once = self._begin_at_once(ended)
        for name, output in ended.outputs.items():
            if not self._may_take(ended, name):
                continue
            try:
                committed[name] = at_once[name].result() if name in at_once else self._give(ended, name)
            except Exception as error:  # whatever a sink raises, only its query is concerned
                refused[name] = sink_error(name, output.sink, error)
        return refused

    def _may_take(self, ended: Ended, name: str) -> bool:
        """Whether the sink of a query is to be given what the batch has for it; else earlier results come first."""
        refused = ended.ran.reports.answers.refused
        return name not in self.suspended and name not in refused and name not in self._stopped

    def _give(self, ended: Ended, name: str) -> int:
        """Give the results of a query to its sink, and return when that was done."""
        answers, ordered = ended.ran.reports.answers, ended.left.ordered.get(name)
        deliver(ended.outputs[name], name, ended.ran.number, answers, self.log.storage, ordered)
        return self.clock()

    def _begin_at_once(self, ended: Ended) -> dict[str, Future[int]]:
        """Begin to commit to all sinks at once whose parts tasks have written; there are none if there is but one.

        Other sinks may call users' code, which does not expect to be called in several threads.
        """
        wanted = [name for name in ended.outputs if _is_in_parts(ended, name) and self._may_take(ended, name)]
        if len(wanted) < 2:
            return {}
        if self._pool is None:
            self._pool = ThreadPoolExecutor(SINKS_AT_ONCE, "weft-sinks")
        return {name: self._pool.submit(self._give, ended, name) for name in wanted}

    # Queries whose sinks fail

    def _keep(self, ended: Ended, refused: Mapping[str, SinkError]) -> None:
        """Suspend the queries whose sinks failed, and keep the results of all that are suspended."""
        for name, error in refused.items():
            if name not in self.suspended:
                _LOG.warning(
                    "query %s is suspended at batch %d, and its results are kept: %s",
                    *(name, ended.ran.number, error.message),
                )
            self.suspended.suspend(name, ended.ran.number, error)
        for name in [name for name in self.suspended.values() if name not in ended.outputs]:
            self.forget(name)  # it has been stopped
        waiting = list(self.suspended.values())
        if not waiting:
            return
        answers = ended.ran.reports.answers
        lost = [name for name in waiting if _is_in_parts(ended, name) and _has_rows(ended, name)]
        again = self._ask(ended, lost) if lost else None
        for name in waiting:
            found, outputs, orders = answers, ended.outputs, ended.left.ordered
            if again is not None and name in lost:
                found, outputs, orders = again.answers, again.outputs, again.ordered
            if name in found.failed:
                continue
            results = results_to_keep(outputs[name], name, found, self.log.storage, orders.get(name))
            self.suspended.keep(name, ended.ran.number, results)

    def _ask(self, ended: Ended, names: Iterable[str]) -> FoundAgain:
        """Results that only sinks have which fail, computed once more."""
        if not self.overlapping:
            return self.compute_again(ended, names)
        return self._asked.ask(ended, names)

    def give_kept(self, sinks: QuerySinks, prepare: Callable[[str], None], *, at_once: bool = False) -> None:
        """Give suspended queries' results to the sinks that are due; while no batch is committed, in the loop's thread.

        ``prepare`` is called with the query before its sink is used. A query all of whose results are in its sink goes
        on as before, with the next batch.
        """
        for name in self.suspended.due(at_once=at_once):
            try:
                with hurried():
                    prepare(name)
                output = sinks.output(name)
                while (kept := self.suspended.next_batch(name)) is not None:
                    with hurried():
                        deliver_kept(output, kept, self.log.storage)
                    self.suspended.given(name)
                    if kept.rows:
                        self.given[name] = name_of(output.sink), kept.number
                    self.has_resumed = True
            except Exception as error:  # whatever a sink raises, only its query is concerned
                self.suspended.failed_again(name, sink_error(name, sinks[name], error))
                continue
            self.suspended.end(name)
            self.has_resumed = True
            _LOG.warning("query %s goes on: its sink has taken all that waited for it", name)

    def forget(self, name: str) -> None:
        """Drop what waits for the sink of a query, which is to run no longer, or another of its name is to begin."""
        self.given.pop(name, None)
        known = self.suspended.end(name)
        if known is not None and known.rows:
            _LOG.warning(
                "query %s was stopped while it was suspended: %d results are dropped", name, known.rows
            )
        self._stopped.pop(name, None)

    def _stop(self, failed: Mapping[str, str]) -> None:
        for name, why in failed.items():
            _LOG.warning("query %s is stopped: %s", name, why)
            self.changelog.stop(name, f"failed: {why}")
        self._stopped |= failed


def _is_in_parts(ended: Ended, name: str) -> bool:
    """Whether tasks have written the results of a query to its sink."""
    ordered = ended.left.ordered.get(name)
    return ended.outputs[name].parts is not None if ordered is None else ordered.parts is not None


def _has_rows(ended: Ended, name: str) -> bool:
    ordered = ended.left.ordered.get(name)
    return bool(ended.ran.reports.answers.rows(name) if ordered is None else ordered.rows)


class _Questions:
    """How the thread that commits asks the loop's thread for results, which only that one can have computed."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[tuple[Ended, Iterable[str], Future[FoundAgain]] | None] = (
            queue.SimpleQueue()
        )
        self._closed = False

    def ask(self, ended: Ended, names: Iterable[str]) -> FoundAgain:
        """Wait for an answer; if there will be none, because the run ends, the batch is not committed."""
        answer: Future[FoundAgain] = Future()
        self._waiting.put((ended, names, answer))
        while True:
            try:
                return answer.result(0.1)
            except FutureTimeout:
                if self._closed:
                    raise RuntimeError(
                        f"the run ended before batch {ended.ran.number} was committed"
                    ) from None

    def answer(self, compute: Callable[[Ended, Iterable[str]], FoundAgain]) -> None:
        """Answer all questions until the commit is done."""
        while (asked := self._waiting.get()) is not None:
            ended, names, answer = asked
            try:
                answer.set_result(compute(ended, names))
            except BaseException as error:
                answer.set_exception(error)

    def finish(self, _: object = None) -> None:
        """The commit is done."""
        self._waiting.put(None)

    def close(self) -> None:
        """Answer no more."""
        self._closed = True


def with_latencies(ran: ExecutedBatch, left: BatchEnd, committed: Mapping[str, int]) -> BatchEnd:
    """What a batch leaves, with the latencies of its results; ``committed`` is when those of each query were committed.

    Times are in microseconds since 1970.
    """
    if left.metrics is None or ran.program is None:
        return left
    found = {}
    for query, done in committed.items():
        member = ran.program.members.get(query)
        waits = member is not None and member.held and query in left.ordered
        ages = left.ordered[query].ages if waits else ran.reports.answers.ages.get(query)
        if ages is not None and ages.count and query not in ran.reports.answers.failed:
            found[query] = ages.committed(done - ran.plan.now)
    metrics = replace(left.metrics, latencies=found)
    plain = {**left.manifest.metrics, "latencies": {query: encode(one) for query, one in found.items()}}
    return replace(left, metrics=metrics, manifest=replace(left.manifest, metrics=plain))
