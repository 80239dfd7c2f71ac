"""A service in this process, over files that tests put down, without Spark."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from weft.service.api.app import Service, make_service
from weft.service.api.guard import GuardSettings
from weft.service.api.listening import listen, timed_protocol
from weft.service.hub.hub import SessionHub
from weft.service.pipeline import read_pipeline

PIPELINE = """
streams:
  a: {schema: "k long, x string, ts timestamp", event_time: ts, source: {files: csv, path: in/a}}
  b: {schema: "k long, ts timestamp", event_time: ts, source: {files: csv, path: in/b}}
queries:
  q: SELECT a.k, a.x FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k
options: {partitions: 2}
checkpoint: ck
execution: local
adapt: "off"
serve: {rate: 100000, burst: 100000, result_rows: 1000}
allow:
  sources: [{files: csv, path: in/**}, {rate: "*"}]
  sinks: [{parquet: out/*}]
"""
JOIN = "SELECT a.k, b.ts FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k"
MINUTE = 120.0
HEADS = {"a": "k,x,ts", "b": "k,ts", "more": "k,ts"}


@dataclass(frozen=True)
class Place:
    """The directory of a pipeline, with the inputs of its streams."""

    root: Path

    def put(self, stream: str, *lines: str) -> None:
        """Put down a file with some rows, all at once."""
        folder = self.root / "in" / stream
        number = len(list(folder.iterdir()))
        partial = self.root / f"{stream}.partial"
        partial.write_text("".join(f"{line}\n" for line in (HEADS[stream], *lines)))
        partial.rename(folder / f"{number:04}.csv")

    def pair(self, key: int, text: str = "x") -> None:
        """Put down a result of the join on k."""
        self.put("a", f"{key},{text},2024-01-01T00:00:00Z")
        self.put("b", f"{key},2024-01-01T00:00:00Z")


def place(root: Path) -> Place:
    """A directory with empty inputs."""
    for stream in ("a", "b", "more"):
        (root / "in" / stream).mkdir(parents=True, exist_ok=True)
    return Place(root)


@contextmanager
def running_hub(root: Path, text: str = PIPELINE) -> Iterator[SessionHub]:
    """A session that runs in a directory."""
    hub = SessionHub(read_pipeline(text, "pipeline.yaml", root=root, idle=True))
    hub.start()
    try:
        yield hub
    finally:
        hub.stop()


def wait_for(found: Callable[[], bool], seconds: float = MINUTE) -> None:
    """Wait until something is so."""
    until = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)


@contextmanager
def served(
    hub: SessionHub, settings: GuardSettings | None = None, stalled: float = 60.0, request: float = 20.0
) -> Iterator[tuple[str, Service]]:
    """A real server on this machine; gives its URL."""
    service = make_service(hub, settings or GuardSettings(rate=1e6, burst=10**6))
    listening = listen("127.0.0.1", 0, stalled=stalled)
    server = uvicorn.Server(
        uvicorn.Config(
            service.guarded,
            http=timed_protocol(request),
            log_level="warning",
            timeout_graceful_shutdown=2,
            lifespan="off",
        )
    )
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", service
    finally:
        service.live.close_soon()
        server.should_exit = True
        thread.join(MINUTE)
        listening.close()
