"""What decoding a file gives: good rows as one record batch, and what had to be set aside; and where its records are.

Guarantees: a `BadRecord` says where it was found, as exactly as its format permits, and why it was set aside; what
it quotes is at most `EXCERPT` bytes long; it survives its JSON form unchanged, whatever bytes it quotes. Lines and
rows are counted from 1, offsets from 0. Positions in texts are found by whole-file operations; line numbers count
`\\n`, `\\r\\n` and a lone `\\r` once each, as editors do.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import SourceError
from weft.logical.schema import Schema
from weft.ports.source import PartRows

__all__ = [
    "NEWLINE",
    "RETURN",
    "BadRecord",
    "Decoded",
    "Positions",
    "SourceFile",
    "Spans",
    "Target",
    "as_bytes",
    "check_readable",
    "decode_records",
    "encode_records",
    "find",
    "line_ends",
    "spans_between",
]


EXCERPT = 1024


def check_readable(source: str, format_: str, schema: Schema) -> None:
    """Refuse columns with values inside where a format has none, or Arrow cannot read them."""
    lacking = {"json": ("map<",), "parquet": (), "arrow": ()}.get(format_, ("array<", "map<", "struct<"))
    for field in schema:
        if any(kind in str(field.type) for kind in lacking):
            remedy = (
                "declare a struct with the keys that are needed" if format_ == "json" else "declare a string"
            )
            raise SourceError(
                f"{source}: column {field.name} cannot be a {field.type} where values are {format_}",
                hint=remedy,
            )


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The bytes of one file of a source."""

    source: str
    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Target:
    """What rows must look like: the declared columns, and the one that may not be NULL because it tells the time.

    ``columns`` are those that are needed of them, if not all are. A time after ``latest``, in microseconds since 1970,
    is too far ahead of the clock; None permits all times.
    """

    schema: Schema
    event_time: str | None = None
    columns: frozenset[str] | None = None
    latest: int | None = None

    @classmethod
    def of(
        cls, schema: Schema, event_time: str | None, columns: Collection[str] | None, latest: int | None
    ) -> Target:
        """The target of what a task reads; see `weft.ports.source.Source.read`."""
        return cls(schema, event_time, None if columns is None else frozenset(columns), latest)

    def needed(self) -> Target:
        """The target of the needed columns alone; if none is, one is read to know how many rows there are."""
        if self.columns is None:
            return self
        wanted = self.columns | {self.event_time}
        fields = [field for field in self.schema if field.name in wanted] or [self.schema.fields[0]]
        return Target(Schema(tuple(fields)), self.event_time, latest=self.latest)


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that was set aside; without row, line and offset it stands for a whole file.

    It may stand for so many ``more`` records of the same file that are not quoted.
    """

    source: str
    file: str
    reason: str
    raw: bytes = b""
    row: int | None = None
    line: int | None = None
    offset: int | None = None
    more: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "raw", bytes(self.raw[:EXCERPT]))

    def __str__(self) -> str:
        place = ", ".join(f"{name} {at}" for name, at in self._position().items())
        return f"{self.source}: {self.file}{': ' if place else ''}{place}: {self.reason}"

    def _position(self) -> dict[str, int]:
        places = {"line": self.line, "row": self.row, "offset": self.offset}
        return {name: at for name, at in places.items() if at is not None}

    def to_json(self) -> str:
        """The record on one line."""
        shown: dict[str, Any] = {
            "source": self.source,
            "file": self.file,
            **self._position(),
            "reason": self.reason,
        }
        if self.more:
            shown["more"] = self.more
        return json.dumps({**shown, **_raw_to_json(self.raw)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> BadRecord:
        """What `to_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        encoded = fields.pop("raw_base64", None)
        text_of = fields.pop("raw", "")
        raw = text_of.encode() if encoded is None else base64.b64decode(encoded)
        return cls(raw=raw, **fields)


def _raw_to_json(raw: bytes) -> dict[str, str]:
    try:
        return {"raw": raw.decode()}
    except UnicodeDecodeError:  # shown as well as can be, and kept as it is
        return {"raw": raw.decode(errors="replace"), "raw_base64": base64.b64encode(raw).decode()}


def encode_records(records: Iterable[BadRecord]) -> bytes:
    """Records as JSON lines: how they travel from a task to the driver, and into the dead-letter directory."""
    return "".join(record.to_json() + "\n" for record in records).encode(errors="surrogatepass")


def decode_records(content: bytes) -> tuple[BadRecord, ...]:
    """What `encode_records` wrote."""
    lines = content.decode(errors="surrogatepass").split("\n")
    return tuple(BadRecord.from_json(line) for line in lines if line)


@dataclass(frozen=True, slots=True, eq=False)
class Decoded(PartRows):
    """The good rows of a file, with the declared columns and types, and its bad records in the file's order."""

    bad: tuple[BadRecord, ...] = ()


Positions = NDArray[np.int64]
NEWLINE, RETURN = 10, 13


def as_bytes(content: bytes) -> NDArray[np.uint8]:
    """A text's bytes as numbers, not copied."""
    return np.frombuffer(content, np.uint8)


def line_ends(content: bytes) -> Positions:
    """Where lines end: at each newline, and at each carriage return that none follows."""
    ends = find(content, NEWLINE)
    if b"\r" not in content:
        return ends
    returns = find(content, RETURN)
    lone = returns[as_bytes(content + b"\0")[returns + 1] != NEWLINE]
    return np.sort(np.concatenate([ends, lone]))


def find(content: bytes, letter: int) -> Positions:
    """Where a byte occurs; looked for in pieces that fit the cache."""
    data = as_bytes(content)
    pieces = [np.flatnonzero(data[at : at + _PIECE] == letter) + at for at in range(0, len(data), _PIECE)]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)


_PIECE = 1 << 18


@dataclass(frozen=True, slots=True)
class Spans:
    """The records of a text: record i is `content[starts[i]:ends[i]]`, without its line's end."""

    content: bytes
    starts: Positions
    ends: Positions
    base: int | None = 0  # where the content starts in its file; None where bytes were changed on reading
    lines_before: int = 0

    def __len__(self) -> int:
        return len(self.starts)

    def text(self, record: int) -> bytes:
        """The bytes of a record."""
        return self.content[self.starts[record] : self.ends[record]]

    def keep(self, which: NDArray[Any]) -> Spans:
        """Some of the records."""
        return Spans(self.content, self.starts[which], self.ends[which], self.base, self.lines_before)

    def joined(self) -> bytes:
        """The records alone, each on its own line; neighbours are taken in one piece."""
        if not len(self):
            return b""
        gaps = np.flatnonzero(self.starts[1:] - self.ends[:-1] > 2)  # room for a record between two line ends
        firsts, lasts = [0, *(gaps + 1).tolist()], [*gaps.tolist(), len(self) - 1]
        pieces = zip(self.starts[firsts].tolist(), self.ends[lasts].tolist(), strict=True)
        return b"\n".join(self.content[start:end] for start, end in pieces) + b"\n"

    def places(self, records: Sequence[int]) -> list[dict[str, Any]]:
        """Row, line, offset and text of some records."""
        starts = self.starts[np.asarray(records, np.int64)]
        lines = np.searchsorted(line_ends(self.content), starts) + 1 + self.lines_before
        return [
            {
                "row": record + 1,
                "line": int(line),
                "offset": None if self.base is None else int(start) + self.base,
                "raw": self.text(record)[:EXCERPT],
            }
            for record, line, start in zip(records, lines, starts, strict=True)
        ]


def spans_between(content: bytes, ends: Positions, base: int | None = 0, lines_before: int = 0) -> Spans:
    """The records that end at the given places, and at the end; empty ones are left out."""
    starts = np.concatenate([[0], ends + 1]).astype(np.int64)
    stops = np.concatenate([ends, [len(content)]]).astype(np.int64)
    if b"\r" in content:
        data = as_bytes(content)
        last = np.where(stops > starts, data[np.maximum(stops - 1, 0)], 0)
        stops = stops - ((last == RETURN) & (stops < len(content)))
    filled = stops > starts
    return Spans(content, starts[filled], stops[filled], base, lines_before)
