"""Which of the parts that streams offer the next batch takes: so many bytes, and streams in step with each other.

Guarantees: of every stream the first parts that are offered are taken, in their order. A batch takes at most so many
bytes, except that it takes at least one part if there is any; and no stream waits for ever. Where more waits than a
batch takes, streams that queries join advance together in event time (what Flink calls watermark alignment): a stream
that runs ahead would only fill the state with tuples whose partners are still to be read. It waits for a stream that
has more to offer, never for one that has nothing.

A part says itself from when to when its tuples are, or that is estimated from how far the stream has come and how far a
byte of it has led lately; streams of which neither is known take their share of the bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from weft.ports.source import Offer, Part
from weft.runtime.log.values import Inputs

__all__ = ["StreamTimes", "Taken", "choose_parts", "kept_parts"]

Taken = dict[str, tuple[Part, ...]]

LEAST = 0.01  # so much of a stream is read, however far it is behind: its watermark goes on
RECENT = 0.3  # the part that the last batch has in what is known of how far a byte leads


@dataclass
class StreamTimes:
    """How far streams have come in event time, and how far a byte of each leads, by stream, in microseconds."""

    newest: Mapping[str, int] = field(default_factory=dict)
    per_byte: dict[str, float] = field(default_factory=dict)

    def measured(self, inputs: Inputs, newest: Mapping[str, int]) -> None:
        """Learn from a batch that took parts, and after which the last times of streams are these."""
        for name, parts in inputs.items():
            size = sum(part.bytes for part in parts)
            if size and name in newest and name in self.newest:
                led = max(0, newest[name] - self.newest[name]) / size
                known = self.per_byte.get(name, led)
                self.per_byte[name] = (1 - RECENT) * known + RECENT * led
        self.newest = dict(newest)

    def spans(self, name: str, parts: Sequence[Part]) -> list[tuple[int, int]] | None:
        """About from when to when the tuples of each part are; None if that is not known.

        A stream does not go back: a part that begins before another one ahead of it begins when that one does. The
        first part of a stream of which nothing was read yet comes before all others: as long as it has no watermark,
        nothing of the streams that it is joined with can be forgotten.
        """
        per_byte = self.per_byte.get(name)
        found, at = list[tuple[int, int]](), None if per_byte is None else self.newest.get(name)
        for part in parts:
            begin = part.oldest if part.oldest is not None else at
            if begin is None:
                return None
            led = round((per_byte or 0.0) * part.bytes)
            end = part.newest if part.newest is not None else begin + led
            begin = max(begin, found[-1][0] if found else begin)
            found.append((begin, max(begin, end)))
            at = None if per_byte is None else end
        if found and name not in self.newest:
            found[0] = -sys.maxsize, found[0][1]
        return found


@dataclass(frozen=True, slots=True)
class PartQueue:
    """Parts of one stream, or of several that are joined, in the order in which they are to be taken."""

    parts: tuple[tuple[str, Part], ...]
    streams: int = 1

    @property
    def bytes(self) -> int:
        """How many bytes wait in it."""
        return _bytes(self.parts)


def choose_parts(
    offers: Mapping[str, Offer],
    wanted: int,
    most: int,
    joined: Iterable[Collection[str]] = (),
    times: StreamTimes | None = None,
    turn: int = 0,
) -> Taken:
    """The parts that a batch takes: about ``wanted`` bytes, at most ``most`` of them, of each queue its share.

    The first part of every queue is taken, if there is room for it, beginning with another queue each ``turn``: none
    waits for ever because its parts are large.

    >>> hour = 3_600_000_000
    >>> behind = tuple(Part({"n": n}, 10, oldest=n * hour, newest=n * hour) for n in range(4))
    >>> ahead = tuple(Part({"n": n}, 10, oldest=n * hour, newest=n * hour) for n in range(2, 6))
    >>> offers = {"a": Offer(ahead, backlog=(4, 40)), "b": Offer(behind, backlog=(4, 40))}
    >>> {name: len(parts) for name, parts in sorted(choose_parts(offers, 40, 80).items())}
    {'a': 2, 'b': 2}
    >>> {name: len(parts) for name, parts in sorted(choose_parts(offers, 40, 80, [{"a", "b"}]).items())}
    {'a': 1, 'b': 3}
    """
    queues = _queues(offers, joined, times or StreamTimes())
    counts = [len(queue.parts) for queue in queues]
    if sum(queue.bytes for queue in queues) > min(wanted, most):
        counts = _shares(queues, wanted, most, turn)
    found: dict[str, list[Part]] = {}
    for queue, count in zip(queues, counts, strict=True):
        for name, part in queue.parts[:count]:
            found.setdefault(name, []).append(part)
    return {name: tuple(parts) for name, parts in found.items()}


def kept_parts(taken: Taken, shed: Collection[str], wanted: int) -> dict[str, float]:
    """The part of the rows, by stream to be shed, that leaves about so many bytes; empty if all can be read.

    >>> kept_parts({"a": (Part({}, 300),), "b": (Part({}, 50),)}, ["a"], 200)
    {'a': 0.5}
    """
    sizes = {name: sum(part.bytes for part in parts) for name, parts in taken.items()}
    sheddable = sum(size for name, size in sizes.items() if name in shed)
    room = wanted - (sum(sizes.values()) - sheddable)
    if room >= sheddable:
        return {}
    return {name: max(LEAST, round(room / sheddable, 4)) for name in sorted(sizes) if name in shed}


def _bytes(parts: Iterable[tuple[str, Part]]) -> int:
    return sum(part.bytes for _, part in parts)


def _shares(queues: Sequence[PartQueue], wanted: int, most: int, turn: int) -> list[int]:
    """How many parts of each queue are taken."""
    counts, room = [0] * len(queues), most
    for place in sorted(range(len(queues)), key=lambda place: (place - turn) % len(queues)):
        size = queues[place].parts[0][1].bytes
        if size <= room or room == most:
            counts[place], room = 1, room - size
    room = min(room, wanted - (most - room))
    left = sorted((place for place, count in enumerate(counts) if count), key=lambda at: queues[at].bytes)
    while left:
        queue, streams = queues[left[0]], sum(queues[place].streams for place in left)
        share = room * queue.streams // streams
        for _, part in queue.parts[1:]:
            if part.bytes > share:
                break
            share, room, counts[left[0]] = share - part.bytes, room - part.bytes, counts[left[0]] + 1
        left = left[1:]
    return counts


def _queues(
    offers: Mapping[str, Offer], joined: Iterable[Collection[str]], times: StreamTimes
) -> list[PartQueue]:
    """The queues in which parts wait: one for every group of streams that are joined, and one for each other stream."""
    offered = {name: offer.parts for name, offer in sorted(offers.items()) if offer.parts}
    found, alone = list[PartQueue](), dict(offered)
    for group in joined:
        names = sorted(name for name in group if name in offered)
        spans = {name: known for name in names if (known := times.spans(name, offered[name])) is not None}
        if len(spans) > 1:
            found.append(
                PartQueue(tuple(_by_time({name: offers[name] for name in spans}, spans)), len(spans))
            )
            alone = {name: parts for name, parts in alone.items() if name not in spans}
    return [*found, *(PartQueue(tuple((name, part) for part in parts)) for name, parts in alone.items())]


def _by_time(
    offers: Mapping[str, Offer], spans: Mapping[str, Sequence[tuple[int, int]]]
) -> Iterator[tuple[str, Part]]:
    """The parts of several streams by event time.

    If a stream has more than it offers, no part of another is among them that begins after its last part ends.
    """
    more = [name for name, offer in offers.items() if len(offer.parts) < offer.backlog[0]]
    last = min((spans[name][-1][1] for name in more), default=None)
    parts = [
        (begin, name, place)
        for name, known in spans.items()
        for place, (begin, _) in enumerate(known)
        if last is None or begin <= last
    ]
    return ((name, offers[name].parts[place]) for _, name, place in sorted(parts))
