"""How far a topic of Kafka has been taken.

Guarantees: every offset of every partition is in exactly one part, from where the stream began; parts of a partition
come in the order of its offsets. Partitions that a topic gains are read from their beginning. Offsets that expired
before they were taken are an error that names them, or, if that was asked for, the next part of the partition says
which they were. A topic that was deleted and made again under its name is an error, or is read from where ``starting``
says, if that was given; it is known by its id or, where brokers have no ids, by having become shorter than what was
taken of it, or by beginning earlier than before.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from weft.connectors.kafka.fetch import read_range
from weft.connectors.kafka.offsets import Offsets, OffsetWatch, TopicOffsets
from weft.connectors.kafka.options import KafkaOptions
from weft.connectors.kafka.records import Origin
from weft.errors import SourceError
from weft.ports.source import CursorContext, Offer, Part

__all__ = [
    "MADE_AGAIN",
    "KafkaCursor",
    "ReadRules",
    "Starting",
    "parts_between",
]

_LOG = logging.getLogger("weft")

MADE_AGAIN = (
    "its offsets are those of other records: say where to go on, "
    'as in weft.kafka(…, starting="earliest"), or use a new checkpoint'
)

_MOST_RECORDS = 1 << 17  # in one part
_MOST_SEEN = 1000  # ends of a partition that are remembered while records before them wait
_SAMPLE = 100  # records whose size is looked at
_SAMPLING = 5.0  # seconds that they may take to come
_GUESS = 256  # bytes of a record while that is not known
_SHORT_FOR = (
    15.0  # seconds after which a partition that has become shorter is no broker that is just starting
)


@dataclass(frozen=True, slots=True)
class Starting:
    """Where a stream begins: `earliest`, `latest`, at `offsets` of partitions, or at a `time` (milliseconds).

    If it was ``given`` by the user, a topic that was made again is read from there, too.
    """

    at: str = "earliest"
    offsets: tuple[tuple[int, int], ...] = ()
    time: int = 0
    given: bool = False


@dataclass(frozen=True, slots=True)
class ReadRules:
    """How a topic is read; see `weft.kafka`. ``timeout`` is in seconds."""

    starting: Starting = Starting()
    group: str | None = None
    expired: str = "error"
    max_records_per_batch: int | None = None
    timeout: float = 60.0


@dataclass
class KafkaCursor:
    """The next offset of every partition."""

    topic: str
    options: KafkaOptions
    rules: ReadRules
    context: CursorContext
    _positions: dict[int, int] = field(init=False)
    _record_bytes: int = field(init=False)
    _id: str | None = field(init=False)
    _begins: dict[int, int] = field(init=False)  # the last known beginnings, which only move on
    _short_since: float | None = field(init=False, default=None)
    _seen: dict[int, list[tuple[int, int]]] = field(
        init=False, default_factory=dict
    )  # when, and the end then

    def __post_init__(self) -> None:
        state, stream = self.context.state, self.context.stream
        if state.get("topic", self.topic) != self.topic:
            raise SourceError(
                f"{stream}: this checkpoint has read topic {state['topic']}, not {self.topic}",
                hint="use the same topic, or a new checkpoint",
            )
        self._asking = TopicOffsets(self.topic, self.options, self.rules.group)
        self._watch = OffsetWatch(self._asking)
        self._record_bytes = int(state.get("record_bytes", 0))
        self._id = state.get("id") or self._watch.id  # older checkpoints know none
        self._begins = {int(number): int(at) for number, at in state.get("begins", {}).items()}
        if state:
            self._positions = {int(number): int(at) for number, at in state["positions"].items()}
            self._check_or_close()
        else:
            self._positions = _first_positions(self._asking, self._watch, self.rules.starting)

    def look(self, now: float) -> Offer:
        """The offsets that were not taken, as far as the brokers have told."""
        self._watch.check_topic()
        ends, begins = self._watch.ends, self._watch.begins
        if self._is_another() or self._is_shorter(ends, begins, now):
            ends, begins = self._watch.ends, self._watch.begins
        for number in ends:
            self._positions.setdefault(number, begins.get(number, 0))
        self._check(begins)
        starts = {number: max(at, begins.get(number, 0)) for number, at in self._positions.items()}
        waiting = sum(max(0, end - starts[number]) for number, end in ends.items())
        if not waiting:
            return Offer()
        size = self._size_of_a_record(starts, ends)
        most = max(1, self.context.most_bytes // size)
        self._note_ends(ends, now)
        at_once = min(most, self.rules.max_records_per_batch or most)
        in_part = min(most, _MOST_RECORDS, max(1, self.context.part_bytes // size))
        parts = parts_between(self._positions, ends, begins, size, in_part, at_once)
        parts = parts if self._id is None else [_with_id(part, self._id) for part in parts]
        cuts = 0 if waiting <= at_once else -(-waiting // at_once)  # every batch may cut one part in two
        offered = tuple(map(self._with_arrival, _at_most(parts, at_once)))
        return Offer(offered, backlog=(len(parts) + cuts, waiting * size))

    def _note_ends(self, ends: Offsets, now: float) -> None:
        """Note when offsets were first seen: records that were read tell better, but only then."""
        for number, end in ends.items():
            seen = [
                seen_end for seen_end in self._seen.get(number, ()) if seen_end[1] > self._positions[number]
            ]
            if end > max(self._positions[number], seen[-1][1] if seen else -1):
                seen.append((round(now * 1e6), end))
            self._seen[number] = seen if len(seen) <= _MOST_SEEN else [*seen[:1], *seen[2:-1:2], seen[-1]]

    def _with_arrival(self, part: Part) -> Part:
        """A part with when its first and its last offset were seen."""
        seen, (first, end) = self._seen[part.what["partition"]], (part.what["first"], part.what["end"])
        came = next((time for time, at in seen if at > first), None)
        last = next((time for time, at in seen if at >= end), came)
        arrived = None if came is None or last is None else (came, last)
        return replace(part, arrived=arrived, stamped=True)

    def _check_or_close(self) -> None:
        """Refuse a topic that was made again before anything of it is read."""
        try:
            self._is_another()
        except SourceError:
            self._watch.close()
            raise

    def _is_another(self) -> bool:
        """Whether the topic is not the one that was read, by its id; if so, it is begun again or refused."""
        topic_id = self._watch.id
        if self._id is None or topic_id is None or topic_id == self._id:
            self._id = self._id or topic_id
            return False
        self._begin_again(f"its id is {topic_id}, and was {self._id}")
        return True

    def _is_shorter(self, ends: Offsets, begins: Offsets, now: float) -> bool:
        """Whether a topic has for a while not been as it must be if it is the one that was read.

        If brokers have no ids, it is then begun again or refused. If its id is the same, records were lost: an error.
        """
        why = self._why_shorter(ends, begins)
        self._begins = {**self._begins, **{n: max(at, self._begins.get(n, at)) for n, at in begins.items()}}
        if not why:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now
        if self._short_since is None or now <= self._short_since + _SHORT_FOR:
            return False
        if self._id is not None:
            raise SourceError(
                f"{self.context.stream}: topic {self.topic} has lost records: {why}",
                hint="was a leader elected that had not all of them? Restore them, or use a new checkpoint",
            )
        self._begin_again(why)
        return True

    def _why_shorter(self, ends: Offsets, begins: Offsets) -> str:
        """What of a topic cannot be if it is the one that was read; empty if all can."""
        for number in sorted(ends.keys() & self._positions.keys()):
            position, first = self._positions[number], self._begins.get(number, 0)
            if ends[number] < position:
                return f"partition {number} ends at offset {ends[number]}, but it was read to {position}"
            if begins.get(number, first) < first:
                return f"partition {number} begins at offset {begins[number]}, but began at {first}"
        return ""

    def _begin_again(self, why: str) -> None:
        """Read a topic that was made again from where the user says, or refuse it."""
        told = f"{self.context.stream}: topic {self.topic} was deleted and made again: {why}"
        if not self.rules.starting.given:
            raise SourceError(told, hint=MADE_AGAIN)
        self._watch.catch_up(self.rules.timeout)
        self._id, self._begins, self._seen, self._short_since = self._watch.id, {}, {}, None
        self._positions = _first_positions(self._asking, self._watch, self.rules.starting)
        _LOG.warning("%s; it is read from %s on, as starting says", told, self.rules.starting.at)

    def _check(self, begins: Offsets) -> None:
        """Refuse what cannot be gone on with: offsets that expired."""
        gone = [n for n in sorted(begins) if n in self._positions and self._positions[n] < begins[n]]
        if gone and self.rules.expired == "error":
            number = gone[0]
            raise SourceError(
                f"{self._named(number)}: offsets {self._positions[number]} to {begins[number] - 1} have expired "
                "and were not read",
                hint='begin anew, or say weft.kafka(…, expired="skip") to go on without them',
            )

    def _named(self, number: int) -> str:
        return f"{self.context.stream}: topic {self.topic}, partition {number}"

    def _size_of_a_record(self, starts: Offsets, ends: Offsets) -> int:
        """About how many bytes a record takes in memory, as the first ones tell; a guess if they do not come soon."""
        if not self._record_bytes:
            number = next(n for n in sorted(ends) if ends[n] > starts[n])
            first, end = starts[number], min(ends[number], starts[number] + _SAMPLE)
            origin = Origin(self.context.stream, self.topic, number, self._id)
            try:
                messages = read_range(self.options, origin, first, end, _SAMPLING, reset="earliest")
            except SourceError:
                return _GUESS
            sizes = [len(message.value() or b"") + len(message.key() or b"") for message in messages]
            self._record_bytes = 64 + 2 * (sum(sizes) // max(1, len(sizes)))
        return self._record_bytes

    def take(self, parts: Sequence[Part]) -> None:
        """Go on behind these parts, which are the first of their partitions that were offered."""
        for part in sorted(parts, key=lambda part: int(part.what["first"])):
            what = part.what
            number, first = int(what["partition"]), int(what.get("expired", what["first"]))
            if self._positions.setdefault(number, first) != first:
                raise ValueError(f"offset {self._positions[number]} of partition {number} was passed over")
            self._positions[number] = int(what["end"])

    def state(self) -> dict[str, Any]:
        """The topic, and the next offset of every partition."""
        positions = {str(number): at for number, at in sorted(self._positions.items())}
        identity = {} if self._id is None else {"id": self._id}
        begins = {str(number): at for number, at in sorted(self._begins.items()) if at}
        told = {"positions": positions, "begins": begins, "record_bytes": self._record_bytes}
        return {"topic": self.topic, **identity, **told, "blobs": []}

    def release(self, parts: Sequence[Part]) -> None:
        """Tell the consumer group, if there is one, that these offsets are done with."""
        done = dict[int, int]()
        for part in parts:
            number = int(part.what["partition"])
            done[number] = max(done.get(number, 0), int(part.what["end"]))
        self._watch.commit(done)

    def catch_up(self) -> None:
        """Wait until the brokers have said once more which partitions there are and where they end."""
        self._watch.catch_up(self.rules.timeout)

    def close(self) -> None:
        """Stop asking the brokers."""
        self._watch.close()


def _with_id(part: Part, topic: str) -> Part:
    return replace(part, what={**part.what, "id": topic})


def _first_positions(asking: TopicOffsets, watch: OffsetWatch, starting: Starting) -> dict[int, int]:
    """Where each partition is read from at first."""
    begins, ends = watch.begins, watch.ends
    if starting.at == "latest":
        return dict(ends)
    if starting.at == "time":
        positions = asking.at(list(begins), starting.time)
        return {number: at if at >= 0 else ends[number] for number, at in positions.items()}
    chosen = dict(starting.offsets)
    unknown = sorted(chosen.keys() - begins.keys())
    if unknown:
        raise SourceError(
            f"kafka: starting names partition {unknown[0]}, which the topic does not have",
            hint=f"its partitions are {', '.join(map(str, sorted(begins)))}",
        )
    return {number: chosen.get(number, begin) for number, begin in begins.items()}


def parts_between(
    positions: Mapping[int, int],
    ends: Offsets,
    begins: Offsets,
    record_bytes: int,
    most: int,
    at_once: int = 1 << 62,
) -> list[Part]:
    """Parts of at most so many records, from the positions to the ends, all partitions in turn.

    The first ``at_once`` records are of all partitions in proportion to what waits in each, for partitions that are
    far apart in a batch are far apart in event time.

    >>> [tuple(part.what.values()) for part in parts_between({0: 0, 1: 5}, {0: 3, 1: 6}, {0: 0, 1: 0}, 10, 2)]
    [(0, 0, 2), (1, 5, 6), (0, 2, 3)]
    """
    waiting = {
        number: max(0, ends[number] - max(positions[number], begins.get(number, 0))) for number in ends
    }
    sizes = _part_sizes(waiting, most, at_once)

    def of(number: int) -> list[Part]:
        start = max(positions[number], begins.get(number, 0))
        size = sizes[number]
        ranges = [(first, min(first + size, ends[number])) for first in range(start, ends[number], size)]
        ranges_taken = [{"partition": number, "first": first, "end": end} for first, end in ranges]
        if ranges_taken and start > positions[number]:
            ranges_taken[0]["expired"] = positions[number]
        return [Part(what, (what["end"] - what["first"]) * record_bytes) for what in ranges_taken]

    turns = zip_longest(*(of(number) for number in sorted(ends)))
    return [part for turn in turns for part in turn if part is not None]


def _part_sizes(waiting: Mapping[int, int], most: int, at_once: int) -> dict[int, int]:
    """How many records a part of each partition has.

    >>> _part_sizes({0: 1000, 1: 3000}, 131, 400), _part_sizes({0: 1000, 1: 3000}, 131, 4000)
    ({0: 34, 1: 100}, {0: 131, 1: 131})
    """
    total = sum(waiting.values())
    if total <= at_once:
        return dict.fromkeys(waiting, most)
    shares = {number: -(-at_once * count // total) for number, count in waiting.items()}
    rounds = -(-max(shares.values()) // most)
    return {number: max(1, -(-share // rounds)) for number, share in shares.items()}


def _at_most(parts: Sequence[Part], records: int) -> tuple[Part, ...]:
    """The first parts that together have no more records than that, the last of them cut if need be."""
    chosen, left = list[Part](), records
    for part in parts:
        first, end = int(part.what["first"]), int(part.what["end"])
        count = min(end - first, left)
        if count == end - first:
            chosen.append(part)
        else:
            size, what = part.bytes * count // (end - first), {**part.what, "end": first + count}
            return (*chosen, replace(part, what=what, bytes=size)) if count else tuple(chosen)
        left -= count
    return tuple(chosen)
