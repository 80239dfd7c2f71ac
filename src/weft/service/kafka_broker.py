"""Apache Kafka's own server, one process on loopback, for `weft demo --kafka`, tests and benchmarks.

`python -m weft.service.kafka_broker fetch` lets Maven put the server's jars into the virtual environment; `… serve`
starts a broker and prints its address until it is interrupted. A `Broker` keeps its data in a folder of its own and can
be killed and started again at the same address, with what it had.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from weft.errors import ConfigError
from weft.runtime.spark.java import find_java

__all__ = [
    "JARS",
    "VERSION",
    "Broker",
    "cache",
    "fetch",
    "fetch_files",
    "fetch_jars",
    "free_ports",
    "is_fetched",
    "why_missing",
]


def cache() -> Path:
    """Where fetched things are kept: in this Python's environment."""
    return Path(sys.prefix) / "cache"


VERSION = "4.3.1"
JARS = cache() / "kafka" / VERSION
_CLUSTER = "d2VmdC10ZXN0cy1rYWZrYQ"  # any 16 bytes in base64
_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
num.partitions=3
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.check.interval.ms=500
log.initial.task.delay.ms=100
log.segment.delete.delay.ms=100
controlled.shutdown.enable=false
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=200
"""


def why_missing() -> str | None:
    """Why no broker can be started here; None if one can."""
    if not is_fetched(JARS):
        return "there is no Kafka broker here: `python -m weft.service.kafka_broker fetch` gets it"
    try:
        find_java()
    except ConfigError:
        return "a Kafka broker needs Java: `make java` gets one"
    return None


def fetch() -> None:
    """Put the server's jars into the cache, unless they are there."""
    fetch_jars(JARS, [f"org.apache.kafka:kafka_2.13:{VERSION}"])


class Broker:
    """A broker with a folder of its own; `start` and `kill` may alternate, and topics stay."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self._controller = free_ports()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where clients find it."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and return when it answers."""
        config = self.folder / "server.properties"
        if not config.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            text = _PROPERTIES.format(port=self.port, controller=self._controller, folder=self.folder)
            config.write_text(text, encoding="utf-8")
            form = ["format", "--standalone", "-t", _CLUSTER, "-c", str(config)]
            subprocess.run(
                self._command("kafka.tools.StorageTool", *form),
                check=True,
                stdout=self._log(),
                stderr=subprocess.STDOUT,
            )
        self._process = subprocess.Popen(
            self._command("kafka.Kafka", str(config)), stdout=self._log(), stderr=subprocess.STDOUT
        )
        self._wait()

    def _command(self, main: str, *arguments: str) -> list[str]:
        quick = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        return [f"{find_java().home}/bin/java", *quick, "-cp", f"{JARS}/*", main, *arguments]

    def _log(self) -> int:
        return os.open(self.folder / "broker.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def _wait(self) -> None:
        assert self._process is not None
        until = time.monotonic() + 90
        while time.monotonic() < until:
            if self._process.poll() is not None:
                break
            with socket.socket() as found:
                if found.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"the broker did not start: {(self.folder / 'broker.log').read_text()[-3000:]}")

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it, as its own scripts do."""
        self._end(signal.SIGTERM)

    def _end(self, sign: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(sign)
            try:
                self._process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


def free_ports() -> tuple[int, int]:
    """Two ports that are free now."""
    with socket.socket() as one, socket.socket() as other:
        for found in (one, other):
            found.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1]), int(other.getsockname()[1])


def _serve() -> None:
    fetch()
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder))
        broker.start()
        print(broker.address, flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            pass
        finally:
            broker.stop()


_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>weft</groupId><artifactId>fetched</artifactId><version>1</version>
  <dependencies>{}</dependencies>
</project>
"""


def is_fetched(folder: Path) -> bool:
    """Whether everything of a folder is there."""
    return (folder / "complete").exists()


def fetch_jars(folder: Path, artifacts: Sequence[str]) -> None:
    """Put artifacts (`group:name:version`) and what they depend on into a folder, unless they are there."""
    pom = _POM.format("".join(_DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts))
    if not is_fetched(folder):
        _run(folder, pom, "dependency:copy-dependencies", "-DincludeScope=runtime")
        (folder / "complete").touch()


def fetch_files(folder: Path, artifacts: Sequence[str]) -> None:
    """Put the files of artifacts (`group:name:version`, `:type:classifier` may follow) and no others into a folder."""
    for artifact in artifacts if not is_fetched(folder) else ():
        _run(folder, _POM.format(""), "dependency:copy", f"-Dartifact={artifact}")
    (folder / "complete").touch()


def _run(folder: Path, pom: str, *goal: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ConfigError("Maven is not installed", hint="Debian, Ubuntu: apt-get install maven")
    with tempfile.TemporaryDirectory() as place:
        Path(place, "pom.xml").write_text(pom, encoding="utf-8")
        command = [maven, "-q", "-B", "-f", f"{place}/pom.xml", *goal, f"-DoutputDirectory={folder}"]
        done = subprocess.run(command, check=False)
    if done.returncode:
        raise ConfigError(
            f"Maven could not fetch what belongs into {folder}", hint="its own messages stand above"
        )


if __name__ == "__main__":
    try:
        {"fetch": fetch, "serve": _serve}[sys.argv[1]]()
    except ConfigError as error:
        sys.exit(str(error))
