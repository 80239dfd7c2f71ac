"""Results as records of a topic of Kafka.

Guarantees: a batch is one transaction, which also keeps the batch's number, so that readers of committed records see
every result once, through crashes of the session and of brokers. A topic whose batches the checkpoint cannot have made
is refused. Other writers may add to the same topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from weft.connectors.kafka.committed_records import Records
from weft.connectors.kafka.options import KafkaOptions, kafka_options
from weft.connectors.kafka.registry import RegistryOptions, registry_options, schema_text
from weft.connectors.kafka.sink_format import Values, WrittenFormat
from weft.connectors.kafka.sink_values import key_values
from weft.connectors.kafka.transactions import TransactionalTopic
from weft.connectors.rows import as_table
from weft.errors import SinkError, nearest
from weft.logical.arguments import checked
from weft.ports.sink import Rows

__all__ = ["KafkaSink", "kafka_sink", "to_kafka"]

_CHUNK_ROWS, _CHUNK_BYTES = 1 << 16, 32 << 20  # that are handed to the client at once


@dataclass
class KafkaSink:
    """A topic to which the driver writes. ``name`` tells sinks of one checkpoint and topic apart."""

    topic: str
    key: str | None
    format: WrittenFormat
    options: KafkaOptions
    name: str = ""
    _schema: pa.Schema | None = field(default=None, init=False, repr=False)
    _target: TransactionalTopic | None = field(default=None, init=False, repr=False)
    _values: Values | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.topic, str) or not self.topic.strip():
            raise SinkError("to_kafka: no topic is named")

    @property
    def exactly_once(self) -> bool:
        """True: a replayed batch is not sent again."""
        return True

    def open(self, schema: pa.Schema, owner: str | None = None) -> None:
        """Refuse results that have no such key, or that values of the format cannot hold."""
        if self.key is not None and self.key not in schema.names:
            raise SinkError(
                f"to_kafka: the results have no column {self.key} to be the key",
                hint=nearest(self.key, schema.names),
            )
        if self.format.name == "raw" and len(self._value_columns(schema)) != 1:
            raise SinkError(
                "to_kafka: a raw value is one column, beside that of the key",
                hint='select one column, or write format="json"',
            )
        self.format.check(schema, self.topic)
        self._schema, self._values = schema, None
        identity = "-".join(part for part in ("weft", owner or "", self.topic, self.name) if part)
        self._target = TransactionalTopic(self.topic, self.options, identity)

    def _value_columns(self, schema: pa.Schema) -> list[str]:
        """The columns that are the value: all, the key's among them, but of raw values the others."""
        return [name for name in schema.names if self.format.name != "raw" or name != self.key]

    def recover(self, last_committed: int) -> None:
        """End transactions that were left open; batches the checkpoint cannot have made are an error.

        The schema of the values gets its number in the registry, if there is one.
        """
        self._encode()
        found = self._opened().last_batch()
        if found > last_committed + 1:
            raise SinkError(
                f"to_kafka: topic {self.topic} has batch {found}, but the checkpoint ends with {last_committed}",
                hint="continue with the checkpoint that wrote it, or begin with a new one",
            )

    def last_batch(self) -> int:
        """The last batch of this checkpoint's that the topic has; -1 without one."""
        return self._opened().last_batch()

    def begin(self, batch_id: int) -> None:
        """Do nothing: an earlier attempt of the batch was undone, or is complete."""

    def commit(self, batch_id: int, rows: Rows) -> None:
        """Send the rows of a batch, unless they were sent; one without rows leaves no trace."""
        table = as_table(rows, self._schema)
        if table.num_rows:
            self._opened().deliver(batch_id, lambda: self._chunks(table))

    def _opened(self) -> TransactionalTopic:
        if self._target is None:
            raise SinkError("to_kafka: the sink has not been opened")
        return self._target

    def _encode(self) -> Values:
        """What makes values of rows."""
        if self._values is None:
            if self._schema is None:
                raise SinkError("to_kafka: the sink has not been opened")
            raw = self._value_columns(self._schema)[0] if self.format.name == "raw" else None
            self._values = self.format.values(self._schema, self.topic, raw)
        return self._values

    def _chunks(self, table: pa.Table) -> Iterator[Records]:
        rows = max(1, min(_CHUNK_ROWS, _CHUNK_BYTES * table.num_rows // max(1, table.nbytes)))
        for batch in table.to_batches(max_chunksize=rows):
            yield self._records(batch)

    def _records(self, rows: pa.RecordBatch) -> Records:
        """Keys and values as the client takes them, which wants an object for each record."""
        values = self._encode()(rows)
        if self.key is None:
            return [{"value": value} for value in values.to_pylist()]
        both: Iterable[Any] = zip(values.to_pylist(), key_values(rows, self.key).to_pylist(), strict=True)
        return [{"value": value, "key": key} for value, key in both]

    def describe(self) -> dict[str, object]:
        """What is needed to make it again; secrets are references here, too."""
        place = f"/kafka/{self.options.servers}/{self.topic}/{self.name}"
        written, registry = self.format, self.format.registry
        return {
            "kind": "kafka",
            "path": place,
            "servers": self.options.servers,
            "options": dict(self.options.given),
            "topic": self.topic,
            "key": self.key,
            "name": self.name,
            "format": written.name,
            "registry": None if registry is None else [registry.url, dict(registry.given)],
            "avro": [written.avro_schema, written.subject, written.register],
        }


def kafka_sink(description: Mapping[str, Any]) -> KafkaSink:
    """The sink of a description that `KafkaSink.describe` made."""
    options = KafkaOptions(description["servers"], tuple(sorted(description["options"].items())))
    url, given = description.get("registry") or (None, {})
    registry = None if url is None else RegistryOptions(url, tuple(sorted(given.items())))
    written = WrittenFormat(description["format"], registry, *description.get("avro", ()))
    return KafkaSink(description["topic"], description["key"], written, options, description["name"])


@checked(SinkError)
def to_kafka(
    servers: str,
    topic: str,
    *,
    key: str | None = None,
    format: str = "json",  # noqa: A002
    name: str = "",
    registry: str | None = None,
    avro_schema: str | Path | None = None,
    subject: str | None = None,
    register: bool = True,
    **options: Any,
) -> KafkaSink:
    """Results as records of a topic, each exactly once for readers of committed records.

    A value is a JSON object, or with `format="raw"` the one column beside the key's. With `format="avro"` it is a
    record of Avro whose schema is put into a schema registry (`registry`, as in `weft.kafka`) under the subject
    `TOPIC-value` or another; it is made for the results unless `avro_schema` is given. With `register=False` the
    registry must have it. JSON values get a schema, too, if there is a registry. Records with the same value of the
    column `key` are in the same partition. Several queries of a session may write to one topic if each sink has a
    `name`. Other options are Kafka's own, as in `weft.kafka`.

    >>> to_kafka("localhost:9092", "matches", key="vid", compression_type="zstd").options.given
    (('compression.type', 'zstd'),)
    """
    own = ("key", "format", "name", "registry", "avro_schema", "subject", "register")
    asked = registry_options("to_kafka", registry, options, SinkError)
    checked = kafka_options("to_kafka", servers, options, own, SinkError)
    text = schema_text("to_kafka", avro_schema, SinkError)
    return KafkaSink(topic, key, WrittenFormat(format, asked, text, subject, register), checked, name)
