"""A random case of the recovery tests on a cluster: run, struck by something, and compared with the definition.

Guarantees: the time from a strike to the commit of the first batch that was planned after it is measured, and told in
the story: that batch needs tasks that work, whatever was under way when it was struck.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.recovery.cases import Case
from tests.recovery.check import check
from tests.recovery.moments import Moment, last_batch
from tests.recovery.processes import Run, until
from tests.servers.spark_cluster import SparkCluster

__all__ = ["DECOMMISSION", "SETTINGS", "SHORT", "Struck", "last_planned"]

SETTINGS = (
    "spark.cores.max=2",
    "spark.executor.memory=512m",
    "spark.shuffle.io.maxRetries=1",
    "spark.shuffle.io.retryWait=1s",
    "spark.excludeOnFailure.enabled=false",
)

# Spark's timeouts, short enough for tests: an executor that is silent for so long is taken for lost.
SHORT = (
    *SETTINGS,
    "spark.network.timeout=8s",
    "spark.network.timeoutInterval=2s",
    "spark.executor.heartbeatInterval=1s",
)

# With these, executors can be told that they will be ended.
DECOMMISSION = (*SETTINGS, "spark.decommission.enabled=true")


class Struck:
    """A case that runs on a cluster while things go wrong."""

    def __init__(
        self,
        root: Path,
        case: Case,
        cluster: SparkCluster,
        execution: str,
        settings: Sequence[str] = SETTINGS,
    ) -> None:
        self.root, self.case, self.cluster, self.execution = root, case, cluster, execution
        self.settings = settings
        self.rng = random.Random(f"{case.seed} strikes")
        self.story: list[str] = []
        print(case)  # its seed, whatever fails
        case.write(root)
        self.run = self.start()

    def start(self, host: str | None = None, inside: Sequence[str] = ()) -> Run:
        """Begin, or go on, at another ``host`` if one is given, by a command that it runs ``inside``."""
        case = [str(self.case.seed), str(self.case.files), self.case.kind]
        return Run(
            self.root,
            [*case, self.cluster.master, self.execution],
            settings=self.settings,
            host=host or self.cluster.host,
            inside=inside,
        )

    def strike(self, what: str, act: Callable[[], object]) -> float | None:
        """Do something at a random moment; the seconds until a later batch is committed, None if the run was over."""
        moment = Moment.random(self.rng, self.case.kind)
        if not moment.wait(self.root, self.run):
            return None
        began = time.monotonic()
        act()
        before = last_planned(self.root)
        until(lambda: self.run.code is not None or last_batch(self.root) > before, self.told)
        seconds = time.monotonic() - began
        went_on = "the next batch was committed" if last_batch(self.root) > before else "the run was over"
        self.story.append(f"batch {before}, {moment}: {what}; {went_on} {seconds:.1f} s later")
        return seconds

    def kill_executor(self) -> None:
        """End one of the executors as a crash would."""
        found = self.cluster.executors()
        with suppress(ProcessLookupError):
            os.kill(self.rng.choice(found), signal.SIGKILL)

    def preempt_executor(self) -> None:
        """End one of the executors as who needs its machine would: it is asked to end."""
        with suppress(ProcessLookupError):
            os.kill(self.rng.choice(self.cluster.executors()), signal.SIGTERM)

    def decommission_executor(self, grace: float = 3.0) -> None:
        """Tell an executor to take no more tasks (`DECOMMISSION`), and end it some seconds later."""
        pid = self.rng.choice(self.cluster.executors())
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGPWR)
            time.sleep(grace)
            os.kill(pid, signal.SIGKILL)

    def replace_worker(self) -> None:
        """End a worker, and with it its executor, and add another."""
        self.rng.choice([worker for worker in self.cluster.workers if worker.is_alive]).kill()
        self.cluster.add_worker()

    def restart_driver(self, host: str | None = None, inside: Sequence[str] = ()) -> None:
        """End the driver with its Java, and start it again, perhaps at another host."""
        self.run.end()
        self.run = self.start(host, inside)

    def finish(self, restarts: int = 0) -> None:
        """Let it come to its end, having failed no more often than that, and compare."""
        while self.run.wait() != 0:
            assert restarts, self.told()
            self.run.end()
            self.story.append("it failed, and was started again")
            self.run, restarts = self.start(), restarts - 1
        print(*self.story, sep="\n")  # pytest -rP shows it
        assert self.story, "the run was over before anything was struck"
        check(self.case, self.root, self.story)

    def told(self) -> str:
        """What was done, and what the run said last."""
        return f"{self.case}: {'; '.join(self.story)}\n{self.run.tail()}"


def last_planned(root: Path) -> int:
    """The last batch that is planned; -1 if there is none."""
    found = (root / "ck" / "plan").glob("*.json")
    return max((int(file.stem) for file in found if file.stem.isdigit()), default=-1)
