"""How a task reads a range of offsets of a Kafka partition.

Guarantees: `read_range` gives the records of a partition from one offset up to another, in their order, all that there
are: offsets that have no record (markers of transactions, what was compacted) end no range too early and make none wait
for long. Clients stay open between ranges; one that reads on where it was has the next records fetched already. At most
`_MOST_OPEN` of them are kept in a process. Python's collector of cycles rests meanwhile (`collector_at_rest`): looking
through a hundred thousand records again and again took two thirds of the time of fetching them (decision 32).
"""

from __future__ import annotations

import gc
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from weft.connectors.kafka.offsets import topic_id
from weft.connectors.kafka.options import KafkaOptions, load_client
from weft.connectors.kafka.records import KafkaMessage, Origin
from weft.errors import SourceError

__all__ = [
    "collector_at_rest",
    "is_topic",
    "read_range",
]

_MOST_OPEN = 16
_AT_ONCE = 1 << 16  # records that are asked of a client in one call
_PATIENCE = 0.02  # seconds that a client may gather records before it gives those that it has
_FETCHING = {
    "fetch_max_bytes": 64 << 20,
    "max_partition_fetch_bytes": 8 << 20,
    "queued_min_messages": 1_000_000,
    "queued_max_messages_kbytes": 64 << 10,
}


class _Rests:
    """How many threads want the collector to rest, and whether it is to work afterwards."""

    lock = threading.Lock()
    count = 0
    worked = False


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Let Python's collector of cycles rest while many records are at hand; several threads may want that."""
    with _Rests.lock:
        if not _Rests.count:
            _Rests.worked = gc.isenabled()
            gc.disable()
        _Rests.count += 1
    try:
        yield
    finally:
        with _Rests.lock:
            _Rests.count -= 1
            if not _Rests.count and _Rests.worked:
                gc.enable()


class _PartitionReader:
    """A client that reads one partition. All records below ``position`` have been handed out, or never were."""

    def __init__(self, options: KafkaOptions, origin: Origin, reset: str) -> None:
        self._kafka, self._origin, self._options = load_client("kafka", SourceError), origin, options
        fixed = {"group_id": "weft", "enable_auto_commit": False, "enable_partition_eof": True}
        config = options.config(SourceError, **fixed, auto_offset_reset=reset, **_FETCHING)
        self._consumer = self._kafka.Consumer(config)
        self.position = -1
        self._ahead: list[KafkaMessage] = []  # records that were fetched and not yet asked for
        self._end_seen = -1  # the offset at which the partition was last seen to end

    def read(self, first: int, end: int, timeout: float) -> list[KafkaMessage]:
        """The records of a range."""
        if first != self.position:
            self._consumer.assign(
                [self._kafka.TopicPartition(self._origin.topic, self._origin.partition, first)]
            )
            self._ahead, self._end_seen = [], -1
        self.position = -1  # until the range is complete
        messages, until, trouble = list[KafkaMessage](), time.monotonic() + timeout, None
        while not self._take_up_to(end, messages):
            left = end - (_offset(messages[-1]) + 1 if messages else first)
            fetched = self._consumer.consume(min(left, _AT_ONCE), _PATIENCE)
            if fetched:
                trouble = self._sort_out(fetched) or trouble
                until = time.monotonic() + timeout if self._ahead else until
            elif time.monotonic() > until:
                raise self._failure(f"no records came for {timeout:g} seconds", trouble)
        self.position = end
        return messages

    def _take_up_to(self, end: int, messages: list[KafkaMessage]) -> bool:
        """Move records of the range from those ahead; true if there are no more of it."""
        ahead = self._ahead
        if ahead and _offset(ahead[-1]) >= end:
            count = next(at for at, message in enumerate(ahead) if _offset(message) >= end)
            messages += ahead[:count]
            del ahead[:count]
            return True
        messages += ahead
        ahead.clear()
        return self._end_seen >= end or (bool(messages) and _offset(messages[-1]) == end - 1)

    def _sort_out(self, fetched: list[KafkaMessage]) -> object:
        """Keep the records of what a client gave; gives the last trouble among it, raises what will not pass."""
        told = [message for message in fetched if message.error() is not None]
        if told:
            fetched = [message for message in fetched if message.error() is None]
        self._ahead += fetched
        trouble: object = None
        for message in told:
            trouble = error = message.error()
            if error.code() == self._kafka.KafkaError._PARTITION_EOF:
                self._end_seen = max(self._end_seen, _offset(message))
                trouble = None
            elif error.code() == self._kafka.KafkaError._AUTO_OFFSET_RESET:
                raise self._failure("records of the range are no longer there: they have expired", error)
            elif error.code() in _lasting(self._kafka.KafkaError):
                raise self._failure("the brokers refuse", error)
        return trouble

    def _failure(self, what: str, error: object) -> SourceError:
        told = "" if error is None else f": {self._options.without_secrets(error, SourceError)}"
        place = f"topic {self._origin.topic}, partition {self._origin.partition}"
        return SourceError(
            f"{self._origin.stream}: {place}: {what}{told}",
            hint="its batch is not done: it is tried again when the session starts again",
        )

    def close(self) -> None:
        """Let the client go."""
        self._consumer.close()


def _lasting(codes: Any) -> tuple[int, ...]:
    """Errors that do not go away by waiting."""
    return (codes._AUTHENTICATION, codes.TOPIC_AUTHORIZATION_FAILED, codes.GROUP_AUTHORIZATION_FAILED)


def _offset(message: KafkaMessage) -> int:
    return message.offset() or 0


class _Open:
    """The clients of this process that no task is just using, the one that was used last at the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: OrderedDict[Any, _PartitionReader] = OrderedDict()

    def take(self, key: Any) -> _PartitionReader | None:
        """The client with that key, which is then the caller's."""
        with self._lock:
            return self._readers.pop(key, None)

    def give(self, key: Any, reader: _PartitionReader) -> None:
        """Keep a client for later."""
        with self._lock:
            left = [self._readers.pop(key)] if key in self._readers else []
            self._readers[key] = reader
            while len(self._readers) > _MOST_OPEN:
                left.append(self._readers.popitem(last=False)[1])
        for other in left:
            other.close()


_OPEN = _Open()


def read_range(
    options: KafkaOptions, origin: Origin, first: int, end: int, timeout: float, *, reset: str = "error"
) -> list[KafkaMessage]:
    """The records of a partition from offset ``first`` to before ``end``.

    ``timeout`` is for how many seconds it may wait for the next records. If the first offset is not there any more,
    that is an error, or with ``reset="earliest"`` the range begins with the first one that is.
    """
    key = (options, origin, reset)
    try:
        reader = _OPEN.take(key) or _PartitionReader(options, origin, reset)
    except load_client("kafka", SourceError).KafkaException as error:
        shown = options.without_secrets(error, SourceError)
        raise SourceError(f"{origin.stream}: Kafka's client cannot be made: {shown}") from None
    try:
        with collector_at_rest():
            messages = reader.read(first, end, timeout)
    except BaseException:
        reader.close()
        raise
    _OPEN.give(key, reader)
    return messages


_FRESH = (
    1.0  # seconds for which a topic's id is known, so that a task of many small parts need not ask for each
)


class _Ids:
    """The ids of topics as brokers told them, and when; by the options of the client and the topic."""

    lock = threading.Lock()
    admins: dict[KafkaOptions, Any] = {}  # noqa: RUF012
    told: dict[tuple[KafkaOptions, str], tuple[float, str | None]] = {}  # noqa: RUF012


def is_topic(options: KafkaOptions, topic: str, identity: str) -> bool:
    """Whether a topic had an id a moment ago; true if brokers do not tell: whether it can be read, its records show."""
    with _Ids.lock:
        when, told_identity = _Ids.told.get((options, topic), (-_FRESH, None))
        if told_identity == identity and time.monotonic() - when < _FRESH:
            return True
        try:
            if options not in _Ids.admins:
                admin: Any = import_module("confluent_kafka.admin")
                _Ids.admins[options] = admin.AdminClient(options.config(SourceError))
            told_identity = topic_id(_Ids.admins[options], topic)
        except load_client("kafka", SourceError).KafkaException:
            return True
        _Ids.told[options, topic] = (time.monotonic(), told_identity)
        return told_identity is None or told_identity == identity
