"""What was fetched from an object store, kept on the disk of this machine.

Guarantees: all processes of a host and user share a folder; none waits for another. It holds at most so many bytes,
and a little more while several write; what was used longest ago goes first. What was mapped stays readable when its
file goes. A file that was damaged is noticed by its checksum, and fetched again. Only entries that never change are
kept, so none can be out of date.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import tempfile
import threading
import uuid
import zlib
from dataclasses import astuple, dataclass, field
from pathlib import Path

import pyarrow as pa

from weft.errors import ConfigError

__all__ = ["CacheCounter", "CacheCounts", "DiskCache", "default_cache"]

_TAIL = struct.Struct("<QI")  # size and CRC of the content, at the end of its file
_ROOM = 4 << 30  # bytes, unless WEFT_CACHE_BYTES says otherwise
_LEFT = 0.8  # so much of the limit is left after files were deleted


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """How often entries were found in the cache, and how often not.

    ``fetched`` are the bytes that a store was asked for instead, and ``kept`` those of them that went into the cache.
    """

    hits: int = 0
    misses: int = 0
    fetched: int = 0
    kept: int = 0

    def __add__(self, other: CacheCounts) -> CacheCounts:
        return CacheCounts(*(count + more for count, more in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: CacheCounts) -> CacheCounts:
        return CacheCounts(*(count - less for count, less in zip(astuple(self), astuple(other), strict=True)))

    def __bool__(self) -> bool:
        """Whether anything was looked for."""
        return bool(self.hits or self.misses)

    @property
    def hit_rate(self) -> float:
        """The part of all looks that found what they looked for; 1 if there was none."""
        return self.hits / (self.hits + self.misses) if self else 1.0


class CacheCounter:
    """What a process counts of its cache; threads may count at once, and what one takes no other does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts, self._taken = CacheCounts(), CacheCounts()

    @property
    def counts(self) -> CacheCounts:
        """All that was counted."""
        return self._counts

    def add(self, more: CacheCounts) -> None:
        """Count more."""
        with self._lock:
            self._counts += more

    def take(self) -> CacheCounts:
        """What was counted since the last time."""
        with self._lock:
            counts, self._taken = self._counts - self._taken, self._counts
        return counts


@dataclass(frozen=True, slots=True)
class DiskCache:
    """A folder of fetched entries, of at most ``limit`` bytes; with a limit of 0 nothing is kept."""

    folder: Path
    limit: int = _ROOM
    counter: CacheCounter = field(default_factory=CacheCounter, compare=False)

    @property
    def counts(self) -> CacheCounts:
        """What this process has counted."""
        return self.counter.counts

    def find(self, entry: str) -> pa.Buffer | None:
        """An entry that was kept, mapped; None if it is not there, or damaged."""
        path = self._file(entry)
        content = None
        with contextlib.suppress(OSError):
            content = _verified(path)
            os.utime(path)
        self.counter.add(CacheCounts(misses=1) if content is None else CacheCounts(hits=1))
        return content

    def keep(self, entry: str, data: pa.Buffer) -> None:
        """Keep an entry that was fetched if there is room; a disk that is full is no error."""
        self.counter.add(CacheCounts(fetched=data.size))
        if data.size > self.limit * _LEFT:
            return
        path = self._file(entry)
        partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with partial.open("wb") as out:
                out.write(data)
                out.write(_TAIL.pack(data.size, zlib.crc32(data)))
            partial.replace(path)
            self.counter.add(CacheCounts(kept=data.size))
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink()
        self._make_room()

    def _file(self, entry: str) -> Path:
        return self.folder / hashlib.blake2b(entry.encode(), digest_size=20).hexdigest()

    def _make_room(self) -> None:
        """Delete what was used longest ago, if there is too much."""
        files = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # another process has deleted it
                    status = entry.stat()
                    files.append((status.st_mtime_ns, status.st_size, entry.path))
        total = sum(size for _, size, _ in files)
        if total <= self.limit:
            return
        for _, size, path in sorted(files):
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= size
            if total <= self.limit * _LEFT:
                return


def _verified(path: Path) -> pa.Buffer | None:
    """The content of a file of the cache; None if it is not what was written."""
    if path.stat().st_size < _TAIL.size:
        return None
    with pa.memory_map(str(path)) as file:
        data = file.read_buffer()
    size, checksum = _TAIL.unpack(data.slice(data.size - _TAIL.size).to_pybytes())
    content = data.slice(0, data.size - _TAIL.size)
    return content if content.size == size and zlib.crc32(content) == checksum else None


def default_cache() -> DiskCache:
    """The cache of this host and user: WEFT_CACHE is its folder, WEFT_CACHE_BYTES how much it may hold."""
    wanted, limit = os.environ.get("WEFT_CACHE"), os.environ.get("WEFT_CACHE_BYTES", str(_ROOM))
    folder = Path(wanted) if wanted else Path(tempfile.gettempdir()) / f"weft-cache-{os.getuid()}"
    if not limit.isdigit():
        raise ConfigError(
            f"WEFT_CACHE_BYTES is {limit!r}", hint="set it to a number of bytes, 0 for no cache"
        )
    if folder.exists() and folder.stat().st_uid != os.getuid():
        raise ConfigError(
            f"the cache {folder} belongs to another user", hint="set WEFT_CACHE to a folder of yours"
        )
    return DiskCache(folder, int(limit))
