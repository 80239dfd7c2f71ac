"""Runs whose checkpoint, input and results are in an object store that makes trouble, and that are killed or paused.

The front before the store sees every request, so a run is struck just when one of its steps reaches the store: before
the store has it, when the request takes effect though its sender is dead, or after.
"""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.recovery.cases import Case
from tests.recovery.check import check
from tests.recovery.processes import Run, until
from tests.shares import numbers, share_of
from tests.storage.s3_front import Front, Trouble
from weft.runtime.log.checkpoint import Checkpoint
from weft.sinks.parquet import to_parquet
from weft.storage.objects import ObjectStorage
from weft.storage.places import storage_at

KINDS = ("changing", "outer", "fixed")
LEASE = 2.0  # seconds

# What a run asks of the store on the way of a batch, and of a change of queries.
STEPS = (
    r"PUT .*/ck/plan/",
    r"PUT .*/ck/state/buckets/",
    r"PUT .*/out/.*/_weft/pending/",
    r"PUT .*/out/.*/batch=",
    r"PUT .*/out/.*/_weft/commits/",
    r"PUT .*/ck/state/\d+\.json",
    r"PUT .*/ck/(blueprints|blobs|migrated|lease)/",
    r"(DELETE|POST) ",
    r"GET ",
)


class Stricken:
    """A case in an object store, which runs in a process of its own and is struck at moments of its requests."""

    def __init__(
        self, root: Path, case: Case, front: Front, stack: ExitStack, lease: float | None = None
    ) -> None:
        self.root, self.case, self.front, self.stack, self.lease = root, case, front, stack, lease
        self.rng = random.Random(f"{case.seed} strikes at requests")
        self.story: list[str] = []
        print(case)  # its seed, whatever fails
        case.write(root)
        storage = ObjectStorage(case.place)
        for file in sorted((root / "in").rglob("*.json")):
            storage.put(str(file.relative_to(root)), file.read_bytes())
        front.begin(case.seed, Trouble(percent=5, delay=0.05))

    def start(self) -> Run:
        """Begin, or go on."""
        given = [
            str(self.case.seed),
            str(self.case.files),
            self.case.kind,
            "local[2]",
            "local",
            self.case.place,
        ]
        with pytest.MonkeyPatch.context() as patch:
            if self.lease is not None:
                patch.setenv("LEASE_SECONDS", str(self.lease))
            run = Run(self.root, given)
        self.stack.callback(run.end)
        return run

    def strike(self, run: Run, number: signal.Signals) -> bool:
        """Send a signal to a run at a random request; whether it came before the run ended."""
        step, when = self.rng.choice(STEPS), self.rng.choice(("before", "after"))
        nth = self.rng.randint(1, 6)
        done: list[str] = []

        def act() -> None:
            os.kill(run.members("driver")[0], number)
            done.append(f"{number.name} {when} the {nth}th {step}")

        self.front.watch(step, when, act, nth)
        until(lambda: bool(done) or run.code is not None, lambda: f"{step} never comes\n{run.tail()}")
        self.story += done
        return bool(done)

    def check(self) -> None:
        """Fetch all that is in the store, and compare it with the definition."""
        self.front.begin(0, Trouble(percent=0))
        storage = ObjectStorage(self.case.place)
        for one in storage.entries():
            if one.name.startswith("ck/"):
                self._fetch(storage, one.name)
        for query in {one.name.split("/")[1] for one in storage.entries() if one.name.startswith("out/")}:
            for uri in to_parquet(f"{self.case.place}/out/{query}").committed_files():  # type: ignore[union-attr]
                self._fetch(storage, uri.removeprefix(f"{self.case.place}/"))
        print(*self.story, self.front.counts, sep="\n")  # pytest -rP shows it
        check(replace(self.case, place=""), self.root, self.story)
        assert sum(self.front.counts.values()) > 5, "there was no trouble"

    def _fetch(self, storage: ObjectStorage, name: str) -> None:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(storage.get(name) or b"")


def case_of(number: int, files: int, place: str) -> Case:
    """One of all kinds in turn."""
    (seed,) = numbers(1, number)
    return Case(seed, files, KINDS[number % len(KINDS)], place)


@pytest.mark.parametrize("number", range(share_of(1)))
def test_a_run_that_is_killed_goes_on(front: Front, s3: str, tmp_path: Path, number: int) -> None:
    """A crash would lose results or give them twice, as would a request that takes effect after it."""
    kills = min(4, share_of(1))
    with ExitStack() as stack:
        one = Stricken(tmp_path, case_of(number, 3 + 3 * kills, s3), front, stack)
        run = one.start()
        while len(one.story) < kills and one.strike(run, signal.SIGKILL):
            run.end()
            run = one.start()
        assert run.wait() == 0, f"{one.story}\n{run.tail()}"
        one.check()


def last_of(place: str) -> int:
    """The last batch that is committed; asked for now and then, since the store has other things to do."""
    time.sleep(0.2)
    return Checkpoint(storage_at(f"{place}/ck")).last()


def outlive(one: Stricken, first: Run) -> None:
    """Have a session take over from one that is paused, which goes on when the second has come somewhere."""
    paused, before = time.monotonic(), last_of(one.case.place)
    until(lambda: time.monotonic() > paused + 1.3 * LEASE, lambda: "time stands still")
    second, ahead = one.start(), one.rng.choice((0, 1, 100))  # batches
    until(
        lambda: second.code is not None or last_of(one.case.place) > before + ahead,
        lambda: f"no batch comes\n{second.tail()}",
    )
    os.kill(first.members("driver")[0], signal.SIGCONT)
    one.story.append(f"the second was {ahead} batches ahead; they ended with {first.wait()}, {second.wait()}")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(share_of(3)))
@pytest.mark.parametrize("how", ["paused", "alive"])
def test_of_two_sessions_one_commits(front: Front, s3: str, tmp_path: Path, how: str, number: int) -> None:
    """Two sessions on one checkpoint would both give results, also when one of them was paused past its lease."""
    with ExitStack() as stack:
        one = Stricken(tmp_path, case_of(number, 6, s3), front, stack, LEASE)
        first = one.start()
        if how == "alive" and one.strike(first, signal.SIGCONT):
            second = one.start()
            one.story.append(f"they ended with {first.wait()}, {second.wait()}")
        elif how == "paused" and one.strike(first, signal.SIGSTOP):
            outlive(one, first)
        again = one.start()
        assert again.wait() == 0, f"{one.story}\n{again.tail()}"
        one.check()
