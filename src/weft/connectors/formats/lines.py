"""Where records start and end in a text file.

Guarantees: positions are found by whole-file operations; line numbers count `\\n`, `\\r\\n` and a lone `\\r` once
each, as editors do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.connectors.formats.records import EXCERPT

__all__ = ["NEWLINE", "RETURN", "Positions", "Spans", "as_bytes", "find", "line_ends", "spans_between"]

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
    found = [np.flatnonzero(data[at : at + _PIECE] == letter) + at for at in range(0, len(data), _PIECE)]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


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
