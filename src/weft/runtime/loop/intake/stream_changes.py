"""Streams that come and go while a loop runs.

Guarantees: a change takes effect between two batches. A stream is removed only when every batch that read it is
committed, so that no batch that would have to be repeated needs it. The name of a removed stream stays taken in its
log: another stream under it would inherit its watermark. Changes may be asked for from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from weft.errors import CatalogError
from weft.logical.schema import Stream
from weft.ports.source import Source
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import Manifest
from weft.runtime.loop.batch.committer import Committer
from weft.runtime.loop.config import RunConfig
from weft.runtime.loop.intake.cursors import Intake

__all__ = ["StreamChanges", "describe_streams"]


class StreamChanges:
    """The streams that are to be followed, and those that are no longer, from the next batch on."""

    def __init__(self, config: RunConfig, log: Checkpoint, intake: Intake, committer: Committer) -> None:
        self._config, self._log, self._intake, self._committer = config, log, intake, committer
        self._opening: dict[str, Source] = {}
        self._closing: list[str] = []
        self._lock = threading.Lock()

    def add(self, stream: Stream, source: Source) -> None:
        """Follow one more stream."""
        with self._lock:
            if stream.name in self._config.streams:
                raise CatalogError(f"stream {stream.name} runs already", hint="choose another name")
            self._log.check_free(stream.name)
            self._config.streams[stream.name] = stream
            self._opening[stream.name] = source

    def add_table(self, stream: Stream) -> None:
        """Know one more table, which is read from no source."""
        with self._lock:
            if stream.name in self._config.streams:
                raise CatalogError(f"stream {stream.name} runs already", hint="choose another name")
            self._log.check_free(stream.name)
            self._config.streams[stream.name] = stream
            self._log.extend(describe_streams({stream.name: stream}))

    def remove(self, name: str) -> None:
        """Follow a stream no longer, which no query reads any more."""
        with self._lock:
            self._closing.append(name)

    def apply(self, before: Manifest) -> None:
        """Make the changes that wait; ``before`` is the manifest of the last batch."""
        with self._lock:
            opening, self._opening = self._opening, {}
            closing, self._closing = self._closing, []
        if opening:
            self._log.extend(describe_streams({name: self._config.streams[name] for name in opening}))
            for name, source in opening.items():
                self._intake.open(name, source, before.cursors.get(name, {}))
                self._config.sources[name] = source
        if closing:
            self._committer.wait()
            for name in closing:
                self._intake.close_stream(name)
                self._config.sources.pop(name, None)
                self._config.streams.pop(name, None)
            self._log.remove(closing)


def describe_streams(streams: Mapping[str, Stream]) -> dict[str, list[Any]]:
    """What a log keeps of streams and tables that are read: columns, event time, and whether it is a table."""
    read = (stream for _, stream in sorted(streams.items()) if not stream.definition)
    return {one.name: [str(one.schema), one.event_time, *(["table"] if one.table else [])] for one in read}
