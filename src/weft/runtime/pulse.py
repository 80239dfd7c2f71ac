"""Batches that no input asks for.

Guarantees: what can be done is done though no stream brings anything: rows whose wait is over are closed, queries begin
and stop. A batch follows only where it has something to do; rows that wait for the clock alone are looked at every
second.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from weft.runtime.changes import Changelog
from weft.runtime.checkpoint import Checkpoint, Manifest
from weft.runtime.prepared import SweepPlan
from weft.runtime.program import Program
from weft.runtime.turn import Clock
from weft.runtime.watermark import Watermarks, clocks

__all__ = ["Pulse", "closable", "waits_for_clock"]

PAUSE = 1.0  # seconds


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
        elif waits_for_clock(program, manifest, graph) and not self._stopped:
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
    times = clocks(program.graph, Watermarks(manifest.marks), manifest.closed)
    return any(_has(sweep, manifest, graph, times[sweep.member.name]) for sweep in program.sweeps)


def waits_for_clock(program: Program, manifest: Manifest, graph: str) -> bool:
    """Whether rows wait for a time that comes by itself: no stream of their query has one of its own."""
    for sweep in program.sweeps:
        inputs = sweep.member.query.inputs
        now = manifest.closed.get(sweep.member.name, 0)
        timed = any(input_.stream.event_time for input_ in inputs)
        if not timed and _has(sweep, manifest, graph, Clock(now, 1 << 62)):
            return True
    return False


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
