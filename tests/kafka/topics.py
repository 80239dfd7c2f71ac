"""Topics for tests: made, written and read without Weft."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

__all__ = ["Topics", "json_values"]


def json_values(rows: Iterable[Mapping[str, Any]]) -> list[bytes]:
    """Rows as values."""
    return [json.dumps(row).encode() for row in rows]


@dataclass(frozen=True)
class Topics:
    """The topics of a broker."""

    address: str

    def make(self, partitions: int = 1, **config: str) -> str:
        """A new topic."""
        name = f"t{uuid.uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin = self._admin()
        self._done(admin.create_topics([NewTopic(name, partitions, config=settings)]))
        return name

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        admin = self._admin()
        self._done(admin.create_partitions([NewPartitions(topic, partitions)]))

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        admin = self._admin()
        self._done(admin.delete_topics([topic]))

    def remake(self, topic: str, partitions: int = 1) -> None:
        """Delete a topic, and make another one of its name."""
        self.delete(topic)
        admin, until = self._admin(), time.monotonic() + 30
        while True:
            try:
                self._done(admin.create_topics([NewTopic(topic, partitions)]))
                return
            except KafkaException:  # it is still being deleted
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Have the first records of a partition expire."""
        admin = self._admin()
        self._done(admin.delete_records([TopicPartition(topic, partition, offset)]))

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address, "log_level": 2})

    @staticmethod
    def _done(futures: Mapping[Any, Any]) -> None:
        for future in futures.values():
            future.result(60)

    def write(self, topic: str, values: Sequence[bytes | None], partition: int = 0, **message: Any) -> None:
        """Add records to a partition."""
        producer = Producer({"bootstrap.servers": self.address, "log_level": 2})
        for value in values:
            producer.produce(topic, value=value, partition=partition, **message)
        assert producer.flush(30) == 0

    def write_in_transaction(self, topic: str, values: Sequence[bytes], *, commit: bool) -> None:
        """Add records to partition 0 in a transaction that is committed or aborted."""
        settings = {"bootstrap.servers": self.address, "transactional.id": topic, "log_level": 2}
        producer = Producer(settings)
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value=value, partition=0)
        producer.flush(30)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)

    def read(self, topic: str, least: int = 0) -> list[Message]:
        """All records of a topic that a reader of committed ones sees.

        What a transaction wrote is seen a moment after it was committed: ``least`` records are waited for.
        """
        until = time.monotonic() + 20
        found = self._read(topic)
        while len(found) < least and time.monotonic() < until:
            found = self._read(topic)
        return found

    def _read(self, topic: str) -> list[Message]:
        settings: dict[str, Any] = {"bootstrap.servers": self.address, "group.id": "tests", "log_level": 2}
        more = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "enable.partition.eof": True}
        consumer = Consumer({**settings, **more})
        numbers = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        found, ended = list[Message](), set[int | None]()
        while len(ended) < len(numbers):
            message = consumer.poll(10)
            assert message is not None, "the broker does not answer"
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        consumer.close()
        return found

    def rows(self, topic: str, least: int = 0) -> list[dict[str, Any]]:
        """All values of a topic, as JSON objects."""
        return [json.loads(message.value() or b"null") for message in self.read(topic, least)]

    def committed(self, topic: str, group: str, partition: int = 0) -> int:
        """The offset that a consumer group has committed."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group, "log_level": 2})
        found = consumer.committed([TopicPartition(topic, partition)], timeout=60)[0].offset
        consumer.close()
        return int(found)
