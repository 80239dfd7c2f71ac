"""The one door to a running session, for the API, the web page and whoever else watches and steers it.

Guarantees: every method may be called from any thread, and gives plain values (`values.py`). What is said of a query is
what `Session` says of it. Changes happen one after the other, and are seen by whoever asks afterwards. What the
operator did not allow is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import QueryError
from weft.service.hub.reading import HubViews
from weft.service.hub.refusals import ConflictError
from weft.service.hub.values import NewQuery, QueryInfo
from weft.service.pipeline import Pipeline
from weft.sinks import MemorySink, Sink
from weft.sinks.recent import RecentSink

__all__ = ["HubOptions", "SessionHub"]


@dataclass(frozen=True, slots=True)
class HubOptions:
    """How many results the service keeps of a query: so many ``rows`` and ``bytes`` at most."""

    rows: int = 10_000
    bytes: int = 64 << 20


class SessionHub(HubViews):
    """A session that runs, with what is known of it; made of a pipeline whose queries are planned by `start`."""

    def __init__(self, pipeline: Pipeline, options: HubOptions | None = None) -> None:
        super().__init__(pipeline)
        self.options = options or HubOptions()

    def start(self) -> None:
        """Plan the queries of the file, start the session and follow it; an error leaves the hub failed."""
        self._life.start(self._plan_file)

    def _plan_file(self) -> None:
        for name in self.pipeline.queries:
            self.pipeline.plan(name, self._sink_of_file(name))

    def _sink_of_file(self, name: str) -> Sink:
        """Where the results of a query of the file go: what the file says, else the service keeps the last of them."""
        sink = self.pipeline.sinks.get(name)
        return self._recent() if sink is None or isinstance(sink, MemorySink) else sink

    def _recent(self) -> RecentSink:
        return RecentSink(self.options.rows, self.options.bytes)

    def stop(self) -> None:
        """Stop the session after the batch under way; results of it can still be read."""
        self._life.stop()

    def create(self, new: NewQuery) -> QueryInfo:
        """Run a query from the next batch on; without a sink, the service keeps its last results."""
        self._life.check_ready()
        with self._changing:
            sink = self._recent()
            try:
                planned = self.session.query(
                    new.sql,
                    name=new.name,
                    sink=sink,
                    strategy=new.strategy,
                    cross=new.cross,
                    backfill=new.backfill,
                    emit_unmatched_after=new.emit_unmatched_after,
                    order=new.order,
                    precision=new.precision,
                )
            except QueryError as error:
                if self._is_taken(new.name) or "queries already" in error.message:
                    raise ConflictError(error.message, hint=error.hint) from None
                raise
            finally:
                self._fresh.clear()
        return self.query(planned.name)

    def _is_taken(self, name: str | None) -> bool:
        known = {one.name: one.status for one in self._queries()}
        return name is not None and known.get(name, "stopped") != "stopped"

    def stop_query(self, name: str) -> QueryInfo:
        """Run a query no longer, from the next batch on; one that has stopped stays so."""
        self._planned(name)
        self._life.check_ready()
        with self._changing:
            self.session.stop_query(name)
            self._fresh.clear()
        return self.query(name)
