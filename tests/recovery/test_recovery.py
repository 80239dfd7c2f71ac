"""Runs that are killed, at every moment of a batch and again and again, lose nothing and repeat nothing.

In most runs queries come and go: those that came are there again after a kill, though nobody registers them, and those
that were stopped stay so. Each has given what the definition says, from its first batch to its last. Where there are
outer joins, `run_available` is killed and called again until it comes to its end: then no row is padded that has a
partner, and none is missing.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.recovery.cases import Case
from tests.recovery.check import check
from tests.recovery.moments import Moment, last_batch
from tests.recovery.processes import Run, until
from tests.shares import numbers, share_of
from weft.errors import StateError
from weft.runtime.log.checkpoint import Checkpoint

pytestmark = [
    pytest.mark.ci,
    pytest.mark.spark,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux to find a run's processes"),
]

# In turn: a session's Python process and with it all others; its JVM alone; a worker, where tasks have only one try.
DRIVERS = ("driver", "jvm", "driver", "worker")

KINDS = ("changing", "outer", "fixed")  # of runs, in turn


class Killed:
    """A case that is run, killed and, if need be, started again until its input is processed."""

    def __init__(self, root: Path, case: Case, master: str, stack: ExitStack) -> None:
        self.root, self.case, self.master, self._stack = root, case, master, stack
        self.batch_order = case.seed % len(DRIVERS)  # which of them is killed next
        self.rng = random.Random(f"{case.seed} kills")
        self.story: list[str] = []
        self.idle = (
            0  # workers that were killed and not missed yet: a later task may still be given one of them
        )
        print(case)  # its seed, whatever fails
        case.write(root)
        self.run = self.start()

    def start(self) -> Run:
        """Begin, or go on."""
        run = Run(self.root, [str(self.case.seed), str(self.case.files), self.case.kind, self.master])
        self._stack.callback(run.end)
        return run

    def strike(self, kinds: tuple[str, ...], last: bool = False) -> str | None:
        """Wait for a random moment, or one of the last, and kill one of these; None if the run was over before."""
        while True:
            moment, kind = Moment.random(self.rng, self.case.kind, last), self.rng.choice(kinds)
            if not moment.wait(self.root, self.run):
                return None
            if self.run.kill(kind, self.rng.randrange(8)):
                self.story.append(f"batch {last_batch(self.root) + 1}, {moment}: killed a {kind}")
                return kind

    def finish(self, restarts: int = 0) -> None:
        """Let it come to its end, having failed no more often than that and for workers not missed yet, and compare."""
        restarts += self.idle
        while self.run.wait() != 0:
            assert restarts, self.told()
            self.run.end()
            self.story.append("it failed, and was started again")
            self.run, restarts = self.start(), restarts - 1
        print(*self.story, sep="\n")  # pytest -rP shows it
        assert self.story, "the run was over before anything was killed"
        check(self.case, self.root, self.story)

    def told(self) -> str:
        """What was done, and what the run said last."""
        return f"{self.case}: {'; '.join(self.story)}\n{self.run.tail()}"


def _use(checkpoint: Path) -> None:
    """Take a checkpoint as a session does, and let it go."""
    taken = Checkpoint.at(checkpoint)
    owner, own = taken.owner(), ("format", "identity", "committed")
    try:
        taken.open(**{name: value for name, value in owner.items() if name not in own})
    finally:
        taken.close()


def die_and_go_on(killed: Killed, last: bool) -> bool:
    """Kill the session; its checkpoint is its own until then, and free afterwards. Whether it was still running."""
    if not last:
        if not Moment("plan", 0, 0.0).wait(killed.root, killed.run):
            return False
        with pytest.raises(StateError, match="in use by another session"):
            _use(killed.root / "ck")
    kind = killed.strike((DRIVERS[(killed.batch_order + len(killed.story)) % len(DRIVERS)],), last)
    if kind == "driver":
        killed.run.end()
    if kind is None:
        return False
    if not fallen(killed, last_batch(killed.root) + 2):
        killed.idle += kind == "worker"
        return True
    if killed.run.code == 0:
        return False
    killed.run.end()
    _use(killed.root / "ck")
    killed.run = killed.start()
    return True


def fallen(killed: Killed, batch: int) -> bool:
    """Whether the run ends, rather than complete a batch: a worker that was idle is not missed."""
    until(lambda: killed.run.code is not None or last_batch(killed.root) >= batch, killed.told)
    return killed.run.code is not None


def kills_of(most: int) -> int:
    """How many kills there are in a run: one or, in a campaign, more."""
    return min(most, share_of(1))


def case_of(number: int, kills: int, first: str) -> Case:
    """One of all kinds in turn, beginning with ``first``, and with input for so many kills."""
    kind = KINDS[(KINDS.index(first) + number) % len(KINDS)]
    (seed,) = numbers(1, number)
    return Case(seed, 2 * kills + 4 if kind == "outer" else 3 * kills + 3, kind)


def is_last(case: Case, done: int, count: int) -> bool:
    """Whether the next kill is one of those at the end of the input: the later half, where there is something."""
    return case.outer and done >= count // 2


@pytest.mark.parametrize("number", range(share_of(2)))
def test_a_killed_session_goes_on_where_it_was(tmp_path: Path, number: int) -> None:
    """Results that a crash of the driver lost or doubled would stay so for ever."""
    kills = kills_of(4)
    case = case_of(number, kills, first="changing")
    with ExitStack() as stack:
        killed = Killed(tmp_path, case, "local[2]", stack)
        while (done := len(killed.story)) < kills and die_and_go_on(killed, is_last(case, done, kills)):
            pass
        killed.finish()


@pytest.mark.parametrize("number", range(share_of(1)))
def test_a_killed_worker_is_not_missed(tmp_path: Path, number: int) -> None:
    """Spark tries its tasks again: what the first try wrote must not count."""
    kills = kills_of(6)
    case = case_of(number, kills, first="outer")
    with ExitStack() as stack:
        killed = Killed(tmp_path, case, "local[2,8]", stack)
        for done in range(kills):
            killed.strike(("worker", "worker", "worker", "daemon"), is_last(case, done, kills))
        killed.finish()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(share_of(1)))
def test_a_killed_executor_is_replaced(tmp_path: Path, number: int) -> None:
    """With an executor go its shuffle files: finished stages run again, and must give the same.

    Where some tasks of the last stage are done, Spark will not mix them with others' second output, and fails.
    """
    kills = kills_of(4)
    case = case_of(number, kills, first="fixed")
    with ExitStack() as stack:
        killed = Killed(tmp_path, case, "local-cluster[2,1,1024]", stack)
        for done in range(kills):
            killed.strike(("executor",), is_last(case, done, kills))
        killed.finish(restarts=kills)
