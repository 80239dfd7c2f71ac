"""Which queries a session runs that is started on an existing log.

Guarantees: a query that ran before goes on as it was; if another query or order is given under its name, the start is
refused. A query that has stopped does not begin again if it is given as it was; another query may have its name. One
that was asked for while an earlier session ran, and that no batch has yet, begins now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from weft.errors import StateError
from weft.logical.codec import decode
from weft.logical.nested.nested import read_streams
from weft.ports.sink import Sink
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import Manifest
from weft.runtime.queries.active import ActiveQueries
from weft.runtime.queries.request import DERIVED, QueryRequest, is_inner
from weft.storage.storage import Memory

__all__ = ["Restore", "Resumed", "resume_from_log"]

# Makes a sink from its description in the log.
Restore = Callable[[Mapping[str, Any]], Sink]

Given = Mapping[str, tuple[QueryRequest, Sink]]


@dataclass(frozen=True, slots=True)
class Resumed:
    """The queries that a session begins with.

    ``active_queries`` are those of the last committed batch. ``requests`` are these and all queries of batches that are
    planned and have to be repeated, and ``sinks`` are the sinks of all of them and of the queries that are to
    ``begin``. ``stop`` are the queries to be stopped, with the reason. ``planned`` is the last batch that is planned.
    """

    active_queries: ActiveQueries
    requests: Mapping[str, QueryRequest]
    sinks: Mapping[str, Sink]
    begin: Given
    stop: Mapping[str, str]
    planned: int = -1

    @property
    def known(self) -> dict[str, QueryRequest]:
        """The queries that run or will, by name, but for those that are to be stopped."""
        begin = {name: request for name, (request, _) in self.begin.items()}
        return {**{name: one for name, one in self.requests.items() if name not in self.stop}, **begin}


def resume_from_log(
    log: Checkpoint, queries: Given, restore: Restore, before: Manifest, streams: Collection[str]
) -> Resumed:
    """Work out the queries to run from a log whose last committed batch left ``before``, and the queries given now.

    Batches that were planned and not committed are repeated as they were planned; queries that are new begin after
    them. ``streams`` are the names of those that there are.
    """
    active = [_with_latencies(ActiveQueries.read(log, before.blueprint), queries)]
    number = before.number + 1
    while (plan := log.plan(number)) is not None:
        active.append(ActiveQueries.read(log, plan.blueprint))
        number += 1
    last = active[-1]
    requests = {name: one for active_queries in active for name, one in active_queries.requests.items()}
    sinks = {name: _known_sink(log, name, one, queries, restore) for name, one in requests.items()}
    stops = log.requests.stops()
    begin = {name: given for name, given in queries.items() if _is_new(name, given[0], last, stops)}
    asked = {
        name: decode(QueryRequest, one) for name, one in log.requests.waiting_queries(number - 1).items()
    }
    _check_readable(log, asked, streams)
    begin |= {
        name: (request, _known_sink(log, name, request, queries, restore))
        for name, request in asked.items()
        if stops.get(name, ("", ""))[1] != request.fingerprint
    }
    sinks |= {name: sink for name, (_, sink) in begin.items()}
    failed = {name: f"failed: {why}" for name, why in before.failed.items()}
    stopped = {
        n: why
        for n, (why, what) in stops.items()
        if n in last.requests and last.requests[n].fingerprint == what
    }
    replaced = dict.fromkeys(asked, "stopped")  # else their names would not have been free
    stop = {name: why for name, why in {**replaced, **stopped, **failed}.items() if name in last.requests}
    return Resumed(active[0], requests, sinks, begin, stop, number - 1)


def _with_latencies(active: ActiveQueries, queries: Given) -> ActiveQueries:
    """Active queries with the targets that are given now, which may be others than before."""
    requests = {
        name: replace(one, latency=queries[name][0].latency) if name in queries else one
        for name, one in active.requests.items()
    }
    return replace(active, requests=requests)


def _is_new(
    name: str, request: QueryRequest, active_queries: ActiveQueries, stops: Mapping[str, tuple[str, str]]
) -> bool:
    """Whether a query is to begin: it does not run, and was not stopped before, not even before it had begun."""
    known = (active_queries.former.get(name), stops.get(name, ("", ""))[1])
    return name not in active_queries.requests and request.fingerprint not in known


def _check_readable(log: Checkpoint, asked: Mapping[str, QueryRequest], streams: Collection[str]) -> None:
    """Refuse to leave out a query that was asked for because a stream of it is not there any more."""
    for name, request in asked.items():
        for stream in read_streams(request.query):
            if stream.name not in streams:
                place = log.storage.locate("")
                raise StateError(
                    f"{place} knows a query {name}, which was asked for and reads stream {stream.name}",
                    hint=f"register stream {stream.name} again",
                )


def _known_sink(log: Checkpoint, name: str, request: QueryRequest, queries: Given, restore: Restore) -> Sink:
    """The sink of a query that ran before: the one given with it now, or one made from its description in the log.

    That of a derived stream is where the checkpoint is now, which may have been copied.
    """
    place = log.storage.locate("")
    if name in queries:
        if queries[name][0].query != request.query:
            raise StateError(
                f"{place} belongs to other streams or queries: there, query {name} is {request.query}",
                hint="give the new query another name, or use a new checkpoint directory",
            )
        if queries[name][0].ordering != request.ordering:
            raise StateError(
                f"{place} belongs to other queries: there, the order of query {name} is {request.ordering or 'none'}",
                hint="ask for that order, give the new query another name, or use a new checkpoint directory",
            )
        return queries[name][1]
    if request.sink is None:
        raise StateError(
            f"{place} belongs to other streams or queries: it knows a query {name}",
            hint="register it again with its sink, which cannot be made from what is stored",
        )
    if is_inner(request) and not isinstance(log.storage, Memory):
        return restore({**request.sink, "place": log.storage.locate(f"{DERIVED}/{name}")})
    return restore(request.sink)
