"""Batches into a topic of Kafka, each in one transaction.

Guarantees: the records of a batch and the batch's number become visible together or not at all, to readers of committed
records, and a batch is done when they are. The number is the offset that a consumer group of the sink's own has
committed inside the same transaction; beside it stands where in the topic the batch is (`BatchMark`). After any
failure, whatever had or had not been done, a new producer ends what its predecessor left open. Then the records that
readers see there say what of the batch is missing, and that is sent: brokers can forget to end a transaction in some
partitions. A producer of another process with the same identity makes this one fail rather than write. Decision 33
says why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from weft.connectors.kafka.committed_records import BatchMark, Ends, Records, TopicView, without
from weft.connectors.kafka.options import KafkaOptions, load_client
from weft.errors import SinkError

__all__ = ["TransactionalTopic"]

_AGAIN = 0.2  # seconds between two attempts
_ANSWER = 30.0  # seconds that brokers may take for one answer
_STALLED = 5.0  # seconds in which some of the records that were sent must arrive
_SEEN = 3.0  # seconds after its commit in which a batch must be seen, before it is looked after
_ENDED = 0.5  # seconds after which a transaction that is open, and that nobody will end, is ended by us


@dataclass
class TransactionalTopic:
    """A topic to which one writer delivers batches. ``timeout`` is how many seconds brokers may be away."""

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
        found: int = self._attempt(self._known_last)
        return found

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
        producer.init_transactions(_ANSWER)
        found = consumer.committed([kafka.TopicPartition(self.topic, 0)], timeout=_ANSWER)[0]
        self._producer, self._consumer, self._view, self._doubtful = producer, consumer, view, True
        self._mark = BatchMark.parse(found.offset - 1, found.metadata)
        if found.offset < 0:  # so that the first batch has a place to be looked for, too
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
        self._producer.abort_transaction(_ANSWER)
        ends = self._view.ends(committed=False)
        if held := self._view.wait_until_seen(ends, self.timeout):
            raise SinkError(
                f"to_kafka: topic {self.topic}: another writer's transaction has been open in partition {held[0]} for "
                f"{self.timeout:g} seconds, and after a failure the results that stand behind it must be looked at",
                hint="end it (kafka-transactions.sh abort), or start again later",
            )
        return ends

    def _send(self, batch_id: int, starts: Ends, chunks: Iterable[Records]) -> None:
        """Send records and the number of their batch in one transaction, and wait until readers see them."""
        kafka, producer = load_client("to_kafka", SinkError), self._producer
        producer.begin_transaction()
        for records in chunks:
            if producer.produce_batch(self.topic, records) < len(records):
                raise kafka.KafkaException(next(one["_error"] for one in records if "_error" in one))
            self._flush()
        mark = BatchMark(batch_id, starts, self._view.ends(committed=False))
        number = [kafka.TopicPartition(self.topic, 0, batch_id + 1, mark.text())]
        producer.send_offsets_to_transaction(number, self._consumer.consumer_group_metadata(), _ANSWER)
        producer.commit_transaction(_ANSWER)
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
