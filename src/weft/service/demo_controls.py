"""What can be done to the demo from its page: queries to add, data that drifts, and a worker to kill.

Guarantees: only a process that is a task of this very session is killed. What is said of lost or repeated results is
counted from the results themselves: one query gives the number of every generated video, and numbers have no gap.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from weft.connectors.generate.drift import Dial
from weft.connectors.generate.rate import RateSource
from weft.errors import ConfigError, WeftError
from weft.service.hub.hub import SessionHub
from weft.service.hub.values import NewQuery
from weft.service.pipeline import Pipeline

__all__ = ["AUDIT", "Balance", "DemoControls", "balance_of"]

AUDIT = "every_video"  # the query that gives the number of every video

QUERIES = {
    "binge": """SELECT w.usr, v.vid, v.length, w.duration
FROM videos [RANGE 20 SECONDS] AS v, views [RANGE 5 SECONDS] AS w
WHERE v.vid = w.vid AND v.length > 500 AND w.duration > 100""",
    "loved": """SELECT c.usr, c.comment, r.reaction
FROM comments [RANGE 5 SECONDS] AS c, reactions [RANGE 5 SECONDS] AS r
WHERE c.usr = r.usr AND r.reaction = 'love' AND c.comment = 'nice'""",
    "storm": """SELECT v.vid, w.usr, c.comment, r.reaction
FROM videos [RANGE 20 SECONDS] AS v, views [RANGE 5 SECONDS] AS w,
     comments [RANGE 5 SECONDS] AS c, reactions [RANGE 5 SECONDS] AS r
WHERE v.vid = w.vid AND w.usr = c.usr AND c.usr = r.usr AND v.geo = 'US' AND r.reaction = 'angry'""",
    "silent": """SELECT w.usr, w.vid
FROM views [RANGE 5 SECONDS] AS w ANTI JOIN comments [RANGE 5 SECONDS] AS c ON w.usr = c.usr
WHERE w.geo = 'US'""",
}


@dataclass(frozen=True, slots=True)
class Balance:
    """Of so many numbers in a row, how many came: each once, if nothing is ``missing`` and nothing came ``twice``."""

    expected: int
    got: int
    missing: int
    twice: int


def balance_of(numbers: pa.ChunkedArray) -> Balance | None:
    """What became of numbers that should be there without a gap, each once; None if there are none."""
    if not len(numbers):
        return None
    bounds = pc.min_max(numbers).as_py()
    expected, distinct = bounds["max"] - bounds["min"] + 1, pc.count_distinct(numbers).as_py()
    return Balance(expected, len(numbers), expected - distinct, len(numbers) - distinct)


class DemoControls:
    """The controls of a demo over its pipeline and its hub."""

    def __init__(self, pipeline: Pipeline, hub: SessionHub) -> None:
        sources = pipeline.sources.values()
        self._dials: list[Dial] = [one.dial for one in sources if isinstance(one, RateSource) and one.dial]
        self._hub, self._killed = hub, 0

    def begin(self) -> None:
        """Run the query by which it is seen that nothing is lost."""
        if all(one.name != AUDIT or one.status == "stopped" for one in self._hub.queries()):
            self._hub.create(NewQuery("SELECT v.n FROM videos AS v", AUDIT))

    @property
    def queries(self) -> dict[str, str]:
        """Queries to add with a click: SQL by name."""
        return QUERIES

    def drift(self) -> float:
        """How far the data has drifted, from 0 to 1."""
        return max((dial.position for dial in self._dials), default=0.0)

    def turn(self, position: float) -> None:
        """Make the data drift."""
        for dial in self._dials:
            dial.turn(position)

    def kill(self) -> str:
        """Kill a worker of this session, another one each time; says which."""
        pids = self._hub.session.worker_pids
        if not pids:
            raise ConfigError(
                "there is no worker to kill now: tasks are being started, or batches run in this process",
                hint="wait a moment, or start the demo with Spark",
            )
        pid = pids[self._killed % len(pids)]
        self._killed += 1
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return f"process {pid} was gone already"
        return f"killed process {pid}, one of {len(pids)} workers"

    def balance(self) -> Balance | None:
        """Whether any video was lost or counted twice, by the results that are kept; None while that is not known."""
        try:
            newest = self._hub.results(AUDIT, -1, 1)
            numbers, after = [], max(0, newest.newest - KEPT)
            while after < newest.newest:
                page = self._hub.results(AUDIT, after, min(1000, newest.newest - after), origin=newest.origin)
                if page.restarted or not page.table.num_rows:
                    return None
                numbers.append(page.table.column(0))
                after = page.last
        except WeftError:
            return None
        return balance_of(pa.chunked_array([chunk for one in numbers for chunk in one.chunks], pa.int64()))


KEPT = 8000  # of the last results so many are looked at, whole batches of which are kept
