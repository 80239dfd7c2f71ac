"""The commit of a batch: first its results, in their sinks, then its manifest, in the log.

Guarantees: results are committed before the manifest, so a crash in between repeats the batch, and sinks are made for
that; batches are committed one after the other, in their order. While a batch is committed, the next one may run.
Results that only a failing sink has are computed again by the loop's thread (`weft.runtime.output.delivery`).
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from functools import partial

from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.loop.batch.finished_batch import FinishedBatch, with_latencies
from weft.runtime.output.delivery import BatchOutput, Delivery
from weft.runtime.queries.changelog import Changelog

__all__ = ["Committer"]

_LOG = logging.getLogger("weft")

ComputeAgain = Callable[[FinishedBatch, Iterable[str]], BatchOutput]


@dataclass
class Committer:
    """Commits one batch after the other; if ``overlapping``, in a thread, so that the next batch can run meanwhile.

    ``delivery`` gives results to sinks. ``compute_again`` gives the results of some queries in a batch once more; it is
    called in the loop's thread. ``last`` is the last committed batch.
    """

    log: Checkpoint
    delivery: Delivery
    changelog: Changelog
    compute_again: ComputeAgain
    overlapping: bool = True
    last: int = -1
    _pending: Future[None] | None = field(default=None, init=False)
    _thread: ThreadPoolExecutor | None = field(default=None, init=False)
    _questions: _Questions = field(init=False)

    def __post_init__(self) -> None:
        self._questions = _Questions()

    def begin(self, batch: FinishedBatch, after: Callable[[FinishedBatch], None]) -> None:
        """Commit a batch as soon as the one before it is committed; ``after`` is called with it when it is."""
        self.wait()
        if not self.overlapping:
            self._commit_and_tell(batch, after)
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "weft-commit")
        self._pending = self._thread.submit(self._commit_and_tell, batch, after)
        self._pending.add_done_callback(self._questions.finish)

    def _commit_and_tell(self, batch: FinishedBatch, after: Callable[[FinishedBatch], None]) -> None:
        committed = self._commit(batch)
        after(committed)
        self.log.tidy(committed.manifest)

    def wait(self) -> None:
        """Wait until all batches are committed; an error in doing so is raised here.

        Only the thread of the loop may call this: it computes results again, if the commit asks for them.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            self._questions.answer(self.compute_again)
            pending.result()

    @property
    def is_done(self) -> bool:
        """Whether no batch is being committed."""
        return self._pending is None or self._pending.done()

    def close(self) -> None:
        """End the threads, after the commit that they are at."""
        self._questions.close()
        if self._thread is not None:
            self._thread.shutdown(wait=True)
            self._thread = None
        self.delivery.close()

    def _commit(self, batch: FinishedBatch) -> FinishedBatch:
        """Commit a batch, and return it with the latencies of its results."""
        ask = self._questions.ask if self.overlapping else self.compute_again
        committed, ends = self.delivery.commit(batch.output, partial(ask, batch))
        batch = with_latencies(batch, committed)
        for name, why in ends.items():
            _LOG.warning("query %s is stopped: %s", name, why)
            self.changelog.stop(name, f"failed: {why}")
        manifest = self.delivery.noted_in(batch.manifest, batch.outputs)
        self.log.commit(manifest)
        self.last, self.delivery.has_resumed = manifest.number, False
        _LOG.debug("batch %d committed after %.4f s", manifest.number, time.perf_counter() - batch.began)
        return batch


class _Questions:
    """How the thread that commits asks the loop's thread for results, which only that one can have computed."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[tuple[FinishedBatch, Iterable[str], Future[BatchOutput]] | None] = (
            queue.SimpleQueue()
        )
        self._closed = False

    def ask(self, batch: FinishedBatch, names: Iterable[str]) -> BatchOutput:
        """Wait for an answer; if there will be none, because the run ends, the batch is not committed."""
        answer: Future[BatchOutput] = Future()
        self._waiting.put((batch, names, answer))
        while True:
            try:
                return answer.result(0.1)
            except FutureTimeout:
                if self._closed:
                    raise RuntimeError(f"the run ended before batch {batch.number} was committed") from None

    def answer(self, compute: ComputeAgain) -> None:
        """Answer all questions until the commit is done."""
        while (question := self._waiting.get()) is not None:
            batch, names, answer = question
            try:
                answer.set_result(compute(batch, names))
            except BaseException as error:
                answer.set_exception(error)

    def finish(self, _: object = None) -> None:
        """The commit is done."""
        self._waiting.put(None)

    def close(self) -> None:
        """Answer no more."""
        self._closed = True
