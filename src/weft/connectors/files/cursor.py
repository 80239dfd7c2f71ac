"""How far the files of a folder have been taken.

Guarantees: every file is offered until it is taken, and never again, whatever the time of its last change. Files that
are found in one look are offered in the order of that time, the oldest first, then by name; those of later looks
follow. A file is offered when it is complete, or has not changed for as long as `FileRules` say. An offer is bounded,
and says how much waits in all. A file of which only some row groups were taken is still offered if it is gone, so that
its loss is noticed. A file that was taken when it was empty is offered once more when it is filled. What cannot be read
because it is no file (a pipe, a link to nothing) is not waited for; the log names it once. So it is with a file that
this user may not read, once as long has passed as a file is waited for that is not complete; it is read when it can be.

A name that was taken stays so for as long as its file is there, and for at least ten minutes after it was first missed:
a file that is out of sight for a moment is not read twice. Names whose files are gone are forgotten afterwards, so what
is kept is bounded by what is in the folder. The state that goes into every batch names at most about a thousand files
itself; the others stand in blobs, which are few, sorted and compressed, and of which a name is rewritten a logarithmic
number of times.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from weft.connectors.files.checks import is_within, settling_time, why_incomplete
from weft.connectors.files.cleaner import Cleaner
from weft.connectors.files.listing import Listing
from weft.connectors.files.parts import FileStatus, estimate_bytes, parts_of, remaining_parts
from weft.errors import SourceError, StateError, nearest
from weft.ports.source import Blobs, CursorContext, Offer, Part, Unfinished

__all__ = [
    "FileCursor",
    "FileRules",
    "TakenNames",
]


_MOST_IN_STATE = 1000
_FORGET_AFTER = 600.0  # seconds for which a file must have been gone


class TakenNames:
    """A set of names that is kept in blobs, and in a short list of those that were added since the last blob."""

    def __init__(self, state: Mapping[str, Any], blobs: Blobs, most: int | None = None) -> None:
        self._blobs, self._most = blobs, _MOST_IN_STATE if most is None else most
        self._pieces = [(name, _unpacked(name, blobs.get(name))) for name in state.get("blobs", ())]
        self._since: list[str] = list(state.get("since", ()))
        self._all = {name for _, piece in self._pieces for name in piece} | set(self._since)
        # The names of files that were gone when names were last moved to a blob, and since when they have been gone.
        self._gone: dict[str, float] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._all

    def __len__(self) -> int:
        return len(self._all)

    def not_taken(self, names: AbstractSet[str]) -> AbstractSet[str]:
        """Those of ``names``, the names of all files there are, that have not been taken."""
        for name in self._gone.keys() & names:  # it is back
            del self._gone[name]
        return names - self._all

    def add(self, name: str) -> None:
        """Remember a name."""
        if name not in self._all:
            self._all.add(name)
            self._since.append(name)

    def state(self, present: Collection[str] | None, now: float) -> dict[str, Any]:
        """The set as plain data; ``present`` are the files that are there ``now`` (None: not known)."""
        if len(self._since) > self._most:
            self._move_to_blob(present, now)
        return {"blobs": [name for name, _ in self._pieces], "since": list(self._since)}

    def _move_to_blob(self, present: Collection[str] | None, now: float) -> None:
        forgotten = frozenset[str]() if present is None else self._missed(present, now)
        names, pieces = self._since, self._pieces
        everything = len(forgotten) * 2 > len(self._all)
        while pieces and (everything or len(pieces[-1][1]) <= 2 * len(names)):
            names = [*pieces[-1][1], *names]
            pieces = pieces[:-1]
        kept = sorted(set(names) - forgotten)
        self._all -= forgotten.intersection(names)
        self._pieces = [*pieces, (self._blobs.put(_packed(kept)), kept)] if kept else pieces
        self._since = []

    def _missed(self, present: Collection[str], now: float) -> frozenset[str]:
        """The names that may be forgotten: those whose files have been gone for long enough."""
        gone = self._all.difference(present)
        self._gone = {name: min(self._gone.get(name, now), now) for name in gone}
        return frozenset(name for name, since in self._gone.items() if now - since >= _FORGET_AFTER)


def _packed(names: Collection[str]) -> bytes:
    return zlib.compress("\0".join(names).encode(), 1)


def _unpacked(blob: str, data: bytes) -> list[str]:
    try:
        return zlib.decompress(data).decode().split("\0")
    except (zlib.error, UnicodeDecodeError) as error:
        raise StateError(
            f"the names of files that were read, {blob}, are damaged: {error}",
            hint="restore it from a copy of the checkpoint",
        ) from None


_LOG = logging.getLogger("weft")
_FILLED_AGAIN = 1.0  # seconds between two looks whether files that were taken when they were empty are filled
_QUIET = 2.0  # a text that has not changed for so many seconds need not be looked at twice
_MOST_FILES = 4096  # in one offer
_UNKNOWN = FileStatus(0, 0, 0, 0)
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)


@dataclass(frozen=True, slots=True)
class FileRules:
    """What is done with files that are not finished, that are missing, and that have been read.

    ``unfinished_after`` is how long a file that is not complete is waited for after its last change; then it is taken
    as it is. ``missing`` says what a file is that was taken and is gone when it is read: an "error", or nothing but a
    dead letter ("skip"). ``clean`` says what becomes of files that were read: None, "delete", or "archive", which moves
    them into the folder ``archive``.
    """

    unfinished_after: timedelta = timedelta(minutes=1)
    missing: str = "error"
    clean: str | None = None
    archive: str | None = None

    def __post_init__(self) -> None:
        if self.missing not in ("error", "skip"):
            raise SourceError(
                f"files: missing cannot be {self.missing!r}", hint=nearest(self.missing, ("error", "skip"))
            )
        if self.clean not in (None, "delete", "archive"):
            raise SourceError(
                f"files: clean cannot be {self.clean!r}", hint=nearest(str(self.clean), ("delete", "archive"))
            )
        if (self.clean == "archive") != (self.archive is not None):
            raise SourceError(
                'files: clean="archive" and archive= belong together',
                hint='as in clean="archive", archive="done"',
            )
        if self.unfinished_after < timedelta(0):
            raise SourceError("files: unfinished_after is negative", hint='use, for example, "1 minute"')


@dataclass(slots=True)
class _WaitingFile:
    """A file that has not been taken, or not as a whole: its last known status, and since when it has had that."""

    path: str
    status: FileStatus
    since: float
    bytes: int
    parts: list[Part] | None = None  # None: not found complete yet
    begun: bool = False  # some of its parts were taken: the others are offered as they are
    unfinished: str | None = field(default=None, init=False)
    checked: bool = field(default=False, init=False)
    unreadable: bool = field(default=False, init=False)  # for longer than a file is waited for


@dataclass(slots=True)
class _Offering:
    """What an offer has room for."""

    files: int
    bytes: int
    parts: list[Part] = field(default_factory=list)

    def add(self, parts: Iterable[Part]) -> None:
        self.files -= 1
        for part in parts:
            if self.parts and part.bytes > self.bytes:
                self.bytes = 0
                return
            self.parts.append(part)
            self.bytes -= part.bytes

    @property
    def is_full(self) -> bool:
        return self.files <= 0 or (bool(self.parts) and self.bytes <= 0)


class FileCursor:
    """The files of a folder that have been taken, and those that wait."""

    def __init__(
        self,
        context: CursorContext,
        format_: str,
        listing: Listing,
        rules: FileRules,
        max_files: int | None = None,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._context, self._format, self._listing, self._rules = context, format_, listing, rules
        self._most_files = min(max_files or _MOST_FILES, _MOST_FILES)
        self._clock, self._pause = clock, pause
        self._check_folder(context.state)
        self._taken = TakenNames(context.state, context.blobs)
        self._begun: dict[str, dict[str, Any]] = {
            name: {"what": dict(entry["what"]), "taken": list(entry["taken"])}
            for name, entry in context.state.get("begun", {}).items()
        }
        self._empty: set[str] = set(
            context.state.get("empty", ())
        )  # taken, and offered again when they are filled
        self._looked_filled = float("-inf")
        self._at_once = threading.Event()
        self._named: dict[str, str] = {}  # what cannot be read, and why, as it was logged
        self._cleaner = Cleaner(context.stream, listing.root, rules.clean, rules.archive, context.state)
        self._waiting: dict[str, _WaitingFile] = {}
        self._bytes = self._extra = 0  # of all that waits: bytes, and parts beyond one for each file
        self._now: float | None = None
        for name, entry in self._begun.items():
            self._wait_for_rest(name, entry)

    def _check_folder(self, state: Mapping[str, Any]) -> None:
        before = state.get("folder", self._listing.root)
        if before != self._listing.root:
            raise SourceError(
                f"{self._context.stream}: the files were read from {before}, not from {self._listing.root}",
                hint="name the same folder as before, or begin with another checkpoint",
            )

    def look(self, now: float) -> Offer:
        """What is complete and not taken; what is not complete; how much waits in all."""
        self._now = now
        if self._listing.refresh():
            self._compare(now)
        self._look_for_filled(now)
        offering = _Offering(self._most_files, self._context.most_bytes)
        unfinished: list[Unfinished] = []
        for name in list(self._waiting):
            if offering.is_full:
                break
            self._look_at(name, now, offering, unfinished)
        counted = len(self._waiting) - len(unfinished) + self._extra
        waiting = self._bytes - sum(self._waiting[file.name].bytes for file in unfinished)
        named = (replace(file, name=_shown(self._waiting[file.name].path)) for file in unfinished)
        return Offer(tuple(offering.parts), tuple(named), (counted, waiting))

    def _compare(self, now: float) -> None:
        """Let files wait that are new, and forget those that are gone before they were taken."""
        names = self._listing.names
        for name in [name for name, file in self._waiting.items() if name not in names and not file.begun]:
            self._forget(name)
        new = [
            (status.modified, name, status)
            for name in self._taken.not_taken(names) - self._empty
            if name not in self._waiting and (status := self._status(name)) is not None
        ]
        self._empty &= names
        self._name_once(self._listing.strange)
        for _, name, status in sorted(new, key=lambda entry: entry[:2]):
            self._wait_for(name, status, now)

    def _wait_for(self, name: str, status: FileStatus, now: float) -> None:
        path = self._path(name)
        waiting = _WaitingFile(path, status, now, estimate_bytes(path, self._format, status.size))
        waiting.unfinished = None if _is_text(name) else "its name is not UTF-8: rename it"
        self._add(name, waiting)

    def _look_for_filled(self, now: float) -> None:
        """Let files wait that were empty when they were taken and are so no longer; they are looked at now and then."""
        if 0 <= now - self._looked_filled < _FILLED_AGAIN and not self._at_once.is_set():
            return
        self._at_once.clear()
        self._looked_filled = now
        for name in sorted(self._empty):
            if name not in self._waiting and (status := self._status(name)) is not None and status.size:
                self._wait_for(name, status, now)

    def _name_once(self, strange: Mapping[str, str]) -> None:
        """Log what cannot be read, unless it was logged for the same reason since it is there."""
        for name, why in sorted(strange.items()):
            if self._named.get(name) != why:
                _LOG.warning("stream %s does not read %s: %s", self._context.stream, self._path(name), why)
        self._named = dict(strange)

    def _look_at(self, name: str, now: float, offering: _Offering, unfinished: list[Unfinished]) -> None:
        """Offer a file, or say why it has to wait."""
        file = self._waiting[name]
        if not file.begun:
            status = self._status(name)
            if status is None:
                self._listing.doubt(name)
                return
            self._examine(name, file, status, now)
        if file.parts is None:
            reason = file.unfinished or "it is being written"
            unfinished.append(Unfinished(name, reason, awaited=not file.unreadable))
        else:
            offering.add(file.parts)

    def _examine(self, name: str, file: _WaitingFile, status: FileStatus, now: float) -> None:
        """Find the parts of a file, if it is complete or has not changed for long enough."""
        if status != file.status:
            file.status, file.since, file.checked, file.unreadable = status, now, False, False
            self._set_parts(name, None, estimate_bytes(file.path, self._format, status.size))
        if file.parts is not None or not _is_text(name):
            return
        file.since = min(file.since, now)
        seen, quiet = now - file.since, now - status.changed / 1e9
        waited = max(seen, quiet) >= self._rules.unfinished_after.total_seconds()
        settling = settling_time(file.path, self._format, status.size)
        settled = seen >= settling or quiet >= max(settling, _QUIET)
        try:
            if not waited and not file.checked:
                file.unfinished = why_incomplete(file.path, self._format, status.size, self._listing.within)
                file.checked = True
            if waited or (file.unfinished is None and settled):
                self._set_parts(name, self._parts_of(file.path, status), file.bytes)
        except FileNotFoundError:
            return
        except OSError as error:
            file.unfinished = f"it cannot be read: {error.strerror or error}"
            if waited and not file.unreadable:
                file.unreadable = True
                _LOG.warning(
                    "stream %s does not read %s: %s", self._context.stream, file.path, file.unfinished
                )

    def _parts_of(self, path: str, status: FileStatus) -> list[Part] | None:
        context = self._context
        return parts_of(
            path,
            self._format,
            status,
            min(context.part_bytes, context.most_bytes),
            context.event_time,
            self._listing.within,
        )

    def _status(self, name: str) -> FileStatus | None:
        """What the file system says of a file: None if it is gone or no file, `_UNKNOWN` if that cannot be told."""
        path, within = self._path(name), self._listing.within
        try:
            return FileStatus.read(path) if within is None or is_within(path, within) else None
        except OSError as error:
            return None if error.errno in _NO_FILE else _UNKNOWN

    def _path(self, name: str) -> str:
        return os.path.join(self._listing.root, name)

    def _name(self, part: Part) -> str:
        return os.path.relpath(part.what["file"], self._listing.root).replace(os.sep, "/")

    def _add(self, name: str, file: _WaitingFile) -> None:
        self._waiting[name] = file
        self._bytes += file.bytes
        self._extra += len(file.parts or (None,)) - 1

    def _forget(self, name: str) -> None:
        file = self._waiting.pop(name, None)
        if file is not None:
            self._bytes -= file.bytes
            self._extra -= len(file.parts or (None,)) - 1

    def _set_parts(self, name: str, parts: list[Part] | None, estimate: int) -> None:
        """Note the parts of a file, which keeps its place in the order."""
        file = self._waiting[name]
        total = estimate if parts is None else sum(part.bytes for part in parts)
        self._bytes += total - file.bytes
        self._extra += len(parts or (None,)) - len(file.parts or (None,))
        file.parts, file.bytes = parts, total

    def _wait_for_rest(self, name: str, entry: Mapping[str, Any]) -> None:
        """Let those row groups of a file wait that were not taken."""
        time_column, within = self._context.event_time, self._listing.within
        parts = remaining_parts(entry["what"], entry["taken"], time_column, within)
        status = FileStatus(entry["what"]["size"], entry["what"]["modified"], 0, 0)
        total = sum(part.bytes for part in parts)
        self._add(name, _WaitingFile(entry["what"]["file"], status, 0.0, total, parts, begun=True))

    def take(self, parts: Sequence[Part]) -> None:
        """Never offer these parts again; to take one twice changes nothing."""
        for part in parts:
            name = self._name(part)
            if name in self._taken:
                continue
            if "row_groups" not in part.what or self._take_row_groups(name, part):
                self._forget(name)
                self._begun.pop(name, None)
                if part.what["size"]:
                    self._empty.discard(name)
                    self._taken.add(name)
                else:
                    self._empty.add(name)

    def _take_row_groups(self, name: str, part: Part) -> bool:
        """Note that some row groups of a file were taken; True if now all of them are."""
        what = {key: value for key, value in part.what.items() if key != "row_groups"}
        entry = self._begun.setdefault(name, {"what": what, "taken": []})
        if list(part.what["row_groups"]) not in entry["taken"]:
            entry["taken"].append(list(part.what["row_groups"]))
        if sum(count for _, count in entry["taken"]) >= what["of"]:
            return True
        file = self._waiting.get(name)
        if file is None or file.parts is None or part not in file.parts:
            self._forget(name)
            self._wait_for_rest(name, entry)
        else:
            file.begun = True
            self._set_parts(name, [other for other in file.parts if other != part], file.bytes)
        return False

    def state(self) -> dict[str, Any]:
        """The names of the files that were taken, and which row groups of files that were taken in part."""
        present = None if self._now is None else self._listing.names
        state = self._taken.state(present, self._clock() if self._now is None else self._now)
        begun = {name: {**entry, "taken": list(entry["taken"])} for name, entry in self._begun.items()}
        more = {"begun": begun, "empty": sorted(self._empty)}
        state |= {name: value for name, value in more.items() if value}
        return {"folder": self._listing.root, **state, **self._cleaner.state()}

    def release(self, parts: Sequence[Part]) -> None:
        """Delete or archive files of which all parts were read, if that is wanted."""
        self._cleaner.release([(self._name(part), part) for part in parts])

    def catch_up(self) -> None:
        """Have the next look see whether empty files were filled; what is new in the folder it sees anyway."""
        self._at_once.set()

    def close(self) -> None:
        """Do nothing: between two calls a cursor has no file open."""


def _is_text(name: str) -> bool:
    """Whether a name can be written into a log; one whose bytes are no UTF-8 cannot."""
    return name.isascii() or name == _shown(name)


def _shown(name: str) -> str:
    return name.encode(errors="replace").decode()
