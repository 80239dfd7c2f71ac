"""A real schema registry (Apicurio), one process on loopback, for tests; `python -m tests.kafka.registry` fetches it.

It speaks the REST interface of Confluent's registry under `/apis/ccompat/v7`, and keeps its schemas in memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from tests.unit.connectors.kafka.avro.random_avro import encoded
from weft.connectors.kafka.registry import RegistryOptions, SchemaRegistry
from weft.errors import ConfigError, SourceError
from weft.runtime.spark.java import find_java
from weft.service.kafka_broker import cache, fetch_files, free_ports, is_fetched

__all__ = ["Registry", "client", "fetch", "framed", "why_missing"]

VERSION = "2.5.11.Final"
PLACE = cache() / "apicurio" / VERSION


def why_missing() -> str | None:
    """Why no registry can be started here; None if one can."""
    return None if is_fetched(PLACE) else "there is no schema registry here: `make kafka` fetches it"


def fetch() -> None:
    """Put the server into the cache, unless it is there."""
    if is_fetched(PLACE):
        return
    download = cache() / "apicurio" / "download"
    fetch_files(download, [f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"])
    (archive,) = download.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(PLACE, filter="data")
    archive.unlink()
    (download / "complete").unlink()
    (PLACE / "complete").touch()


class Registry:
    """A registry that runs from `start` to `stop`."""

    def __init__(self, folder: Path) -> None:
        self._log, self._port = folder / "registry.log", free_ports()[0]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def start(self) -> None:
        """Start it, and return when it answers."""
        quick = ["-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        where = ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={self._port}"]
        (jar,) = PLACE.glob("*-runner.jar")
        command = [f"{find_java().home}/bin/java", *quick, *where, "-jar", str(jar)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        until = time.monotonic() + 90
        while time.monotonic() < until and self._process.poll() is None:
            try:
                urlopen(f"{self.url}/subjects", timeout=5).close()
            except (URLError, OSError):
                time.sleep(0.1)
            else:
                return
        raise RuntimeError(f"the registry did not start: {self._log.read_text()[-3000:]}")

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def client(registry: Registry) -> SchemaRegistry:
    """What Weft asks a registry by."""
    return SchemaRegistry(RegistryOptions(registry.url), "test", SourceError, 5.0)


def framed(registry: Registry, topic: str, schema: Any, rows: list[Any], subject: str = "") -> list[bytes]:
    """Values as Confluent's serializers write them: a zero, the number of the schema, and Avro."""
    number = client(registry).register(subject or f"{topic}-value", "AVRO", json.dumps(schema))
    return [b"\0" + number.to_bytes(4, "big") + value for value in encoded(schema, rows)]


if __name__ == "__main__":
    try:
        fetch()
    except ConfigError as error:
        sys.exit(str(error))
