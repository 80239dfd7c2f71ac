"""Watermarks that are set to other times, because a record with a wrong time has moved one.

Guarantees: a watermark is set between two batches, in the plan of the second, so a repetition of that does the same. No
row that a query has given as final is taken back: a watermark is never set before the time up to which a query that
reads the stream has closed its rows, or given its results in order. Watermarks that followed from the wrong one follow
from the new one: those of streams that were idle and went along, and those of derived streams, which are unknown until
they are proven again. What was evicted, or dropped because it was late, does not come back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from weft.errors import CatalogError, StateError, nearest
from weft.logical.nested.nested import read_streams
from weft.logical.query.query import Query
from weft.logical.schema import Stream
from weft.logical.times import shown_time
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.copying import held
from weft.runtime.log.user_requests import Reset
from weft.runtime.log.values import BatchPlan, Manifest
from weft.runtime.model.columns import micros
from weft.runtime.model.watermarks import connected_streams
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.active import ActiveQueries
from weft.storage.storage import Storage

__all__ = ["WatermarkResets", "apply_resets", "reset_stopped"]

Plain = dict[str, dict[str, Any]]


class WatermarkResets:
    """What was asked for and waits for the next batch; it may be asked for from any thread.

    ``streams`` are those that the loop reads, ``now`` tells its queries and the manifest of its last batch, and
    ``wake`` ends its pause.
    """

    def __init__(
        self,
        log: Checkpoint,
        streams: Mapping[str, Stream],
        now: Callable[[], tuple[ActiveQueries, Manifest]],
        wake: Callable[[], None],
    ) -> None:
        self._log, self._streams, self._now, self._wake = log, streams, now, wake
        self._waiting: dict[str, Reset] = {}
        self._lock = threading.Lock()

    def resume(self, last: BatchPlan | None) -> None:
        """Go on with what is in the log and was not taken up by the last plan there."""
        if last is not None and last.resets:
            self._log.requests.forget_resets(last.resets["asked"])
        self._waiting = self._log.requests.resets()

    def ask(self, stream: str, to: int) -> None:
        """Have a stream's watermark be a time from the next batch on, even if that is run by a later session."""
        active, before = self._now()
        timed = [one.name for one in self._streams.values() if _has_watermark(one)]
        check_reset(stream, to, timed, _queries(active), before)
        with self._lock:
            self._waiting[stream] = self._log.requests.write_reset(stream, to)
        self._wake()

    @property
    def are_waiting(self) -> bool:
        """Whether a batch is to be run for what was asked for."""
        return bool(self._waiting)

    def planned(self, before: Manifest, active: ActiveQueries) -> Plain:
        """What the next batch sets, as its plan has it; ``before`` is the manifest of the last one."""
        with self._lock:
            asked = dict(self._waiting)
        if not asked:
            return {}
        queries = _queries(active)
        marks: dict[str, int | None] = {
            name: _final(name, one.to, queries, before) for name, one in asked.items()
        }
        marks |= _followers(marks, before, queries, active.program)
        return {"marks": marks, "asked": {name: one.asked for name, one in asked.items()}}

    def begin(self, before: Manifest, plan: BatchPlan) -> Manifest:
        """The manifest that a batch begins with; what its plan has need not be asked for any more."""
        if plan.resets:
            done = plan.resets["asked"]
            with self._lock:
                self._log.requests.forget_resets(done)
                self._waiting = {n: one for n, one in self._waiting.items() if done.get(n) != one.asked}
        return apply_resets(before, plan.resets)


def apply_resets(before: Manifest, resets: Mapping[str, Mapping[str, Any]]) -> Manifest:
    """The manifest that a batch begins with, given the ``resets`` of its plan; None makes a watermark unknown."""
    marks = resets.get("marks", {})
    if not marks:
        return before

    def of_others(by_stream: Mapping[str, Any]) -> dict[str, Any]:
        return {stream: value for stream, value in by_stream.items() if stream not in marks}

    return replace(
        before,
        marks={stream: mark for stream, mark in {**before.marks, **marks}.items() if mark is not None},
        newest=of_others(before.newest),
        moved=of_others(before.moved),
        proven=of_others(before.proven),
    )


def _queries(active: ActiveQueries) -> dict[str, Query]:
    return {name: request.query for name, request in active.requests.items()}


def _has_watermark(stream: Stream) -> bool:
    return stream.event_time is not None and not stream.definition and not stream.table


def check_reset(
    stream: str, to: int, known: Collection[str], queries: Mapping[str, Query], before: Manifest
) -> None:
    """Refuse a stream that has no watermark of its own, and a time before that up to which rows are final."""
    if stream not in known:
        raise CatalogError(
            f"there is no stream {stream!r} with event times, whose watermark could be set",
            hint=nearest(stream, known),
        )
    for name, query in sorted(queries.items()):
        final = before.closed.get(name, to)
        if final > to and stream in _read_by(query):
            raise StateError(
                f"query {name} has given rows as final up to {shown_time(final)}, which is after {shown_time(to)}",
                hint="set the watermark to that time or a later one, or stop the query and ask for it again",
            )


def _read_by(query: Query) -> set[str]:
    return {one.name for one in read_streams(query)}


def _final(stream: str, to: int, queries: Mapping[str, Query], before: Manifest) -> int:
    """A time, or the later one up to which rows of queries that read a stream are final."""
    return max(
        [to, *(before.closed.get(name, to) for name, one in queries.items() if stream in _read_by(one))]
    )


def _followers(
    marks: Mapping[str, int | None],
    before: Manifest,
    queries: Mapping[str, Query],
    program: ExecutableGraph | None,
) -> dict[str, int | None]:
    """The watermarks that follow from those that are set: of idle streams, and of derived ones: unknown."""
    found: dict[str, int | None] = {}
    for component in connected_streams([program.graph]) if program is not None else ():
        set_back = [mark for one in component if (mark := marks.get(one.name)) is not None]
        for stream in component if set_back else ():
            if stream.name not in marks and _went_along(stream, before, min(set_back)):
                own = max(min(set_back), _own(stream, before))
                found[stream.name] = _final(stream.name, own, queries, before)
    changed = {*marks, *found}
    for stream in _derived(queries.values()):
        if any(_read_by(query) & changed for query in stream.definition):
            found[stream.name] = None
    return found


def _own(stream: Stream, before: Manifest) -> int:
    """The watermark that a stream's own tuples gave it."""
    newest = before.newest.get(stream.name)
    return -(1 << 63) if newest is None else newest - micros(stream.lateness)


def _went_along(stream: Stream, before: Manifest, least: int) -> bool:
    """Whether the watermark of a stream, which is beyond another that is set back, is not its own."""
    mark = before.marks.get(stream.name, least)
    return bool(stream.idle_after and stream.event_time) and mark > max(least, _own(stream, before))


def _derived(queries: Iterable[Query]) -> list[Stream]:
    streams = {one.stream.name: one.stream for query in queries for one in query.inputs}
    return [stream for _, stream in sorted(streams.items()) if stream.definition]


def reset_stopped(storage: Storage, stream: str, to: int) -> None:
    """Have a stream's watermark be a time when a session next uses a checkpoint, which none may be using now."""
    log = Checkpoint(storage)
    known = log.owner().get("streams")
    if known is None:
        raise StateError(
            f"{storage.locate('')} is no checkpoint of a session",
            hint="name the place given as Session(checkpoint=…)",
        )
    with held(storage):
        before = log.manifest(log.last()) or Manifest()
        active = ActiveQueries.read(log, before.blueprint)
        timed = [name for name, one in known.items() if one[1] and one[2:] != ["table"]]
        check_reset(stream, to, timed, _queries(active), before)
        log.requests.write_reset(stream, to)
