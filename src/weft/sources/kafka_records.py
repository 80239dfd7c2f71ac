"""From the records of a Kafka partition to rows.

Guarantees: what becomes of a record does not depend on its neighbours. A record gives one row; one whose value cannot
be decoded is set aside with topic, partition and offset. A record without a value (a tombstone) gives a row whose
columns of the value are NULL. Values are decoded as whole columns, by the decoders of files: a value is a line of a
file. Columns with the names of `METADATA` are not looked for in values; they tell of the record itself. Rows know when
their records came, by the records' timestamps; of many records some are asked, and the others lie between them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from weft.errors import SourceError
from weft.kernels.expr.arrow import arrow_type
from weft.logical.schema import Field, Schema
from weft.sources.columns import Column, arrow_schema, assemble
from weft.sources.csv import decode_csv
from weft.sources.json_lines import decode_json
from weft.sources.records import BadRecord, Decoded, SourceFile, Target
from weft.sources.texts import as_text

__all__ = ["FORMATS", "METADATA", "Message", "Origin", "check_schema", "decode_messages", "value_fields"]

_ASKED = 256  # so many records of a part, about, are asked when they came
FORMATS = ("json", "csv", "raw")
METADATA: Mapping[str, tuple[str, ...]] = {  # with the types that each may be declared with
    "_key": ("string", "binary"),
    "_topic": ("string",),
    "_partition": ("int",),
    "_offset": ("long",),
    "_timestamp": ("timestamp",),
    "_headers": ("string",),
}


class Message(Protocol):
    """What is used of a record, as confluent-kafka gives it."""

    def value(self) -> bytes | None: ...
    def key(self) -> bytes | None: ...
    def offset(self) -> int | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def headers(self) -> Any: ...
    def error(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Origin:
    """Where records come from: the stream they are read for, and their partition."""

    stream: str
    topic: str
    partition: int

    def bad(self, reason: str, offset: int, raw: bytes = b"") -> BadRecord:
        """A record that is set aside."""
        place = f"topic {self.topic}, partition {self.partition}"
        return BadRecord(self.stream, place, reason, raw, offset=offset)


@dataclass(frozen=True, slots=True)
class _Values:
    """The decoded values of some records: ``rows`` has the good ones, whose places among all are ``good``."""

    rows: pa.RecordBatch
    good: Any
    wrong: Mapping[int, str]


def value_fields(schema: Schema) -> tuple[Field, ...]:
    """The columns that are found in values."""
    return tuple(field for field in schema if field.name not in METADATA)


def check_schema(schema: Schema, format_: str) -> None:
    """Refuse columns of the record itself with other types than they have, and what raw values cannot be."""
    for field in schema:
        types = METADATA.get(field.name, (field.type.name,))
        if field.type.name not in types:
            raise SourceError(
                f"kafka: column {field.name} tells of the record and cannot be a {field.type}",
                hint=f"declare it as {field.name} {' or '.join(types)}",
            )
    fields = value_fields(schema)
    if format_ == "raw" and (len(fields) > 1 or any(f.type.name not in ("string", "binary") for f in fields)):
        raise SourceError(
            "kafka: a raw value is one column of type binary or string",
            hint='as in schema="value binary, _key string"',
        )


def decode_messages(messages: Sequence[Message], format_: str, target: Target, origin: Origin) -> Decoded:
    """The rows of records, and what had to be set aside of them."""
    values = [message.value() for message in messages]
    fields = value_fields(target.schema)
    decoded = _with_tombstones(values, format_, fields)
    columns = _columns(messages, decoded, target, origin)
    rows, late = assemble(columns, target)
    wrong = dict(decoded.wrong) | {int(decoded.good[row]): reason for row, reason in late.items()}
    bad = (_bad_record(messages[at], wrong[at], origin) for at in sorted(wrong))
    arrived = _arrivals(messages)
    return Decoded(rows, tuple(bad), arrived if arrived is None else np.delete(arrived, sorted(wrong)))


def _arrivals(messages: Sequence[Message]) -> Any:
    """When records came, in microseconds since 1970; None if they have no timestamps."""
    places = range(0, len(messages), max(1, len(messages) // _ASKED))
    asked = [(at, *messages[at].timestamp()) for at in dict.fromkeys((*places, len(messages) - 1)) if at >= 0]
    known = np.array([(at, time * 1000) for at, kind, time in asked if kind], np.int64).reshape(-1, 2)
    if not known.size:
        return None
    return np.interp(np.arange(len(messages)), known[:, 0], known[:, 1]).astype(np.int64)


def _bad_record(message: Message, reason: str, origin: Origin) -> BadRecord:
    return origin.bad(reason, message.offset() or 0, message.value() or b"")


def _with_tombstones(values: list[bytes | None], format_: str, fields: tuple[Field, ...]) -> _Values:
    """Decode the values that are there; the rows of the others are NULL."""
    if not fields:
        rows = pa.record_batch({"": pa.nulls(len(values))})
        return _Values(rows, np.arange(len(values)), {})
    there = [value for value in values if value is not None]
    if len(there) == len(values):
        return _decode(there, format_, fields)
    places = np.flatnonzero(np.array([value is not None for value in values], np.bool_))
    found = _decode(there, format_, fields)
    row_of = np.full(len(values), -1)
    row_of[places[found.good]] = np.arange(len(found.good))
    wrong = {int(places[at]): reason for at, reason in found.wrong.items()}
    good = np.delete(np.arange(len(values)), list(wrong))
    chosen = pa.array(row_of[good], mask=row_of[good] < 0)
    return _Values(found.rows.take(chosen), good, wrong)


def _columns(
    messages: Sequence[Message], decoded: _Values, target: Target, origin: Origin
) -> Sequence[Column]:
    kept = messages if not decoded.wrong else [messages[at] for at in decoded.good.tolist()]
    return [
        _metadata(field, kept, origin) if field.name in METADATA else Column(decoded.rows.column(field.name))
        for field in target.schema
    ]


def _metadata(field: Field, messages: Sequence[Message], origin: Origin) -> Column:
    """A column that tells of the records themselves."""
    kind, count = arrow_type(field.type), len(messages)
    match field.name:
        case "_topic":
            return Column(pa.repeat(pa.scalar(origin.topic, kind), count))
        case "_partition":
            return Column(pa.repeat(pa.scalar(origin.partition, kind), count))
        case "_offset":
            return Column(pa.array([message.offset() for message in messages], kind))
        case "_timestamp":
            times = np.array([message.timestamp() for message in messages], np.int64).reshape(-1, 2)
            return Column(pa.array(times[:, 1] * 1000, mask=times[:, 0] == 0).cast(kind))
        case "_headers":
            return Column(pa.array([_headers(message) for message in messages], kind))
    keys = pa.array([message.key() for message in messages], pa.binary())
    return Column(keys) if field.type.name == "binary" else as_text(keys)


def _headers(message: Message) -> str | None:
    """The headers of a record as a JSON array of pairs, for there may be several of a name; NULL if it has none."""
    found = message.headers()
    if not found:
        return None
    shown = [(name, None if value is None else value.decode(errors="replace")) for name, value in found]
    return json.dumps(shown, ensure_ascii=False)


def _decode(values: list[bytes], format_: str, fields: tuple[Field, ...]) -> _Values:
    if format_ == "raw":
        return _raw(values, fields[0])
    target = Target(Schema(fields))
    if format_ == "csv":
        header = ",".join(f'"{field.name}"' for field in fields).encode()
        return _as_lines(values, lambda content: decode_csv(_file(header + b"\n" + content), target), target)
    if not _one_line_each(b"\n".join(values), len(values)):
        blanks = bytes.maketrans(b"\r\n", b"  ")  # which stand between JSON's words alone
        values = [value.translate(blanks) for value in values]
    return _as_lines(values, lambda content: decode_json(_file(content), target), target)


def _file(content: bytes) -> SourceFile:
    return SourceFile("", "", content)


def _raw(values: list[bytes], field: Field) -> _Values:
    """The values themselves; a text must be UTF-8."""
    column = pa.array(values, pa.binary())
    found = Column(column) if field.type.name == "binary" else as_text(column)
    bad = np.zeros(len(values), np.bool_) if found.bad is None else found.bad
    rows = pa.record_batch([found.values], [field.name]).filter(pa.array(~bad))
    return _Values(rows, np.flatnonzero(~bad), dict.fromkeys(np.flatnonzero(bad).tolist(), "it is no UTF-8"))


def _as_lines(values: list[bytes], decode: Callable[[bytes], Decoded], target: Target) -> _Values:
    """Decode values as the lines of one file; values that are not one line each are decoded in smaller groups."""
    content = b"\n".join(values)
    found = decode(content + b"\n") if values else Decoded(_no_rows(target))
    if _one_line_each(content, len(values)) and found.batch.num_rows + len(found.bad) == len(values):
        wrong = {(record.row or 1) - 1: record.reason for record in found.bad}
        return _Values(found.batch, np.delete(np.arange(len(values)), list(wrong)), wrong)
    if len(values) == 1:
        reason = "it is empty" if not values[0].strip() else "it is more than one record"
        return _Values(_no_rows(target), np.zeros(0, np.int64), {0: reason})
    middle = len(values) // 2
    one, two = _as_lines(values[:middle], decode, target), _as_lines(values[middle:], decode, target)
    rows = pa.Table.from_batches([one.rows, two.rows]).combine_chunks().to_batches()
    wrong = {**one.wrong, **{at + middle: reason for at, reason in two.wrong.items()}}
    good = np.concatenate([one.good, two.good + middle])
    return replace(one, rows=rows[0] if rows else _no_rows(target), good=good, wrong=wrong)


def _one_line_each(content: bytes, count: int) -> bool:
    """Whether values that were joined by line ends have none themselves; a single one may."""
    return count < 2 or (content.count(b"\n") == count - 1 and b"\r" not in content)


def _no_rows(target: Target) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=arrow_schema(target))
