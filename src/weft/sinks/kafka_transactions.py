"""Batches into a topic of Kafka, each in one transaction.

Guarantees: the records of a batch and the batch's number become visible together or not at all, to readers of committed
records. The number is the offset that a consumer group of the sink's own has committed inside the same transaction.
After any failure, whatever had or had not been done, a new producer ends what its predecessor left open; then the
number says whether the batch is there, and it is sent again only if it is not. A producer of another process with
the same identity makes this one fail rather than write. Decision 33 says why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from weft.errors import SinkError
from weft.kafka_options import KafkaOptions, load_client

__all__ = ["TransactionalTopic"]

_AGAIN = 0.2  # seconds between two attempts
_ANSWER = 30.0  # seconds that brokers may take for one answer
_STALLED = 5.0  # seconds in which some of the records that were sent must arrive

Records: TypeAlias = "Sequence[dict[str, Any]]"  # of values and keys


@dataclass
class TransactionalTopic:
    """A topic to which one writer delivers batches. ``timeout`` is how many seconds brokers may be away."""

    topic: str
    options: KafkaOptions
    identity: str
    timeout: float = 120.0
    _producer: Any = None
    _consumer: Any = None
    _last: int = -1

    def last_batch(self) -> int:
        """The last batch with records that the topic has of this writer; -1 if it has none."""
        found: int = self._attempt(self._known_last)
        return found

    def deliver(self, batch_id: int, chunks: Callable[[], Iterable[Records]]) -> None:
        """Add the records of a batch, unless they are there. They are asked for once in every attempt."""
        self._attempt(lambda: self._deliver(batch_id, chunks()))

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
                if lasting or time.monotonic() > until:
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
        return self._last

    def _connect(self) -> None:
        """Make clients, end what an earlier producer left open, and ask which batch is there."""
        kafka = load_client("to_kafka", SinkError)
        group = self.options.config(SinkError, group_id=self.identity, enable_auto_commit=False)
        consumer = kafka.Consumer(group)
        found = consumer.list_topics(self.topic, timeout=_ANSWER).topics[self.topic]
        if found.error is not None:
            raise kafka.KafkaException(found.error)
        sending = self.options.config(
            SinkError, transactional_id=self.identity, partitioner="murmur2_random", linger_ms=5
        )
        producer = kafka.Producer({**sending, "queue.buffering.max.kbytes": 1 << 20})
        producer.init_transactions(_ANSWER)
        offset = consumer.committed([kafka.TopicPartition(self.topic, 0)], timeout=_ANSWER)[0].offset
        self._producer, self._consumer, self._last = producer, consumer, max(offset, 0) - 1

    def _disconnect(self) -> None:
        """Let the clients go, with whatever they still had to send."""
        if self._producer is not None:
            self._producer.purge()
        self._producer = self._consumer = None

    def _deliver(self, batch_id: int, chunks: Iterable[Records]) -> None:
        if batch_id <= self._known_last():
            return
        kafka, producer = load_client("to_kafka", SinkError), self._producer
        producer.begin_transaction()
        for records in chunks:
            if producer.produce_batch(self.topic, records) < len(records):
                raise kafka.KafkaException(next(one["_error"] for one in records if "_error" in one))
            self._flush()
        number = [kafka.TopicPartition(self.topic, 0, batch_id + 1)]
        producer.send_offsets_to_transaction(number, self._consumer.consumer_group_metadata(), _ANSWER)
        producer.commit_transaction(_ANSWER)
        self._last = batch_id

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
