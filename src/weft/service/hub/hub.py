"""The one door to a running session, for the API, the web page and whoever else watches and steers it.

Guarantees: every method may be called from any thread, and gives plain values (`values.py`). What is said of a query is
what `Session` says of it. Changes happen one after the other, and are seen by whoever asks afterwards. What the
operator's file did not allow is refused, and no code is taken.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from weft.adapting.background import GivenUpError, PlanningProcess, Question
from weft.adapting.planner import PreparedPlans
from weft.connectors.memory.recent import RecentSink
from weft.connectors.memory.sink import MemorySink
from weft.errors import CatalogError, QueryError, StateError, WeftError
from weft.plan.physical.graph import CODEC
from weft.ports.sink import Sink
from weft.service.hub.describing import columns_of
from weft.service.hub.lifecycle import moment
from weft.service.hub.reading import HubViews
from weft.service.hub.refusals import BusyError, ConflictError, ForbiddenError
from weft.service.hub.values import Asked, NewQuery, NewStream, PlanInfo, QueryInfo, StreamInfo
from weft.service.pipeline import Pipeline
from weft.service.pipeline.document import Node
from weft.service.pipeline.sinks import read_sink
from weft.service.pipeline.streams import add_stream
from weft.session.preview import LoadQuestion, Preview
from weft.storage.storage import storage_at

__all__ = ["AddedStreams", "PlanningLanes", "SessionHub"]


STOPPED = 100  # so many stopped queries keep their results
SMALL = 6  # inputs of a query that is planned within a few hundredths of a second
FEW = 20  # queries beside which that holds


class SessionHub(HubViews):
    """A session that runs, with what is known of it; made of a pipeline whose queries are planned by `start`."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        self._added = AddedStreams(pipeline.checkpoint)
        self._lanes = PlanningLanes(pipeline.serving.plan_seconds)

    def start(self, before: Callable[[], None] = lambda: None) -> None:
        """Plan the queries of the file, start the session and follow it; an error leaves the hub failed.

        ``before`` is called when all is planned, to start what the session runs on.
        """
        self._life.start(lambda: self._prepare(before))

    def _prepare(self, before: Callable[[], None]) -> None:
        self._added.read()
        for stream in list(self._added.streams.values()):
            self._register(stream)
        for name in self.pipeline.queries:
            self.pipeline.plan(name, self._sink_of_file(name))
        before()

    def _sink_of_file(self, name: str) -> Sink:
        """Where the results of a query of the file go: what the file says, else the service keeps the last of them."""
        sink = self.pipeline.sinks.get(name)
        return self._recent() if sink is None or isinstance(sink, MemorySink) else sink

    def _recent(self) -> RecentSink:
        return RecentSink(self.pipeline.serving.result_rows, self.pipeline.serving.result_bytes)

    def stop(self) -> None:
        """Stop the session after the batch under way; results of it can still be read."""
        self._lanes.close()
        self._life.stop()

    @contextmanager
    def _change(self) -> Iterator[None]:
        """Change something, alone, while the session runs; what was worked out before no longer counts."""
        self._life.check_ready()
        with self._changing:
            try:
                yield
            finally:
                self._forget()

    @contextmanager
    def _noted(self, what: str, name: str, sql: str) -> Iterator[None]:
        """Remember that something was asked for, and whether it was refused."""
        error: WeftError | None = None
        try:
            yield
        except WeftError as refused:
            error = refused
            raise
        finally:
            why = None if error is None else "\n".join(filter(None, (error.message, error.hint)))
            self._asked.append(Asked(moment(time.time()), what, name, sql, why))

    # Queries

    def preview(self, new: NewQuery, lane: str = "", gone: threading.Event | None = None) -> Preview:
        """The plan that a query would get now; nothing changes.

        It is worked out in another process, for whoever has the ``lane`` one at a time, until ``gone`` is set or it has
        taken too long.
        """
        with self._changing:
            question = self.session.preview_question(
                new.sql,
                strategy=new.strategy,
                cross=new.cross,
                emit_unmatched_after=new.emit_unmatched_after,
                order=new.order,
                precision=new.precision,
            )
        found: Preview = self._lanes.ask(question, lane, gone)
        return found

    def compare(self, sql: str, lane: str = "", gone: threading.Event | None = None) -> str:
        """What every strategy would make of a query, the cheapest first; worked out as a preview is."""
        with self._changing:
            question = self.session.compare_question(sql)
        return str(self._lanes.ask(question, lane, gone))

    def plan(self, new: NewQuery, lane: str = "", gone: threading.Event | None = None) -> PlanInfo:
        """The plan that a query would get now, and what it would share with those that run, as `preview` has it."""
        found = self.preview(new, lane, gone)
        return PlanInfo(
            str(found.query),
            found.strategy,
            found.explain(new.name or "query"),
            CODEC.encode(found.graph),
            columns_of(found.query),
            found.shares,
            found.adds,
        )

    def create(self, new: NewQuery, lane: str = "", gone: threading.Event | None = None) -> QueryInfo:
        """Run a query from the next batch on; without a sink, the service keeps its last results.

        Its plans are worked out as a preview is, in the ``lane`` of who asks, so that neither batches nor others wait
        for them; a query that takes too long to plan, or whose asker has ``gone`` meanwhile, is not taken in.
        """
        with self._noted("run", new.name or "", new.sql):
            return self._create(new, lane, gone)

    def _create(self, new: NewQuery, lane: str, gone: threading.Event | None) -> QueryInfo:
        self._life.check_ready()
        keywords = {field.name: getattr(new, field.name) for field in fields(new) if field.name != "sql"}
        keywords["sink"] = self._asked_sink(new)
        name, prepared = self._prepared(new, keywords, lane, gone)
        with self._change(), self._named_conflicts(new):
            if prepared is not None:
                self.session.expect(prepared)
            planned = self.session.query(new.sql, **{**keywords, "name": name})
            self._forget_results()
        return self.query(planned.name)

    def _prepared(
        self, new: NewQuery, keywords: Mapping[str, Any], lane: str, gone: threading.Event | None
    ) -> tuple[str | None, PreparedPlans | None]:
        """The name that a query is to have, and its plans, unless it is so small that they take no time."""
        with self._changing, self._named_conflicts(new):
            question = self.session.prepare_question(new.sql, **keywords)
        if question.inputs <= SMALL and len(question.others) <= FEW and new.strategy != "exhaustive":
            return new.name, None
        prepared: PreparedPlans = self._lanes.ask(question, lane, gone)
        chosen = question.preview.name
        taken = {query.name for query in self._queries()}  # another may have taken the name meanwhile
        return (chosen if new.name is None and chosen not in taken else new.name), prepared

    @contextmanager
    def _named_conflicts(self, new: NewQuery) -> Iterator[None]:
        """Tell a query that cannot be because of those that run from one that can never be."""
        try:
            yield
        except QueryError as error:
            if self._conflicts(new.name):
                raise ConflictError(error.message, hint=error.hint) from None
            raise

    def _asked_sink(self, new: NewQuery) -> Sink:
        if new.sink is None or new.sink == "memory":
            return self._recent()
        allowed = self.pipeline.allowed.sink(new.sink)
        if allowed is None:
            raise ForbiddenError(
                "this sink is not allowed", hint="the operator's file says what is, under allow.sinks"
            )
        return read_sink(new.name or "query", Node("request", "sink", allowed), self.pipeline.allowed.root)

    def _conflicts(self, name: str | None) -> bool:
        """Whether a query was refused because its name is taken, or because there are as many as there may be."""
        running = [query.name for query in self._queries() if query.status not in ("stopped", "planned")]
        return name in running or len(running) >= self.session.query_limit

    def _forget_results(self) -> None:
        """Let go of the results of all stopped queries but the last ones."""
        stopped = [one.name for one in self._queries() if one.status == "stopped"]
        for planned in self.session.queries:
            if planned.name in stopped[:-STOPPED] and isinstance(planned.sink, RecentSink):
                planned.sink.clear()

    def stop_query(self, name: str) -> QueryInfo:
        """Run a query no longer, from the next batch on; one that has stopped stays so."""
        planned = self._planned(name)
        with self._noted("stop", name, str(planned.query)), self._change():
            self.session.stop_query(name)
        return self.query(name)

    # Streams

    def add_stream(self, new: NewStream) -> StreamInfo:
        """Follow one more stream from the next batch on, also after a restart, if its source is allowed."""
        with self._change():
            if new.name in self.session.catalog.names:
                raise ConflictError(f"there is already a stream {new.name!r}", hint="choose another name")
            self._added.add(self._register(new))
        return self.stream(new.name)

    def _register(self, new: NewStream) -> NewStream:
        """Register a stream with the session; returns it with its source as it was allowed."""
        source = self.pipeline.allowed.source(new.source)
        if source is None:
            raise ForbiddenError(
                f"the source of stream {new.name} is not allowed",
                hint="the operator's file says what is, under allow.sources",
            )
        said = {name: value for name, value in asdict(new).items() if name != "name" and value is not None}
        node = Node("request", "", {**said, "source": source})
        entry = add_stream(self.session, new.name, node, self.pipeline.allowed.root, enclosed=True)
        self._sources[new.name] = entry.source
        return replace(new, source=source)

    def set_watermark(self, name: str, to: str) -> StreamInfo:
        """Set the watermark of a stream from the next batch on; rows that queries have given as final stay so."""
        found = self.stream(name)
        with self._change():
            try:
                self.session.reset_watermark(name, to=to)
            except StateError as error:
                raise ConflictError(error.message, hint=error.hint) from None
        return found

    def remove_stream(self, name: str) -> StreamInfo:
        """Follow a stream no longer that a request added and no query reads; its name stays taken."""
        found = self.stream(name)
        if found.declared == "file":
            raise ConflictError(
                f"stream {name} is declared in the operator's file", hint="only added streams can be removed"
            )
        with self._change():
            try:
                self.session.remove_stream(name)
            except CatalogError as error:
                raise ConflictError(error.message, hint=error.hint) from None
            self._added.remove(name)
            self._sources.pop(name, None)
        return found


_NAME = "service.json"


class AddedStreams:
    """What requests added, by name; without a checkpoint, in memory alone."""

    def __init__(self, checkpoint: Path | str | None) -> None:
        self._storage = None if checkpoint is None else storage_at(str(checkpoint))
        self.streams: dict[str, NewStream] = {}

    def read(self) -> None:
        """Read what an earlier service kept."""
        content = None if self._storage is None else self._storage.get(_NAME)
        if self._storage is None or content is None:
            return
        try:
            found = json.loads(content)["streams"]
            self.streams = {one["name"]: NewStream(**one) for one in found}
        except (ValueError, KeyError, TypeError):
            raise StateError(
                f"{self._storage.locate(_NAME)} cannot be read",
                hint="restore it, or delete it and add its streams again",
            ) from None

    def add(self, stream: NewStream) -> None:
        """Keep one more."""
        self.streams[stream.name] = stream
        self._write()

    def remove(self, name: str) -> None:
        """Keep one no longer."""
        self.streams.pop(name, None)
        self._write()

    def _write(self) -> None:
        if self._storage is not None:
            kept = {"streams": [asdict(one) for one in self.streams.values()]}
            self._storage.put(_NAME, json.dumps(kept, ensure_ascii=False).encode())


WAITING = 4  # so many questions of a lane wait beside the one that is worked out
PROCESSES = max(2, min(4, os.cpu_count() or 1))
IDLE = 1  # so many processes are kept that have nothing to do
LOOK = 0.1  # seconds between two looks whether an asker has gone


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    """A question that waits in a lane."""

    lane: str


class PlanningLanes:
    """Who has plans worked out, each for so many ``seconds`` at most; safe from any thread."""

    def __init__(self, seconds: float, processes: int = PROCESSES) -> None:
        self._seconds, self._most = seconds, processes
        self._changed = threading.Condition()
        self._waiting: deque[_Turn] = deque()
        self._busy: dict[str, PlanningProcess] = {}  # by lane
        self._idle: list[PlanningProcess] = []
        self._is_closed = False

    def ask(self, question: Question, lane: str = "", gone: threading.Event | None = None) -> Any:
        """The answer to a question; once ``gone`` is set, nobody waits for it any more."""
        gone = gone or threading.Event()
        with self._turn(lane, gone) as process:
            return process.ask(question, self._seconds, gone)

    @contextmanager
    def _turn(self, lane: str, gone: threading.Event) -> Iterator[PlanningProcess]:
        """Wait until it is a lane's turn, and give it a process."""
        turn = _Turn(lane)
        with self._changed:
            if sum(one.lane == lane for one in self._waiting) >= WAITING:
                raise BusyError(
                    "so many plans are being worked out for this client", hint="wait for them first"
                )
            self._waiting.append(turn)
            try:
                while not self._is_next(turn):
                    if gone.is_set() or self._is_closed:
                        raise GivenUpError("nobody waits for the plan any more")
                    self._changed.wait(LOOK)
                process = self._idle.pop() if self._idle else PlanningProcess(LoadQuestion())
                self._busy[lane] = process
            finally:
                self._waiting.remove(turn)
                self._changed.notify_all()
        try:
            yield process
        finally:
            with self._changed:
                del self._busy[lane]
                is_kept = len(self._idle) < IDLE and not self._is_closed
                if is_kept:
                    self._idle.append(process)
                self._changed.notify_all()
            if not is_kept:
                process.end()

    def _is_next(self, turn: _Turn) -> bool:
        """Whether a question is the first of those whose lane is free, and there is a process for it."""
        first = next((one for one in self._waiting if one.lane not in self._busy), None)
        return first is turn and len(self._busy) < self._most and not self._is_closed

    def close(self) -> None:
        """Give up all that is under way."""
        with self._changed:
            self._is_closed = True
            processes = [*self._busy.values(), *self._idle]
            self._idle.clear()
            self._changed.notify_all()
        for process in processes:
            process.end()
