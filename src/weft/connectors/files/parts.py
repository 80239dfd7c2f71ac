"""From a file to the parts that tasks read, and from a part back to the rows of its file.

Guarantees: a part says which file it means by its path, its size and a checksum of its last bytes, so a file that was
deleted, replaced or changed since is noticed when the part is read, and nothing of it is used; the time of its last
change is noted but does not matter. It arrived when it was last written to, renamed or linked. A Parquet file whose
rows take more memory than is wanted is cut into parts of some row groups each. A file that cannot be decompressed, and
one that is empty, is set aside as a whole.

Parts of Parquet and Arrow files know how many rows they have, and the oldest time among them: of a Parquet file the
footer alone is read for that, of an Arrow file or stream the few hundred bytes in front of each of its record batches,
never a column. Texts do not tell. A file that makes no sense is no error before a task reads it, which says what is
wrong with it.

Decoding is pure, and without Spark: the same bytes give the same rows and the same bad records, wherever they are
decoded. A record that is malformed is set aside and the rest goes on; a file whose columns or types are not the
declared ones is a `SourceError` and gives nothing at all.
"""

from __future__ import annotations

import errno
import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from weft.connectors.files.checks import compression_of, kind_of, open_file
from weft.connectors.formats.columns import whole_file
from weft.connectors.formats.csv import CsvOptions, decode_csv
from weft.connectors.formats.json_lines import decode_json
from weft.connectors.formats.parquet import DAMAGE, decode_arrow, decode_parquet, decode_parquet_file
from weft.connectors.formats.records import Decoded, SourceFile, Target
from weft.errors import SourceError, nearest
from weft.ports.source import Part

__all__ = [
    "FORMATS",
    "FileStatus",
    "RowFacts",
    "arrow_facts",
    "decode",
    "estimate_bytes",
    "parquet_facts",
    "parquet_footer",
    "parts_of",
    "read_part",
    "remaining_parts",
    "rows_of",
]


_MOST_MESSAGES = 1024  # of an Arrow file that are followed; with more, its rows are not known
_RECORD_BATCH = 3  # the kind of a message, by the format
_PER_MICROSECOND = {"milliseconds": (1000, 1), "microseconds": (1, 1), "nanoseconds": (1, 1000)}


@dataclass(frozen=True, slots=True)
class RowFacts:
    """How many rows there are, and times in microseconds that none is older or newer than; None: that is not known."""

    rows: int | None = None
    oldest: int | None = None
    newest: int | None = None

    def part(self, what: Mapping[str, Any], size: int, arrived: tuple[int, int]) -> Part:
        """The part with these rows, which take so many bytes."""
        return Part(what, size, self.rows, self.oldest, arrived, newest=self.newest)


def parquet_footer(file: BinaryIO, size: int, tail: bytes) -> Any:
    """The metadata of a Parquet file, whose last bytes have been read already; None if there are none to be read."""
    try:
        (length,) = struct.unpack("<I", tail[-8:-4])
        if length + 8 > len(tail):
            file.seek(max(0, size - length - 8))
            tail = file.read(length + 8)
        return pq.read_metadata(pa.BufferReader(b"PAR1" + tail[-length - 8 :]))
    except (*DAMAGE, struct.error):
        return None


def parquet_facts(metadata: Any, groups: Iterable[int], event_time: str | None) -> RowFacts:
    """What the metadata of a Parquet file say of some of its row groups."""
    chosen = [metadata.row_group(group) for group in groups]
    rows = sum(group.num_rows for group in chosen)
    names = [metadata.schema.column(place).path for place in range(metadata.num_columns)]
    if event_time not in names:
        return RowFacts(rows)
    place = names.index(event_time)
    factors = _factors(metadata.schema.column(place))
    if factors is None:
        return RowFacts(rows)
    statistics = [group.column(place).statistics for group in chosen if group.num_rows]
    if not statistics or not all(column is not None and column.has_min_max for column in statistics):
        return RowFacts(rows)
    times = min(column.min_raw for column in statistics), max(column.max_raw for column in statistics)
    return RowFacts(rows, *(time * factors[0] // factors[1] for time in times))


def _factors(column: Any) -> tuple[int, int] | None:
    """By what the numbers in a column are multiplied and divided to be microseconds; None if they are no times."""
    kind = json.loads(column.logical_type.to_json())
    is_time = kind.get("Type") == "Timestamp" and column.physical_type == "INT64"
    return _PER_MICROSECOND.get(kind["timeUnit"]) if is_time else None


def arrow_facts(file: BinaryIO, size: int) -> RowFacts:
    """What an Arrow file or stream says: the lengths of its record batches, one after the other."""
    file.seek(0)
    at, rows = (8 if file.read(6) == b"ARROW1" else 0), 0
    for _ in range(_MOST_MESSAGES):
        file.seek(at)
        head = file.read(8)
        skip = 8 if head[:4] == b"\xff\xff\xff\xff" else 4  # old streams begin with the length
        if len(head) < skip:
            return RowFacts(rows) if at == size and not head else RowFacts()
        (length,) = struct.unpack("<i", head[skip - 4 : skip])
        if length == 0:
            return RowFacts(rows)
        file.seek(at + skip)
        message = _message(file.read(length)) if 0 < length <= size else None
        if message is None:
            return RowFacts()
        rows += message[0]
        at += skip + length + message[1]
    return RowFacts()


def _message(message: bytes) -> tuple[int, int] | None:
    """The rows of a message, which is a FlatBuffer, and the length of its body; None if it is none."""
    try:
        (root,) = struct.unpack_from("<I", message)
        body = _field(message, root, 3, "<q") or 0
        if _field(message, root, 1, "<B") != _RECORD_BATCH:
            return (0, body) if body >= 0 else None
        place = _place(message, root, 2)
        header = place + struct.unpack_from("<I", message, place)[0]
        rows = _field(message, header, 0, "<q") or 0
    except struct.error:
        return None
    return (rows, body) if rows >= 0 and body >= 0 else None


def _place(message: bytes, table: int, number: int) -> int:
    """Where a field of a table is in a FlatBuffer; 0 if it has its default."""
    fields = table - struct.unpack_from("<i", message, table)[0]
    (known,) = struct.unpack_from("<H", message, fields)
    offset = struct.unpack_from("<H", message, fields + 4 + 2 * number)[0] if known > 4 + 2 * number else 0
    return table + int(offset) if offset else 0


def _field(message: bytes, table: int, number: int, kind: str) -> int | None:
    place = _place(message, table, number)
    return int(struct.unpack_from(kind, message, place)[0]) if place else None


_TAIL = 1024
_FOOTER = 8192  # bytes at the end of a Parquet file that mostly hold its metadata
_IN_MEMORY = {"parquet": 5, "arrow": 2, "json": 2, "csv": 2}  # bytes of rows for a byte of file, about
_COMPRESSED_TEXT = 6
_SMALL = 1 << 16  # bytes of a Parquet file that is not worth cutting
_BY_PIECES = 32 << 20  # bytes from which on a Parquet file is not read as a whole
_MOST_INFLATED = 1032  # the largest factor by which deflate can make data smaller


@dataclass(frozen=True, slots=True)
class FileStatus:
    """What the file system says of a file; as long as it stays equal, the file is the same and unchanged."""

    size: int
    modified: int
    inode: int
    changed: int  # when the file was last written to or renamed, whatever time it was given

    @classmethod
    def read(cls, path: str) -> FileStatus:
        """The status of a file now; an OSError if the file system does not tell, or if it is no file."""
        status = os.stat(path)
        if (kind := kind_of(status)) is not None:
            raise IsADirectoryError(errno.EISDIR, kind, path)
        return cls(
            status.st_size, status.st_mtime_ns, status.st_ino, max(status.st_ctime_ns, status.st_mtime_ns)
        )


def estimate_bytes(path: str, format_: str, size: int) -> int:
    """About how much memory the rows of a file take, as its size tells."""
    compressed = compression_of(path, format_) is not None
    return size * (_COMPRESSED_TEXT if compressed else _IN_MEMORY[format_])


def parts_of(
    path: str,
    format_: str,
    status: FileStatus,
    most: int,
    event_time: str | None = None,
    within: str | None = None,
) -> list[Part] | None:
    """The parts of a file, each of at most so many bytes in memory if that can be; None if it is just changing."""
    size = status.size
    with open_file(path, within) as file:
        file.seek(max(0, size - _FOOTER))
        end = file.read(_FOOTER)
        footer = parquet_footer(file, size, end) if format_ == "parquet" else None
        facts = arrow_facts(file, size) if format_ == "arrow" else RowFacts()
        if os.fstat(file.fileno()).st_size != size:
            return None
    what = {"file": path, "size": size, "modified": status.modified, "tail": zlib.crc32(end[-_TAIL:])}
    estimate, arrived = _refined(path, format_, size, end), _arrived(status.changed)
    if footer is None:
        return [facts.part(what, estimate, arrived)]
    if size > _SMALL and footer.num_row_groups:
        return list(_by_row_groups(what, footer, most, event_time, arrived))
    facts = parquet_facts(footer, range(footer.num_row_groups), event_time)
    return [facts.part(what, estimate, arrived)]


def _arrived(nanoseconds: int) -> tuple[int, int]:
    return nanoseconds // 1000, nanoseconds // 1000


def _refined(path: str, format_: str, size: int, tail: bytes) -> int:
    """About how much memory the rows take; a gzip file says at its end how long its last member is."""
    estimate = estimate_bytes(path, format_, size)
    if compression_of(path, format_) == "gzip" and len(tail) > 4:
        inflated = int(struct.unpack("<I", tail[-4:])[0])
        return max(estimate, 2 * inflated) if inflated <= _MOST_INFLATED * size else estimate
    return estimate


def _by_row_groups(
    what: Mapping[str, Any], footer: Any, most: int, event_time: str | None, arrived: tuple[int, int]
) -> Iterator[Part]:
    """The parts of a Parquet file with row groups."""
    total = footer.num_row_groups
    groups = [footer.row_group(group) for group in range(total)]
    sizes = [max(2 * group.total_byte_size, 12 * group.num_rows * group.num_columns) for group in groups]
    if sum(sizes) <= most or total == 1:
        facts = parquet_facts(footer, range(total), event_time)
        yield facts.part(what, sum(sizes), arrived)
        return
    for first, count in _runs(sizes, most):
        named = {**what, "row_groups": [first, count], "of": total}
        facts = parquet_facts(footer, range(first, first + count), event_time)
        yield facts.part(named, sum(sizes[first : first + count]), arrived)


def _runs(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Runs of neighbours that are together no larger than ``most``: the first of each run, and how many."""
    first, total = 0, 0
    for place, size in enumerate(sizes):
        if place > first and total + size > most:
            yield first, place - first
            first, total = place, 0
        total += size
    yield first, len(sizes) - first


def remaining_parts(
    what: Mapping[str, Any],
    taken: Sequence[Sequence[int]],
    event_time: str | None = None,
    within: str | None = None,
) -> list[Part]:
    """What is left of a file of which some row groups were taken, one part for each row group.

    The parts are the same whether the file is still there or not, but for what is known of their rows.
    """
    done = {group for first, count in taken for group in range(first, first + count)}
    each = _IN_MEMORY["parquet"] * what["size"] // max(1, what["of"])
    left = [group for group in range(what["of"]) if group not in done]
    footer = _footer_of(what, within)
    facts = [RowFacts() if footer is None else parquet_facts(footer, [group], event_time) for group in left]
    return [
        fact.part({**what, "row_groups": [group, 1]}, each, _arrived(what["modified"]))
        for group, fact in zip(left, facts, strict=True)
    ]


def _footer_of(what: Mapping[str, Any], within: str | None) -> Any:
    """The metadata of a Parquet file; None if it is not there any more as it was."""
    try:
        with open_file(what["file"], within) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _FOOTER))
            footer = parquet_footer(file, size, file.read(_FOOTER)) if size == what["size"] else None
    except OSError:
        return None
    return footer if footer is not None and footer.num_row_groups == what["of"] else None


def read_part(
    stream: str,
    part: Part,
    format_: str,
    target: Target,
    csv: CsvOptions | None,
    missing: str,
    within: str | None = None,
) -> Decoded:
    """The rows of a part; a `SourceError` if its file is no longer what it was, or not ``within`` its folder."""
    path, size = part.what["file"], part.what["size"]
    if not size:  # filled meanwhile, it is taken once more
        return _nothing(SourceFile(stream, path, b""), format_, target, "empty file")
    try:
        if format_ == "parquet" and ("row_groups" in part.what or size > _BY_PIECES):
            return _read_row_groups(stream, part.what, target, within)
        content = _read_whole(stream, part.what, within)
    except FileNotFoundError:
        if missing == "skip":
            return _nothing(SourceFile(stream, path, b""), format_, target, "the file is missing")
        raise SourceError(
            f"{stream}: file {path} is missing",
            hint='put it back: its batch is not done; or say weft.files(…, missing="skip") to go on without it',
        ) from None
    except OSError as error:
        raise SourceError(
            f"{stream}: file {path} cannot be read: {error.strerror or error}",
            hint="make it readable: its batch is not done",
        ) from None
    return rows_of(SourceFile(stream, path, content), format_, target, csv)


def rows_of(file: SourceFile, format_: str, target: Target, csv: CsvOptions | None) -> Decoded:
    """The rows of a file's content, which may be compressed; an empty file is set aside."""
    if not file.content:
        return _nothing(file, format_, target, "empty file")
    return _decode(file, format_, target, csv)


def _nothing(file: SourceFile, format_: str, target: Target, reason: str) -> Decoded:
    """No rows, and one bad record; texts give all declared columns, other formats only the needed ones."""
    return whole_file(file, target.needed() if format_ in ("parquet", "arrow") else target, reason)


def _decode(file: SourceFile, format_: str, target: Target, csv: CsvOptions | None) -> Decoded:
    compression = compression_of(file.path, format_)
    if compression is None:
        return decode(file, format_, target, csv)
    try:
        with pa.input_stream(pa.BufferReader(file.content), compression=compression) as opened:
            content = opened.read()
    except DAMAGE as error:
        return _nothing(file, format_, target, f"not a readable {compression} file: {error}")
    return decode(SourceFile(file.source, file.path, content), format_, target, csv)


def _read_whole(stream: str, what: Mapping[str, Any], within: str | None) -> bytes:
    with open_file(what["file"], within) as file:
        content = file.read()
    _check(stream, what, len(content), content[-_TAIL:])
    return content


def _read_row_groups(stream: str, what: Mapping[str, Any], target: Target, within: str | None) -> Decoded:
    first, count = what.get("row_groups", (0, None))
    with open_file(what["file"], within) as file:
        head, size = file.read(64), os.fstat(file.fileno()).st_size
        file.seek(max(0, size - _TAIL))
        _check(stream, what, size, file.read())
        named = SourceFile(stream, what["file"], head)
        return decode_parquet_file(named, file, target, first, count)


def _check(stream: str, what: Mapping[str, Any], size: int, tail: bytes) -> None:
    """Refuse a file that is not the one that was taken."""
    if size != what["size"]:
        change = f"it had {what['size']:,} bytes when it was taken and has {size:,} now"
    elif zlib.crc32(tail) != what["tail"]:
        change = "its last bytes are others than when it was taken"
    else:
        return
    raise SourceError(
        f"{stream}: file {what['file']} has changed: {change}",
        hint="put the file back as it was: its batch is not done; write others under a hidden name, then rename them",
    )


_DECODERS = {"parquet": decode_parquet, "arrow": decode_arrow, "json": decode_json}
FORMATS = ("parquet", "arrow", "json", "csv")


def decode(file: SourceFile, format_: str, target: Target, csv: CsvOptions | None = None) -> Decoded:
    """The rows of a file in one of the formats parquet, arrow, json (lines) and csv."""
    if format_ == "csv":
        return decode_csv(file, target, csv)
    if format_ not in _DECODERS:
        raise SourceError(f"unknown format {format_!r}", hint=nearest(format_, FORMATS))
    return _DECODERS[format_](file, target)
