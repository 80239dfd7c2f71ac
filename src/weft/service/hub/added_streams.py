"""The streams that were added by requests, kept beside the checkpoint so that they are there after a restart.

Guarantees: the file is there completely or not at all. It has what requests said, with paths as they were resolved, and
nothing secret: requests can only refer to secrets.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from weft.errors import StateError
from weft.service.hub.values import NewStream

__all__ = ["AddedStreams"]


class AddedStreams:
    """What requests added, by name; without a checkpoint, in memory alone."""

    def __init__(self, checkpoint: Path | None) -> None:
        self._file = None if checkpoint is None else checkpoint / "service.json"
        self.streams: dict[str, NewStream] = {}

    def read(self) -> None:
        """Read what an earlier service kept."""
        if self._file is None or not self._file.exists():
            return
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))["streams"]
            self.streams = {one["name"]: NewStream(**one) for one in found}
        except (OSError, ValueError, KeyError, TypeError):
            raise StateError(
                f"{self._file} cannot be read", hint="restore it, or delete it and add its streams again"
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
        if self._file is None:
            return
        partial = self._file.with_name(".service.json.tmp")
        with partial.open("w", encoding="utf-8") as out:
            json.dump({"streams": [asdict(one) for one in self.streams.values()]}, out, ensure_ascii=False)
            out.flush()
            os.fsync(out.fileno())
        partial.replace(self._file)
