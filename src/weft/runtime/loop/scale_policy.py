"""When tasks change by themselves: from how far batches are behind, and how busy tasks are (decision 67).

Guarantees: a function of what was seen, with no clock of its own. Nothing changes before batches were behind, or tasks
idle, for several batches and some seconds, nor soon after another change: what follows from a change has to be seen
first. Where fewer tasks were soon too few, it takes twice as long until there are fewer again. Partitions move before
there are more tasks (AJoin, section 4: overloaded partitions first), and there are more only where tasks are what
batches wait for: a driver or a source that is slow is not mended by them.

*Behind* is what has waited for longer than the target, or than `PATIENCE` where there is none. Without a target there
are never fewer tasks: nobody said what may take longer for it. Nor are there on one machine, where tasks that have
nothing to do cost nothing, and others to take their place hold a batch up.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import ceil

from weft.runtime.loop.scaling import Scaling, TaskLoad
from weft.runtime.model.assignment import balanced_owners, busiest_share

__all__ = ["LoadScale", "behind_by"]

PATIENCE = 5.0  # seconds that something may wait where there is no target
BATCHES, SECONDS = 3, 1.0  # in so many batches, for so long, something must be behind before anything is done
RESTS = 5.0  # seconds after a change before there may be more tasks
IDLE, LONGEST = (
    30.0,
    600.0,
)  # seconds after a change, and of idle tasks, before there may be fewer; and at most
BUSY = 0.5  # the part of a batch in which the busiest task must be busy for more tasks to help
FULL, LOW = (
    0.6,
    0.4,
)  # tasks are to be busy for about this part of the time; if for less than the other, there are too many
MOST_GROWTH = 2.0  # times as many tasks at once, at most

OVERLOAD, SPARE = "overload", "idle tasks"  # the causes of changes


@dataclass(frozen=True, slots=True)
class _Seen:
    """A batch: when it was over, by how many seconds what waits is behind, and how busy tasks were."""

    now: float
    behind: float
    busy: float
    busiest: float


def behind_by(seen: TaskLoad) -> float:
    """For how many seconds longer than it may something has waited; negative if nothing is late."""
    waits = [one.seconds for one in seen.last.backlog.values()] if seen.last is not None else []
    return max(waits, default=0.0) - (seen.target or PATIENCE)


class LoadScale:
    """Has as many tasks as the load needs, from ``least`` to ``most`` of them (None: as many as there are hands).

    If the user says how many tasks there are, without saying how many there may be at ``most``, there are no more than
    this ``usual`` number by themselves.
    """

    def __init__(self, least: int = 1, most: int | None = None, usual: int | None = None) -> None:
        self._least, self._most, self._usual = least, most, usual
        self.may_grow = True  # whether more tasks are possible and would help, as far as is known
        self._batches: deque[_Seen] = deque(maxlen=10_000)
        self._number = -1  # the last batch that was seen
        self._wanted: int | None = (
            None  # how many tasks were wanted when that was last seen; None after a change
        )
        self._changed, self._idle = float("-inf"), IDLE
        self._fell = float("-inf")  # when there were last fewer tasks

    def next_scaling(self, seen: TaskLoad) -> Scaling | None:
        """What changes with the next batch; None if nothing does."""
        self._notice(seen)
        self._look(seen)
        self.may_grow = self._helps(seen)
        scaling = self._into_bounds(seen) or self._more(seen) or self._fewer(seen)
        if scaling is not None:
            self._learn(seen, scaling)
            self._begin_anew(seen.now)
        self._wanted = None if scaling is not None else seen.wanted
        return scaling

    def _notice(self, seen: TaskLoad) -> None:
        """Wait for what follows from the changes of others, too: of users by hand, and of a cluster's machines."""
        if self._wanted is not None and seen.wanted != self._wanted:
            self._begin_anew(seen.now)

    def _begin_anew(self, now: float) -> None:
        self._changed = now
        self._batches.clear()

    def _learn(self, seen: TaskLoad, scaling: Scaling) -> None:
        """Wait for twice as long before there are fewer tasks again, where that had to be undone soon."""
        if scaling.cause == SPARE:
            self._fell = seen.now
        elif seen.now - self._fell < 2 * self._idle:
            self._idle = min(LONGEST, 2 * self._idle)

    def _look(self, seen: TaskLoad) -> None:
        last = seen.last
        if last is None or last.number == self._number:
            return
        since = seen.now - self._batches[-1].now if self._batches else last.elapsed
        spent, busiest = sum(seen.load.values()) if seen.load else 0.0, 0.0
        if seen.load and last.elapsed > 0:
            busiest = spent * busiest_share(seen.owners, seen.tasks, seen.load) / last.elapsed
        busy = min(1.0, spent / seen.tasks / since) if since > 0 else 0.0
        self._number = last.number
        self._batches.append(_Seen(seen.now, behind_by(seen), busy, busiest))

    def _limit(self, seen: TaskLoad) -> int:
        """No more tasks than can work at once, and than there are partitions: a further one would have none."""
        return max(1, min(self._most or self._usual or seen.hands, seen.hands, seen.partitions))

    def _helps(self, seen: TaskLoad) -> bool:
        """Whether there can be more tasks, and tasks are what batches wait for; they are until that is known."""
        late = list(self._batches)[-BATCHES:]
        return self._limit(seen) > seen.wanted and (
            len(late) < BATCHES or max(one.busiest for one in late) >= BUSY
        )

    def _into_bounds(self, seen: TaskLoad) -> Scaling | None:
        """Have at least, and at most, as many tasks as the user says."""
        tasks = max(seen.wanted, min(self._least, seen.room))
        tasks = tasks if self._most is None else min(tasks, self._most)
        if tasks == seen.wanted:
            return None
        way = "scaled up" if tasks > seen.wanted else "scaled down"
        return Scaling(
            way, tasks, "bounds", f"there are to be {self._least} to {self._most or 'any number of'} tasks"
        )

    def _more(self, seen: TaskLoad) -> Scaling | None:
        """Move partitions, or have more tasks, if batches have been behind for a while."""
        late = list(self._batches)[-BATCHES:]
        if len(late) < BATCHES or any(one.behind <= 0 for one in late):
            return None
        since = next((one.now for one in reversed(self._batches) if one.behind <= 0), self._batches[0].now)
        if seen.now - since < SECONDS or seen.now - self._changed < RESTS:
            return None
        reason = f"what waits is {late[-1].behind:.2g} s later than wanted, for {seen.now - since:.2g} s now"
        return self._moved(seen, reason) or self._grown(seen, late, reason)

    def _moved(self, seen: TaskLoad, reason: str) -> Scaling | None:
        """Give partitions to other tasks, if one task has clearly more to do than it need have."""
        load = seen.load or {}
        if seen.tasks != seen.wanted or seen.hands == 1 or not load:
            return None
        owners = balanced_owners(seen.partitions, seen.tasks, load, seen.owners)
        before, after = (busiest_share(one, seen.tasks, load) for one in (seen.owners, owners))
        if owners == tuple(seen.owners) or after >= before:
            return None
        reason = f"{reason}; the busiest task had {before:.0%} of the work, and gets {after:.0%}"
        return Scaling("moved partitions", seen.tasks, OVERLOAD, reason, owners)

    def _grown(self, seen: TaskLoad, late: list[_Seen], reason: str) -> Scaling | None:
        """More tasks, if there is room and tasks are what batches wait for: twice as many at most."""
        limit, busiest = self._limit(seen), max(one.busiest for one in late)
        if limit <= seen.wanted or busiest < BUSY:
            return None
        growing = late[-1].behind > late[0].behind
        tasks = min(limit, ceil(seen.wanted * (MOST_GROWTH if growing else 1.5)))
        return Scaling(
            seen.way_up, tasks, OVERLOAD, f"{reason}; the busiest task works {busiest:.0%} of a batch"
        )

    def _fewer(self, seen: TaskLoad) -> Scaling | None:
        """Fewer tasks, if they have been idle for most of a while and nothing was behind."""
        least = min(self._least, seen.wanted)
        recent = [one for one in self._batches if one.now > seen.now - self._idle]
        if seen.target is None or not seen.spread:
            return None
        if seen.wanted <= least or seen.now - self._changed < self._idle:
            return None
        if (
            not recent
            or recent[0] is self._batches[0]
            or any(one.behind > -seen.target / 2 for one in recent)
        ):
            return None
        busy = sum(one.busy for one in recent) / len(recent)
        tasks = max(least, ceil(seen.wanted * busy / FULL), seen.wanted // 2)
        if busy >= LOW or tasks >= seen.wanted:
            return None
        return Scaling(
            seen.way_down, tasks, SPARE, f"tasks were busy for {busy:.0%} of the last {self._idle:g} s"
        )
