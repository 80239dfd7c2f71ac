"""A session's queries over tables, batch by batch, in this process: for tests of users' own pipelines.

Guarantees: nothing of Java, Spark, disks or the wall clock: batches are what is given, in the order given, and the time
is what `LocalRun.now` says, so a test gives the same every time. Queries are parsed, planned, changed, executed and
committed by the code that runs them on Spark (`weft.runtime.loop`); only the sources, the sinks and the place of the
log are others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any, TypeAlias

import pyarrow as pa

from weft.connectors.memory.sink import MemorySink
from weft.connectors.memory.source import TableSource
from weft.connectors.tables.readers import ArrowTable
from weft.errors import CatalogError, ConfigError, QueryError, ResultError, nearest
from weft.kernels.expr.arrow import arrow_type
from weft.logical.schema import Schema
from weft.ports.table import RegisteredTable
from weft.runtime.local import LocalExecutor
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.loop.loop import Loop
from weft.runtime.observe.progress import failure_of
from weft.session.run import adapter_for, run_config
from weft.session.session import Session
from weft.session.validation import duration_of

__all__ = ["LocalRun", "Rows"]

# Rows of a stream: as Arrow, or one mapping of column to value for each.
Rows: TypeAlias = "pa.Table | pa.RecordBatch | Sequence[Mapping[str, Any]]"

# When a run begins, unless it is told otherwise.
BEGINNING = datetime(2000, 1, 1, tzinfo=timezone.utc)


class LocalRun:
    """Runs the queries of a session that have a sink; their sinks and the sources of their streams are left alone.

    Its clock begins at ``now``, and records ahead of it by more than their stream's ``ahead`` are dead letters. If no
    time is given, event times are not compared with the clock, which then begins in the year 2000.

    >>> import weft
    >>> session = weft.Session()
    >>> _ = session.stream("clicks", weft.files("json", "clicks/", schema="usr INT, ts TIMESTAMP"), event_time="ts")
    >>> _ = session.stream("buys", weft.files("json", "buys/", schema="usr INT, ts TIMESTAMP"), event_time="ts")
    >>> text = "SELECT c.usr FROM clicks [RANGE 1 MINUTE] AS c, buys [RANGE 1 MINUTE] AS b WHERE c.usr = b.usr"
    >>> _ = session.query(text, name="converted", sink=weft.to_console())
    >>> run = LocalRun(session)
    >>> noon = datetime(2026, 1, 1, 12)
    >>> run.batch({"clicks": [{"usr": 1, "ts": noon}, {"usr": 2, "ts": noon}]})["converted"].num_rows
    0
    >>> later = noon + timedelta(seconds=30)
    >>> run.batch({"buys": [{"usr": 1, "ts": later}]})["converted"].to_pylist()
    [{'usr': 1}]
    """

    def __init__(self, session: Session, *, now: datetime | None = None) -> None:
        self._session = session
        self._limited = now is not None
        self.now = BEGINNING if now is None else now
        self.dead_letters: list[bytes] = []
        self._sources: dict[str, TableSource] = {}
        self._sinks: dict[str, MemorySink] = {}
        settings, registered = session._settings, replace(session._registered, sources={}, tables={})
        adapter = adapter_for(settings, foreground=True)  # a test gives the same every time
        # What its batches measure is what its queries are planned by.
        config = run_config(settings, None, session.catalog, registered, session._planner, session._measured)
        config = replace(config, set_aside=self._set_aside, adapter=adapter)
        executor = LocalExecutor(config.partitions)
        self._loop = Loop(config, Checkpoint.in_memory(), executor, overlapping=False)
        self._loop.batch_planner.clock = lambda: (_utc(self.now) - _EPOCH) // timedelta(microseconds=1)
        self._loop.start({})
        session._graphs.loop = self._loop

    def batch(
        self, tables: Mapping[str, Rows] | None = None, *, now: datetime | None = None
    ) -> dict[str, pa.Table]:
        """Give the streams these rows as one batch; returns what every query gives for it, by name.

        Streams and queries that the session has been given since the last batch begin with this one. Rows of outer
        joins that can be closed after it are among what it gives. ``now`` sets the clock, by which rows of streams
        without event time arrive and streams become idle. A batch that raises an error has no effect, but for a
        `ResultError`: one query has failed, is not among what later batches give, and the others go on. Rows for a
        table are all that it has from this batch on; before it is given any, it has those it was registered with, if it
        was registered with a `pyarrow.Table`, or else none.
        """
        self._open_streams()
        known = {*self._sources, *self._loop.tables.known}
        for name in tables or {}:
            if name not in known:
                raise CatalogError(f"there is no stream {name!r}", hint=nearest(name, known))
        if now is not None:
            self.now = now
        self._begin_queries()
        schemas = {stream.name: stream.schema for stream in self._session.catalog.streams}
        whole = {name: _table(rows, schemas[name]) for name, rows in (tables or {}).items()}
        for name, table in whole.items():
            if name in self._sources:
                self._sources[name].offer(table)
            else:
                self._loop.tables.put(name, ArrowTable(_as_table(table), schemas[name]))
        return self._run_batch()

    def advance(self, span: timedelta | str) -> dict[str, pa.Table]:
        """Let time pass without input, and run a batch; returns what every query gives for it, by name."""
        return self.batch(now=self.now + duration_of(span, "advance"))

    def end(self) -> dict[str, pa.Table]:
        """Say that nothing more will come; returns the rows that waited for a partner or an order, by query."""
        self._loop.end_input()
        return self.batch()

    def stop_query(self, name: str) -> None:
        """Run a query no longer, from the next batch on."""
        if name not in self._sinks:
            raise QueryError(f"no query {name!r} runs", hint=nearest(name, self._sinks))
        self._loop.stop_query(name)

    def results(self, name: str) -> pa.Table:
        """All that a query gave so far, in the order in which it gave it."""
        if name not in self._sinks:
            raise QueryError(f"no query {name!r} has run", hint=nearest(name, self._sinks))
        if (failure := self._failure(name)) is not None:
            raise failure
        return self._sinks[name].results()

    def _failure(self, name: str) -> ResultError | None:
        """Why a query's results are not complete, if it failed or reached a limit."""
        return failure_of(name, self._loop.active_queries, self._loop.before)

    def _open_streams(self) -> None:
        for stream in self._session.catalog.streams:
            if stream.table and stream.name not in self._loop.tables.known:
                given = self._session._registered.tables.get(stream.name)
                in_memory = given is not None and isinstance(given.reader, ArrowTable)
                reader = given.reader if given is not None and in_memory else _nothing(stream.schema)
                self._loop.add_table(stream, RegisteredTable(reader))
            elif not stream.table and stream.name not in self._sources:
                self._sources[stream.name] = TableSource(stream.schema)
                limited = stream if self._limited else replace(stream, ahead=None)
                self._loop.add_stream(limited, self._sources[stream.name])

    def _begin_queries(self) -> None:
        new = {
            name: one for name, one in self._session._registered.requests.items() if name not in self._sinks
        }
        if not new and not self._sinks:
            raise ConfigError("no query has a sink", hint="as in session.query(…, sink=weft.to_memory())")
        for name, request in new.items():
            self._sinks[name] = MemorySink()
            self._loop.add(name, request, self._sinks[name])

    def _run_batch(self) -> dict[str, pa.Table]:
        """Run the batch that was given, and those without input that are due after it: rows that can be closed now."""
        given: dict[str, list[pa.Table]] = {n: [] for n in self._sinks if self._failure(n) is None}
        more = self._loop.run_next(also_empty=True)
        while more:
            batch = self._loop.last_batch
            assert batch is not None  # a batch has just run
            for error in batch.executed.reports.answers.broken.values():
                raise error
            for name, tables in given.items():
                if (failure := self._failure(name)) is not None:
                    raise failure
                tables.append(self._sinks[name].results_of(batch.number))
            more = self._loop.run_next()
        return {name: pa.concat_tables(tables) for name, tables in given.items()}

    def _set_aside(self, number: int, lines: bytes, bad: int, seen: int) -> None:  # noqa: ARG002
        self.dead_letters += lines.splitlines()


def _table(rows: Rows, schema: Schema) -> pa.Table | pa.RecordBatch:
    """Rows as a table with the declared columns; a value of another type, or a column that is not there, is refused."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return rows
    declared = {field.name for field in schema.fields}
    for row in rows:
        for name in row:
            if name not in declared:
                raise CatalogError(f"the stream has no column {name!r}", hint=nearest(name, declared))
    fields = [(field.name, arrow_type(field.type)) for field in schema.fields]
    try:
        return pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(fields))
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
        raise CatalogError(
            f"the rows are not of the stream's types: {error}", hint=f"declared: {schema}"
        ) from None


def _as_table(rows: pa.Table | pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows


def _nothing(schema: Schema) -> ArrowTable:
    """A table without rows."""
    return ArrowTable(pa.table({field.name: pa.nulls(0, arrow_type(field.type)) for field in schema}), schema)


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
