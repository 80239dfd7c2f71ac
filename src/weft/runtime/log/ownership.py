"""Which streams a log belongs to (``weft.json``), and the lease that keeps other sessions out.

Guarantees: a log belongs to one set of streams, to one format version and, but in memory, to one running
session at a time. In a directory a lock tells at once whether the process that held its lease lives.
Until `claim` is called, the ``weft.json`` of an existing log is unchanged.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from weft.errors import StateError
from weft.runtime.log.entries import read_record, write_record
from weft.runtime.log.lease import Lease, lock_directory, unlock
from weft.runtime.state.segment_file import BUCKETS, NEW_DIRECTORY, RESTORE
from weft.storage.storage import LocalDisk, Memory, Storage

__all__ = ["FORMAT", "Ownership"]

FORMAT = 8
_READ = (7, FORMAT)  # the formats that are read; a session goes on in its own

_FLAGS = ("stops", "requests", "rehomed")

# Older formats, and the last version of Weft that reads each.
_READ_BY = {1: "0.1", 2: "0.1", 3: "0.1", 4: "0.1", 5: "0.1", 6: "0.1"}


class Ownership:
    """The content of a log's ``weft.json``, as it is and as `claim` will write it, and the lock of the log."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._locks: list[int] = []
        self.lease = Lease(storage)
        self._changing = threading.RLock()  # the thread that commits and those that change queries write it
        self._is_closed = False
        self._known: dict[str, Any] = {}  # the log's format, identity and flags
        self._removed: list[str] = []  # the names of streams that were removed
        self._claimed: dict[str, Any] = {}  # the streams it is opened for, and what is noted with them

    @property
    def has_commits(self) -> bool:
        """Whether a batch was ever committed."""
        return bool(self._known.get("committed"))

    def has(self, flag: str) -> bool:
        """Whether something was ever noted.

        There are ``stops`` of queries, ``requests`` for queries while a session ran, and partitions that were
        ``rehomed``.
        """
        return bool(self._known.get(flag))

    def open(self, streams: Mapping[str, Any], also: Mapping[str, Any]) -> str:
        """Lock the log for a session with these streams, or refuse it; return its identity.

        What ``also`` says is noted with the streams.
        """
        self._is_closed = False
        if isinstance(self._storage, LocalDisk):
            self._storage.make_folder(BUCKETS)
            self._locks = lock_directory(self._storage.root)
        if not isinstance(self._storage, Memory):
            self.lease.take()
        found = self.read()
        self._removed = list(found.get("removed", []))
        self.check_free(streams)
        if "streams" in found:
            self._check_streams(found["streams"], streams)
        identity: str = found.get("identity") or uuid.uuid4().hex
        flags = {name: found.get(name, False) for name in ("committed", *_FLAGS)}
        self._known = {"format": FORMAT, "identity": identity, **flags}
        if self._removed:
            self._known["removed"] = self._removed
        self._claimed = {"streams": dict(streams), **also}
        if not found:
            write_record(self._storage, "weft.json", self._known)
        return identity

    def read(self) -> dict[str, Any]:
        """The content of ``weft.json``, with the streams if the log was claimed; empty where there is no log."""
        data = self._storage.get("weft.json")
        if data is None:
            for kind in ("state", "plan", "blueprints"):
                if any(name.endswith(".json") for name in self._storage.list(kind)):
                    raise StateError(
                        f"{self._storage.locate('weft.json')} is missing, though there is a log",
                        hint=RESTORE,
                    )
            return {}
        self._check_format(data)
        found: dict[str, Any] = read_record(self._storage, "weft.json")
        return found

    def claim(self) -> None:
        """Write into ``weft.json`` that the log belongs to the streams it was opened for."""
        with self._changing:
            write_record(self._storage, "weft.json", {**self._known, **self._claimed})

    def add_streams(self, streams: Mapping[str, Any]) -> None:
        """Record streams that were registered while the session runs."""
        with self._changing:
            self._claimed["streams"] = {**self._claimed["streams"], **streams}
            self.claim()

    def remove_streams(self, names: Iterable[str]) -> None:
        """Record that streams are read no longer."""
        gone = set(names)
        with self._changing:
            self._removed = sorted({*self._removed, *gone})
            self._known["removed"] = self._removed
            left = {name: one for name, one in self._claimed["streams"].items() if name not in gone}
            self._claimed["streams"] = left
            self.claim()

    def check_free(self, names: Iterable[str]) -> None:
        """Refuse the name of a stream that was removed, since another under it would inherit its watermark."""
        for name in names:
            if name in self._removed:
                raise StateError(
                    f"{self._here} knows stream {name}, which was removed", hint="choose another name for it"
                )

    def note_commit(self) -> None:
        """Record that there are committed batches."""
        if not self.has_commits:
            self._known["committed"] = True
            self.claim()

    def note(self, flag: str) -> None:
        """Record that something has happened: for most flags, an entry says more, and its loss is noticed."""
        if not self.has(flag):
            self._known[flag] = True
            self.claim()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Write what other threads than the loop's change: one at a time, and while the log is this session's."""
        with self._changing:
            if self._is_closed:
                raise StateError(
                    f"{self._here}: the session has ended, so nothing can be asked of it",
                    hint="start it again; if it failed, await_termination says why",
                )
            self.lease.check()
            yield

    def close(self) -> None:
        """Give back the lease and the lock, so that other sessions can open the log."""
        with self._changing:
            self._is_closed = True
            self.lease.close()
            unlock(self._locks)

    @property
    def _here(self) -> str:
        return self._storage.locate("")

    def _check_format(self, data: bytes) -> None:
        """Refuse a log of an older format, which may have no checksums, or of a newer one."""
        found = _format_of(data)
        if found is not None and found not in _READ:
            reader = _READ_BY.get(found)
            hint = f"Weft {reader} reads it; with this version, {NEW_DIRECTORY}" if reader else NEW_DIRECTORY
            raise StateError(
                f"{self._here} has format {found}, this version of Weft reads {FORMAT}", hint=hint
            )

    def _check_streams(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        for name, what in old.items():
            if name not in new:
                raise StateError(
                    f"{self._here} belongs to other streams or queries: it knows a stream {name}",
                    hint=f"register it again, or use a new checkpoint directory for these: {', '.join(new)}",
                )
            if list(new[name]) != what:
                raise StateError(
                    f"{self._here} belongs to other streams or queries: {_difference(name, what, new[name])}",
                    hint=f"register it as it was, or {NEW_DIRECTORY}",
                )


def _difference(name: str, old: Sequence[Any], new: Sequence[Any]) -> str:
    """What of a stream is another than a log has it: its columns, its event time, or that it is a table."""
    kinds = ["table" if len(one) > 2 else "stream" for one in (old, new)]
    if kinds[0] != kinds[1]:
        return f"{name} was a {kinds[0]}, and is a {kinds[1]} now"
    if old[1] != new[1]:
        times = [f"in {time}" if time is not None else "when rows arrive" for time in (old[1], new[1])]
        return f"stream {name} had its event time {times[0]}, and has it {times[1]} now"
    before, now = ({one.split(" ", 1)[0]: one for one in _columns(text)} for text in (old[0], new[0]))
    parts = [f"without {before[one]}" for one in before if one not in now]
    parts += [f"with {now[one]}" for one in now if one not in before]
    parts += [
        f"with {now[one]} for {before[one]}" for one in now if one in before and now[one] != before[one]
    ]
    return f"stream {name} has other columns now: {', '.join(parts) or 'the same ones in another order'}"


def _columns(schema: str) -> list[str]:
    """The columns of a schema as text, each with its type."""
    return re.split(r", (?![^()]*\))", schema)


def _format_of(data: bytes) -> int | None:
    """The format number in the bytes of a ``weft.json`` of any version; None if there is none to be found."""
    for text in data.split(b"\n"):
        with contextlib.suppress(ValueError):
            found = json.loads(text)
            if isinstance(found, dict) and isinstance(found.get("format"), int):
                return int(found["format"])
    return None
