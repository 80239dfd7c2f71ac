"""Derived streams and unions of a run: the queries that make their tuples, and where these are put.

Guarantees: the queries of a derived stream run as long as a query that reads it does. Results of a batch are tuples of
a later one, once the batch is committed (decision 37).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from weft.logical.nested.nested import defined_streams, inner_queries
from weft.logical.query.canonical import canonical
from weft.logical.query.query import Query
from weft.logical.schema import Stream
from weft.ports.sink import Sink
from weft.ports.source import Source
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import Manifest
from weft.runtime.loop.batch_planner import BatchPlanner
from weft.runtime.loop.config import RunConfig
from weft.runtime.loop.intake.cursors import Intake
from weft.runtime.queries.request import DERIVED, QueryRequest, is_inner
from weft.runtime.queries.resume import Resumed
from weft.storage.storage import Memory, new_memory

__all__ = ["DerivedStreams", "InnerQuery"]


@dataclass(frozen=True, slots=True)
class InnerQuery:
    """A query whose results are tuples of a derived stream."""

    name: str
    request: QueryRequest
    sink: Sink


@dataclass
class DerivedStreams:
    """Makes the sources of derived streams, and begins and stops their queries with those that need them.

    Their files are in the checkpoint, or in memory if that is nowhere. ``open_sink`` opens the sink of a query, given
    the query and the last batch that is complete.
    """

    config: RunConfig
    log: Checkpoint
    batch_planner: BatchPlanner
    intake: Intake
    open_sink: Callable[[str, Sink, Query, int], None]
    _memory: str = field(default_factory=new_memory)

    def names(self) -> list[str]:
        """The derived streams and unions that are followed."""
        return [name for name, stream in self.config.streams.items() if stream.definition]

    def has_more(self, before: Manifest) -> bool:
        """Whether a batch is due, or what the last one gave to derived streams is not taken yet."""
        return self.batch_planner.is_due(before) or any(
            through < before.number for through in self.intake.states_of(self.names(), "through")
        )

    def resume(self, found: Resumed, last: int) -> None:
        """Follow the derived streams of all queries of a session that begins, and begin inner queries it lacks."""
        begin = {name: request for name, (request, _) in found.begin.items()}
        for name, request in {**found.requests, **begin}.items():
            for stream, source in self.sources(request.query).values():
                self.config.streams[stream.name], self.config.sources[stream.name] = stream, source
            if name not in found.stop:
                self.begin(request.query, last)

    def begin(self, query: Query, last: int) -> list[tuple[Stream, Source]]:
        """Run the queries of a query's derived streams, unless they run already; gives the streams that are new."""
        changelog = self.batch_planner.changelog
        for inner in self.inner_queries(query):
            runs = inner.name in self.batch_planner.active_queries.requests
            stops = inner.name in changelog.stopping()
            if changelog.request(inner.name) is None and (stops or not runs):
                self.open_sink(inner.name, inner.sink, inner.request.query, last)
                self.log.requests.forget_stop(inner.name)
                changelog.begin(inner.name, inner.request)
        sources = self.sources(query)
        return [found for name, found in sources.items() if name not in self.config.streams]

    def stop_with_others(self) -> None:
        """Stop inner queries that nobody needs any more, and queries that lack an inner one which stops."""
        changelog, requests = self.batch_planner.changelog, self.batch_planner.active_queries.requests
        waiting = [changelog.request(name) for name in changelog.waiting()]
        soon = self.needed(one.query for one in waiting if one is not None)
        for name in self.unused(requests, changelog.stopping()):
            if name not in changelog.stopping() and name not in soon:
                changelog.stop(name, "stopped")
        for name, inner in self.dependents(requests, changelog.stopping()).items():
            changelog.stop(name, f"failed: its input {inner} has stopped")

    def sources(self, query: Query) -> dict[str, tuple[Stream, Source]]:
        """The derived streams and unions that a query reads, and those that these read, each with its source."""
        found = {}
        for name, stream in defined_streams(query).items():
            places = tuple(self._place(inner) for inner in inner_queries(stream))
            found[name] = stream, self.config.derive_source(stream, places)
        return found

    def inner_queries(self, query: Query) -> list[InnerQuery]:
        """The queries that must run for a query, those that others read first."""
        found = []
        for stream in defined_streams(query).values():
            for name, inner in inner_queries(stream).items():
                common = canonical(inner)
                sink = {"kind": "derived", "place": self._place(name), "event_time": stream.event_time}
                request = QueryRequest(common.query, common.names, sink=sink)
                found.append(InnerQuery(name, request, self.config.restore(sink)))
        return found

    def needed(self, queries: Iterable[Query]) -> set[str]:
        """The names of the inner queries that some queries need."""
        return {
            name
            for query in queries
            for stream in defined_streams(query).values()
            for name in inner_queries(stream)
        }

    def unused(self, requests: Mapping[str, QueryRequest], stopping: Collection[str]) -> list[str]:
        """The inner queries that nobody needs once some queries have stopped."""
        outer = [one.query for name, one in requests.items() if not is_inner(one) and name not in stopping]
        needed = self.needed(outer)
        return [name for name, one in requests.items() if is_inner(one) and name not in needed]

    def dependents(self, requests: Mapping[str, QueryRequest], stopping: Collection[str]) -> dict[str, str]:
        """The queries that need an inner query which stops, by name, with that query's name."""
        found = {}
        for name, one in requests.items():
            lost = sorted(self.needed([one.query]) & set(stopping))
            if lost and name not in stopping:
                found[name] = lost[0]
        return found

    def _place(self, name: str) -> str:
        storage = self.log.storage
        return (
            f"{self._memory}/{name}" if isinstance(storage, Memory) else storage.locate(f"{DERIVED}/{name}")
        )
