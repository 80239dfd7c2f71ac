"""Which files are in a folder, asked again and again.

Guarantees: a folder is listed anew when it has changed, and at least once a minute; while it has not, a look costs one
`stat` for each folder, however many files there are. Whether a folder has changed is told by the time its entries last
changed, which users cannot set, and only after a listing that began so long after it that the clock's grain cannot hide
a change. Of files only the names are read. Names are relative to the folder, with `/` between them. Files and folders
whose names begin with `_` or `.`, and files that end in `.tmp`, `.inprogress` or `._COPYING_`, are never listed.
Pipes, devices, symbolic links to nothing or in a circle and, where files must lie ``within`` a folder, links that lead
out of it are not listed either, and `strange` says why not.
"""

from __future__ import annotations

import fnmatch
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from weft.connectors.files.checks import LEADS_OUT, is_within, why_no_file
from weft.errors import SourceError

__all__ = [
    "Listing",
    "is_passed_over",
    "name_matcher",
]

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
    pattern = re.compile("|".join(fnmatch.translate(alternative) for alternative in _alternatives(glob)))
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
    strange: dict[str, str] = field(default_factory=dict)


class Listing:
    """The names of the files in a folder, as of the last `refresh`.

    ``strange`` are the names of what cannot be read, and why. ``within`` is the folder, or the one file, in which
    files must lie when links are resolved; None: anywhere.
    """

    def __init__(
        self,
        root: str,
        matches: Callable[[str], bool],
        *,
        recursive: bool = False,
        within: str | None = None,
    ) -> None:
        self.root, self.within = root, within
        self.names: frozenset[str] = frozenset()
        self.strange: dict[str, str] = {}
        self._matches = matches
        self._recursive = recursive
        self._folders: dict[str, _Folder] = {}

    def refresh(self) -> bool:
        """Look again; True if a folder was listed anew, otherwise `names` are as before."""
        twice = dict[str, str]()
        folders = dict(self._walk(twice))
        if folders.keys() == self._folders.keys() and all(
            folders[name] is self._folders[name] for name in folders
        ):
            return False
        self._folders = folders
        inside = (within + name for within, folder in folders.items() if within for name in folder.files)
        self.names = (folders[""].files if "" in folders else frozenset()).union(inside)
        self.strange = twice | {
            within + name: why for within, folder in folders.items() for name, why in folder.strange.items()
        }
        return True

    def doubt(self, name: str) -> None:
        """Have the next `refresh` look again at what is under a name: it is no file any more."""
        folder, _, last = name.rpartition("/")
        within = f"{folder}/" if folder else ""
        if (listed := self._folders.get(within)) is not None:
            self._folders[within] = replace(listed, stamp=None, files=listed.files - {last})

    def _walk(self, twice: dict[str, str]) -> Iterator[tuple[str, _Folder]]:
        """The folders there are, each under its relative name with a slash at its end, listed where need be.

        Those that were seen under another name before (links in a circle) are noted in ``twice``.
        """
        seen: set[tuple[int, int]] = set()
        waiting = [""]
        while waiting:
            within = waiting.pop()
            folder = self._look_into(within, seen, twice)
            if folder is not None:
                yield within, folder
                waiting += [f"{within}{name}/" for name in sorted(folder.folders)]

    def _look_into(self, within: str, seen: set[tuple[int, int]], twice: dict[str, str]) -> _Folder | None:
        """A folder, listed anew if it may have changed; None if it is gone, leads out, or was seen (a circle)."""
        path, before = os.path.join(self.root, within), self._folders.get(within)
        if self.within is not None and not self._is_inside(within):
            return None
        try:
            began = time.time_ns()
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in seen:
                twice[within] = "it is a folder that is read under another name"
                return None
            seen.add((status.st_dev, status.st_ino))
            stamp = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
            if (
                before is not None
                and before.stamp == stamp
                and time.monotonic() < before.listed + _LIST_AGAIN
            ):
                return before
            return self._list(path, stamp if _is_sure(status, began) else None, before)
        except FileNotFoundError:
            return None
        except OSError as error:
            if within and isinstance(error, NotADirectoryError):  # a file has taken its place
                return None
            raise SourceError(
                f"files: folder {path} cannot be read: {error.strerror}",
                hint="give this user the right to list it, or name another folder",
            ) from None

    def _list(self, path: str, stamp: tuple[int, ...] | None, before: _Folder | None) -> _Folder:
        """What is in a folder; what was there before is not asked again whether it is a file."""
        listed = time.monotonic()
        if before is None:
            with os.scandir(path) as entries:
                return _Folder(stamp, listed, *self._sorted_out(entries))
        names = frozenset(os.listdir(path))
        new = (_Entry(path, name) for name in names - before.files)
        files, folders, strange = self._sorted_out(new)
        return _Folder(stamp, listed, files | (before.files & names), folders, strange)

    def _sorted_out(
        self, entries: Iterable[os.DirEntry[str] | _Entry]
    ) -> tuple[frozenset[str], frozenset[str], dict[str, str]]:
        """The names of the files that are the stream's, of the folders that are looked into, and of what is neither."""
        files, folders, strange = set[str](), set[str](), dict[str, str]()
        for entry in entries:
            name = entry.name
            is_file, is_folder = _kind(entry)
            if not self._is_wanted(name, is_folder):
                continue
            if self.within is not None and entry.is_symlink() and not is_within(entry.path, self.within):
                strange[name] = LEADS_OUT
            elif is_file or is_folder:
                (files if is_file else folders).add(name)
            elif (why := why_no_file(entry.path)) is not None:
                strange[name] = why
        return frozenset(files), frozenset(folders), strange

    def _is_wanted(self, name: str, is_folder: bool) -> bool:
        """Whether what is under a name would be the stream's, or is a folder that is looked into."""
        if is_folder:
            return self._recursive and _is_entered(name)
        return not is_passed_over(name) and self._matches(name)

    def _is_inside(self, name: str) -> bool:
        """Whether a folder or a file is where files must lie; the root must not have become a link."""
        if not name:
            return os.path.realpath(self.root) == self.root
        return self.within is None or is_within(os.path.join(self.root, name), self.within)


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of a folder of which only the name is known; it answers what is asked of an `os.DirEntry`."""

    folder: str
    name: str

    @property
    def path(self) -> str:
        return os.path.join(self.folder, self.name)

    def is_file(self) -> bool:
        return os.path.isfile(self.path)

    def is_dir(self) -> bool:
        return os.path.isdir(self.path)

    def is_symlink(self) -> bool:
        return os.path.islink(self.path)


def _kind(entry: os.DirEntry[str] | _Entry) -> tuple[bool, bool]:
    """Whether an entry is a file, and whether it is a folder; a link in a circle is neither."""
    try:
        is_file = entry.is_file()
        return is_file, not is_file and entry.is_dir()
    except OSError:
        return False, False


def _is_entered(folder: str) -> bool:
    """Whether files in a folder of that name are read: not if it is hidden, but `_key=1` is a partition."""
    return not folder.startswith(".") and (not folder.startswith("_") or "=" in folder)


def _is_sure(status: os.stat_result, began: int) -> bool:
    """Whether every change after a listing that began then must show in the folder's times."""
    last = max(status.st_mtime_ns, status.st_ctime_ns)
    counts_seconds = status.st_mtime_ns % 1_000_000_000 == 0 and status.st_ctime_ns % 1_000_000_000 == 0
    return began - status.st_ctime_ns > (_COARSE if counts_seconds else _GRAIN) and last <= began
