"""Segments as files: what a batch adds to a partition, and the partition's manifest after it (design, D3).

Guarantees: a segment is written once, under a name that nothing else has, and never changed. Nobody reads it before a
manifest names it, so it needs neither a rename nor a lock. A file that is missing, cut off, longer than it was, or
whose manifest is damaged, is refused with a `StateError` that names it; the buckets in it carry checksums of their own.
In a storage in memory, a segment is an object. The file is:

    buckets, each on 64 bytes │ the partition's manifest, JSON │ its length and CRC, magic
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

from weft.errors import StateError
from weft.runtime.state.partition_manifest import PartitionFile, PartitionManifest
from weft.storage.storage import Memory, Storage, checkpoint_writes

__all__ = [
    "BUCKETS",
    "NEW_DIRECTORY",
    "RESTORE",
    "flush_segments",
    "padded",
    "read_manifest",
    "write_segment",
]

BUCKETS = "state/buckets"  # the folder of a log that has the files of state
NEW_DIRECTORY = "use a new checkpoint directory"
RESTORE = f"restore it from a copy, or {NEW_DIRECTORY}"  # what to do about a file that is missing or damaged

_MAGIC = b"WEFTSEG\1"
_TAIL = struct.Struct("<QII8s")  # the manifest's length and CRC, padding, magic
ALIGNMENT = 64
_FLUSHES = 16  # files that are flushed at once, which a journal of a file system does together


def write_segment(
    storage: Storage, name: str, buckets: Sequence[Any], manifest: PartitionManifest | None = None
) -> PartitionFile:
    """Write a segment; in memory, buckets are objects, else encoded or buffers; each takes `padded` bytes.

    The file may not survive the death of the machine before `flush_segments` was called.
    """
    if isinstance(storage, Memory):
        storage.objects[f"{BUCKETS}/{name}"] = tuple(buckets), manifest
        return PartitionFile(name, 0, 0)
    text = b"" if manifest is None else manifest.to_bytes()
    checksum = zlib.crc32(text)
    pieces: list[Any] = []
    for bucket in buckets:
        whole = getattr(
            bucket, "pieces", (bucket,)
        )  # of an encoded bucket; its module would load all kernels
        pieces += [*whole, bytes(padded(bucket.size) - bucket.size)]
    pieces.append(text + _TAIL.pack(len(text), checksum, 0, _MAGIC))
    path = storage.path(f"{BUCKETS}/{name}")
    if path is None:
        storage.put(f"{BUCKETS}/{name}", b"".join(bytes(memoryview(piece)) for piece in pieces), flush=False)
    else:
        _write(path, pieces)
    return PartitionFile(name, sum(memoryview(piece).nbytes for piece in pieces), checksum)


def padded(size: int) -> int:
    """How many bytes so many take in a segment, so that the next ones begin where they can be mapped."""
    return size + -size % ALIGNMENT


def _write(path: Path, pieces: Iterable[Any]) -> None:
    with checkpoint_writes(path), open(path, "xb", buffering=0) as file:
        for piece in pieces:
            view = memoryview(piece)
            while view:
                view = view[file.write(view) :]


def read_manifest(storage: Storage, file: PartitionFile) -> PartitionManifest:
    """The manifest at the end of a file that the driver's manifest names."""
    entry = f"{BUCKETS}/{file.name}"
    if isinstance(storage, Memory):
        manifest: PartitionManifest = storage.objects[entry][1]
        return manifest
    end = _end_of(storage, entry)
    if end is None:
        raise StateError(f"{storage.locate(entry)} is missing", hint=RESTORE)
    size, data = end
    tail = data[-_TAIL.size :]
    length, checksum, _, magic = _TAIL.unpack(tail) if len(tail) == _TAIL.size else (0, 0, 0, b"")
    text = data[len(data) - _TAIL.size - length : len(data) - _TAIL.size]
    if size != file.size or magic != _MAGIC:
        raise StateError(f"{storage.locate(entry)} is damaged: it was cut off or grew", hint=RESTORE)
    if not checksum == file.checksum == zlib.crc32(text):
        raise StateError(f"{storage.locate(entry)} is damaged: its manifest is", hint=RESTORE)
    return PartitionManifest.from_bytes(text)


def _end_of(storage: Storage, entry: str) -> tuple[int, bytes] | None:
    """The size of an entry, and its last bytes, among them its whole manifest; None if there is none."""
    path = storage.path(entry)
    if path is None:
        data = storage.open_local(entry)
        return None if data is None else (data.size, _last_bytes(data))
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _TAIL.size))
            tail = file.read()
            length = _TAIL.unpack(tail)[0] if len(tail) == _TAIL.size else 0
            file.seek(max(0, size - _TAIL.size - length))
            return size, file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror or error}", hint=RESTORE) from error


def _last_bytes(data: pa.Buffer) -> bytes:
    """The manifest and the tail at the end of a segment; all of it, if it is too short to have them."""
    tail = data.slice(max(0, data.size - _TAIL.size)).to_pybytes()
    length = _TAIL.unpack(tail)[0] if len(tail) == _TAIL.size else 0
    return bytes(data.slice(max(0, data.size - _TAIL.size - length)).to_pybytes())


def flush_segments(storage: Storage, names: Sequence[str]) -> None:
    """Have files that were just written survive the death of the machine, with their names."""
    paths = [path for name in names if (path := storage.path(f"{BUCKETS}/{name}")) is not None]
    if not paths:
        return
    if len(paths) == 1:
        _flush(paths[0])
    else:
        with ThreadPoolExecutor(min(_FLUSHES, len(paths)), "weft-flush") as pool:
            list(pool.map(_flush, paths))
    _flush(paths[0].parent)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        raise StateError(
            f"{path} cannot be flushed: {error.strerror or error}", hint="is its disk full?"
        ) from error
    finally:
        os.close(handle)
