"""A lock that lets one session at a time use a directory.

Guarantees: a session holds the lock until it unlocks it or its process ends, also if the lock's file is deleted
meanwhile: the directory itself is locked too, where its file system can do that.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from weft.errors import StateError

__all__ = ["lock_directory", "unlock"]

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
