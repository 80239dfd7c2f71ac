"""Spark's own standalone cluster on this machine: a master and its workers, each a process, for tests and benchmarks.

`python -m tests.servers.spark_cluster` starts one with a worker per core and prints its master's address until it is
interrupted or told to end. A `SparkCluster` keeps what its processes write in a folder of its own. Workers can be
killed and others added; one that is not on loopback may run inside a network namespace.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from weft.runtime.spark.java import find_java

__all__ = ["SparkCluster", "SparkWorker"]

PATIENCE = 300.0  # seconds until a process must have started: a busy machine is slow, but nothing may hang
_EXECUTOR = "CoarseGrainedExecutorBackend"  # in an executor's command line
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # masters and workers have little to do


class SparkWorker:
    """A worker of the cluster, which starts an executor for every application."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process, self.log = process, log

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def is_ready(self) -> bool:
        """Whether the master has taken it in."""
        return "Successfully registered with master" in self.log.read_text(errors="replace")

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self._process.poll() is None

    def executors(self) -> list[int]:
        """The processes of its executors, those of the last application last."""
        return sorted(pid for pid in _children(self.pid) if _EXECUTOR in _command(pid))

    def kill(self) -> None:
        """End it as a crash would; its executors notice and end themselves."""
        self._process.kill()
        self._process.wait()


class SparkCluster:
    """A master and workers; `start` returns when all workers are there, and `stop` leaves no process behind.

    ``settings`` are Spark's own for these, as in ``spark.authenticate=true``.
    """

    def __init__(self, folder: Path, host: str = "127.0.0.1", settings: Sequence[str] = ()) -> None:
        self.folder, self.host = folder, host
        self._options = " ".join([_QUICK, *(f"-D{one}" for one in settings)])
        self.port = _free_port(host)
        self.workers: list[SparkWorker] = []
        self._master: subprocess.Popen[bytes] | None = None
        self._started = 0

    @property
    def master(self) -> str:
        """What `Session(master=…)` takes."""
        return f"spark://{self.host}:{self.port}"

    def start(self, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        """Start the master and so many workers with so many cores, and wait for them."""
        find_java()
        self.folder.mkdir(parents=True, exist_ok=True)
        address = ["--host", self.host, "--port", str(self.port), "--webui-port", "0"]
        self._master = self._launch("master", ["org.apache.spark.deploy.master.Master", *address], self.host)
        try:
            self._wait(self._answers, "the master")
            for _ in range(workers):
                self.add_worker(cores, memory, wait=False)
            self.wait_for_workers()
        except BaseException:
            self.stop()
            raise

    def add_worker(
        self,
        cores: int = 1,
        memory: str = "1g",
        *,
        host: str | None = None,
        inside: Sequence[str] = (),
        wait: bool = True,
    ) -> SparkWorker:
        """Start another worker, at a ``host`` of its own by a command that it runs ``inside``, if these are given."""
        self._started += 1
        name, place = f"worker-{self._started}", host or self.host
        given = ["--host", place, "--cores", str(cores), "--memory", memory, "--webui-port", "0"]
        given += ["--work-dir", str(self.folder / name)]
        command = ["org.apache.spark.deploy.worker.Worker", *given, self.master]
        process = self._launch(name, command, place, inside)
        worker = SparkWorker(process, self.folder / f"{name}.log")
        self.workers.append(worker)
        if wait:
            self._wait(lambda: worker.is_ready, name)
        return worker

    def wait_for_workers(self) -> None:
        """Wait until the master has taken in all workers that live."""
        self._wait(lambda: all(one.is_ready for one in self.workers if one.is_alive), "a worker")

    def executors(self) -> list[int]:
        """The processes of all executors."""
        return [pid for worker in self.workers if worker.is_alive for pid in worker.executors()]

    def stop(self) -> None:
        """End all processes of the cluster."""
        for pid in self.executors():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for worker in self.workers:
            worker.kill()
        if self._master is not None:
            self._master.kill()
            self._master.wait()

    def _launch(
        self, name: str, command: Sequence[str], host: str, inside: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": host,
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": self._options,
            "SPARK_NO_DAEMONIZE": "1",
            "PYSPARK_PYTHON": sys.executable,
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [*inside, str(home / "bin" / "spark-class"), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.folder,
            )

    def _answers(self) -> bool:
        if self._master is None or self._master.poll() is not None:
            raise RuntimeError(f"the master has ended:\n{self.tail('master')}")
        with socket.socket() as found:
            return found.connect_ex((self.host, self.port)) == 0

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + PATIENCE
        while not done():
            if time.monotonic() > until:
                raise TimeoutError(f"{what} did not start:\n{self.tail('master')}")
            time.sleep(0.05)

    def tail(self, name: str, size: int = 3000) -> str:
        """The end of what a process has said: the master, worker-1, …."""
        return (self.folder / f"{name}.log").read_bytes()[-size:].decode(errors="replace")


def _children(parent: int) -> Iterator[int]:
    """The processes that a process has started."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                yield int(entry.name)


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


def _free_port(host: str) -> int:
    with socket.socket() as found:
        found.bind((host, 0))
        return int(found.getsockname()[1])


def _serve() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended either way, it leaves no process behind
    with tempfile.TemporaryDirectory() as folder:
        cluster = SparkCluster(Path(folder))
        try:
            cluster.start(os.cpu_count() or 1)
            print(cluster.master, flush=True)
            signal.pause()
        except KeyboardInterrupt:
            pass
        finally:
            cluster.stop()


if __name__ == "__main__":
    _serve()
