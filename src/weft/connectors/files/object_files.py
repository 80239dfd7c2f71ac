"""Objects of an object store as the files of a stream.

Guarantees: an object is complete when it can be seen, so there are none to wait for. Every object is offered until it
is taken, and never again; the oldest first, then by name. A part names its object, its size and its tag, so one that
was deleted or replaced since is noticed when the part is read. A store is asked for its objects at most once a second,
or when a caller wants all that is there. An object is one part, whatever its size.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft.connectors.files.cursor import TakenNames
from weft.connectors.files.listing import is_passed_over, name_matcher
from weft.connectors.files.parts import estimate_bytes, rows_of
from weft.connectors.formats.csv import CsvOptions
from weft.connectors.formats.records import BadRecord, Decoded, SourceFile, Target
from weft.errors import SourceError
from weft.ports.source import CursorContext, Offer, Part
from weft.storage.objects import ObjectStatus, ObjectStorage

__all__ = [
    "ObjectCursor",
    "ObjectFolder",
]

_LOOK_AGAIN = 1.0  # seconds between two listings
_MOST_OBJECTS = 4096  # in one offer


@dataclass(frozen=True, slots=True)
class ObjectFolder:
    """The objects below a URI that belong to a stream."""

    uri: str
    format: str
    glob: str | None = None
    recursive: bool = False

    @property
    def _storage(self) -> ObjectStorage:
        return ObjectStorage(self.uri)

    def check(self) -> None:
        """Refuse a store that cannot be read."""
        self._storage.check()

    def is_empty(self) -> bool:
        """Whether there is no object at all below the URI."""
        return self._storage.is_empty()

    def look(self) -> list[ObjectStatus]:
        """The objects that are there now, by name."""
        matches = name_matcher(self.glob)
        return sorted(
            (entry for entry in self._storage.entries() if self._is_read(entry.name, matches)),
            key=lambda entry: entry.name,
        )

    def _is_read(self, name: str, matches: Any) -> bool:
        *folders, last = name.split("/")
        hidden = any(
            folder.startswith(".") or (folder.startswith("_") and "=" not in folder) for folder in folders
        )
        return (self.recursive or not folders) and not hidden and not is_passed_over(last) and matches(last)

    def locate(self, name: str) -> str:
        """The URI of an object."""
        return self._storage.locate(name)

    def content(self, uri: str) -> bytes:
        """The content of an object; empty if it is gone."""
        return self._storage.get(uri.removeprefix(f"{self.uri}/")) or b""

    def part(self, status: ObjectStatus) -> Part:
        """The part of an object."""
        when = int(status.modified.timestamp() * 1_000_000)
        what = {"object": status.name, "size": status.size, "tag": status.tag}
        return Part(what, estimate_bytes(status.name, self.format, status.size), arrived=(when, when))

    def read(self, stream: str, part: Part, target: Target, csv: CsvOptions | None, missing: str) -> Decoded:
        """The rows of a part; a `SourceError` if its object is no longer what it was."""
        name, uri = part.what["object"], self.locate(part.what["object"])
        version = self._storage.read_version(name)
        if version is None and missing != "skip":
            raise SourceError(
                f"{stream}: object {uri} is missing",
                hint='put it back: its batch is not done; or say weft.files(…, missing="skip") to go on without it',
            )
        if version is None:
            nothing = rows_of(SourceFile(stream, uri, b""), self.format, target, csv)
            return Decoded(nothing.batch, (BadRecord(stream, uri, "the object is missing"),))
        content, tag = version
        if len(content) != part.what["size"] or tag != part.what["tag"]:
            raise SourceError(
                f"{stream}: object {uri} has changed since it was taken",
                hint="put it back as it was: its batch is not done; write new rows as new objects",
            )
        return rows_of(SourceFile(stream, uri, content), self.format, target, csv)


class ObjectCursor:
    """The objects of a folder that have been taken, and those that wait."""

    def __init__(self, context: CursorContext, folder: ObjectFolder, max_files: int | None = None) -> None:
        before = context.state.get("folder", folder.uri)
        if before != folder.uri:
            raise SourceError(
                f"{context.stream}: the files were read from {before}, not from {folder.uri}",
                hint="name the same folder as before, or begin with another checkpoint",
            )
        folder.check()
        self._context, self._folder = context, folder
        self._most = min(max_files or _MOST_OBJECTS, _MOST_OBJECTS)
        self._taken = TakenNames(context.state, context.blobs)
        self._names: frozenset[str] | None = None
        self._waiting: dict[str, Part] = {}
        self._looked = float("-inf")
        self._at_once = threading.Event()
        self._now = 0.0

    def look(self, now: float) -> Offer:
        """What is there and not taken, within what a batch can take; how much waits in all."""
        self._now = now
        if self._at_once.is_set() or not 0 <= now - self._looked < _LOOK_AGAIN:
            self._at_once.clear()
            self._list()
            self._looked = now
        chosen: list[Part] = []
        room = self._context.most_bytes
        for part in self._waiting.values():
            if len(chosen) == self._most or (chosen and part.bytes > room):
                break
            chosen.append(part)
            room -= part.bytes
        return Offer(
            tuple(chosen), (), (len(self._waiting), sum(part.bytes for part in self._waiting.values()))
        )

    def _list(self) -> None:
        objects = {status.name: status for status in self._folder.look()}
        self._names = frozenset(objects)
        new = [objects[name] for name in self._taken.not_taken(self._names)]
        ordered = sorted(new, key=lambda status: (status.modified, status.name))
        self._waiting = {status.name: self._folder.part(status) for status in ordered}

    def take(self, parts: Sequence[Part]) -> None:
        """Never offer these parts again."""
        for part in parts:
            self._waiting.pop(part.what["object"], None)
            self._taken.add(part.what["object"])

    def state(self) -> dict[str, Any]:
        """The names of the objects that were taken."""
        return {"folder": self._folder.uri, **self._taken.state(self._names, self._now)}

    def release(self, parts: Sequence[Part]) -> None:
        """Do nothing: objects stay where they are."""

    def catch_up(self) -> None:
        """Have the next look ask the store."""
        self._at_once.set()

    def close(self) -> None:
        """Do nothing: between two calls a cursor has nothing open."""
