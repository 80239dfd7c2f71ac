"""When a batch is due though no stream brings anything, and when one may begin.

Guarantees: rows whose wait is over are closed, and held results leave, even if no input comes. A batch is due only if
it may have something to do: if rows wait for wall-clock time alone, every second; if they wait for a silent stream,
when that has become idle. Where batches begin at multiples of a period (`ProcessingTimeTrigger`), one that is late
begins at once, and those that it was too late for are left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from weft.bucket.bucket import FARTHEST
from weft.logical.schema import Stream
from weft.plan.physical.graph import Member
from weft.runtime.log.values import Manifest
from weft.runtime.model.batch_order import Clock
from weft.runtime.model.columns import FOREVER, micros
from weft.runtime.model.watermarks import Watermarks, clocks
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.group_plans import GroupPlan
from weft.runtime.program.store_plans import SweepPlan
from weft.runtime.state.partition_manifest import StoreTotals

__all__ = ["ProcessingTimeTrigger", "WakeUps", "closable", "until_next"]

PAUSE = 1.0  # seconds between batches that wait for wall-clock time
LONGEST = 3600.0  # no pause is longer, in seconds


class ProcessingTimeTrigger:
    """The moments at which batches may begin: the multiples of a period, or any moment where there is none.

    Times are in microseconds since 1970. The first batch may begin at once.

    >>> trigger = ProcessingTimeTrigger(1.0)
    >>> trigger.begin(2_300_000)
    >>> trigger.seconds_left(2_800_000), trigger.seconds_left(3_000_000), trigger.seconds_left(9_900_000)
    (0.2, 0.0, 0.0)
    """

    def __init__(self, every: float | None) -> None:
        self._period = None if every is None else max(1, round(every * 1e6))
        self._next: int | None = None

    def seconds_left(self, now: int) -> float:
        """How many seconds are left until a batch may begin; none if that is now."""
        if self._period is None or self._next is None:
            return 0.0
        left = min(self._next - now, self._period)  # the clock may have been set back
        return max(0.0, left / 1e6)

    def begin(self, now: int) -> None:
        """A batch begins, or it was seen that there is nothing to do: the next moment is the next multiple."""
        if self._period is not None:
            self._next = (now // self._period + 1) * self._period


class WakeUps:
    """When the next batch is due if no stream brings anything, by the monotonic clock."""

    def __init__(self) -> None:
        self._due: float | None = None

    def schedule(self, program: ExecutableGraph | None, manifest: Manifest, now: int) -> None:
        """Work out when the next batch is due after one of the time ``now``, which left a manifest."""
        pause = None
        if program is not None:
            pause = 0.0 if closable(program, manifest) else until_next(program, manifest, now)
        self._due = None if pause is None else time.monotonic() + pause

    def now(self) -> bool:
        """Whether a batch is due now."""
        return self._due is not None and time.monotonic() >= self._due


def closable(program: ExecutableGraph, manifest: Manifest) -> bool:
    """Whether there may be rows whose wait is over by the watermarks, of queries with event time."""
    times = clocks(program.graph, Watermarks(manifest.marks), manifest.closed)
    timed = [sweep for sweep in program.sweeps if not _by_clock(sweep.member)]
    if any(_has(sweep, manifest, times[sweep.member.name]) for sweep in timed):
        return True
    groups = [plan for plan in program.groups.values() if not _by_clock(plan.member)]
    return any(_has_groups(plan, manifest, times[plan.name]) for plan in groups)


def _by_clock(member: Member) -> bool:
    """Whether a query's time is wall-clock time, because none of its streams has event time."""
    return all(stream.event_time is None for stream in _streams(member))


def _has_groups(plan: GroupPlan, manifest: Manifest, clock: Clock) -> bool:
    """Whether there may be groups that are complete between the two times of a clock."""
    stored = manifest.stores.get(plan.identity, StoreTotals())
    return clock.now > clock.before and stored.reaches(clock.before + 1, clock.now + 1)


def _streams(member: Member) -> list[Stream]:
    """The streams of a query, without tables, which have no watermarks."""
    return [member.query.input(alias).stream for alias in member.query.driving]


def until_next(program: ExecutableGraph, manifest: Manifest, now: int) -> float | None:
    """In how many seconds rows can be closed, or held results leave, if no input comes; None if they never can.

    They wait for wall-clock time, or for a silent stream, which gets the watermark of the others when it is idle.
    """
    pauses: list[float] = []
    for sweep in program.sweeps:
        closed = manifest.closed.get(sweep.member.name, 0)
        if not _has(sweep, manifest, Clock(closed, FOREVER)):
            continue
        if _by_clock(sweep.member):
            pauses.append(PAUSE)
        pauses += _silences(sweep.member, manifest, now)
    for plan in program.groups.values():
        closed = manifest.closed.get(plan.name, 0)
        if _has_groups(plan, manifest, Clock(closed, FARTHEST - 1)):
            pauses += [PAUSE] if _by_clock(plan.member) else []
            pauses += _silences(plan.member, manifest, now)
    for member in program.members.values():
        if manifest.held.get(member.name):
            pauses += _silences(member, manifest, now)
            if _clock_is_last(member, manifest):
                first = min(run.time for run in manifest.held[member.name])
                pauses.append(min(max(PAUSE, (first - now) / 1e6), LONGEST))
    return min(pauses, default=None)


def _silences(member: Member, manifest: Manifest, now: int) -> Iterator[float]:
    """In how many seconds each stream that is not idle yet will be, if it stays silent."""
    for stream in _streams(member):
        if stream.event_time is not None and stream.idle_after is not None:
            left = manifest.active.get(stream.name, now) + micros(stream.idle_after) - now
            if left >= 0:
                yield left / 1e6 + PAUSE


def _clock_is_last(member: Member, manifest: Manifest) -> bool:
    """Whether held results wait for wall-clock time: a stream without event time has the least watermark of all."""
    streams = _streams(member)
    if any(stream.name not in manifest.marks for stream in streams):
        return False
    clocked = [manifest.marks[stream.name] for stream in streams if stream.event_time is None]
    return bool(clocked) and min(clocked) <= min(manifest.marks[stream.name] for stream in streams)


def _has(sweep: SweepPlan, manifest: Manifest, clock: Clock) -> bool:
    """Whether there may be stored tuples whose wait for partners ends between the two times of a clock."""
    for (_, alias), wait in sweep.waits.items():
        if wait is None or clock.now <= clock.before:
            continue
        stored = manifest.stores.get(sweep.homes[alias].identity, StoreTotals())
        if stored.reaches(clock.before - wait, clock.now - wait):
            return True
    return False
