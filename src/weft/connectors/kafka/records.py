"""From the records of a Kafka partition to rows.

Guarantees: what becomes of a record does not depend on its neighbours. A record gives one row; one whose value cannot
be decoded is set aside with topic, partition and offset. A record without a value (a tombstone) gives a row whose
columns of the value are NULL. Values are decoded as whole columns, by their format. Columns with the names
of `METADATA` are not looked for in values; they tell of the record itself. Rows know when their records came, by
the timestamps of the records; of many records some are asked, and the others lie between them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from weft.connectors.formats.columns import ConvertedColumn, as_text, assemble
from weft.connectors.formats.records import BadRecord, Decoded, Target, check_readable
from weft.connectors.kafka.values import DecodedValues, ValueFormat
from weft.errors import SourceError
from weft.kernels.expr.arrow import arrow_type
from weft.logical.schema import Field, Schema

__all__ = [
    "KafkaMessage",
    "Origin",
    "check_schema",
    "decode_messages",
    "value_fields",
]

_ASKED = 256  # so many records of a part, about, are asked when they came
METADATA: Mapping[str, tuple[str, ...]] = {  # with the types that each may be declared with
    "_key": ("string", "binary"),
    "_topic": ("string",),
    "_partition": ("int",),
    "_offset": ("long",),
    "_timestamp": ("timestamp",),
    "_headers": ("string",),
}


class KafkaMessage(Protocol):
    """What is used of a record, as confluent-kafka gives it."""

    def value(self) -> bytes | None: ...
    def key(self) -> bytes | None: ...
    def offset(self) -> int | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def headers(self) -> Any: ...
    def error(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Origin:
    """Where records come from: the stream they are read for, and their partition.

    ``id`` is the topic's, if it is known: a client of a topic that was deleted cannot read another of its name.
    """

    stream: str
    topic: str
    partition: int
    id: str | None = None

    @property
    def place(self) -> str:
        """The topic and the partition."""
        return f"topic {self.topic}, partition {self.partition}"

    def bad(self, reason: str, offset: int, raw: bytes = b"") -> BadRecord:
        """A record that is set aside."""
        return BadRecord(self.stream, self.place, reason, raw, offset=offset)


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
    check_readable("kafka", format_, schema)
    if format_ == "raw" and (len(fields) > 1 or any(f.type.name not in ("string", "binary") for f in fields)):
        raise SourceError(
            "kafka: a raw value is one column of type binary or string",
            hint='as in schema="value binary, _key string"',
        )


def decode_messages(
    messages: Sequence[KafkaMessage], format_: ValueFormat, target: Target, origin: Origin
) -> Decoded:
    """The rows of records, and what had to be set aside of them."""
    values = [message.value() for message in messages]
    fields = value_fields(target.schema)
    decoded = _with_tombstones(values, format_, fields)
    columns = _columns(messages, decoded, target, origin)
    made = assemble(columns, target)
    wrong = dict(decoded.wrong) | {int(decoded.good[row]): reason for row, reason in made.reasons.items()}
    bad = (_bad_record(messages[at], wrong[at], origin) for at in sorted(wrong))
    arrived = _arrivals(messages)
    if arrived is not None:
        arrived = arrived[decoded.good if made.good is None else decoded.good[made.good]]
    return Decoded(made.batch, (*bad, *made.more(origin.stream, origin.place)), arrived)


def _arrivals(messages: Sequence[KafkaMessage]) -> Any:
    """When records came, in microseconds since 1970; None if they have no timestamps."""
    places = range(0, len(messages), max(1, len(messages) // _ASKED))
    asked = [(at, *messages[at].timestamp()) for at in dict.fromkeys((*places, len(messages) - 1)) if at >= 0]
    stamps = np.array([(at, time * 1000) for at, kind, time in asked if kind], np.int64).reshape(-1, 2)
    if not stamps.size:
        return None
    return np.interp(np.arange(len(messages)), stamps[:, 0], stamps[:, 1]).astype(np.int64)


def _bad_record(message: KafkaMessage, reason: str, origin: Origin) -> BadRecord:
    return origin.bad(reason, message.offset() or 0, message.value() or b"")


def _with_tombstones(
    values: list[bytes | None], format_: ValueFormat, fields: tuple[Field, ...]
) -> DecodedValues:
    """Decode the values that are there; the rows of the others are NULL."""
    if not fields:
        rows = pa.record_batch({"": pa.nulls(len(values))})
        return DecodedValues(rows, np.arange(len(values)), {})
    there = [value for value in values if value is not None]
    if len(there) == len(values):
        return format_.decode(there, fields)
    places = np.flatnonzero(np.array([value is not None for value in values], np.bool_))
    decoded = format_.decode(there, fields)
    row_of = np.full(len(values), -1)
    row_of[places[decoded.good]] = np.arange(len(decoded.good))
    wrong = {int(places[at]): reason for at, reason in decoded.wrong.items()}
    good = np.delete(np.arange(len(values)), list(wrong))
    chosen = pa.array(row_of[good], mask=row_of[good] < 0)
    return DecodedValues(decoded.rows.take(chosen), good, wrong)


def _columns(
    messages: Sequence[KafkaMessage], decoded: DecodedValues, target: Target, origin: Origin
) -> Sequence[ConvertedColumn]:
    kept = messages if not decoded.wrong else [messages[at] for at in decoded.good.tolist()]
    return [
        _metadata(field, kept, origin)
        if field.name in METADATA
        else ConvertedColumn(decoded.rows.column(field.name))
        for field in target.schema
    ]


def _metadata(field: Field, messages: Sequence[KafkaMessage], origin: Origin) -> ConvertedColumn:
    """A column that tells of the records themselves."""
    kind, count = arrow_type(field.type), len(messages)
    match field.name:
        case "_topic":
            return ConvertedColumn(pa.repeat(pa.scalar(origin.topic, kind), count))
        case "_partition":
            return ConvertedColumn(pa.repeat(pa.scalar(origin.partition, kind), count))
        case "_offset":
            return ConvertedColumn(pa.array([message.offset() for message in messages], kind))
        case "_timestamp":
            times = np.array([message.timestamp() for message in messages], np.int64).reshape(-1, 2)
            return ConvertedColumn(pa.array(times[:, 1] * 1000, mask=times[:, 0] == 0).cast(kind))
        case "_headers":
            return ConvertedColumn(pa.array([_headers(message) for message in messages], kind))
    keys = pa.array([message.key() for message in messages], pa.binary())
    return ConvertedColumn(keys) if field.type.name == "binary" else as_text(keys)


def _headers(message: KafkaMessage) -> str | None:
    """The headers of a record as a JSON array of pairs, for there may be several of a name; NULL if it has none."""
    headers = message.headers()
    if not headers:
        return None
    shown = [(name, None if value is None else value.decode(errors="replace")) for name, value in headers]
    return json.dumps(shown, ensure_ascii=False)
