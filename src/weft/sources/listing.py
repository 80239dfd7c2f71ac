"""Which files are in a folder, asked again and again.

Guarantees: a folder is listed anew when it has changed, and at least once a minute; while it has not, a look costs one
`stat` for each folder, however many files there are. Whether a folder has changed is told by the time its entries last
changed, which users cannot set, and only after a listing that began so long after it that the clock's grain cannot hide
a change. Of files only the names are read. Names are relative to the folder, with `/` between them. Files and folders
whose names begin with `_` or `.`, and files that end in `.tmp`, `.inprogress` or `._COPYING_`, are never listed.
"""

from __future__ import annotations

import fnmatch
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from weft.errors import SourceError

__all__ = ["Listing", "is_passed_over", "name_matcher"]

_BEING_WRITTEN = (".tmp", ".inprogress", "._copying_")
_LIST_AGAIN = 60.0  # seconds after which a folder is listed even though it seems not to have changed
_GRAIN = 50_000_000  # nanoseconds within which two changes of a folder may show the same time
_COARSE = 2_500_000_000  # the same on file systems that count seconds


def is_passed_over(name: str) -> bool:
    """Whether a file is not read, as its name (without folders) says that it is hidden or being written.

    >>> is_passed_over("part-1.parquet.inprogress"), is_passed_over("part-1.parquet")
    (True, False)
    """
    return name.startswith(("_", ".")) or name.lower().endswith(_BEING_WRITTEN)


def name_matcher(glob: str | None) -> Callable[[str], bool]:
    """Whether the name of a file (without folders) matches a pattern such as ``*.{csv,json}``; None: any does.

    >>> matches = name_matcher("*.{csv,json}")
    >>> matches("a.csv"), matches("a.txt")
    (True, False)
    """
    if glob is None:
        return lambda name: True  # noqa: ARG005
    pattern = re.compile("|".join(fnmatch.translate(one) for one in _alternatives(glob)))
    return lambda name: pattern.match(name) is not None


def _alternatives(glob: str) -> Iterator[str]:
    """The patterns that one with alternatives in braces stands for."""
    braces = re.search(r"\{([^{}]*)\}", glob)
    if braces is None:
        yield glob
        return
    for choice in braces[1].split(","):
        yield from _alternatives(glob[: braces.start()] + choice + glob[braces.end() :])


@dataclass(frozen=True, slots=True)
class _Folder:
    """What a folder held when it was listed; `stamp` is None where a change since could have gone unseen."""

    stamp: tuple[int, ...] | None
    listed: float
    files: frozenset[str]
    folders: frozenset[str]


class Listing:
    """The names of the files in a folder, as of the last `refresh`."""

    def __init__(self, root: str, matches: Callable[[str], bool], *, recursive: bool = False) -> None:
        self.root = root
        self.names: frozenset[str] = frozenset()
        self._matches = matches
        self._recursive = recursive
        self._folders: dict[str, _Folder] = {}

    def refresh(self) -> bool:
        """Look again; True if a folder was listed anew, otherwise `names` are as before."""
        folders = dict(self._walk())
        if folders.keys() == self._folders.keys() and all(
            folders[name] is self._folders[name] for name in folders
        ):
            return False
        self._folders = folders
        inside = (within + name for within, folder in folders.items() if within for name in folder.files)
        self.names = (folders[""].files if "" in folders else frozenset()).union(inside)
        return True

    def _walk(self) -> Iterator[tuple[str, _Folder]]:
        """The folders there are, each under its relative name with a slash at its end, listed where need be."""
        seen: set[tuple[int, int]] = set()
        waiting = [""]
        while waiting:
            within = waiting.pop()
            folder = self._look_into(within, seen)
            if folder is not None:
                yield within, folder
                waiting += [f"{within}{name}/" for name in sorted(folder.folders)]

    def _look_into(self, within: str, seen: set[tuple[int, int]]) -> _Folder | None:
        """A folder, listed anew if it may have changed; None if it is gone, or was seen (links in a circle)."""
        path, known = os.path.join(self.root, within), self._folders.get(within)
        try:
            began = time.time_ns()
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in seen:
                return None
            seen.add((status.st_dev, status.st_ino))
            stamp = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
            if known is not None and known.stamp == stamp and time.monotonic() < known.listed + _LIST_AGAIN:
                return known
            return self._list(path, stamp if _is_sure(status, began) else None, known)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SourceError(
                f"files: folder {path} cannot be read: {error.strerror}",
                hint="give this user the right to list it, or name another folder",
            ) from None

    def _list(self, path: str, stamp: tuple[int, ...] | None, known: _Folder | None) -> _Folder:
        """What is in a folder; what was there before is not asked again whether it is a file."""
        listed = time.monotonic()
        if known is None:
            with os.scandir(path) as entries:
                return _Folder(stamp, listed, *self._sorted_out(entries))
        names = frozenset(os.listdir(path))
        new = (_Entry(path, name) for name in names - known.files - known.folders)
        files, folders = self._sorted_out(new)
        return _Folder(stamp, listed, files | (known.files & names), folders | (known.folders & names))

    def _sorted_out(
        self, entries: Iterable[os.DirEntry[str] | _Entry]
    ) -> tuple[frozenset[str], frozenset[str]]:
        """The names of the files that are the stream's, and of the folders that are looked into."""
        files, folders = set[str](), set[str]()
        for entry in entries:
            name = entry.name
            if entry.is_file():
                if not is_passed_over(name) and self._matches(name):
                    files.add(name)
            elif self._recursive and entry.is_dir() and _is_entered(name):
                folders.add(name)
        return frozenset(files), frozenset(folders)


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of a folder of which only the name is known; it answers what is asked of an `os.DirEntry`."""

    folder: str
    name: str

    def is_file(self) -> bool:
        return os.path.isfile(os.path.join(self.folder, self.name))

    def is_dir(self) -> bool:
        return os.path.isdir(os.path.join(self.folder, self.name))


def _is_entered(folder: str) -> bool:
    """Whether files in a folder of that name are read: not if it is hidden, but `_key=1` is a partition."""
    return not folder.startswith(".") and (not folder.startswith("_") or "=" in folder)


def _is_sure(status: os.stat_result, began: int) -> bool:
    """Whether every change after a listing that began then must show in the folder's times."""
    last = max(status.st_mtime_ns, status.st_ctime_ns)
    counts_seconds = status.st_mtime_ns % 1_000_000_000 == 0 and status.st_ctime_ns % 1_000_000_000 == 0
    return began - status.st_ctime_ns > (_COARSE if counts_seconds else _GRAIN) and last <= began
