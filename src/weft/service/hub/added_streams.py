"""The streams that were added by requests, kept with the checkpoint so that they are there after a restart.

Guarantees: the entry is there completely or not at all. It has what requests said, with paths as they were resolved,
and nothing secret: requests can only refer to secrets.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from weft.errors import StateError
from weft.service.hub.values import NewStream
from weft.storage.places import storage_at

__all__ = ["AddedStreams"]

_NAME = "service.json"


class AddedStreams:
    """What requests added, by name; without a checkpoint, in memory alone."""

    def __init__(self, checkpoint: Path | str | None) -> None:
        self._storage = None if checkpoint is None else storage_at(str(checkpoint))
        self.streams: dict[str, NewStream] = {}

    def read(self) -> None:
        """Read what an earlier service kept."""
        content = None if self._storage is None else self._storage.get(_NAME)
        if self._storage is None or content is None:
            return
        try:
            found = json.loads(content)["streams"]
            self.streams = {one["name"]: NewStream(**one) for one in found}
        except (ValueError, KeyError, TypeError):
            raise StateError(
                f"{self._storage.locate(_NAME)} cannot be read",
                hint="restore it, or delete it and add its streams again",
            ) from None

    def add(self, stream: NewStream) -> None:
        """Keep one more."""
        self.streams[stream.name] = stream
        self._write()

    def remove(self, name: str) -> None:
        """Keep one no longer."""
        self.streams.pop(name, None)
        self._write()

    def _write(self) -> None:
        if self._storage is not None:
            kept = {"streams": [asdict(one) for one in self.streams.values()]}
            self._storage.put(_NAME, json.dumps(kept, ensure_ascii=False).encode())
