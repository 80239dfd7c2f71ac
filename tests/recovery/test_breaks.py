"""Sessions that break off before or after any step of a commit, while queries come and go, lose and repeat nothing.

So do those that break off before or after every step of the batch that ends their input.

Nothing is killed: the step raises, and another session goes on in the same process. So every step is met, also those
that last no time at all, and tasks whose processes live on must not take what they remember for what is.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

import weft.session.run
from tests.recovery.cases import Case
from tests.recovery.check import check
from tests.recovery.moments import is_ending
from tests.recovery.program import run_case
from tests.recovery.records import Recorded, RecordedLoop
from tests.shares import numbers, quick, share_of
from weft.connectors.files.parquet_sink import ParquetSink
from weft.logical.codec import encode
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import BatchPlan, Blueprint, Manifest

BREAKS = 12  # at most, of one session
STEPS = 30  # within so many it breaks; a batch of a few queries has as many


class BrokenError(BaseException):
    """Where a session broke off; no error that a session could deal with."""


class Breaker:
    """Counts the steps of a session, and breaks it off when it has taken so many; or once at each step of the end.

    Several sinks are committed to at once, each in a thread of its own: their steps are counted one at a time.
    """

    def __init__(self) -> None:
        self.left, self.story = 0, list[str]()
        self._lock = threading.Lock()
        self.ends: list[str] | None = None  # the steps of the end that it broke off at, if it does

    @contextmanager
    def step(self, what: str, end: str = "") -> Iterator[None]:
        """Something that happens, or does not: it may break before and after. ``end`` names a step of the end."""
        self._maybe("before", what, end)
        yield
        self._maybe("after", what, end)

    def _maybe(self, when: str, what: str, end: str) -> None:
        with self._lock:
            self.left -= 1
            new = self.ends is not None and end != "" and f"{when} {end}" not in self.ends
            if self.left == 0 or new:
                self.story.append(f"{when} {what}")
                if self.ends is not None:
                    self.ends.append(f"{when} {end}")
                raise BrokenError(self.story[-1])


class Breaking(Recorded):
    """A checkpoint whose steps may break."""

    breaker: ClassVar[Breaker]

    def write_blueprint(self, blueprint: Blueprint) -> str:
        """Between the decision and the plan."""
        with self.breaker.step("a blueprint"):
            return super().write_blueprint(blueprint)

    def write_plan(self, plan: BatchPlan) -> None:
        """The batch is fixed, or not."""
        with self.breaker.step(
            f"plan {plan.number}{', which lays out anew' if plan.migration else ''}", _end(plan, "plan")
        ):
            super().write_plan(plan)

    def write_migrated(self, number: int, manifest: Manifest) -> None:
        """Between the job at a boundary and that of the batch."""
        with self.breaker.step(f"what batch {number} begins with"):
            super().write_migrated(number, manifest)

    def commit(self, manifest: Manifest) -> None:
        """Results are in place, the manifest is not; or both are, and what was read is not released."""
        end = _end(self.plan(manifest.number), "manifest")
        with self.breaker.step(f"manifest {manifest.number}", end):
            super().commit(manifest)


def _end(plan: BatchPlan | None, step: str) -> str:
    """A step, if it is one of the batch that ends the input."""
    return step if plan is not None and is_ending(encode(plan)) else ""


def _run(case: Case, root: Path, spark: Any, breaker: Breaker) -> bool:
    """A session from where the checkpoint stands; whether it came to the end of the input."""
    before = len(breaker.story)
    try:
        run_case(case.session(root, spark=spark), case, root)
    except BrokenError:
        if len(breaker.story) == before:
            raise
    return len(breaker.story) == before


@pytest.fixture
def breaker(monkeypatch: pytest.MonkeyPatch) -> Breaker:
    """What breaks sessions off."""
    commit_parts = ParquetSink.commit_parts

    def breaking(self: ParquetSink, batch_id: int, names: list[str]) -> None:
        path = Path(self.path)
        plan = Checkpoint.at(path.parents[1] / "ck").plan(batch_id)
        what = f"the results of {path.name} in batch {batch_id}"
        with Breaking.breaker.step(what, _end(plan, "results")):
            commit_parts(self, batch_id, names)

    monkeypatch.setattr(ParquetSink, "commit_parts", breaking)
    monkeypatch.setattr(weft.session.run, "Checkpoint", Breaking)
    monkeypatch.setattr(weft.session.run, "Loop", RecordedLoop)
    breaker = Breaker()
    monkeypatch.setattr(Breaking, "breaker", breaker, raising=False)
    return breaker


@pytest.mark.parametrize("number", quick(range(share_of(2))))
def test_a_session_that_breaks_off_anywhere_goes_on(
    spark: Any, tmp_path: Path, number: int, breaker: Breaker
) -> None:
    """At the same steps at which processes are killed, but at every one of them."""
    (seed,) = numbers(1, number)
    case = Case(1000 + seed, *((10, "changing"), (6, "outer"))[number % 2])
    rng, most = random.Random(seed), min(BREAKS, 2 + share_of(1))
    case.write(tmp_path)
    finished = False
    while not finished:
        breaker.left = rng.randrange(1, STEPS) if len(breaker.story) < most else -1
        finished = _run(case, tmp_path, spark, breaker)
    print(case, *breaker.story, sep="\n")
    check(case, tmp_path, breaker.story)


@pytest.mark.parametrize("number", range(share_of(1)))
def test_the_end_of_the_input_may_break_off_anywhere(
    spark: Any, tmp_path: Path, number: int, breaker: Breaker
) -> None:
    """Rows of the end would be lost, or given twice."""
    case = Case(3000 + numbers(1, number).start, 2, "outer")
    case.write(tmp_path)
    breaker.ends = []
    while not _run(case, tmp_path, spark, breaker):
        pass
    print(case, *breaker.story, sep="\n")
    check(case, tmp_path, breaker.story)
    steps = ("plan", "results", "manifest")
    assert sorted(breaker.ends) == sorted(f"{when} {step}" for when in ("before", "after") for step in steps)
