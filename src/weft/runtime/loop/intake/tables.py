"""The tables of a run: which version of each is in force, and which is to be taken up.

Guarantees: a version is read as a whole into blobs of the log before any batch names it, so a batch that is repeated
reads the same rows, whatever has become of the table. A version is taken up with a batch, never within one. If a table
cannot be read, the version in force stays, with a warning; without one, that is an error. The methods may be called
from any thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from weft.errors import SourceError, WeftError
from weft.logical.codec import decode, encode
from weft.logical.nested.nested import read_streams
from weft.ports.source import Blobs, Part
from weft.ports.table import RegisteredTable, TableReader
from weft.runtime.log.values import BatchPlan, Manifest
from weft.runtime.loop.batch_planner import BatchPlanner
from weft.runtime.observe.table_progress import TableProgress
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.request import QueryRequest
from weft.runtime.task.table_parts import TableRows, write_table_parts

__all__ = ["TableVersion", "Tables", "stores_of_table", "tables_of"]

_LOG = logging.getLogger("weft")

TRIES = 3  # a version may be replaced while it is read


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A version of a table: its name, its rows in the log, and when it was read, in microseconds."""

    name: str
    written: TableRows
    read_at: int

    def to_dict(self) -> dict[str, Any]:
        """As plain data, in the form of a cursor's state: it names the blobs that it needs."""
        parts = [encode(part) for part in self.written.parts]
        known = {"version": self.name, "rows": self.written.rows, "digest": self.written.digest}
        return {**known, "read_at": self.read_at, "parts": parts, "blobs": self.written.blobs}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TableVersion:
        """What `to_dict` made."""
        parts = decode(tuple[Part, ...], data["parts"])
        return cls(data["version"], TableRows(parts, data["rows"], data["digest"]), data["read_at"])


@dataclass
class _Table:
    """A table of a run; ``seen`` is the version that was looked at last, though its rows may be those in force."""

    reader: TableReader
    refresh: float | None = None  # seconds
    current: TableVersion | None = None
    found: TableVersion | None = None
    seen: str | None = None
    looked: float = 0.0
    failures: int = 0
    problem: str = ""


@dataclass
class Tables:
    """All tables of a run; ``blobs`` is the log, and ``found`` is called when there is another version to take up."""

    blobs: Blobs
    clock: Callable[[], int]
    found: Callable[[], None]
    known: dict[str, _Table] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)  # of what is in force, and what was found
    _looking: threading.RLock = field(default_factory=threading.RLock)  # held while a table is read
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def open_all(
        self, tables: Mapping[str, RegisteredTable], states: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Follow more tables; ``states`` has what the log says of each, nothing if it was never read."""
        for name, given in tables.items():
            table, state = _Table(given.reader, given.refresh), states.get(name)
            if state:
                table.current = TableVersion.from_dict(state)
                table.seen = table.current.name
            with self._guard:
                self.known[name] = table
        if self._thread is None and any(given.refresh is not None for given in tables.values()):
            self._thread = threading.Thread(target=self._follow, name="weft-tables", daemon=True)
            self._thread.start()

    def load_for(self, requests: Iterable[QueryRequest]) -> None:
        """Look at tables that queries are about to use; an error if one was never read and cannot be."""
        for name in sorted(_tables_read_by(requests) & self.known.keys()):
            with self._looking:
                table = self.known[name]
                if table.found is None and (table.current is None or not table.looked):
                    self._look(name, table, first=table.current is None)

    def put(self, name: str, reader: TableReader) -> None:
        """Have a table read from something else from now on, and look at it at once."""
        with self._looking:
            table = self.known[name]
            table.reader, table.seen = reader, None
            self._look(name, table, first=True)

    def _look(self, name: str, table: _Table, *, first: bool) -> None:
        """Read a table if it has another version than was seen last."""
        table.looked = time.monotonic()
        try:
            version = table.reader.version()
            if version != table.seen:
                self._read(name, table, version)
        except WeftError as error:
            if first:
                raise
            self._failed(name, table, error.message)
        except Exception as error:
            if first:
                raise SourceError(f"table {name} cannot be read: {error}") from error
            self._failed(name, table, f"{type(error).__name__}: {error}")

    def _failed(self, name: str, table: _Table, problem: str) -> None:
        table.failures, table.problem = table.failures + 1, problem
        _LOG.warning("table %s stays as it was read before: %s", name, problem)

    def _read(self, name: str, table: _Table, version: str) -> None:
        now, reader = self.clock(), table.reader
        for attempt in range(1, TRIES + 1):
            try:
                written = write_table_parts(self.blobs, reader.read(version), f"{name} {version} {now}")
                break
            except SourceError:
                newest = reader.version()
                if newest == version or attempt == TRIES:
                    raise
                version = newest  # it was replaced meanwhile
        table.seen, table.problem = version, ""
        with self._guard:
            last = table.found or table.current
            if last is not None and last.written.digest == written.digest:
                return
            table.found = TableVersion(version, written, now)
        self.found()

    def _follow(self) -> None:
        """Look at tables whenever it is time for that, until the run ends."""
        while not self._stopped.wait(self._pause()):
            for name, table in list(self.known.items()):
                if table.refresh is not None and time.monotonic() >= table.looked + table.refresh:
                    with self._looking:
                        if table.seen is not None:
                            self._look(name, table, first=False)

    def _pause(self) -> float:
        """The seconds until a table is to be looked at."""
        now = time.monotonic()
        due = [t.looked + t.refresh - now for t in list(self.known.values()) if t.refresh and t.seen]
        return min(max(min(due, default=0.2), 0.02), 0.2)

    def has_newer(self, program: ExecutableGraph | None) -> bool:
        """Whether a table that queries of a graph read has another version to be taken up."""
        return bool(self.waiting(tables_of(program)))

    def waiting(self, names: Collection[str]) -> list[str]:
        """Those of some tables of which another version is to be taken up."""
        with self._guard:
            return sorted(name for name in names if name in self.known and self.known[name].found is not None)

    def planned(self, plan: BatchPlan, batch_planner: BatchPlanner, before: Manifest) -> BatchPlan:
        """The plan of a batch with the tables that it reads: those that are others now, or are stored anew."""
        program = batch_planner.active_queries.program
        names = tables_of(program)
        wanted = set(self.waiting(names))
        if plan.changed:
            old = batch_planner.queries_of(before.blueprint).program
            wanted |= {name for name in names if stores_of_table(old, name) != stores_of_table(program, name)}
        inputs = {**plan.inputs, **self.take(wanted)}
        states = {**plan.cursors, **self.states()}
        return replace(plan, inputs=inputs, tables=tuple(sorted(wanted)), cursors=states)

    def take(self, names: Collection[str]) -> dict[str, tuple[Part, ...]]:
        """Take up what was found of some tables; return the rows of each that is in force then, as parts."""
        with self._guard:
            parts: dict[str, tuple[Part, ...]] = {}
            for name in sorted(names):
                table = self.known[name]
                table.current, table.found = table.found or table.current, None
                if table.current is None:
                    raise SourceError(
                        f"table {name} was never read", hint="register it with what it is read from"
                    )
                parts[name] = table.current.written.parts
            return parts

    def states(self) -> dict[str, dict[str, Any]]:
        """What the log has to know of each table: its version in force, where there is one."""
        with self._guard:
            return {n: t.current.to_dict() for n, t in self.known.items() if t.current is not None}

    def progress(self) -> dict[str, TableProgress]:
        """Every table as users see it."""
        with self._guard:
            return {name: _progress(name, table) for name, table in sorted(self.known.items())}

    def rows(self) -> dict[str, int]:
        """How many rows each table has, in the version that was read last."""
        with self._guard:
            newest = {name: table.found or table.current for name, table in self.known.items()}
            return {name: one.written.rows for name, one in newest.items() if one is not None}

    def close(self) -> None:
        """Look at nothing any more."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)


def _progress(name: str, table: _Table) -> TableProgress:
    now, waiting = table.current, None if table.found is None else table.found.name
    if now is None:
        return TableProgress(name, waiting=waiting, failures=table.failures, problem=table.problem)
    return TableProgress(
        name, now.name, now.written.rows, now.read_at, waiting, table.failures, table.problem
    )


def tables_of(program: ExecutableGraph | None) -> list[str]:
    """The tables that the queries of a graph read."""
    if program is None:
        return []
    inputs = (program.graph.input(alias) for alias in program.graph.aliases)
    return sorted({input_.stream.name for input_ in inputs if input_.stream.table})


def _tables_read_by(requests: Iterable[QueryRequest]) -> set[str]:
    """The tables that queries read, and those that their derived streams do."""
    streams = (stream for request in requests for stream in read_streams(request.query))
    return {stream.name for stream in streams if stream.table}


def stores_of_table(program: ExecutableGraph | None, table: str) -> list[object]:
    """All that decides what the stores of a table hold, beside its rows: if it changes, they are filled anew."""
    if program is None:
        return []
    graph, found = program.graph, list[object]()
    for store in program.stores.values():
        if store.is_table and graph.input(store.node.aliases[0]).stream.name == table:
            users = [(name, program.members[name].slot) for name in store.node.users]
            filters = [program.members[name].query.filters for name in store.node.users]
            kept = (store.identity, store.columns, store.computed, store.orders, store.sets)
            found.append((kept, users, filters))
    return found
