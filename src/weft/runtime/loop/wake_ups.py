"""When a batch is due though no stream brings anything.

Guarantees: what can be done is done though nothing comes: rows whose wait is over are closed, results that are held
back leave. A batch follows only where it has something to do; rows that wait for the clock alone are looked at every
second, those that wait for a silent source when that has been idle for long enough.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from weft.plan.graph import Member
from weft.runtime.log.values import Manifest
from weft.runtime.model.batch_order import Clock
from weft.runtime.model.columns import FOREVER, micros
from weft.runtime.model.watermarks import Watermarks, clocks
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.store_plans import SweepPlan

__all__ = ["WakeUps", "closable", "until_next"]

PAUSE = 1.0  # seconds
LONGEST = 3600.0


class WakeUps:
    """When the next batch is due though nothing comes, by the monotonic clock."""

    def __init__(self) -> None:
        self._due: float | None = None

    def schedule(self, program: ExecutableGraph | None, manifest: Manifest, now: int) -> None:
        """Work out when it is due after a batch of the time ``now``, which left a manifest."""
        pause = None
        if program is not None:
            pause = 0.0 if closable(program, manifest) else until_next(program, manifest, now)
        self._due = None if pause is None else time.monotonic() + pause

    def now(self) -> bool:
        """Whether it is due now."""
        return self._due is not None and time.monotonic() >= self._due


def closable(program: ExecutableGraph, manifest: Manifest) -> bool:
    """Whether there may be rows whose wait is over, by the time that tuples tell."""
    times = clocks(program.graph, Watermarks(manifest.marks), manifest.closed)
    timed = [sweep for sweep in program.sweeps if not _by_clock(sweep)]
    return any(_has(sweep, manifest, times[sweep.member.name]) for sweep in timed)


def _by_clock(sweep: SweepPlan) -> bool:
    """Whether time passes by itself: no stream of the query has one of its own."""
    return all(input_.stream.event_time is None for input_ in sweep.member.query.inputs)


def until_next(program: ExecutableGraph, manifest: Manifest, now: int) -> float | None:
    """In how many seconds rows that wait can be closed, or leave, though nothing comes; None: not at all.

    They wait for the clock, or for a silent stream, which is taken along when it has been idle for long enough.
    """
    pauses: list[float] = []
    for sweep in program.sweeps:
        closed = manifest.closed.get(sweep.member.name, 0)
        if not _has(sweep, manifest, Clock(closed, FOREVER)):
            continue
        if _by_clock(sweep):
            pauses.append(PAUSE)
        pauses += _silences(sweep.member, manifest, now)
    for member in program.members.values():
        if manifest.held.get(member.name):
            pauses += _silences(member, manifest, now)
            if _clock_is_last(member, manifest):
                first = min(run.time for run in manifest.held[member.name])
                pauses.append(min(max(PAUSE, (first - now) / 1e6), LONGEST))
    return min(pauses, default=None)


def _silences(member: Member, manifest: Manifest, now: int) -> Iterator[float]:
    """In how many seconds streams will be idle that are not yet."""
    for stream in (input_.stream for input_ in member.query.inputs):
        if stream.event_time is not None and stream.idle_after is not None:
            left = manifest.active.get(stream.name, now) + micros(stream.idle_after) - now
            if left >= 0:
                yield left / 1e6 + PAUSE


def _clock_is_last(member: Member, manifest: Manifest) -> bool:
    """Whether it is for the clock to pass what waits: a stream without event time is behind all others."""
    streams = [input_.stream for input_ in member.query.inputs]
    if any(stream.name not in manifest.marks for stream in streams):
        return False
    clocked = [manifest.marks[stream.name] for stream in streams if stream.event_time is None]
    return bool(clocked) and min(clocked) <= min(manifest.marks[stream.name] for stream in streams)


def _has(sweep: SweepPlan, manifest: Manifest, clock: Clock) -> bool:
    """Whether tuples are stored whose wait ends between two times."""
    for (_, alias), wait in sweep.waits.items():
        if wait is None or clock.now <= clock.before:
            continue
        low, high = clock.before - wait, clock.now - wait
        for runs in manifest.runs.get(sweep.homes[alias].identity, {}).values():
            for run in runs:
                first, last = run.bounds.min_time, run.bounds.max_time
                if first is not None and last is not None and first < high and last >= low:
                    return True
    return False
