"""Which records of a topic are visible to consumers that read only committed records, as the sink needs to know it.

Kafka shows such consumers the records of a partition up to the first transaction that is still open there, and no
further. After a failure the sink asks three things: where each partition ends (`TopicView.ends`), whether consumers
reach that far or an open transaction stops them before it (`wait_until_seen`), and which records they see between two
offsets (`records`); what of its batch is missing there, it sends again (`without`). Nothing here changes the topic.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

from weft.connectors.common import waiting_time
from weft.connectors.kafka.options import KafkaOptions, load_client
from weft.errors import SinkError

__all__ = [
    "BatchMark",
    "Ends",
    "Records",
    "TopicView",
    "without",
]

_ANSWER = 30.0  # seconds that brokers may take for one answer
_POLLS = (0.002, 0.1)  # seconds between two looks, at first and at most
_MOST_TEXT = 3500  # characters of a mark, for brokers take 4096 bytes

Records: TypeAlias = "Sequence[dict[str, Any]]"  # of values and keys
Ends: TypeAlias = "tuple[int, ...]"  # an offset of every partition, from the first


@dataclass(frozen=True, slots=True)
class BatchMark:
    """The last batch that a writer has added to a topic, and between which offsets of each partition it stands.

    >>> BatchMark.parse(7, BatchMark(7, (3, 0), (5, 9)).text())
    BatchMark(batch=7, starts=(3, 0), ends=(5, 9))
    """

    batch: int = -1
    starts: Ends | None = None
    ends: Ends | None = None

    def text(self) -> str:
        """The offsets as the metadata of a committed offset; nothing if they are too many for that."""
        if self.starts is None or self.ends is None:
            return ""
        starts = (*self.starts, *[0] * (len(self.ends) - len(self.starts)))  # partitions may be new
        shown = ",".join(f"{at}+{end - at}" for at, end in zip(starts, self.ends, strict=True))
        return shown if len(shown) <= _MOST_TEXT else ""

    @staticmethod
    def parse(batch: int, text: str | None) -> BatchMark:
        """The mark that was written as such a text; without offsets if it has none."""
        try:
            pairs = [tuple(map(int, pair.split("+"))) for pair in (text or "").split(",")]
            return BatchMark(batch, tuple(at for at, _ in pairs), tuple(at + size for at, size in pairs))
        except ValueError:
            return BatchMark(batch)

    def start_of(self, batch: int) -> Ends | None:
        """From which offsets on a batch stands, which is the last or the next; None if that is not known."""
        return self.starts if batch <= self.batch else self.ends


class TopicView:
    """A topic as its brokers tell of it. All methods raise the client's errors."""

    def __init__(self, topic: str, options: KafkaOptions) -> None:
        self._kafka, self._topic, self._options = load_client("to_kafka", SinkError), topic, options
        admin: Any = import_module("confluent_kafka.admin")
        self._latest = admin.OffsetSpec.latest()
        self._admin = admin.AdminClient(options.config(SinkError))
        reading = {"group_id": "weft", "enable_auto_commit": False, "auto_offset_reset": "earliest"}
        self._consumer = self._kafka.Consumer(options.config(SinkError, **reading, enable_partition_eof=True))

    def ends(self, *, committed: bool) -> Ends:
        """Behind the last record of each partition, or up to where readers of committed records reach."""
        topic = self._consumer.list_topics(self._topic, timeout=waiting_time(_ANSWER)).topics[self._topic]
        if topic.error is not None:
            raise self._kafka.KafkaException(topic.error)
        levels = self._kafka.IsolationLevel
        level = levels.READ_COMMITTED if committed else levels.READ_UNCOMMITTED
        asked = {self._kafka.TopicPartition(self._topic, number): self._latest for number in topic.partitions}
        told = self._admin.list_offsets(asked, isolation_level=level, request_timeout=waiting_time(_ANSWER))
        offsets = {place.partition: int(future.result().offset) for place, future in told.items()}
        if min(offsets.values()) < 0:  # the client's answer while no broker leads a partition
            raise self._kafka.KafkaException(
                self._kafka.KafkaError(self._kafka.KafkaError.LEADER_NOT_AVAILABLE)
            )
        return tuple(offsets[number] for number in sorted(offsets))

    def wait_until_seen(self, ends: Ends, seconds: float, since: Ends = ()) -> list[int]:
        """Wait until readers of committed records reach so far; gives the partitions where they do not.

        A partition that was open before ``since`` is not waited for: a transaction of somebody else's holds it.
        """
        until, pause = time.monotonic() + seconds, _POLLS[0]
        while True:
            seen = self.ends(committed=True)
            open_ = [
                number
                for number, end in enumerate(ends)
                if _at(since, number, 0) <= _at(seen, number, end) < end
            ]
            if not open_ or time.monotonic() > until:
                return open_
            time.sleep(pause)
            pause = min(2 * pause, _POLLS[1])

    def records(self, starts: Ends, ends: Ends) -> Counter[tuple[bytes, bytes]]:
        """How often each key with its value stands between offsets of the partitions, for readers of committed ones."""
        left = {number: end for number, end in enumerate(ends) if end > _at(starts, number, 0)}
        counts, place = Counter[tuple[bytes, bytes]](), self._kafka.TopicPartition
        self._consumer.assign([place(self._topic, number, _at(starts, number, 0)) for number in left])
        patience = waiting_time(_ANSWER)
        until = time.monotonic() + patience
        while left:
            fetched = self._consumer.consume(1 << 14, 0.1)
            until = time.monotonic() + patience if fetched else until
            if time.monotonic() > until:
                raise self._kafka.KafkaException(self._kafka.KafkaError(self._kafka.KafkaError._TIMED_OUT))
            for message in fetched:
                self._take(message, left, counts)
        self._consumer.unassign()
        return counts

    def _take(self, message: Any, left: dict[int, int], counts: Counter[Any]) -> None:
        """Count a record; a partition that has been read to its end is no longer left."""
        number, at, error = message.partition(), message.offset(), message.error()
        if error is not None and error.code() != self._kafka.KafkaError._PARTITION_EOF:
            raise self._kafka.KafkaException(error)
        if error is None and at < left.get(number, 0):
            counts[message.key() or b"", message.value() or b""] += 1
        if number in left and at >= left[number] - (error is None):
            del left[number]


def _at(offsets: Ends, number: int, otherwise: int) -> int:
    return offsets[number] if number < len(offsets) else otherwise


def without(
    chunks: Callable[[], Iterable[Records]], there: Counter[tuple[bytes, bytes]]
) -> Iterator[Records]:
    """The records that are not there yet; those that occur several times are counted."""
    left = Counter(there)
    for records in chunks():
        kept = list[dict[str, Any]]()
        for record in records:
            identity = (record.get("key") or b"", record["value"] or b"")
            if left[identity] > 0:
                left[identity] -= 1
            else:
                kept.append(record)
        if kept:
            yield kept
