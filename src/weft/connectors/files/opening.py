"""How files are opened, and what is no file.

Guarantees: what is opened is a regular file: a pipe is not waited for, a directory or a device is an `OSError`. Where
files must lie ``within`` a folder (or be one file), the file that was opened does, with every symbolic link in its path
resolved, whatever is renamed or replaced meanwhile: the path is resolved first and then walked from the root without
following any link, so that a link that is put there in between is refused too.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

__all__ = ["LEADS_OUT", "is_within", "kind_of", "open_file", "why_no_file"]

LEADS_OUT = "it leads out of the folder of the stream"
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
# To pass through a folder takes no right to list it, where the system can say so.
_PASS = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | _NO_LINK
_KINDS = {
    stat.S_IFDIR: "it is a directory",
    stat.S_IFIFO: "it is a pipe",
    stat.S_IFSOCK: "it is a socket",
    stat.S_IFCHR: "it is a device",
    stat.S_IFBLK: "it is a device",
}


def open_file(path: str, within: str | None = None) -> BinaryIO:
    """A regular file, open for reading; an `OSError` that says what it is if it is none, or lies elsewhere."""
    number = os.open(path, _READ) if within is None else _open_within(path, within)
    try:
        status = os.fstat(number)
        if (kind := kind_of(status)) is not None:
            raise OSError(errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL, kind, path)
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def _open_within(path: str, within: str) -> int:
    """A file, opened by its resolved path without following links."""
    real = os.path.realpath(path)
    if not _lies_in(real, within):
        raise PermissionError(errno.EACCES, LEADS_OUT, path)
    if os.open not in os.supports_dir_fd:  # not on every system
        return os.open(real, _READ | _NO_LINK)
    *folders, name = real.strip(os.sep).split(os.sep)
    place = os.open(os.sep, _PASS)
    try:
        for folder in folders:
            inner = os.open(folder, _PASS, dir_fd=place)
            os.close(place)
            place = inner
        return os.open(name, _READ | _NO_LINK, dir_fd=place)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):  # a link was put there meanwhile
            raise PermissionError(errno.EACCES, LEADS_OUT, path) from None
        raise
    finally:
        os.close(place)


def is_within(path: str, within: str) -> bool:
    """Whether a path, with all links resolved, is in a folder, whose own path must have no links."""
    return _lies_in(os.path.realpath(path), within)


def _lies_in(real: str, within: str) -> bool:
    return real == within or real.startswith(within.rstrip(os.sep) + os.sep)


def kind_of(status: os.stat_result) -> str | None:
    """What something is that is no regular file; None if it is one."""
    return None if stat.S_ISREG(status.st_mode) else _KINDS.get(stat.S_IFMT(status.st_mode), "it is no file")


def why_no_file(path: str) -> str | None:
    """Why nothing can be read under a name that is there; None if it is a file, or just gone."""
    try:
        return kind_of(os.stat(path))
    except OSError as error:
        if not os.path.islink(path):
            return None
        if error.errno == errno.ELOOP:
            return "it is a symbolic link in a circle"
        return "it is a symbolic link to nothing" if error.errno == errno.ENOENT else None
