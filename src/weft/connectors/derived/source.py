"""A derived stream or a union as a source: the files that its queries' sinks have listed (`derived/sink.py`).

Guarantees: only results of committed batches are offered, in the order of the batches. The state says ``through`` which
batch all results have been taken, from which the watermark of the stream follows. Files are deleted when the batch that
read them is committed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from weft.errors import SourceError
from weft.logical.schema import Schema
from weft.ports.source import CursorContext, Offer, Part, PartRows
from weft.storage.storage import storage_at

__all__ = [
    "DerivedCursor",
    "DerivedSource",
]

_LIST = ".json"


@dataclass(frozen=True, slots=True)
class DerivedSource:
    """The results of queries, each at a place of its own."""

    schema: Schema
    places: tuple[str, ...]

    def open(self, context: CursorContext) -> DerivedCursor:
        """Go on behind what was taken."""
        return DerivedCursor(self, context)

    def read(
        self,
        stream: str,
        part: Part,
        event_time: str | None = None,
        columns: Collection[str] | None = None,
        latest: int | None = None,  # noqa: ARG002
    ) -> PartRows:
        """The rows of a file."""
        storage, name = storage_at(self.places[part.what["place"]]), part.what["name"]
        data = storage.get(name)
        if data is None:
            raise SourceError(f"{stream}: {storage.locate(name)} is missing", hint="restore it from a copy")
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        needed = {*(self.schema.names if columns is None else columns), event_time}
        names = [one for one in self.schema.names if one in needed]
        batches = table.select(names).combine_chunks().to_batches()
        empty = pa.RecordBatch.from_pylist([], schema=table.select(names).schema)
        return PartRows(batches[0] if batches else empty)


class DerivedCursor:
    """Which files of which batches have been taken."""

    def __init__(self, source: DerivedSource, context: CursorContext) -> None:
        self._source, self._committed, self._most_bytes = source, context.committed, context.most_bytes
        self.through = int(context.state.get("through", -1))
        self._taken = {str(name) for name in context.state.get("taken", ())}  # files of batches after that
        self._looked = -1
        self._waiting: list[Part] = []

    def look(self, now: float) -> Offer:  # noqa: ARG002
        """The files of committed batches that were not taken."""
        committed = self._committed()
        if committed != self._looked:
            self._looked = committed
            self._waiting = sorted(self._untaken(committed), key=lambda part: _order(part.what))
            self._pass()
        offered, room = list[Part](), self._most_bytes
        for part in self._waiting:
            if offered and part.bytes > room:
                break
            offered.append(part)
            room -= part.bytes
        return Offer(tuple(offered), backlog=(len(self._waiting), sum(part.bytes for part in self._waiting)))

    def _untaken(self, committed: int) -> Iterator[Part]:
        for number, place in enumerate(self._source.places):
            storage = storage_at(place)
            for name in storage.list(""):
                batch = int(name.removesuffix(_LIST)) if name.endswith(_LIST) else -1
                if not self.through < batch <= committed:
                    continue
                for part in json.loads(storage.get(name) or b"[]"):
                    if part["name"] not in self._taken:
                        what = {"place": number, "batch": batch, "name": part["name"]}
                        yield Part(what, part["bytes"], part["rows"], part["oldest"])

    def _pass(self) -> None:
        """Note up to which batch nothing is left."""
        first = min((int(part.what["batch"]) for part in self._waiting), default=self._looked + 1)
        if first - 1 > self.through:
            self.through = first - 1

    def take(self, parts: Sequence[Part]) -> None:
        """Go on behind these files."""
        names = {str(part.what["name"]) for part in parts}
        self._waiting = [part for part in self._waiting if part.what["name"] not in names]
        self._taken |= names
        self._pass()
        waiting = {int(part.what["batch"]) for part in self._waiting}
        if not waiting:
            self._taken = set()
        else:
            self._taken = {name for name in self._taken if int(name.partition("-")[0]) > self.through}

    def state(self) -> dict[str, Any]:
        """Through which batch all was taken, and what of later ones."""
        return {"through": self.through, "taken": sorted(self._taken), "blobs": []}

    def release(self, parts: Sequence[Part]) -> None:
        """Delete files that were read, and the lists of which nothing is left."""
        for place, batch, name in sorted({(*_order(part.what)[1::-1], part.what["name"]) for part in parts}):
            storage = storage_at(self._source.places[place])
            storage.delete(name)
            listed = json.loads(storage.get(f"{batch}{_LIST}") or b"[]")
            there = set(storage.list(""))
            if not any(part["name"] in there for part in listed):
                storage.delete(f"{batch}{_LIST}")

    def catch_up(self) -> None:
        """Do nothing: the loop goes on until nothing is left."""

    def close(self) -> None:
        """Do nothing: nothing is open."""


def _order(what: Any) -> tuple[int, int, str]:
    return int(what["batch"]), int(what["place"]), str(what["name"])
