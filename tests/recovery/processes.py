"""A run in processes of its own, and how to end some or all of them at once.

Guarantees: whatever a run starts (JVM, executors, Python workers) is in its session, as the kernel means the word, and
is found there; `end` leaves none of it behind. Every wait has a deadline, after which the end of the log is shown.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

import weft

PATIENCE = 300.0  # seconds for anything a run has to do: a busy machine is slow, but nothing may hang
POLL = 0.002
_DAEMONS = ("pyspark.daemon", "weft.runtime.spark.daemon")  # the parents of Python workers

_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # short lives are not worth the better code
_SUBMIT = (
    f"--conf spark.ui.showConsoleProgress=false --conf 'spark.driver.extraJavaOptions={_QUICK}' "
    f"--conf 'spark.executor.extraJavaOptions={_QUICK}' pyspark-shell"
)


@dataclass(frozen=True, slots=True)
class Process:
    """A living process."""

    pid: int
    parent: int
    session: int
    command: str


def processes() -> Iterator[Process]:
    """All living processes; those that are only waited for are not."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            state, parent, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if state not in "ZX":
                yield Process(int(entry.name), int(parent), int(session), command)


def until(done: Callable[[], bool], why: Callable[[], str], patience: float = PATIENCE) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + patience
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(why())
        time.sleep(POLL)


def _spark_home(root: Path, arguments: Sequence[str]) -> Path:
    """Spark as it is installed; for a local cluster in a place of its own, as its executors keep files there."""
    installed, home = Path(pyspark.__file__).parent, root / "spark"
    if not any(one.startswith("local-cluster") for one in arguments):
        return installed
    if not home.exists():
        home.mkdir()
        for entry in installed.iterdir():
            if entry.name != "work":
                (home / entry.name).symlink_to(entry)
    return home


class Run:
    """A program on a case, started anew from wherever its checkpoint stands; one of its arguments is the master.

    ``settings`` are Spark's own, ``host`` is where its driver listens, and ``inside`` precedes the command. What it
    writes without saying where comes into ``folder``.
    """

    def __init__(
        self,
        root: Path,
        arguments: list[str],
        program: str = "tests.recovery.program",
        settings: Sequence[str] = (),
        host: str = "127.0.0.1",
        inside: Sequence[str] = (),
        folder: Path | None = None,
    ) -> None:
        here = Path(__file__).parents[2]
        places = [str(here), str(Path(weft.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, places)),
            "SPARK_LOCAL_IP": host,
            "SPARK_HOME": str(_spark_home(root, arguments)),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": " ".join([*(f"--conf {one}" for one in settings), _SUBMIT]),
        }
        self.log = root / "log"
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(
                [*inside, sys.executable, "-m", program, str(root), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder or root,
                start_new_session=True,
            )

    @property
    def code(self) -> int | None:
        """What it ended with; None while it runs."""
        return self._popen.poll()

    def members(self, kind: str) -> list[int]:
        """Its processes of a kind: driver, jvm, executor, daemon or worker."""
        mine = [one for one in processes() if one.session == self._popen.pid]
        daemons = [one.pid for one in mine if any(name in one.command for name in _DAEMONS)]
        kinds = {
            "driver": [self._popen.pid] if self.code is None else [],
            "jvm": [one.pid for one in mine if "SparkSubmit" in one.command],
            "executor": [one.pid for one in mine if "CoarseGrainedExecutorBackend" in one.command],
            "daemon": [one.pid for one in mine if one.pid in daemons and one.parent not in daemons],
            "worker": [one.pid for one in mine if one.pid in daemons and one.parent in daemons],
        }
        return kinds[kind]

    def kill(self, kind: str, which: int = 0) -> bool:
        """Kill one process of a kind, which it may have none of at the moment; whether it had."""
        found = sorted(self.members(kind))
        if not found:
            return False
        with suppress(ProcessLookupError):
            os.kill(found[which % len(found)], signal.SIGKILL)
        return True

    def end(self) -> None:
        """Kill what is left of it, and wait until it is gone."""
        until(self._gone, lambda: f"a run does not die\n{self.tail()}")

    def _gone(self) -> bool:
        left = [one.pid for one in processes() if one.session == self._popen.pid]
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left and self.code is not None

    def wait(self) -> int:
        """Wait for its end."""
        until(lambda: self.code is not None, lambda: f"a run does not end\n{self.tail()}")
        return self._popen.returncode

    def tail(self, size: int = 4000) -> str:
        """The end of its log."""
        return self.log.read_bytes()[-size:].decode(errors="replace")
