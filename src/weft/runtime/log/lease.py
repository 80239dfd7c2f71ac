"""Who may write a log: a lease with an epoch, taken by one session at a time, and a lock in a directory (design, D3).

Guarantees: an epoch belongs to one session, since its entry is put if absent. A session that has not renewed its lease
in time writes nothing more before it has looked whether a later epoch was taken; if one was, it stops. Another session
takes the next epoch at once if the holder has closed the log or its process is gone from this machine; else only when
it has seen no renewal for as long as a lease lasts, by its own clock, so clocks of machines need not agree. What a
session puts under a lease that it lost meanwhile is decided by the log's entries, which are put if absent too.

In a directory, `lock_directory` refuses a second session at once. A session holds the lock until it unlocks it or its
process ends, also if the lock's file is deleted meanwhile: where its file system can do that, the directory itself is
locked too.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from weft.errors import StateError
from weft.runtime.log.entries import write_first
from weft.storage.storage import LocalDisk, Storage

__all__ = [
    "LEASE_SECONDS",
    "Lease",
    "lock_directory",
    "unlock",
]


_LOG = logging.getLogger("weft")

LEASE_SECONDS = 15.0
_RENEWALS = 3  # in the time that a lease lasts
_FOLDER = "lease"


def _now() -> float:
    """Seconds by a clock that goes on while the process is paused and while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    """The lease of a log, for one session; ``epoch`` is 0 while it is not taken."""

    def __init__(
        self, storage: Storage, seconds: float | None = None, pause: Callable[[float], Any] = time.sleep
    ) -> None:
        self.epoch = 0
        self._storage, self._pause = storage, pause
        self._seconds = LEASE_SECONDS if seconds is None else seconds
        self._token = uuid.uuid4().hex
        self._renewed = 0.0  # when the last renewal that succeeded was begun
        self._lost = False
        self._ended = threading.Event()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def take(self) -> None:
        """Take the next epoch, or refuse a log that another session uses."""
        last = max(self._epochs(), default=0)
        if last:
            self._wait_for_end(last)
        if isinstance(self._storage, LocalDisk):
            self._storage.delete_unfinished(_FOLDER)
        began, self.epoch = _now(), last + 1
        if not self._storage.put_if_absent(_entry(self.epoch), self._content()):
            self.epoch = 0
            raise self._in_use("just now another session took it")
        self._renewed = began
        if self._storage.put_if_absent(_entry(self.epoch), b"{}"):
            raise StateError(
                f"{self._here}: the store keeps no entry from being replaced, as it was asked to (If-None-Match)",
                hint="use a store with conditional puts: two sessions could not be kept apart in this one",
            )
        for old in self._epochs():
            if old < self.epoch - 1:
                self._storage.delete(_entry(old))
        self._thread = threading.Thread(target=self._renew_often, name="weft-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Refuse to go on if the lease is lost; called before anything is put that others must not put too."""
        if not self.epoch:
            return
        if not self._lost and _now() - self._renewed < self._seconds:
            return
        with self._guard:
            self._renew()
        if self._lost:
            raise StateError(
                f"{self._here} was taken over by another session, since this one did not renew its lease in time",
                hint="what it had committed is kept, and the other session goes on from there",
            )

    def put_first(self, name: str, content: Mapping[str, Any], *, flush: bool = True) -> None:
        """Put an entry of the log that only one session may put, with the epoch of its lease.

        The lease is looked at before and after: a session that was paused in between might find the name free again,
        since later sessions have deleted the entry.
        """
        self.check()
        whole = {**content, "epoch": self.epoch}
        if not write_first(self._storage, name, whole, flush=flush):
            raise StateError(
                f"{self._storage.locate(name)} was written by another session meanwhile",
                hint="it goes on from there; if none runs any more, start this one again",
            )
        self.check()

    def close(self) -> None:
        """Give the lease back, so that others need not wait for its end."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self.epoch and not self._lost:
            try:
                self._storage.put(*self.as_released(), flush=False)
            except StateError as error:
                _LOG.warning("the next session has to wait until the lease has run out: %s", error)
        self.epoch = 0

    def as_released(self) -> tuple[str, bytes]:
        """The entry of a lease that was given back: its name and its content."""
        return _entry(self.epoch), self._content(released=True)

    def _renew_often(self) -> None:
        while not self._ended.wait(self._seconds / _RENEWALS):
            try:
                with self._guard:
                    self._renew()
            except StateError as error:
                _LOG.warning("the lease could not be renewed and is tried again: %s", error)
            if self._lost:
                return

    def _renew(self) -> None:
        """Renew the lease unless a later epoch was taken; then it is lost for good."""
        began = _now()
        if any(epoch > self.epoch for epoch in self._epochs()):
            self._lost = True
            return
        self._storage.put(_entry(self.epoch), self._content(), flush=False)
        self._renewed = began

    def _wait_for_end(self, epoch: int) -> None:
        """Return when the lease of an epoch has ended; refuse the log if its holder lives."""
        found = self._read(epoch)
        if found.get("released"):
            return
        if _is_here(found, self._storage):
            if _is_gone(found, self._storage) or time.time() - found.get("time", 0.0) >= self._seconds:
                return
            raise self._in_use(f"process {found.get('pid')} of this machine holds its lease")
        holder = f"a session on {found['host']}" if found.get("host") else "a session that left no name"
        _LOG.warning("%s: waiting %g s for the lease of %s to end", self._here, self._seconds, holder)
        began = _now()
        while _now() - began < self._seconds:
            self._pause(self._seconds / (4 * _RENEWALS))
            now = self._read(epoch)
            if now.get("released"):
                return
            if now != found:
                raise self._in_use(f"process {now.get('pid')} of {now.get('host')} holds its lease")

    def _read(self, epoch: int) -> dict[str, Any]:
        """What the holder of an epoch wrote; of an entry that is damaged nothing is known."""
        try:
            found = json.loads(self._storage.get(_entry(epoch)) or b"{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def _content(self, *, released: bool = False) -> bytes:
        who = {"token": self._token, "pid": os.getpid(), "host": socket.gethostname(), **_machine()}
        what = {"epoch": self.epoch, "time": time.time(), "released": released, "began": _began(os.getpid())}
        return json.dumps({**what, **who}).encode()

    def _epochs(self) -> list[int]:
        stems = (name.removesuffix(".json") for name in self._storage.list(_FOLDER))
        return [int(stem) for stem in stems if stem.isdigit()]

    def _in_use(self, why: str) -> StateError:
        return StateError(
            f"{self._here} is in use by another session: {why}", hint="stop it, or use another checkpoint"
        )

    @property
    def _here(self) -> str:
        return self._storage.locate("").rstrip("/")


def _entry(epoch: int) -> str:
    return f"{_FOLDER}/{epoch}.json"


def _machine() -> dict[str, str]:
    """Where process numbers mean what they mean here: this boot of this machine, and this container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return {"boot": boot, "processes": os.readlink("/proc/self/ns/pid")}
    except OSError:
        return {"boot": "", "processes": ""}


def _is_here(found: dict[str, Any], storage: Storage) -> bool:
    """Whether the holder of a lease runs, or ran, where its process number can be looked up."""
    if isinstance(storage, LocalDisk) and found.get("host") == socket.gethostname():
        return True
    return bool(found.get("boot")) and all(found.get(name) == value for name, value in _machine().items())


def _is_gone(found: dict[str, Any], storage: Storage) -> bool:
    """Whether the process of a holder has ended; of a directory, the lock that this session has got proves it."""
    if isinstance(storage, LocalDisk):
        return True
    began = _began(int(found.get("pid", 0)))
    return began == "" or began != found.get("began")


def _began(pid: int) -> str:
    """When a process began, which tells it from later ones of its number; empty if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]  # a zombie has ended
    except (OSError, IndexError):
        return ""


_WHOLE = fcntl.LOCK_EX | fcntl.LOCK_NB


def lock_directory(root: Path) -> list[int]:
    """Lock a directory for this session alone, and return the descriptors to give to `unlock`."""
    taken: list[int] = []
    try:
        taken.append(os.open(root / "lock", os.O_RDWR | os.O_CREAT))
        taken.append(os.open(root, os.O_RDONLY))
    except OSError as error:
        unlock(taken)
        raise StateError(
            f"{error.filename} cannot be locked: {error.strerror or error}",
            hint="make it what it was, a file in a directory that this user may write to, or use another checkpoint",
        ) from None
    try:
        fcntl.flock(taken[0], _WHOLE)
        _lock_folder(taken[1])
    except OSError:
        unlock(taken)
        raise StateError(
            f"{root} is in use by another session", hint="stop it, or use another checkpoint"
        ) from None
    return taken


def _lock_folder(descriptor: int) -> None:
    """Lock a folder, where folders can be locked; raise `BlockingIOError` if another session has locked it."""
    try:
        fcntl.flock(descriptor, _WHOLE)
    except BlockingIOError:
        raise
    except OSError:
        return


def unlock(taken: list[int]) -> None:
    """Release what `lock_directory` took."""
    while taken:
        with contextlib.suppress(OSError):
            os.close(taken.pop())
