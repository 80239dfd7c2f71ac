"""Sessions that break off before or after any step of a commit, while queries come and go, lose and repeat nothing.

Nothing is killed: the step raises, and another session goes on in the same process. So every step is met, also those
that last no time at all, and tasks whose processes live on must not take what they remember for what is.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.errors import PySparkException

import weft.runtime.launch
from tests.recovery.cases import Case
from tests.recovery.moments import last_batch
from tests.recovery.program import Changing
from tests.recovery.records import Recorded
from tests.recovery.test_recovery import check
from weft.runtime.checkpoint import Blueprint, Manifest, Plan
from weft.sinks.parquet import ParquetSink

pytestmark = pytest.mark.xdist_group("spark")  # one Spark at a time

STEPS = 30  # within so many it breaks; a batch of a few queries has as many


class BrokenError(Exception):
    """Where a session broke off."""


class Breaker:
    """Counts the steps of a session, and breaks it off when it has taken so many."""

    def __init__(self) -> None:
        self.left, self.story = 0, list[str]()

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Something that happens, or does not: it may break before and after."""
        self._maybe(f"before {what}")
        yield
        self._maybe(f"after {what}")

    def _maybe(self, where: str) -> None:
        self.left -= 1
        if self.left == 0:
            self.story.append(where)
            raise BrokenError(where)


class Breaking(Recorded):
    """A checkpoint whose steps may break."""

    breaker: ClassVar[Breaker]

    def write_blueprint(self, blueprint: Blueprint) -> str:
        """Between the decision and the plan."""
        with self.breaker.step("a blueprint"):
            return super().write_blueprint(blueprint)

    def write_plan(self, plan: Plan) -> None:
        """The batch is fixed, or not."""
        with self.breaker.step(f"plan {plan.number}{', which lays out anew' if plan.relays else ''}"):
            super().write_plan(plan)

    def write_relaid(self, number: int, manifest: Manifest) -> None:
        """Between the job at a boundary and that of the batch."""
        with self.breaker.step(f"what batch {number} begins with"):
            super().write_relaid(number, manifest)

    def commit(self, manifest: Manifest) -> None:
        """Results are in place, the manifest is not; or both are, and Spark does not know."""
        with self.breaker.step(f"manifest {manifest.number}"):
            super().commit(manifest)


def _run(case: Case, root: Path, spark: Any, breaker: Breaker) -> bool:
    """A session from where the checkpoint stands; whether it came to the end of the input."""
    session = case.session(root, spark=spark)
    session.start(available_now=True)
    changing = Changing(session, case, root)
    changing.start()
    before = len(breaker.story)
    try:
        session.await_termination(300)
    except PySparkException:
        if len(breaker.story) == before:
            raise
    finally:
        changing.over.set()
        changing.join()
        session.stop()
    if changing.error is not None:
        raise changing.error
    return last_batch(root) == case.files - 1


def test_a_session_that_breaks_off_anywhere_goes_on(
    spark: Any, tmp_path: Path, kills: int, recovery_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often as processes are killed, and at the same steps, but at every one of them."""
    commit_parts = ParquetSink.commit_parts

    def breaking(self: ParquetSink, batch_id: int, names: list[str]) -> None:
        with breaker.step(f"the results of {self.path.name} in batch {batch_id}"):
            commit_parts(self, batch_id, names)

    monkeypatch.setattr(ParquetSink, "commit_parts", breaking)
    monkeypatch.setattr(weft.runtime.launch, "Checkpoint", Breaking)
    done = 0
    while done < kills:
        case, rng = Case(recovery_seed + 1000 + done, 10, changing=True), random.Random(recovery_seed + done)
        root = tmp_path / str(done)
        root.mkdir()
        case.write(root)
        Breaking.breaker = breaker = Breaker()
        finished = False
        while not finished:
            breaker.left = rng.randrange(1, STEPS) if done + len(breaker.story) < kills else -1
            finished = _run(case, root, spark, breaker)
        print(case, *breaker.story, sep="\n")
        check(case, root, breaker.story)
        done += max(1, len(breaker.story))
