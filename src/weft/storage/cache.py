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
import uuid
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from weft.errors import ConfigError

__all__ = ["CacheCounts", "DiskCache", "default_cache"]

_TAIL = struct.Struct("<QI")  # size and CRC of the content, at the end of its file
_ROOM = 4 << 30  # bytes, unless WEFT_CACHE_BYTES says otherwise
_LEFT = 0.8  # so much of the limit is left after files were deleted


@dataclass(slots=True)
class CacheCounts:
    """How often this process found what it looked for."""

    hits: int = 0
    misses: int = 0


@dataclass(frozen=True, slots=True)
class DiskCache:
    """A folder of fetched entries, of at most ``limit`` bytes; with a limit of 0 nothing is kept."""

    folder: Path
    limit: int = _ROOM
    counts: CacheCounts = field(default_factory=CacheCounts, compare=False)

    def find(self, entry: str) -> pa.Buffer | None:
        """An entry that was kept, mapped; None if it is not there, or damaged."""
        path = self._file(entry)
        found = None
        with contextlib.suppress(OSError):
            found = _verified(path)
            os.utime(path)
        if found is None:
            self.counts.misses += 1
        else:
            self.counts.hits += 1
        return found

    def keep(self, entry: str, data: pa.Buffer) -> None:
        """Keep an entry if there is room; a disk that is full is no error."""
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
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink()
        self._make_room()

    def _file(self, entry: str) -> Path:
        return self.folder / hashlib.blake2b(entry.encode(), digest_size=20).hexdigest()

    def _make_room(self) -> None:
        """Delete what was used longest ago, if there is too much."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            for one in entries:
                with contextlib.suppress(OSError):  # another process has deleted it
                    status = one.stat()
                    found.append((status.st_mtime_ns, status.st_size, one.path))
        total = sum(size for _, size, _ in found)
        if total <= self.limit:
            return
        for _, size, path in sorted(found):
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
    given, limit = os.environ.get("WEFT_CACHE"), os.environ.get("WEFT_CACHE_BYTES", str(_ROOM))
    folder = Path(given) if given else Path(tempfile.gettempdir()) / f"weft-cache-{os.getuid()}"
    if not limit.isdigit():
        raise ConfigError(
            f"WEFT_CACHE_BYTES is {limit!r}", hint="set it to a number of bytes, 0 for no cache"
        )
    if folder.exists() and folder.stat().st_uid != os.getuid():
        raise ConfigError(
            f"the cache {folder} belongs to another user", hint="set WEFT_CACHE to a folder of yours"
        )
    return DiskCache(folder, int(limit))
