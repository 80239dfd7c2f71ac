"""What can be seen of a running session: the part of the hub that only reads.

Guarantees: every method may be called from any thread, waits for no change and changes nothing. What is dear to work
out is worked out at most every half second, however many ask, unless something was changed. A sample of a stream takes
nothing from it: its source is opened a second time, and a small part of it is read and forgotten.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from weft.connectors.files.source import FilesSource
from weft.connectors.formats.dead_letters import DeadLetters
from weft.connectors.generate.rate import RateSource
from weft.connectors.kafka.source import KafkaSource
from weft.connectors.memory.recent import RecentSink
from weft.errors import WeftError, nearest
from weft.logical.schema import Stream
from weft.plan.physical.graph import CODEC
from weft.ports.source import CursorContext, MemoryBlobs, Source
from weft.service.figures import latency_of, percentiles, rate_of
from weft.service.hub.describing import (
    batch_info,
    columns_of,
    count_records,
    figure_info,
    graph_info,
    plan_change_info,
    query_info,
    store_infos,
    stream_info,
)
from weft.service.hub.lifecycle import Lifecycle, Seen, Tell, moment
from weft.service.hub.lineage import lineage_of
from weft.service.hub.refusals import ConflictError, NotFoundError
from weft.service.hub.results import ResultsPage
from weft.service.hub.values import (
    Asked,
    BatchInfo,
    DeadLetterInfo,
    FigureInfo,
    GraphInfo,
    Health,
    Overview,
    PlanChangeInfo,
    QueryInfo,
    QueryLineage,
    SampleRows,
    StoreInfo,
    StreamInfo,
)
from weft.service.pipeline import Pipeline
from weft.session.planned_query import PlannedQuery
from weft.stats.input_figures import TupleCounts

__all__ = ["HubViews", "sample_rows"]


FRESH = 0.5  # seconds for which lists of queries and streams are not worked out again
MOST = 1000  # results on a page
LARGEST = 4 << 20  # bytes of a page, about
ASKED = 200  # so many requests are remembered

Made = TypeVar("Made")


class HubViews:
    """The part of a hub that shows what its session is and does."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline, self.session = pipeline, pipeline.session
        self._life = Lifecycle(self.session)
        self._changing = threading.RLock()
        self._fresh: dict[str, tuple[float, Any]] = {}
        self._letters_counted: dict[tuple[int, int], int] = {}  # bad records, by batch and bytes
        self.changes = 0  # how often queries or streams came or went, by whoever
        self._sources: dict[str, object] = dict(pipeline.sources)
        self._asked: deque[Asked] = deque(maxlen=ASKED)
        self._file_queries = frozenset(pipeline.queries)
        self._file_streams = frozenset(stream.name for stream in self.session.catalog.streams)

    def health(self) -> Health:
        """Whether the session runs, and if not, why."""
        return self._life.health()

    def follow(self, tell: Tell) -> Callable[[], None]:
        """Have a function called with every batch from now on, in the hub's thread; returns how to end that."""
        return self._life.follow(tell)

    def _cached(self, what: str, make: Callable[[], Made]) -> Made:
        """What was made less than half a second ago, unless something was changed since, or else made now."""
        known = self._fresh.get(what)
        if known is not None and time.monotonic() - known[0] < FRESH:
            found: Made = known[1]
            return found
        made, at = make(), time.monotonic()
        self._fresh[what] = at, made
        return made

    def _forget(self) -> None:
        """Let go of all that was worked out before a change."""
        self.changes += 1
        self._fresh.clear()

    def overview(self) -> Overview:
        """The session at a moment: health, figures, streams, queries, stores."""
        return self._cached("overview", self._overview)

    def _overview(self) -> Overview:
        seen, now = self._life.seen, time.time()
        recent, totals = seen.recent, self.session.totals
        return Overview(
            moment(now),
            self._life.health(),
            totals.batches,
            recent[-1].elapsed if recent else 0.0,
            sum(one.elapsed for one in recent) / len(recent) if recent else 0.0,
            sum(one.rows for one in totals.streams.values()),
            rate_of(recent, lambda batch: batch.rows, now),
            totals.results,
            rate_of(recent, lambda batch: sum(batch.results.values()), now),
            sum(store.bytes for store in recent[-1].stores) if recent else 0,
            self.streams(),
            self.queries(),
            self.stores(),
            len(self.session.plan_history),
            percentiles(latency_of(recent)),
        )

    def streams(self) -> tuple[StreamInfo, ...]:
        """All streams, by name."""
        return self._cached("streams", self._streams)

    def _streams(self) -> tuple[StreamInfo, ...]:
        seen, now, unfinished = self._life.seen, time.time(), self.session.unfinished
        totals = self.session.totals.streams
        readers: dict[str, list[str]] = {}
        for query in self.queries():
            for stream in query.streams if query.status != "stopped" else ():
                readers.setdefault(stream, []).append(query.name)
        return tuple(
            stream_info(
                self.session.catalog.stream(name),
                self._sources.get(name),
                "file" if name in self._file_streams else "api",
                readers.get(name, ()),
                seen,
                now,
                totals.get(name, TupleCounts()),
                unfinished.get(name, ()),
            )
            for name in self.session.catalog.names
        )

    def stream(self, name: str) -> StreamInfo:
        """The stream of a name."""
        found = next((one for one in self.streams() if one.name == name), None)
        if found is None:
            known = self.session.catalog.names
            raise NotFoundError(f"there is no stream {name!r}", hint=nearest(name, known))
        return found

    def queries(self) -> tuple[QueryInfo, ...]:
        """All queries, oldest first, stopped ones too."""
        return self._cached("queries", self._queries)

    def _queries(self) -> tuple[QueryInfo, ...]:
        seen, now = self._life.seen, time.time()
        return tuple(self._query_info(planned, seen, now) for planned in self.session.queries)

    def _query_info(self, planned: PlannedQuery, seen: Seen, now: float) -> QueryInfo:
        progress = self.session.query_progress(planned.name)
        declared = "file" if planned.name in self._file_queries else "api"
        return query_info(planned, progress, declared, seen, now)  # type: ignore[arg-type]

    def query(self, name: str) -> QueryInfo:
        """The query of a name, as it is now."""
        return self._query_info(self._planned(name), self._life.seen, time.time())

    def _planned(self, name: str) -> PlannedQuery:
        queries = self.session.queries
        found = next((one for one in queries if one.name == name), None)
        if found is None:
            raise NotFoundError(
                f"there is no query {name!r}", hint=nearest(name, [one.name for one in queries])
            )
        return found

    def stores(self) -> tuple[StoreInfo, ...]:
        """The stores of the graph that runs."""
        return store_infos(self._graph(), self._life.seen.last)

    def _graph(self) -> Any:
        return self.session.shared_graph if self._life.state != "starting" else None

    def graph(self) -> GraphInfo:
        """The graph that all queries run by together, with what its parts did in the last batch."""
        return self._cached("graph", lambda: graph_info(self._graph(), self._life.seen.last))

    def graph_of(self, name: str) -> Any:
        """The graph that answers a query, as plain data: what `PhysicalGraph.to_json` has."""
        return CODEC.encode(self._planned(name).graph)

    def sample(self, name: str, most: int) -> SampleRows:
        """Some rows of a stream, read from its source a second time."""
        stream = self.stream(name)
        table = sample_rows(self.session.catalog.stream(name), self._sources.get(name), most)
        shown = [column for column in table.column_names if column in {one.name for one in stream.columns}]
        rows = ResultsPage(name, stream.columns, table.select(shown), table.num_rows, 0, 0, "").rows()
        cells = tuple(
            tuple(None if row.get(column) is None else str(row[column]) for column in shown) for row in rows
        )
        return SampleRows(tuple(shown), cells)

    def history(self) -> tuple[Asked, ...]:
        """What was asked for lately, newest first."""
        return tuple(reversed(self._asked.copy()))

    def lineage(self, name: str) -> QueryLineage:
        """Where every column of a query's results comes from, and where they go."""
        return lineage_of(self._planned(name), self._sources)

    def explain(self, name: str | None = None) -> str:
        """The plan of a query or of all, as text: what is expected of every step, beside what was observed."""
        if name is None:
            return self._cached("explain", self.session.explain)
        return self._planned(name).explain()

    def batches(self, after: int = -1, limit: int = 100) -> tuple[BatchInfo, ...]:
        """The last batches after a number, oldest first."""
        found = [one for one in self._life.seen.recent if one.number > after]
        return tuple(batch_info(one) for one in found[-limit:])

    def plan_history(self) -> tuple[PlanChangeInfo, ...]:
        """Every change of the plan because the data changed, oldest first."""
        return tuple(plan_change_info(change) for change in self.session.plan_history)

    def statistics(self) -> tuple[FigureInfo, ...]:
        """What is known of every stream and predicate, and how."""

        def made() -> tuple[FigureInfo, ...]:
            with self._changing:
                return tuple(figure_info(row) for row in self.session.statistics_report().rows)

        return self._cached("statistics", made)

    def seen(self) -> Seen:
        """The totals since the service began, and the last batches: what metrics are made of."""
        return self._life.seen

    def dead_letters(self) -> tuple[DeadLetterInfo, ...]:
        """The batches that had bad records, oldest first."""
        letters = self._letters
        if letters is None:
            return ()
        before, found = self._letters_counted, dict[tuple[int, int], int]()
        for batch, size in letters.sizes().items():
            known = before.get((batch, size))
            content = b"" if known is not None else letters.content(batch) or b""
            found[batch, size] = count_records(content) if known is None else known
        self._letters_counted = found
        return tuple(DeadLetterInfo(batch, count, size) for (batch, size), count in found.items())

    def dead_letter(self, batch: int) -> bytes:
        """The bad records of a batch, as lines of JSON."""
        found = None if self._letters is None else self._letters.content(batch)
        if found is None:
            raise NotFoundError(f"batch {batch} had no bad records", hint="list the batches that had some")
        return found

    @property
    def _letters(self) -> DeadLetters | None:
        checkpoint = self.pipeline.checkpoint
        return None if checkpoint is None else DeadLetters(f"{checkpoint}/dead_letters")

    def state(self) -> dict[str, Any]:
        """What the checkpoint holds after the last committed batch, as `weft state --format json` shows it."""
        if self.pipeline.checkpoint is None:
            raise NotFoundError("there is no checkpoint")
        from weft.runtime.observe.inspect import inspect  # which only this needs

        place = str(self.pipeline.checkpoint)
        name = place.rpartition("/")[2]
        return self._cached("state", lambda: {**asdict(inspect(place)), "directory": name})

    def results(
        self, name: str, after: int = 0, limit: int = 100, *, origin: str | None = None
    ) -> ResultsPage:
        """Results of a query after a number; a negative number means: none but those to come.

        ``origin`` is what the last page had: if numbers have begun anew since, the page begins with the first.
        """
        planned, sink = self._kept(name)
        restarted = origin is not None and origin != sink.origin
        page = sink.page(0 if restarted else after, min(limit, MOST), LARGEST)
        return ResultsPage.of(name, columns_of(planned.query), page, restarted=restarted)

    def subscribe(self, name: str, tell: Callable[[], None]) -> Callable[[], None]:
        """Have a function called whenever a query has new results, which must return at once; returns how to end it."""
        return self._kept(name)[1].subscribe(tell)

    def _kept(self, name: str) -> tuple[PlannedQuery, RecentSink]:
        planned = self._planned(name)
        if not isinstance(planned.sink, RecentSink):
            raise ConflictError(
                f"the service does not keep results of {name}: they go to its sink",
                hint="read them there, or create the query without a sink",
            )
        return planned, planned.sink


LARGEST_PART = 64 << 20  # bytes of a part that is read for a few of its rows
READ = 1 << 20  # bytes that are wanted of a part
LATER = 3600.0  # seconds after which a file counts as finished, even if it is just being written


def sample_rows(stream: Stream, source: object, most: int) -> pa.Table:
    """At most so many of the newest rows that can be read cheaply."""
    if not isinstance(source, FilesSource | KafkaSource | RateSource):
        raise NotFoundError(
            f"no rows of stream {stream.name} can be shown",
            hint="run SELECT * over it, and look at the results",
        )
    with tempfile.TemporaryDirectory(prefix="weft-sample-") as folder:
        return _read_some(stream, source, Path(folder), most)


def _read_some(stream: Stream, source: Source, folder: Path, most: int) -> pa.Table:
    context = CursorContext(
        stream.name, {}, MemoryBlobs(), folder, most_bytes=READ, event_time=stream.event_time
    )
    cursor = source.open(context)
    try:
        cursor.look(time.time())
        offer = cursor.look(time.time() + LATER)
        parts = [part for part in offer.parts if part.bytes <= LARGEST_PART]
        for part in reversed(parts[-4:]):  # a file may have nothing but a head
            batch = source.read(stream.name, part, stream.event_time).batch
            if batch.num_rows:
                return pa.Table.from_batches([batch.slice(max(0, batch.num_rows - most))])
    except OSError as error:
        raise WeftError(f"stream {stream.name} cannot be read: {error}") from None
    finally:
        cursor.close()
    raise NotFoundError(f"stream {stream.name} has no rows yet")
