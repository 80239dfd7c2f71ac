"""What the streams offer, and what of it the next batch takes.

Guarantees: a part is taken only if it is in the plan of a batch, and is never offered again. How much a batch takes is
said in `batch_size`, and of which streams in `choice`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_not
from typing import Any

from weft.errors import SourceError
from weft.logical.query.query import Query
from weft.ports.source import Cursor, CursorContext, Offer, Part, Source
from weft.runtime.log.values import BatchPlan, Inputs
from weft.runtime.loop.driver_order import ROW_BYTES
from weft.runtime.loop.intake.batch_size import BatchSize
from weft.runtime.loop.intake.blocked_streams import BlockedStreams
from weft.runtime.loop.intake.choice import StreamTimes, Taken, choose_parts, kept_parts
from weft.runtime.model.watermarks import joined_streams
from weft.runtime.observe.metrics import Backlog
from weft.runtime.queries.request import QueryRequest, targets_of

__all__ = ["Intake", "left_waiting"]


@dataclass
class Intake:
    """The cursors of all streams.

    ``place`` gives the place of a stream's cursor, from its name and state. ``offers`` are those of the last look.
    ``taken`` counts the parts of each stream that were in batches since the start, and ``released`` those of them
    whose batch is committed. ``sizes`` says how much a batch takes, ``times`` how far streams have come, and ``kept``
    which part of the rows of the next batch is read. A stream that cannot be read is ``blocked``, where ``may_block``
    says that others go on without it; ``last`` is the last batch whose parts were counted.
    """

    place: Callable[[str, Mapping[str, Any]], CursorContext]
    most_bytes: int
    clock: Callable[[], float] = time.time
    may_block: Callable[[str], bool] = lambda _: False
    last: int = field(default=-1, init=False)
    blocked: BlockedStreams = field(default_factory=BlockedStreams, init=False)
    cursors: dict[str, Cursor] = field(default_factory=dict)
    offers: dict[str, Offer] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict, init=False)
    times: StreamTimes = field(default_factory=StreamTimes, init=False)
    sizes: BatchSize = field(init=False)
    kept: Mapping[str, float] = field(default_factory=dict, init=False)
    released: dict[str, int] = field(default_factory=dict, init=False)
    _done: deque[BatchPlan] = field(
        default_factory=deque, init=False
    )  # batches that were committed since the last look
    _gone: Inputs = field(default_factory=dict, init=False)  # what was taken of the offers
    _since: dict[str, float] = field(
        default_factory=dict, init=False
    )  # since when a stream has had something that waits

    # The queries of the last batch, and the streams that they join.
    _groups: tuple[list[Query], list[list[str]]] = field(default_factory=lambda: ([], []), init=False)

    def __post_init__(self) -> None:
        self.sizes = BatchSize(self.most_bytes)

    def open(self, name: str, source: Source, state: Mapping[str, Any]) -> None:
        """Follow one more stream, from where it was taken up to, as ``state`` says."""
        self.cursors[name] = source.open(self.place(name, state))
        self.taken[name], self.released[name] = self.taken.get(name, 0), self.released.get(name, 0)

    def look(self) -> None:
        """Release the parts of batches that were committed since the last look, and ask all cursors for offers."""
        self._let_go()
        now = self.clock()
        offers = {name: self._look_at(name, cursor, now) for name, cursor in list(self.cursors.items())}
        self._since = {name: self._since.get(name, now) for name, offer in offers.items() if offer.backlog[0]}
        self.offers, self._gone = offers, {}

    def _look_at(self, name: str, cursor: Cursor, now: float) -> Offer:
        """What a stream offers; nothing, if it is blocked, or cannot be looked at and may be blocked for that."""
        if self.blocked.rests(name):
            return Offer()
        try:
            offer = cursor.look(now)
        except SourceError as error:
            if not self.may_block(name):
                raise
            self.blocked.block(name, error, self.last + 1)
            return Offer()
        if not (offer.parts or offer.unfinished):  # else whoever reads them will see
            self.blocked.unblock([name])
        return offer

    def give_back(self, name: str, source: Source, state: Mapping[str, Any], parts: int) -> None:
        """Take so many parts of a stream out of the batch that is about to run; they are offered again later.

        The batches before it are committed, and ``state`` is how far they have taken the stream.
        """
        self._let_go()
        self.cursors[name].close()
        self.open(name, source, state)
        self.taken[name] -= parts

    def _let_go(self) -> None:
        while self._done:
            for name, parts in self._done.popleft().inputs.items():
                if parts and name in self.cursors:
                    self.cursors[name].release(parts)

    def chosen(
        self,
        requests: Mapping[str, QueryRequest],
        latency: float | None,
        now: int,
        shed: Collection[str] = (),
    ) -> Taken:
        """The parts that the next batch takes for some queries, of those that were offered, at a time in microseconds.

        Results are wanted within the ``latency`` that is usual, or that queries say; None: as soon as it goes. Of the
        streams in ``shed``, all is taken where that is late, and of their rows the part ``kept`` that can be in time.
        """
        target = min(targets_of(requests, latency).values(), default=None)
        waited = max((one.seconds for one in self.backlog({}, now).values()), default=0.0)
        wanted, turn = self.sizes.next_bytes(target, waited), self.last + 1
        known, self.kept = (self._joined(requests), self.times, turn), {}
        if shed and target is not None and waited > target:
            taken = choose_parts(self.offers, self.most_bytes, self.most_bytes, *known)
            self.kept = kept_parts(taken, shed, self.sizes.next_bytes(target, 0.0))
            if self.kept:
                return taken
        return choose_parts(self.offers, wanted, self.most_bytes, *known)

    def _joined(self, requests: Mapping[str, QueryRequest]) -> list[list[str]]:
        """The streams with event time that queries join; worked out when these are others than before."""
        queries = [request.query for request in requests.values()]
        known, groups = self._groups
        if len(known) != len(queries) or any(map(is_not, known, queries)):
            found = joined_streams(queries)
            groups = [[stream.name for stream in group if stream.event_time] for group in found]
            self._groups = queries, groups
        return groups

    def left_out(self, taken: Taken) -> tuple[str, ...]:
        """The streams of which a batch takes nothing, though they offer something: they are not idle."""
        return tuple(sorted(name for name, offer in self.offers.items() if offer.parts and name not in taken))

    def measured(self, plan: BatchPlan, newest: Mapping[str, int], seconds: float) -> None:
        """Learn how long a batch took, and how far it has led: after it, the last times of streams are ``newest``."""
        inputs = {name: parts for name, parts in plan.inputs.items() if name in self.cursors}
        self.times.measured(inputs, newest)
        sizes = {name: sum(part.bytes for part in parts) for name, parts in inputs.items()}
        self.sizes.measured(
            round(sum(plan.shed.get(name, 1.0) * size for name, size in sizes.items())), seconds
        )

    def take(self, plan: BatchPlan) -> None:
        """Have the cursors never offer the parts in a plan again."""
        for name, parts in plan.inputs.items():
            if parts and name in self.cursors:
                self.cursors[name].take(parts)
        self._gone = plan.inputs

    def count_taken(self, plan: BatchPlan) -> None:
        """Count the parts of a batch that begins, be it new or repeated."""
        self.last = plan.number
        for name, parts in plan.inputs.items():
            self.taken[name] = self.taken.get(name, 0) + len(parts)

    def states(self) -> dict[str, dict[str, Any]]:
        """The state of every cursor, which says how far its stream has been taken, as plain data."""
        return {name: cursor.state() for name, cursor in self.cursors.items()}

    def states_of(self, names: Iterable[str], key: str) -> list[int]:
        """What the cursors of some streams say of themselves under a key."""
        return [int(self.cursors[name].state()[key]) for name in names if name in self.cursors]

    def release(self, plan: BatchPlan) -> None:
        """Note that a batch is committed; the cursors may forget its parts, and are told so with the next look.

        Unlike all other methods, this one may be called while another thread looks, since it uses no cursor.
        """
        self._done.append(plan)
        for name, parts in plan.inputs.items():
            self.released[name] = self.released.get(name, 0) + len(parts)

    def waiting(self) -> dict[str, int]:
        """By stream, at most how many parts will have been released when all input of the last look has been.

        Parts that are offered are counted. A backlog that is not offered yet may become more parts than it has now.
        """
        return {name: self.taken[name] + self._most_parts(offer) for name, offer in self.offers.items()}

    def _most_parts(self, offer: Offer) -> int:
        parts, size = offer.backlog
        if len(offer.parts) == parts:
            return parts
        return parts + 4 * -(-size // max(1, self.most_bytes)) + 1

    def has_released(self, target: Mapping[str, int]) -> bool:
        """Whether at least so many parts of every stream are committed, or all that are left: some may be gone."""
        return all(self._has_released(name, count) for name, count in target.items())

    def _has_released(self, name: str, count: int) -> bool:
        released, offer = self.released.get(name, 0), self.offers.get(name)
        awaited = offer is None or any(file.awaited for file in offer.unfinished)
        nothing_waits = offer is not None and offer.backlog[0] == 0 and not awaited
        return released >= count or (nothing_waits and released >= self.taken.get(name, 0))

    def backlog(self, rows_per_byte: Mapping[str, float], now: int) -> dict[str, Backlog]:
        """What of every stream waits, of the last look's offers, at a time in microseconds.

        Rows are those that parts know; others are estimated by how many a byte has, by stream.
        """
        gone, offers = self._gone, self.offers
        return {
            name: left_waiting(offer, gone.get(name, ()), rows_per_byte.get(name), now, self._since.get(name))
            for name, offer in offers.items()
        }

    def unfinished(self) -> dict[str, tuple[str, ...]]:
        """By stream, the files that are not complete yet, with the reason."""
        return {
            name: tuple(f"{one.name}: {one.reason}" for one in offer.unfinished)
            for name, offer in self.offers.items()
            if offer.unfinished
        }

    def catch_up(self) -> None:
        """Wait until all that has arrived at the sources can be seen."""
        for cursor in list(self.cursors.values()):
            cursor.catch_up()

    def close_stream(self, name: str) -> None:
        """Follow a stream no longer; all batches that read it are committed."""
        self._let_go()
        cursor = self.cursors.pop(name, None)
        self.offers = {other: offer for other, offer in self.offers.items() if other != name}
        if cursor is not None:
            cursor.close()

    def close(self) -> None:
        """Close all cursors."""
        self._let_go()
        for cursor in self.cursors.values():
            cursor.close()
        self.cursors.clear()


def left_waiting(
    offer: Offer, taken: Sequence[Part], density: float | None, now: int, since: float | None = None
) -> Backlog:
    """What of an offer waits after its first parts were taken; ``density`` is how many rows a byte has.

    It has waited since the first part that was not taken came. If that is not offered yet, then at the earliest since
    the last one that was taken came; if the source does not tell, ``since`` (seconds).

    >>> parts = (Part({}, 10, 5, arrived=(0, 0)), Part({}, 10, 6, arrived=(2_000_000, 2_000_000)))
    >>> left_waiting(Offer(parts, backlog=(3, 30)), parts[:1], 0.5, 5_000_000)
    Backlog(parts=2, rows=11, bytes=20, seconds=3.0)
    """
    parts = offer.backlog[0] - len(taken)
    if parts <= 0:
        return Backlog()
    rest = offer.parts[len(taken) :]
    size = max(0, offer.backlog[1] - sum(part.bytes for part in taken))
    beyond = size - sum(part.bytes for part in rest if part.rows is not None)
    rows = sum(part.rows for part in rest if part.rows is not None) + round(
        max(0, beyond) * (density or 1 / ROW_BYTES)
    )
    edges = [part.arrived[0] for part in rest[:1] if part.arrived] or [
        part.arrived[1] for part in taken[-1:] if part.arrived
    ]
    first = edges[0] if edges else now if since is None else since * 1e6
    return Backlog(parts, rows, size, max(0.0, (now - first) / 1e6))
