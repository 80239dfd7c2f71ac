"""What can happen to a file: it is deleted, cut off, emptied, renamed, touched, changed or written anew.

Records may have wrong times, too, whatever becomes of their file: of a year to come, none at all, or no time.

A damaged file takes the place of the one that was there, so that whoever has that one mapped keeps it: a file that is
cut off in place kills the processes that have it mapped, which is another fault, the loss of a worker.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LOG = (
    "weft",
    "state",
    "plan",
    "migrated",
    "blueprints",
    "blobs",
    "buckets",
    "stops",
    "requested",
    "lock",
    "owner",
)
DAYS = 86_400.0


@dataclass(frozen=True)
class Fault:
    """Something that happened to a file, and how to undo it."""

    kind: str
    group: str  # of the file: an input, or which part of the log
    file: Path
    before: bytes
    after: Path | None = None  # where the file is now, if it is elsewhere

    def undo(self) -> None:
        """Put the file back as it was."""
        if self.after is not None:
            self.after.unlink(missing_ok=True)
        _put(self.file, self.before)

    def put_back(self) -> None:
        """Put the file back as it was; where it was moved to, it stays."""
        _put(self.file, self.before)

    def is_named_in(self, message: str) -> bool:
        """Whether an error says which file it is about.

        Of manifests that are all gone, the folder is named. That weft.json is gone before anything was planned, only
        the sinks' marks can tell.
        """
        names = [self.file.name, *([self.after.name] if self.after else [])]
        instead = {"state": "state has lost its manifests", "weft": "as _weft/owner.json says"}
        lost = self.group in instead and instead[self.group] in message
        return lost or any(name in message for name in names)

    def __str__(self) -> str:
        moved = f" to {self.after.name}" if self.after else ""
        return f"{self.kind} {self.group} {self.file.parent.name}/{self.file.name}{moved}"


def _put(file: Path, content: bytes) -> None:
    """Write a file that takes the place of another at once."""
    partial = file.with_name(f".{file.name}.fault.tmp")
    partial.write_bytes(content)
    partial.replace(file)


def _delete(file: Path, rng: random.Random) -> None:  # noqa: ARG001
    file.unlink()


def _empty(file: Path, rng: random.Random) -> None:  # noqa: ARG001
    _put(file, b"")


def _truncate(file: Path, rng: random.Random) -> None:
    content = file.read_bytes()
    _put(file, content[: rng.randrange(1, max(2, len(content)))])


def _flip(file: Path, rng: random.Random) -> None:
    """Change one byte."""
    content = bytearray(file.read_bytes())
    if content:
        content[rng.randrange(len(content))] ^= rng.randrange(1, 256)
    _put(file, bytes(content))


def _rewrite(file: Path, rng: random.Random) -> None:
    """As many other bytes."""
    _put(file, rng.randbytes(file.stat().st_size))


def _grow(file: Path, rng: random.Random) -> None:
    _put(file, file.read_bytes() + rng.randbytes(rng.randrange(1, 20)))


def _touch_forwards(file: Path, rng: random.Random) -> None:
    when = file.stat().st_mtime + rng.uniform(1, 60) * DAYS
    os.utime(file, (when, when))


def _touch_backwards(file: Path, rng: random.Random) -> None:
    when = file.stat().st_mtime - rng.uniform(1, 6_000) * DAYS
    os.utime(file, (when, when))


TOUCHES = ("touch forwards", "touch backwards")
KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "delete": _delete,
    "empty": _empty,
    "truncate": _truncate,
    "flip": _flip,
    "rewrite": _rewrite,
    "grow": _grow,
    "touch forwards": _touch_forwards,
    "touch backwards": _touch_backwards,
}
ALL = (*KINDS, "rename")


NOT_A_TIME = "NaN"


def wrong_time(rng: random.Random, text: bool) -> int | str | None:
    """An event time that no record on time has, in microseconds: of any year to come, none, or, in a text, no time.

    A record with it is a dead letter; all others are joined as if it was not there.
    """
    kinds = ("soon", "year", "none", *(("word",) if text else ("farthest", "first")))
    match rng.choice(kinds):
        case "soon":
            return int((time.time() + rng.uniform(2, 90) * DAYS) * 1e6)
        case "year":
            return rng.randrange(2_000_000_000, 250_000_000_000) * 1_000_000
        case "farthest":
            return (1 << 63) - 1 - rng.randrange(1 << 20)
        case "first":
            return rng.randrange(1 << 20) - (1 << 63)
        case "word":
            return NOT_A_TIME
    return None


def is_time(value: int | str | None) -> bool:
    """Whether it is a time that a record may have now."""
    return isinstance(value, int) and abs(value) < 1 << 60 and value <= (time.time() + DAYS) * 1e6


def damage(file: Path, group: str, kind: str, rng: random.Random, name: str | None = None) -> Fault:
    """Let something happen to a file; ``name`` is the one that it is given, if it is renamed."""
    before = file.read_bytes()
    if kind == "rename":
        after = file.with_name(name or f"{file.name}.old")
        file.rename(after)
        return Fault(kind, group, file, before, after)
    KINDS[kind](file, rng)
    return Fault(kind, group, file, before)


def log_files(checkpoint: Path, out: Path, group: str) -> list[Path]:
    """The files of a part of the log; the marks of ownership are in the sinks."""
    patterns = {
        "weft": "weft.json",
        "stops": "stops.json",
        "requested": "requested.json",
        "lock": "lock",
        "buckets": "state/buckets/*",
        "owner": "*/_weft/owner.json",
        "blobs": "blobs/*",
    }
    root = out if group == "owner" else checkpoint
    found = root.glob(patterns.get(group, f"{group}/*.json"))
    return sorted(file for file in found if file.is_file() and not file.name.startswith("."))
