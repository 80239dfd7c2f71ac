"""The commit of a batch: first its results, in their sinks, then its manifest, in the log.

Guarantees: results are committed before the manifest, so a crash in between repeats the batch, and sinks are made for
that; batches are committed one after the other, in their order. Sinks whose parts tasks have written are committed at
the same time. A sink that fails stops its query and no other. While a batch is committed, the next one may run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from weft.errors import SinkError, WeftError
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.loop.deliver import deliver
from weft.runtime.loop.ending import BatchEnd
from weft.runtime.loop.latencies import with_latencies
from weft.runtime.loop.query_sinks import Output
from weft.runtime.loop.ran_batch import RanBatch
from weft.runtime.queries.changelog import Changelog

__all__ = ["Committer", "Ended"]

_LOG = logging.getLogger("weft")

SINKS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Ended:
    """A batch that is to be committed.

    ``ran`` is the batch and ``left`` what it leaves; ``outputs`` are the sinks of its queries, by name; ``began`` is
    when it began (`time.perf_counter`).
    """

    ran: RanBatch
    left: BatchEnd
    outputs: Mapping[str, Output]
    began: float


@dataclass
class Committer:
    """Commits one batch after the other; if ``overlapping``, in a thread, so that the next batch can run meanwhile.

    ``broken`` are the queries whose sink failed, and why; ``last`` is the last committed batch. ``clock`` is in
    microseconds since 1970; by it the latencies of results are measured.
    """

    log: Checkpoint
    changelog: Changelog
    overlapping: bool = True
    clock: Callable[[], int] = lambda: time.time_ns() // 1000
    broken: dict[str, str] = field(default_factory=dict)
    last: int = -1
    _pending: Future[None] | None = field(default=None, init=False)
    _thread: ThreadPoolExecutor | None = field(default=None, init=False)
    _pool: ThreadPoolExecutor | None = field(default=None, init=False)

    def begin(self, ended: Ended, after: Callable[[Ended], None]) -> None:
        """Commit a batch as soon as the one before it is committed; ``after`` is called with it when it is."""
        self.wait()
        if not self.overlapping:
            self._commit_and_tell(ended, after)
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "weft-commit")
        self._pending = self._thread.submit(self._commit_and_tell, ended, after)

    def _commit_and_tell(self, ended: Ended, after: Callable[[Ended], None]) -> None:
        committed = self._commit(ended)
        after(committed)
        self.log.tidy(committed.left.manifest)

    def wait(self) -> None:
        """Wait until all batches are committed; an error in doing so is raised here."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    @property
    def is_done(self) -> bool:
        """Whether no batch is being committed."""
        return self._pending is None or self._pending.done()

    def close(self) -> None:
        """End the threads, after the commit that they are at."""
        for pool in (self._thread, self._pool):
            if pool is not None:
                pool.shutdown(wait=True)
        self._thread = self._pool = None

    def _commit(self, ended: Ended) -> Ended:
        """Commit a batch, and return it with the latencies of its results."""
        committed: dict[str, int] = {}
        failed = dict(self._deliver(ended, committed))
        ended = replace(ended, left=with_latencies(ended.ran, ended.left, committed))
        manifest = ended.left.manifest
        if failed:
            results = {name: rows for name, rows in manifest.results.items() if name not in failed}
            manifest = replace(manifest, failed={**manifest.failed, **failed}, results=results)
            self._stop(failed)
        self.log.commit(manifest)
        self.last = manifest.number
        _LOG.debug("batch %d committed after %.4f s", manifest.number, time.perf_counter() - ended.began)
        return ended

    def _deliver(self, ended: Ended, committed: dict[str, int]) -> Iterable[tuple[str, str]]:
        """Give the results to their sinks and note when; the queries whose sinks fail, and why."""
        at_once = self._begin_at_once(ended)
        for name in ended.outputs:
            if name in self.broken:
                yield name, self.broken[name]
                continue
            try:
                committed[name] = at_once[name].result() if name in at_once else self._give(ended, name)
            except Exception as error:  # whatever a sink raises, only its query fails
                why = error.message if isinstance(error, WeftError) else str(error)
                if len(ended.outputs) == 1:  # no other query would go on
                    raise _as_weft_error(name, error) from error
                yield name, f"{type(error).__name__}: {why}"

    def _give(self, ended: Ended, name: str) -> int:
        """Give the results of a query to its sink, and return when that was done."""
        answers, ordered = ended.ran.reports.answers, ended.left.ordered.get(name)
        deliver(ended.outputs[name], name, ended.ran.number, answers, self.log.storage, ordered)
        return self.clock()

    def _begin_at_once(self, ended: Ended) -> dict[str, Future[int]]:
        """Begin to commit to all sinks at once whose parts tasks have written; there are none if there is but one.

        Other sinks may call users' code, which does not expect to be called in several threads.
        """
        wanted = [
            name
            for name, output in ended.outputs.items()
            if (output.in_order if name in ended.left.ordered else output.parts) and name not in self.broken
        ]
        if len(wanted) < 2:
            return {}
        if self._pool is None:
            self._pool = ThreadPoolExecutor(SINKS_AT_ONCE, "weft-sinks")
        return {name: self._pool.submit(self._give, ended, name) for name in wanted}

    def _stop(self, failed: Mapping[str, str]) -> None:
        for name, why in failed.items():
            if name not in self.broken:
                _LOG.warning("query %s is stopped: %s", name, why)
                self.changelog.stop(name, f"failed: {why}")
        self.broken |= failed


def _as_weft_error(name: str, error: Exception) -> WeftError:
    if isinstance(error, WeftError):
        return error
    return SinkError(f"the sink of query {name} failed: {type(error).__name__}: {error}")
