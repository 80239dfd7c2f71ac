"""What is checked of a file before its rows are read: that it is a file, lies within its folder, and is complete.

Guarantees: nothing is written. What is opened is a regular file: a pipe is not waited for, a directory or a device is
an `OSError`. Where files must lie ``within`` a folder (or be one file), the file that was opened does, with every
symbolic link in its path resolved, whatever is renamed or replaced meanwhile: the path is resolved first and then
walked from the root without following any link, so that a link that is put there in between is refused too.

Whether a file is complete is told by its own bytes, of which little is read: the first and last bytes; of Arrow streams
and of Zstandard files the lengths that lead from piece to piece; gzip and bzip2, which have no such lengths, are
decompressed up to a size, and nothing of what comes out is kept. A Parquet file is complete with its footer, an Arrow
file with its closing magic, an Arrow stream with its end marker, a compressed text with the end of its compressed data,
any other text with the end of its last line.
"""

from __future__ import annotations

import bz2
import errno
import os
import stat
import struct
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

__all__ = [
    "LEADS_OUT",
    "SETTLED",
    "compression_of",
    "is_within",
    "kind_of",
    "open_file",
    "settling_time",
    "why_incomplete",
    "why_no_file",
]


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


SETTLED = 0.25  # seconds for which a text must not have changed: one that seems complete may still grow
_SETTLED_UNSEEN = 10.0  # the same for texts that are too large to check whether they are complete
_TEXTS = ("json", "csv")
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_VERIFIED = 32 << 20  # bytes of gzip up to which a file is decompressed to see whether it is complete
_PIECE = 1 << 20


def compression_of(path: str, format_: str) -> str | None:
    """How a file of texts is compressed, as the end of its name says; None: it is not.

    >>> compression_of("in/a.csv.gz", "csv"), compression_of("in/a.gz.parquet", "parquet")
    ('gzip', None)
    """
    if format_ not in _TEXTS:
        return None
    return COMPRESSIONS.get(os.path.splitext(path)[1].lower())


def settling_time(path: str, format_: str, size: int) -> float:
    """For how many seconds a file that seems complete must not have changed between two looks."""
    if format_ not in _TEXTS:
        return 0.0
    unseen = size > _VERIFIED and compression_of(path, format_) in ("gzip", "bz2")
    return _SETTLED_UNSEEN if unseen else SETTLED


def why_incomplete(path: str, format_: str, size: int, within: str | None = None) -> str | None:
    """Why a file of so many bytes is not complete; None if it is. Raises OSError if it cannot be read."""
    if size == 0:
        return "it is empty"
    with open_file(path, within) as file:
        if format_ == "parquet":
            return _parquet(file, size)
        if format_ == "arrow":
            return _arrow(file, size)
        compression = compression_of(path, format_)
        return _text(file, size) if compression is None else _COMPRESSED[compression](file, size)


def _at(file: BinaryIO, offset: int, length: int) -> bytes:
    file.seek(max(0, offset))
    return file.read(length)


def _parquet(file: BinaryIO, size: int) -> str | None:
    head, tail = _at(file, 0, 4), _at(file, size - 8, 8)
    if size < 12 or head not in (b"PAR1", b"PARE") or tail[4:] != head:
        return "its footer is missing"
    (length,) = struct.unpack("<I", tail[:4])
    return None if length <= size - 12 else "its footer is cut off"


def _arrow(file: BinaryIO, size: int) -> str | None:
    if _at(file, 0, 6) != b"ARROW1":
        return _arrow_stream(file, size)
    tail = _at(file, size - 10, 10)
    if size < 18 or tail[4:] != b"ARROW1":
        return "its footer is missing"
    (length,) = struct.unpack("<i", tail[:4])
    return None if 0 <= length <= size - 18 else "its footer is cut off"


def _arrow_stream(file: BinaryIO, size: int) -> str | None:
    """Why an Arrow stream is not complete: following the lengths of its messages does not lead to its end marker."""
    at = 0
    while at < size:
        head = _at(file, at, 8)
        skip = 8 if head[:4] == b"\xff\xff\xff\xff" else 4  # old streams begin with the length
        if len(head) < skip:
            break
        (length,) = struct.unpack("<i", head[skip - 4 : skip])
        if length == 0:
            return None
        body = _body_length(_at(file, at + skip, length)) if 0 < length <= size else None
        if body is None:
            return "its last message is cut off"
        at += skip + length + body
    return "its end marker is missing"


def _body_length(message: bytes) -> int | None:
    """The fourth field of a message, which is a FlatBuffer: how long the data is that follows it."""
    try:
        (table,) = struct.unpack_from("<I", message)
        fields = table - struct.unpack_from("<i", message, table)[0]
        known = struct.unpack_from("<H", message, fields)[0] > 10
        place = struct.unpack_from("<H", message, fields + 10)[0] if known else 0
        length = int(struct.unpack_from("<q", message, table + place)[0]) if place else 0
    except struct.error:
        return None
    return length if length >= 0 else None


def _text(file: BinaryIO, size: int) -> str | None:
    """Why a text is not complete: its last line has no end. In UTF-16 and UTF-32 a line's end has zeros around it."""
    return (
        None if _at(file, size - 4, 4).rstrip(b"\0").endswith((b"\n", b"\r")) else "its last line has no end"
    )


def _zstd(file: BinaryIO, size: int) -> str | None:
    """Why a Zstandard file is not complete: following the lengths of its frames and blocks does not lead to its end."""
    at = 0
    while at < size:
        end = _zstd_frame(file, at)
        if end is None or end > size:
            return "its last Zstandard frame is cut off"
        at = end
    return None


def _zstd_frame(file: BinaryIO, at: int) -> int | None:
    """Where a frame that begins at a place ends; None if it is cut off, or if there is no frame."""
    head = _at(file, at, 8)
    if len(head) < 5:
        return None
    (magic,) = struct.unpack("<I", head[:4])
    if magic & 0xFFFFFFF0 == 0x184D2A50:  # a frame to be skipped
        return at + 8 + struct.unpack("<I", head[4:])[0] if len(head) == 8 else None
    if magic != 0xFD2FB528:
        return None
    flags = head[4]
    single = flags >> 5 & 1
    content = (single, 2, 4, 8)[flags >> 6]
    at += 5 + (1 - single) + (0, 1, 2, 4)[flags & 3] + content
    last = 0
    while not last:
        block = _at(file, at, 3)
        if len(block) < 3:
            return None
        word = int.from_bytes(block, "little")
        last, kind, length = word & 1, word >> 1 & 3, word >> 3
        at += 3 + (1 if kind == 1 else length)
    return at + (4 if flags >> 2 & 1 else 0)


def _decompressed(make: Callable[[], Any], name: str) -> Callable[[BinaryIO, int], str | None]:
    """A check that decompresses, for formats that do not tell lengths; large files count as complete."""

    def check(file: BinaryIO, size: int) -> str | None:
        if size > _VERIFIED:
            return None
        state, rest, read = make(), b"", 0
        try:
            while read < size or rest:
                if state.eof:
                    state = make()
                piece = rest or file.read(min(_PIECE, size - read))
                read += 0 if rest else len(piece)
                if not piece:
                    break
                _run(state, piece)
                rest = state.unused_data
        except (zlib.error, OSError, EOFError):
            return f"it is not a readable {name} file"
        return None if state.eof else f"its {name} data is cut off"

    return check


def _run(state: Any, piece: bytes) -> None:
    """Decompress a piece, a bounded amount at a time."""
    if hasattr(state, "unconsumed_tail"):
        state.decompress(piece, _PIECE)
        while state.unconsumed_tail:
            state.decompress(state.unconsumed_tail, _PIECE)
        return
    state.decompress(piece, _PIECE)
    while not state.eof and not state.needs_input:
        state.decompress(b"", _PIECE)


_COMPRESSED: dict[str, Callable[[BinaryIO, int], str | None]] = {
    "gzip": _decompressed(lambda: zlib.decompressobj(31), "gzip"),
    "bz2": _decompressed(bz2.BZ2Decompressor, "bzip2"),
    "zstd": _zstd,
}
