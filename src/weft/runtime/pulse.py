"""Batches that no input asks for.

Guarantees: what can be done is done though no stream brings anything: rows whose wait is over are closed, queries begin
and stop. A batch follows only where it has something to do; rows that wait for the clock alone are looked at every
second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from weft.logical.schema import Stream
from weft.runtime.batch import micros
from weft.runtime.changes import Changelog
from weft.runtime.checkpoint import Checkpoint, Manifest
from weft.runtime.prepared import SweepPlan
from weft.runtime.program import Program
from weft.runtime.turn import Clock
from weft.runtime.watermark import Watermarks, clocks, connected_streams

__all__ = ["Pulse", "closable", "waits_for_clock"]

PAUSE = 1.0  # seconds
SOME_DAY = 1 << 62  # in microseconds


@dataclass
class Pulse:
    """Begins batches, at once or after a pause."""

    checkpoint: Checkpoint
    _timer: threading.Timer | None = field(default=None, repr=False)
    _stopped: bool = False

    def beat(self) -> None:
        """Have a batch begin."""
        if not self._stopped:
            self.checkpoint.tick()

    def after(self, program: Program, manifest: Manifest, graph: str, log: Changelog) -> None:
        """Have the next batch begin, if there is something to do for it; called when one is committed."""
        if log.waiting() or log.stopping() or closable(program, manifest, graph):
            self.beat()
        elif waits_for_clock(program, manifest, graph, time.time_ns() // 1000) and not self._stopped:
            self._timer = threading.Timer(PAUSE, self.beat)
            self._timer.daemon = True
            self._timer.start()

    def stop(self) -> None:
        """Begin no more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()


def closable(program: Program, manifest: Manifest, graph: str) -> bool:
    """Whether there may be rows whose wait is over."""
    return _ends_by(program, manifest, graph, Watermarks(manifest.marks))


def waits_for_clock(program: Program, manifest: Manifest, graph: str, now: int) -> bool:
    """Whether rows wait for a time that comes by itself: streams have none of their own, or fall idle in silence."""
    components = connected_streams([program.graph])
    known = Watermarks(manifest.marks, manifest.active)
    moments = [SOME_DAY, *(moment for moment in _idle(components, manifest.active) if moment > now)]
    return any(
        _ends_by(program, manifest, graph, known.advance(components, {}, moment)) for moment in moments
    )


def _idle(components: Iterable[Iterable[Stream]], active: Mapping[str, int]) -> Iterator[int]:
    """When streams fall idle if they stay silent."""
    for stream in (stream for component in components for stream in component):
        if stream.idle_after is not None and stream.name in active:
            yield active[stream.name] + micros(stream.idle_after) + 1


def _ends_by(program: Program, manifest: Manifest, graph: str, marks: Watermarks) -> bool:
    """Whether the wait of rows that are not closed yet is over when streams are there."""
    times = clocks(program.graph, marks, manifest.closed)
    return any(_has(sweep, manifest, graph, times[sweep.member.name]) for sweep in program.sweeps)


def _has(sweep: SweepPlan, manifest: Manifest, graph: str, clock: Clock) -> bool:
    """Whether tuples are stored whose wait ends between two times."""
    for (_, alias), wait in sweep.waits.items():
        if wait is None or clock.now <= clock.before:
            continue
        low, high = clock.before - wait, clock.now - wait
        for runs in manifest.runs.get(graph, {}).get(sweep.homes[alias].identity, {}).values():
            for run in runs:
                first, last = run.bounds.min_time, run.bounds.max_time
                if first is not None and last is not None and first < high and last >= low:
                    return True
    return False
