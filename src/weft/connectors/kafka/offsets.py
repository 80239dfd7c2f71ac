"""What is asked of Kafka's brokers: a topic's id, which partitions it has, and where they begin and end.

Guarantees: `OffsetWatch` asks in a thread of its own, so that looking at what it knows waits for nobody; brokers that
do not answer are asked again, for as long as it takes. A topic that was deleted and made again has another id, which is
asked for whenever ends are new, after them. The ends of partitions are those that readers of committed records see,
unless the options say otherwise. Offsets that were committed to a group are a service to tools that show lags: Weft
never reads them, and a failure to write them is no error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from weft.connectors.kafka.options import KafkaOptions, load_client
from weft.errors import SourceError

__all__ = [
    "OffsetWatch",
    "TopicOffsets",
    "topic_id",
]

_INTERVAL = 0.03  # seconds between two questions for ends
_RARELY = 5.0  # seconds between two questions for partitions and their beginnings
_ANSWER = 10.0  # seconds that an answer may take
_MISSING_FOR = 15.0  # seconds after which a topic that is not there is gone, and no broker is just starting
_NOWHERE = -1  # what brokers say where no record is as new as asked for

Offsets = Mapping[int, int]


class _MissingTopicError(SourceError):
    """There is no such topic."""


class TopicOffsets:
    """The clients that ask for one topic. Its methods raise a `SourceError` if the brokers do not answer."""

    def __init__(self, topic: str, options: KafkaOptions, group: str | None) -> None:
        self._kafka, self._topic, self._options = load_client("kafka", SourceError), topic, options
        admin: Any = import_module("confluent_kafka.admin")
        self._partitions = 0
        self._specs, self._groups = admin.OffsetSpec, group is not None
        uncommitted = dict(options.given).get("isolation.level") == "read_uncommitted"
        levels = self._kafka.IsolationLevel
        self._level = levels.READ_UNCOMMITTED if uncommitted else levels.READ_COMMITTED
        try:
            fixed = {"group_id": group or "weft", "enable_auto_commit": False}
            self._consumer = self._kafka.Consumer(options.config(SourceError, **fixed))
            self._admin = admin.AdminClient(options.config(SourceError))
        except self._kafka.KafkaException as error:
            raise self._failure(error) from None

    def partitions(self) -> list[int]:
        """The numbers of the topic's partitions; a `SourceError` if there is no such topic."""
        try:  # by the consumer, which never creates a topic
            topic = self._consumer.list_topics(self._topic, timeout=_ANSWER).topics[self._topic]
            if topic.error is not None:
                raise self._failure(topic.error, missing=self._is_missing(topic.error))
            if (
                len(topic.partitions) != self._partitions
            ):  # which the other client would not know of for minutes
                self._admin.list_topics(self._topic, timeout=_ANSWER)
                self._partitions = len(topic.partitions)
        except self._kafka.KafkaException as error:
            raise self._failure(error) from None
        return sorted(topic.partitions)

    def id(self) -> str | None:
        """The topic's id, which another topic of its name would not have; None if the brokers are too old for ids."""
        try:
            return topic_id(self._admin, self._topic)
        except self._kafka.KafkaException as error:
            raise self._failure(error, missing=self._is_missing(error.args[0])) from None

    def begins(self, partitions: Collection[int]) -> Offsets:
        """The first offset of each partition that is still there."""
        return self._list(partitions, self._specs.earliest())

    def ends(self, partitions: Collection[int]) -> Offsets:
        """The offset behind the last record of each partition."""
        return self._list(partitions, self._specs.latest())

    def at(self, partitions: Collection[int], milliseconds: int) -> Offsets:
        """The offset of the first record of each partition that is not older than a time; -1 if there is none."""
        return self._list(partitions, self._specs.for_timestamp(milliseconds))

    def _list(self, partitions: Collection[int], spec: Any) -> Offsets:
        if not partitions:
            return {}
        asked = {self._kafka.TopicPartition(self._topic, number): spec for number in partitions}
        try:
            told = self._admin.list_offsets(asked, isolation_level=self._level, request_timeout=_ANSWER)
            offsets = {place.partition: int(future.result().offset) for place, future in told.items()}
            if min(offsets.values()) < _NOWHERE:  # the client's answer while no broker leads a partition
                raise self._kafka.KafkaException(
                    self._kafka.KafkaError(self._kafka.KafkaError.LEADER_NOT_AVAILABLE)
                )
        except self._kafka.KafkaException as error:
            self._forget_leaders()
            raise self._failure(error) from None
        return offsets

    def _forget_leaders(self) -> None:
        """Have the client ask who leads partitions: one that has led before is refused by a broker that was away.

        It asks for all topics: asked for one that was deleted, a broker may create it again.
        """
        with suppress(self._kafka.KafkaException):
            self._admin.list_topics(timeout=_ANSWER)

    def commit(self, positions: Offsets) -> None:
        """Tell the consumer group how far the topic has been read; do nothing without a group."""
        if not (self._groups and positions):
            return
        places = [self._kafka.TopicPartition(self._topic, *pair) for pair in sorted(positions.items())]
        with suppress(self._kafka.KafkaException):
            self._consumer.commit(offsets=places, asynchronous=False)

    def _is_missing(self, error: Any) -> bool:
        return bool(error.code() == self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART)

    def _failure(self, error: object, *, missing: bool = False) -> SourceError:
        told = self._options.without_secrets(error, SourceError)
        return (_MissingTopicError if missing else SourceError)(
            f"kafka: topic {self._topic} at {self._options.servers}: {told}",
            hint="are the servers right and running, does the topic exist, and may it be read?",
        )

    def close(self) -> None:
        """Let the clients go."""
        self._consumer.close()


def topic_id(admin: Any, topic: str) -> str | None:
    """The id that the brokers know a topic by; None if they are too old for ids. Never makes a topic."""
    client: Any = import_module("confluent_kafka")
    asked = admin.describe_topics(client.TopicCollection([topic]), request_timeout=_ANSWER)
    identity = asked[topic].result().topic_id
    text = "" if identity is None else str(identity)
    return None if text.strip("A=") == "" else text  # base64 of zeros


class OffsetWatch:
    """Where the partitions of a topic begin and end, as far as is known: `begins` and `ends`, which others may read.

    They are those of the topic of this ``id``, if ``id`` is read after them.
    """

    def __init__(self, topic: TopicOffsets) -> None:
        self._topic = topic
        self._partitions: list[int] = topic.partitions()
        self.begins: Offsets = topic.begins(self._partitions)
        self.ends: Offsets = topic.ends(self._partitions)
        self.id: str | None = topic.id()
        self._turn = threading.Condition()
        self._asked = self._answered = 0  # questions that were begun, and that were answered, in all
        self._asked_all = time.monotonic()
        self._to_commit: Offsets = {}
        self._closed = self._wanted = False
        self._trouble: SourceError | None = None  # why the last question was not answered
        self._missing_since: float | None = None  # since when brokers say that there is no such topic
        self._thread = threading.Thread(target=self._watch, name="weft-kafka-offsets", daemon=True)
        self._thread.start()

    def commit(self, positions: Offsets) -> None:
        """Have offsets committed to the consumer group soon."""
        with self._turn:
            self._to_commit = {**self._to_commit, **positions}

    def catch_up(self, timeout: float) -> None:
        """Wait until all partitions have been asked for once more, from beginning to end."""
        with self._turn:
            self._wanted = True
            target = self._asked + 1
            self._turn.notify_all()
            if not self._turn.wait_for(lambda: self._answered >= target or self._closed, timeout):
                raise self._trouble or SourceError(
                    f"kafka: the brokers have not answered for {timeout:g} seconds",
                    hint="are they running, and can they be reached from here?",
                )

    def check_topic(self) -> None:
        """Raise an error if the brokers have said for a while that there is no such topic: it was deleted."""
        since, trouble = self._missing_since, self._trouble
        if since is not None and trouble is not None and time.monotonic() > since + _MISSING_FOR:
            raise trouble

    def close(self) -> None:
        """Stop watching, with the last offsets committed."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()
        self._thread.join()
        self._topic.commit(self._to_commit)
        self._topic.close()

    def _watch(self) -> None:
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._wanted or self._closed, _INTERVAL)
                if self._closed:
                    return
                everything = self._wanted or time.monotonic() > self._asked_all + _RARELY
                self._wanted = False
                self._asked += 1
                number, positions, self._to_commit = self._asked, self._to_commit, {}
            self._topic.commit(positions)
            try:
                self._ask(everything=everything)
            except SourceError as error:  # it is asked again, for everything
                self._note(error)
                continue
            self._trouble = self._missing_since = None
            with self._turn:
                self._answered = number
                self._turn.notify_all()

    def _note(self, error: SourceError) -> None:
        """Keep why a question was not answered."""
        missing = isinstance(error, _MissingTopicError)
        self._missing_since = (self._missing_since or time.monotonic()) if missing else None
        self._trouble, self._asked_all = error, -_RARELY

    def _ask(self, *, everything: bool) -> None:
        if everything:
            self._partitions = self._topic.partitions()
            self.begins = self._topic.begins(self._partitions)
            self._asked_all = time.monotonic()
        ends = self._topic.ends(self._partitions)
        if everything or ends != self.ends:
            self.id = self._topic.id()
        self.ends = ends
