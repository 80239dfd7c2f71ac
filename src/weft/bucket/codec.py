"""Buckets as bytes and as files.

Guarantees: a bucket is read back without copying and without sorting: the rows (an Arrow IPC stream), the directories,
permutations and stored words are views of the bytes, which may be a mapped file. A file that is cut off, damaged or of
another format is refused with a `StateError` that says which of these it is.

    magic, version │ Arrow IPC stream │ arrays, each on 64 bytes │ JSON footer │ footer's length and CRC, magic

The footer holds a checksum of all bytes before it. With `verify=False` it is not checked: for files that this process
wrote itself, which are to stay mapped without being read.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weft.bucket.bounds import Bounds
from weft.bucket.bucket import Bucket, rows_with_key, words_of
from weft.bucket.compiled import Array, compiled, frozen
from weft.bucket.directory import HashSlots
from weft.bucket.index import Index, Order
from weft.bucket.words import Words
from weft.errors import StateError

__all__ = ["FORMAT", "EncodedBucket", "decode", "encode", "encode_in_pieces", "read", "write"]

FORMAT = 1

_MAGIC = b"WEFTBKT\0"
_HEAD = struct.Struct("<8sII")  # magic, version, padding
_TAIL = struct.Struct("<QII8s")  # the footer's length and CRC, padding, magic
_ALIGNMENT = 64
_LARGE = 1 << 12  # bytes that are worth a piece of their own
_ARRAYS = ("directory", "permutation", "tags", "words")


@dataclass(frozen=True, slots=True)
class EncodedBucket:
    """A bucket as bytes in pieces: its columns are where they were, so that writing them copies nothing first."""

    pieces: tuple[memoryview, ...]
    size: int


def encode_in_pieces(bucket: Bucket) -> EncodedBucket:
    """The bucket as bytes, to be written one piece after the other."""
    sink, lanes = _Pieces(), _first_lanes()
    sink.write(_HEAD.pack(_MAGIC, FORMAT, 0).ljust(_ALIGNMENT, b"\0"))
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), bucket.batch.schema) as stream:
        stream.write_batch(bucket.batch)
    places = [
        {name: _place(sink, array) for name, array in _arrays(index).items()} for index in bucket.indexes
    ]
    _pad(sink)
    body, first = sink.take(), 0
    for words in body:
        _absorb(frozen(words), first, lanes)
        first += words.size
    check = int(_combined(np.uint64(first), lanes))
    text = json.dumps(_footer(bucket, places, check), separators=(",", ":")).encode()
    tail = text + _TAIL.pack(len(text), zlib.crc32(text), 0, _MAGIC)
    pieces = (*(words.data.cast("B") for words in body), memoryview(tail))
    return EncodedBucket(pieces, sink.tell() + len(tail))


def encode(bucket: Bucket) -> pa.Buffer:
    """The bucket as bytes in one buffer."""
    return pa.py_buffer(b"".join(encode_in_pieces(bucket).pieces))


class _Pieces:
    """A file that keeps what is written to it, large buffers as they are, as arrays of 64-bit words.

    Arrow writes columns as buffers, each of them where a word begins; what does not fill a word, and what is small, is
    copied.
    """

    closed = False  # Arrow asks

    def __init__(self) -> None:
        self._words: list[Array] = []
        self._small = bytearray()
        self._size = 0

    def write(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        self._size += view.nbytes
        if view.nbytes >= _LARGE and not len(self._small) % 8:
            words = np.frombuffer(data, np.uint64, view.nbytes // 8)
            if words.flags.aligned:
                self._put_small()
                self._words.append(words)
                view = view[words.nbytes :]
        self._small += view

    def _put_small(self) -> None:
        if self._small:
            self._words.append(np.frombuffer(bytes(self._small), np.uint64))
            self._small.clear()

    def take(self) -> list[Array]:
        """All that was written, which must be whole words."""
        self._put_small()
        return self._words

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing: what was written is still to be taken."""


def decode(buffer: Any, *, verify: bool = True, name: str = "the bucket") -> Bucket:
    """The bucket that bytes hold; it keeps them alive, and copies them only if they are not aligned."""
    data = _aligned(pa.py_buffer(buffer))
    footer, end = _read_footer(data, name)
    if verify and checksum(np.frombuffer(data, np.uint64, end // 8)) != footer["checksum"]:
        raise StateError(
            f"{name} is damaged: its checksum is wrong", hint="restore it, or use a new checkpoint"
        )
    try:
        with pa.ipc.open_stream(data.slice(_ALIGNMENT, end - _ALIGNMENT)) as stream:
            batch = stream.read_next_batch()
        indexes = tuple(_index(data, batch, parts) for parts in footer["indexes"])
        return Bucket(batch, indexes, footer["event_time"], Bounds(**footer["bounds"]))
    except (pa.ArrowException, ValueError, KeyError, TypeError, OSError) as error:
        raise StateError(f"{name} is damaged: {error}", hint="restore it, or use a new checkpoint") from error


def write(bucket: Bucket, path: Path) -> int:
    """Write the bucket to a file and return its size in bytes; nobody may read the file before this has returned."""
    data = encode_in_pieces(bucket)
    with open(path, "wb", buffering=0) as file:
        for view in data.pieces:
            while view:
                view = view[file.write(view) :]
    return data.size


def read(path: Path, *, verify: bool = True) -> Bucket:
    """The bucket in a file, which is mapped into memory."""
    try:
        if path.stat().st_size < _HEAD.size:
            raise StateError(f"{path} is cut off", hint="restore it, or use a new checkpoint")
        with pa.memory_map(str(path)) as file:
            return decode(file.read_buffer(), verify=verify, name=str(path))
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error}") from error


def _arrays(index: Index) -> dict[str, Array]:
    words = None if index.words.view else index.words.values
    parts = zip(_ARRAYS, (index.directory, index.permutation, index.tags, words), strict=True)
    return {name: array for name, array in parts if array is not None}


def _pad(sink: Any) -> None:
    sink.write(b"\0" * (-sink.tell() % _ALIGNMENT))


def _place(sink: Any, array: Array) -> list[Any]:
    """Write an array, and return its offset, its length and its type."""
    _pad(sink)
    offset = sink.tell()
    sink.write(array)
    return [offset, array.size, array.dtype.str]


def _footer(bucket: Bucket, places: list[dict[str, list[Any]]], check: int) -> dict[str, Any]:
    indexes = [
        {
            "order": [index.order.kind, *index.order.columns],
            "exact": index.words.exact,
            "floats": index.words.floats,
            "origin": index.origin,
            "scale": index.scale,
            "slots": None if index.slots is None else [index.slots.shift, index.slots.first],
            "arrays": parts,
        }
        for index, parts in zip(bucket.indexes, places, strict=True)
    ]
    bounds = asdict(bucket.bounds)
    return {"event_time": bucket.event_time, "bounds": bounds, "indexes": indexes, "checksum": check}


def _aligned(data: pa.Buffer) -> pa.Buffer:
    if data.address % _ALIGNMENT == 0:
        return data
    copy = pa.allocate_buffer(data.size)
    np.frombuffer(copy, np.uint8)[:] = np.frombuffer(data, np.uint8)
    return copy


def _read_footer(data: pa.Buffer, name: str) -> tuple[dict[str, Any], int]:
    """The footer and where it starts."""
    remedy = "restore it, or use a new checkpoint"
    if data.size < _HEAD.size or data[: _HEAD.size].to_pybytes()[:8] != _MAGIC:
        raise StateError(f"{name} is not a bucket", hint="is this a directory of Weft's state?")
    _, version, _ = _HEAD.unpack(data[: _HEAD.size].to_pybytes())
    if version != FORMAT:
        raise StateError(
            f"{name} has format {version}, and this version of Weft reads format {FORMAT}",
            hint="use the version of Weft that wrote it, or a new checkpoint",
        )
    tail = data[max(0, data.size - _TAIL.size) :].to_pybytes()
    length, crc, _, magic = _TAIL.unpack(tail) if len(tail) == _TAIL.size else (0, 0, 0, b"")
    end = data.size - _TAIL.size - length
    if magic != _MAGIC or end < _ALIGNMENT:
        raise StateError(f"{name} is cut off", hint=remedy)
    text = data[end : data.size - _TAIL.size].to_pybytes()
    if zlib.crc32(text) != crc:
        raise StateError(f"{name} is damaged: its footer is", hint=remedy)
    return json.loads(text), end


def _index(data: pa.Buffer, batch: pa.RecordBatch, parts: dict[str, Any]) -> Index:
    kind, *columns = parts["order"]
    order = Order(kind, tuple(columns))
    arrays = {name: _view(data, *place) for name, place in parts["arrays"].items()}
    stored = arrays.pop("words", None)
    words = words_of(batch, order) if stored is None else _stored_words(batch, order, stored, parts)
    slots = _slots(parts.get("slots"), arrays["directory"].size - 1) if kind == "hash" else None
    return Index(order, words, origin=parts["origin"], scale=parts["scale"], slots=slots, **arrays)


def _slots(known: list[int] | None, count: int) -> HashSlots:
    """The slots of a directory for equality; those of early versions, which do not say it, share all hashes."""
    shift, first = known or (64 - (count.bit_length() - 1), 0)
    return HashSlots(shift, first, count)


def _stored_words(batch: pa.RecordBatch, order: Order, values: Array, parts: dict[str, Any]) -> Words:
    return Words(values, rows_with_key(batch, order), parts["exact"], False, parts["floats"])


def _view(data: pa.Buffer, offset: int, size: int, dtype: str) -> Array:
    return frozen(np.frombuffer(data, np.dtype(dtype), size, offset))


_LANES = 4
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_29 = np.uint64(29)


def _first_lanes() -> NDArray[np.uint64]:
    return np.arange(1, _LANES + 1).astype(np.uint64)


@compiled
def _absorb(words: NDArray[np.uint64], first: int, lanes: NDArray[np.uint64]) -> None:
    """Take more words into the chains of a checksum; `first` words came before them."""
    start = min(words.size, (_LANES - first) % _LANES)
    whole = words.size - (words.size - start) % _LANES
    for i in range(start):
        lane = (first + i) % _LANES
        lanes[lane] = (lanes[lane] ^ words[i]) * _FACTOR
        lanes[lane] ^= lanes[lane] >> _29
    for i in range(start, whole, _LANES):
        for lane in range(_LANES):
            lanes[lane] = (lanes[lane] ^ words[i + lane]) * _FACTOR
            lanes[lane] ^= lanes[lane] >> _29
    for i in range(whole, words.size):
        lane = (first + i) % _LANES
        lanes[lane] = (lanes[lane] ^ words[i]) * _FACTOR
        lanes[lane] ^= lanes[lane] >> _29


@compiled
def _combined(size: np.uint64, lanes: NDArray[np.uint64]) -> Any:
    """The checksum of so many words, a multiple of the lanes, by what their chains have become."""
    total = size
    for lane in range(_LANES):
        total = ((total ^ lanes[lane]) * _FACTOR) ^ (lanes[lane] >> _29)
    return total


@compiled
def checksum(words: NDArray[np.uint64]) -> Any:
    """A checksum as fast as memory is read, since it computes four independent chains of multiplications."""
    lanes = np.arange(1, _LANES + 1).astype(np.uint64)
    for i in range(0, words.size - words.size % _LANES, _LANES):
        for lane in range(_LANES):
            lanes[lane] = (lanes[lane] ^ words[i + lane]) * _FACTOR
            lanes[lane] ^= lanes[lane] >> _29
    total = np.uint64(words.size)
    for i in range(words.size - words.size % _LANES, words.size):
        total = (total ^ words[i]) * _FACTOR
    for lane in range(_LANES):
        total = ((total ^ lanes[lane]) * _FACTOR) ^ (lanes[lane] >> _29)
    return total
