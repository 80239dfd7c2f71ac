"""Streams that cannot be read: their queries are suspended, and the others go on.

Guarantees: a stream that is blocked brings nothing and holds its watermark, so that nothing that waits for it is closed
or forgotten; when it can be read again, it goes on with what it was to bring. It is tried again and again, at growing
intervals.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from weft.errors import WeftError
from weft.logical.nested.nested import read_streams
from weft.logical.query.query import Query
from weft.logical.schema import Stream
from weft.runtime.log.values import Suspension

__all__ = ["BlockedStreams", "goes_on_without"]

_LOG = logging.getLogger("weft")

FIRST, LONGEST = 1.0, 60.0  # seconds before a stream is tried again, at first and at most


def goes_on_without(stream: Stream | None, queries: Iterable[Query], *, idle: bool) -> bool:
    """Whether a run goes on without a stream: a query does not read it or, in an ``idle`` run, there need be none.

    A derived stream is never done without, since its tuples are in the checkpoint; neither is one that is not known.
    """
    if stream is None or stream.definition:
        return False
    return idle or any(stream.name not in {read.name for read in read_streams(query)} for query in queries)


@dataclass(frozen=True, slots=True)
class _Blocked:
    """Why a stream cannot be read since a batch, and when it is tried again."""

    why: Suspension
    delay: float
    next_try: float


@dataclass
class BlockedStreams:
    """The streams that cannot be read now, by name; any thread may ask which these are."""

    clock: Callable[[], float] = time.monotonic
    _known: Mapping[str, _Blocked] = field(default_factory=dict)  # replaced as a whole

    def __len__(self) -> int:
        return len(self._known)

    def names(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(sorted(self._known))

    def rests(self, name: str) -> bool:
        """Whether a stream is blocked and it is not time yet to try it again."""
        known = self._known.get(name)
        return known is not None and self.clock() < known.next_try

    def block(self, name: str, error: WeftError, number: int) -> None:
        """A stream cannot be read, from the batch of that number on, or still not."""
        known = self._known.get(name)
        delay = FIRST if known is None else min(LONGEST, 2 * known.delay)
        since = number if known is None else known.why.since
        if known is None:
            _LOG.warning("stream %s is not read any more: %s", name, error.message)
        why = Suspension(since, f"stream {name} cannot be read: {error.message}", error.hint)
        self._known = {**self._known, name: _Blocked(why, delay, self.clock() + delay)}

    def unblock(self, names: Iterable[str]) -> None:
        """Streams can be read, whether they were blocked or not."""
        for name in [name for name in names if name in self._known]:
            _LOG.warning("stream %s is read again", name)
            self._known = {other: one for other, one in self._known.items() if other != name}

    def try_now(self) -> None:
        """Let all of them be tried with the next look."""
        self._known = {name: replace(one, next_try=0.0) for name, one in self._known.items()}

    def suspended(self, queries: Mapping[str, Query]) -> dict[str, Suspension]:
        """The queries that read a stream which is blocked, each with the reason."""
        known, found = self._known, dict[str, Suspension]()
        for query, asked in queries.items() if known else ():
            for stream in read_streams(asked):
                if stream.name in known:
                    found.setdefault(query, known[stream.name].why)
        return found
