"""Results as records of a topic of Kafka, each batch in one transaction.

Guarantees: the records of a batch and the batch's number become visible together or not at all, to readers of committed
records, and a batch is done when they are; so these readers see every result once, through crashes of the session and
of brokers. The number is the offset that a consumer group of the sink's own has committed inside the same transaction;
beside it stands where in the topic the batch is (`BatchMark`). After any failure, whatever had or had not been done, a
new producer ends what its predecessor left open. Then the records that readers see there say what of the batch is
missing, and that is sent: brokers can forget to end a transaction in some partitions. A producer of another process
with the same identity makes this one fail rather than write. Decision 33 says why.

A topic whose batches the checkpoint cannot have made is refused. Other writers may add to the same topic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from weft.connectors.common import as_table, check_flat, waiting_time
from weft.connectors.kafka.committed_records import BatchMark, Ends, Records, TopicView, without
from weft.connectors.kafka.options import KafkaOptions, kafka_options, load_client
from weft.connectors.kafka.registry import RegistryOptions, registry_options, schema_text
from weft.connectors.kafka.sink_values import Values, WrittenFormat, json_values, key_values
from weft.errors import SinkError, nearest
from weft.logical.arguments import checked
from weft.ports.sink import ResultRows, is_hurried

__all__ = [
    "KafkaSink",
    "kafka_sink",
    "to_kafka",
]


_AGAIN = 0.2  # seconds between two attempts
_ANSWER = 30.0  # seconds that brokers may take for one answer
_STALLED = 5.0  # seconds in which some of the records that were sent must arrive
_SEEN = 3.0  # seconds after its commit in which a batch must be seen, before it is looked after
_ENDED = 0.5  # seconds after which a transaction that is open, and that nobody will end, is ended by us


@dataclass
class TransactionalTopic:
    """A topic to which one writer delivers batches. ``timeout`` is how many seconds brokers may be away.

    Within `weft.ports.sink.hurried`, everything is tried once, and no answer is waited for longer than some seconds.
    """

    topic: str
    options: KafkaOptions
    identity: str
    timeout: float = 120.0
    _producer: Any = field(default=None, init=False)
    _consumer: Any = field(default=None, init=False)
    _view: Any = field(default=None, init=False)
    _mark: BatchMark = field(default=BatchMark(), init=False)
    _doubtful: bool = field(default=True, init=False)  # nothing was looked at since these clients were made

    def last_batch(self) -> int:
        """The last batch with records that the topic has of this writer; -1 if it has none."""
        batch: int = self._attempt(self._known_last)
        return batch

    def deliver(self, batch_id: int, chunks: Callable[[], Iterable[Records]]) -> None:
        """Add the records of a batch, unless they are there. They are asked for once in every attempt."""
        self._attempt(lambda: self._deliver(batch_id, chunks))

    def _attempt(self, action: Callable[[], Any]) -> Any:
        """Do something until it succeeds, with new clients after every failure."""
        kafka, until = load_client("to_kafka", SinkError), time.monotonic() + self.timeout
        while True:
            try:
                return action()
            except kafka.KafkaException as error:
                self._disconnect()
                code = error.args[0].code()
                lasting = code in _lasting(kafka.KafkaError)
                if lasting or is_hurried() or time.monotonic() > until:
                    raise self._failure(error.args[0], fenced=code == kafka.KafkaError._FENCED) from None
                time.sleep(_AGAIN)

    def _failure(self, error: Any, *, fenced: bool) -> SinkError:
        told = self.options.without_secrets(error.str(), SinkError)
        return SinkError(
            f"to_kafka: topic {self.topic} at {self.options.servers}: {told}",
            hint="another session with the same checkpoint has taken over"
            if fenced
            else "are the servers running, does the topic exist, and may it be written to?",
        )

    def _known_last(self) -> int:
        if self._producer is None:
            self._connect()
        return self._mark.batch

    def _connect(self) -> None:
        """Make clients, end what an earlier producer left open, and ask which batch is there."""
        kafka, view = load_client("to_kafka", SinkError), TopicView(self.topic, self.options)
        ends = view.ends(committed=False)
        group = {
            "group_id": self.identity,
            "enable_auto_commit": False,
            "isolation_level": "read_uncommitted",  # else it waits for forgotten offsets
        }
        consumer = kafka.Consumer(self.options.config(SinkError, **group))
        sending = self.options.config(
            SinkError, transactional_id=self.identity, partitioner="murmur2_random", linger_ms=5
        )
        producer = kafka.Producer({**sending, "queue.buffering.max.kbytes": 1 << 20})
        producer.init_transactions(waiting_time(_ANSWER))
        committed = consumer.committed([kafka.TopicPartition(self.topic, 0)], timeout=waiting_time(_ANSWER))[
            0
        ]
        self._producer, self._consumer, self._view, self._doubtful = producer, consumer, view, True
        self._mark = BatchMark.parse(committed.offset - 1, committed.metadata)
        if committed.offset < 0:  # so that the first batch has a place to be looked for, too
            self._send(-1, ends, ())

    def _disconnect(self) -> None:
        """Let the clients go, with whatever they still had to send."""
        if self._producer is not None:
            self._producer.purge()
        self._producer = self._consumer = self._view = None

    def _deliver(self, batch_id: int, chunks: Callable[[], Iterable[Records]]) -> None:
        last = self._known_last()
        if batch_id < last or (batch_id == last and not self._doubtful):
            return
        starts, missing = self._mark.start_of(batch_id), chunks() if batch_id > last else ()
        if self._doubtful:
            ends = self._end_forgotten()
            if starts is None:
                starts = ends  # all that can be known is the number
            else:
                missing = without(chunks, self._view.records(starts, ends))
        # The number is sent also where no record is missing, for it may have been forgotten.
        self._send(batch_id, starts or (), missing)
        self._doubtful = False

    def _end_forgotten(self) -> Ends:
        """End own transactions that are still open somewhere; gives up to where the topic can be seen then.

        When a producer has been initialised, none of its predecessors' transactions is open, as far as the coordinator
        knows. Where one is nevertheless, brokers forgot it, and it is ended by aborting another one in that partition.
        """
        ends: Ends = self._view.ends(committed=False)
        forgotten = self._view.wait_until_seen(ends, _ENDED)
        if not forgotten:
            return ends
        self._producer.begin_transaction()
        for number in forgotten:
            self._producer.produce(self.topic, b"", partition=number)
        self._flush()
        self._producer.abort_transaction(waiting_time(_ANSWER))
        ends = self._view.ends(committed=False)
        patience = waiting_time(self.timeout)
        if held := self._view.wait_until_seen(ends, patience):
            raise SinkError(
                f"to_kafka: topic {self.topic}: another writer's transaction has been open in partition {held[0]} for "
                f"{patience:g} seconds, and after a failure the results that stand behind it must be looked at",
                hint="end it (kafka-transactions.sh abort), or start again later",
            )
        return ends

    def _send(self, batch_id: int, starts: Ends, chunks: Iterable[Records]) -> None:
        """Send records and the number of their batch in one transaction, and wait until readers see them."""
        kafka, producer = load_client("to_kafka", SinkError), self._producer
        producer.begin_transaction()
        for records in chunks:
            if producer.produce_batch(self.topic, records) < len(records):
                raise kafka.KafkaException(next(record["_error"] for record in records if "_error" in record))
            self._flush()
        mark = BatchMark(batch_id, starts, self._view.ends(committed=False))
        number = [kafka.TopicPartition(self.topic, 0, batch_id + 1, mark.text())]
        metadata, patience = self._consumer.consumer_group_metadata(), waiting_time(_ANSWER)
        producer.send_offsets_to_transaction(number, metadata, patience)
        producer.commit_transaction(patience)
        if self._view.wait_until_seen(mark.ends or (), _SEEN, starts):
            raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))
        self._mark = mark

    def _flush(self) -> None:
        """Wait until all records have arrived. A producer whose broker was away may wait forever: it is given up."""
        left = len(self._producer)
        while left:
            before, left = left, self._producer.flush(_STALLED)
            if left >= before:
                kafka = load_client("to_kafka", SinkError)
                raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))


def _lasting(codes: Any) -> tuple[int, ...]:
    """Errors that do not go away by trying again."""
    return (
        *(codes._FENCED, codes._AUTHENTICATION, codes._INVALID_ARG, codes.MSG_SIZE_TOO_LARGE),
        *(codes.TOPIC_AUTHORIZATION_FAILED, codes.GROUP_AUTHORIZATION_FAILED),
        *(codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, codes.UNKNOWN_TOPIC_OR_PART),
    )


_CHUNK_ROWS, _CHUNK_BYTES = 1 << 16, 32 << 20  # that are handed to the client at once


@dataclass
class KafkaSink:
    """A topic to which the driver writes. ``name`` tells sinks of one checkpoint and topic apart.

    ``group_keys`` are the columns whose values, as a JSON object, are the key of a group that may change.
    """

    topic: str
    key: str | None
    format: WrittenFormat
    options: KafkaOptions
    name: str = ""
    group_keys: tuple[str, ...] | None = None
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

    def keyed(self, keys: Sequence[str]) -> KafkaSink:
        """The sink as its topic can be compacted: the records of a group have its keys as their key."""
        if self.key is not None:
            raise SinkError(
                f"to_kafka: the key is {self.key}, but groups that change have those of GROUP BY",
                hint="leave out key: records have a JSON object of the keys of GROUP BY",
            )
        return replace(self, group_keys=tuple(keys))

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
        check_flat("to_kafka", schema)
        self._schema, self._values = schema, None
        identity = "-".join(part for part in ("weft", owner or "", self.topic, self.name) if part)
        self._target = TransactionalTopic(self.topic, self.options, identity)

    def _value_columns(self, schema: pa.Schema) -> list[str]:
        """The columns that are the value: all, the key's among them, but of raw values the others."""
        keys = self.group_keys or (self.key,)
        return [name for name in schema.names if self.format.name != "raw" or name not in keys]

    def recover(self, last_committed: int) -> None:
        """End transactions that were left open; batches the checkpoint cannot have made are an error.

        The schema of the values gets its number in the registry, if there is one.
        """
        self._encode()
        last = self._opened().last_batch()
        if last > last_committed + 1:
            raise SinkError(
                f"to_kafka: topic {self.topic} has batch {last}, but the checkpoint ends with {last_committed}",
                hint="continue with the checkpoint that wrote it, or begin with a new one",
            )

    def last_batch(self) -> int:
        """The last batch of this checkpoint's that the topic has; -1 without one."""
        return self._opened().last_batch()

    def begin(self, batch_id: int) -> None:
        """Do nothing: an earlier attempt of the batch was undone, or is complete."""

    def commit(self, batch_id: int, rows: ResultRows) -> None:
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
        if self.group_keys is not None:
            keys = json_values(rows.select(list(self.group_keys)))
        elif self.key is not None:
            keys = key_values(rows, self.key)
        else:
            return [{"value": value} for value in values.to_pylist()]
        both: Iterable[Any] = zip(values.to_pylist(), keys.to_pylist(), strict=True)
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
            "group_keys": None if self.group_keys is None else list(self.group_keys),
            "format": written.name,
            "registry": None if registry is None else [registry.url, dict(registry.given)],
            "avro": [written.avro_schema, written.subject, written.register],
        }


def kafka_sink(description: Mapping[str, Any]) -> KafkaSink:
    """The sink of a description that `KafkaSink.describe` made."""
    options = KafkaOptions(description["servers"], tuple(sorted(description["options"].items())))
    url, registry_options_given = description.get("registry") or (None, {})
    registry = None if url is None else RegistryOptions(url, tuple(sorted(registry_options_given.items())))
    written = WrittenFormat(description["format"], registry, *description.get("avro", ()))
    sink = KafkaSink(description["topic"], description["key"], written, options, description["name"])
    keys = description.get("group_keys")
    return sink if keys is None else sink.keyed(keys)


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
    """Results as records of a ``topic`` of the brokers ``servers``, each exactly once for readers of committed records.

    A value is a JSON object, or with `format="raw"` the one column beside the key's. With `format="avro"` it is a
    record of Avro whose schema is put into a schema registry (`registry`, as in `weft.kafka`) under the subject
    `TOPIC-value` or another; it is made for the results unless `avro_schema` is given. With `register=False` the
    registry must have it. JSON values get a schema, too, if there is a registry. Records with the same value of the
    column `key` are in the same partition. For `mode="update"` the key is a JSON object of the keys of GROUP BY, so
    that the topic can be compacted. Several queries of a session may write to one topic if each sink has a
    `name`. Other options are Kafka's own, as in `weft.kafka`.

    >>> to_kafka("localhost:9092", "matches", key="vid", compression_type="zstd").options.given
    (('compression.type', 'zstd'),)
    """
    own = ("key", "format", "name", "registry", "avro_schema", "subject", "register")
    asked = registry_options("to_kafka", registry, options, SinkError)
    checked = kafka_options("to_kafka", servers, options, own, SinkError)
    text = schema_text("to_kafka", avro_schema, SinkError)
    return KafkaSink(topic, key, WrittenFormat(format, asked, text, subject, register), checked, name)
