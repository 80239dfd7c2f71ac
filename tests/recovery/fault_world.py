"""A session without Spark over real files, with a log on a disk: what faults are done to.

Everything runs in this process, by the loop, the tasks and the commit that run on Spark; what happens between the
steps of a batch is up to a `hook`. All tuples are on time, or have a wrong time and are dead letters, and all windows
are wide, so what queries must give follows from the files that are meant to be read, whichever batch they come in.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import weft
from tests.random_statistics import random_statistics
from tests.recovery.faults import is_time, wrong_time
from tests.restless import DrawnStatistics, restless
from weft.adapting.adapter import AdaptivePlan
from weft.adapting.background import ForegroundPlanner
from weft.adapting.planner import Planner
from weft.connectors.formats.dead_letters import DeadLetterBox, DeadLetterLimit
from weft.connectors.sink_descriptions import make_sink, portable_description
from weft.logical.times import shown_time
from weft.runtime.local import LocalExecutor
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import BatchPlan, Manifest
from weft.runtime.loop.adapter import Adapter, StaticPlan
from weft.runtime.loop.config import RunConfig
from weft.runtime.loop.executor import Pieces
from weft.runtime.loop.loop import Loop
from weft.runtime.observe.progress import complete_from
from weft.runtime.observe.recent_statistics import RecentStatistics
from weft.runtime.output.merge_task import Merge
from weft.runtime.state import open_segments
from weft.runtime.wire import task_input as job
from weft.runtime.wire.messages import Message
from weft.storage.storage import LocalDisk
from weft.testing import reference_join

SCHEMA = "id long, k long, g long, ts timestamp"
FORMATS = {"a": "json", "b": "parquet", "c": "json"}
QUERIES = {
    "pair": "SELECT a.id AS a, b.id AS b FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k",
    "chain": """SELECT a.id AS a, b.id AS b, c.id AS c, a.g AS ag, c.k AS ck
                FROM a, b, c WHERE a.k = b.k AND b.g = c.g""",  # it stores all that is asked for later
    "one": "SELECT c.id AS c, c.k AS k FROM c WHERE c.k < 5",
    "band": "SELECT a.id AS a, c.id AS c FROM a, c WHERE a.k < c.k - 4 AND a.g = c.g",
    "ordered": "SELECT a.id AS a, c.id AS c FROM a [RANGE 1 HOUR], c [RANGE 1 HOUR] WHERE a.g = c.g",
    "outer": "SELECT b.id AS b, c.id AS c FROM b [RANGE 1 HOUR] LEFT JOIN c [RANGE 1 HOUR] ON b.k = c.k AND b.g < 3",
}
LATER = ("ordered", "outer")  # some of their results leave only at the end of the input
BEGAN = 1_700_000_000_000_000  # microseconds
BATCHES = 60  # more than that would be a loop without end
SECONDS = 120.0

Row = tuple[int, int, int, int | str | None]  # the last is the event time
Rows = list[Row]
Hook = Callable[[str, int, set[Path]], None]  # the moment, the batch and, of its plan, the files


def _ignore(moment: str, number: int, files: set[Path]) -> None:
    """Nothing happens."""


class WatchedLog(Checkpoint):
    """A log whose steps are told."""

    hook: Hook = staticmethod(_ignore)

    def write_plan(self, plan: BatchPlan) -> None:
        """A batch is fixed."""
        files = {Path(part.what["file"]) for _, part in plan.parts}
        self.hook("before plan", plan.number, files)
        super().write_plan(plan)
        self.hook("planned", plan.number, files)

    def commit(self, manifest: Manifest) -> None:
        """Results are in place, the manifest is not; then it is."""
        self.hook("before manifest", manifest.number, set())
        super().commit(manifest)
        self.hook("committed", manifest.number, set())


class WatchedExecutor(LocalExecutor):
    """An executor whose batches are told."""

    hook: Hook = staticmethod(_ignore)

    def run(self, job: Any, pieces: Pieces, hops: int) -> list[Message]:
        """Between the plan of a batch and its tasks; between them and the commit."""
        self.hook("before run", job.number, set())
        found = super().run(job, pieces, hops)
        self.hook("after run", job.number, set())
        return found

    def collect(self, job: Any, merges: Sequence[Sequence[Merge]]) -> list[Message]:
        """Between the tasks that merge ordered results and the commit."""
        found = super().collect(job, merges)
        self.hook("after run", job.number, set())
        return found


@dataclass
class World:
    """Streams of files, the queries over them, and what the files are meant to hold."""

    root: Path
    rng: random.Random
    names: tuple[str, ...]  # of the queries of the beginning
    overlapping: bool
    partitions: int
    method: str
    hook: Hook
    wrong_times: float = 0.0  # the share of records that have one
    meant: dict[Path, Rows] = field(default_factory=dict)
    frozen: dict[str, Counter[Any]] = field(default_factory=dict)  # what queries that were stopped had given
    added: list[str] = field(default_factory=list)
    ending: bool = False
    ahead: float = 3.0  # seconds that the clock of the sources is ahead, so that no file need settle
    blocking: bool = False  # whether streams that cannot be read are left out, where other queries go on
    loop: Loop | None = None
    _limited: dict[str, bool] = field(default_factory=dict)
    _ids: int = 0
    _files: int = 0

    def __post_init__(self) -> None:
        self.options = weft.Options(partitions=self.partitions)
        self.session = weft.Session(options=self.options)
        for name, format_ in FORMATS.items():
            self.folder(name).mkdir(parents=True)
            source = weft.files(format_, str(self.folder(name)), schema=SCHEMA, max_files_per_batch=1)
            self.session.stream(name, source, event_time="ts", lateness="1 day")
        for name in self.names:
            self._ask(name)

    def _ask(self, name: str, backfill: bool = False) -> None:
        order = "event" if name == "ordered" else "none"
        sink = weft.to_parquet(self.root / "out" / name)
        self.session.query(QUERIES[name], name=name, sink=sink, backfill=backfill, order=order)

    def folder(self, stream: str) -> Path:
        """Where the files of a stream are."""
        return self.root / "in" / stream

    @property
    def checkpoint(self) -> Path:
        """Where the log is."""
        return self.root / "ck"

    # Input

    def rows(self, *, text: bool) -> Rows:
        """New tuples, for a file of text or one that has types."""
        found = Rows()
        for _ in range(self.rng.randint(1, 6)):
            self._ids += 1
            when: int | str | None = BEGAN + self.rng.randrange(60_000_000)
            if self.rng.random() < self.wrong_times:
                when = wrong_time(self.rng, text)
            found.append((self._ids, self.rng.randrange(10), self.rng.randrange(6), when))
        return found

    def write(self, stream: str) -> None:
        """One more file."""
        file = self.folder(stream) / f"{stream}{self.next_number():04}.{FORMATS[stream]}"
        self.put(file, self.rows(text=file.suffix != ".parquet"))

    def next_number(self) -> int:
        """A number that no file has."""
        self._files += 1
        return self._files

    def put(self, file: Path, rows: Rows) -> None:
        """A file with these rows, as a good writer puts it there."""
        partial = file.with_name(f".{file.name}.tmp")
        partial.write_bytes(content_of(file, rows))
        partial.replace(file)
        self.meant[file] = rows

    # Running

    def start(self, *, as_new_process: bool = True) -> None:
        """A session that goes on where the log ends."""
        if as_new_process:
            open_segments._BY_STORAGE.clear()
            job._program.cache_clear()
        session = self.session
        adapter, statistics = self._adapter()
        config = RunConfig(
            {name: session.catalog.stream(name) for name in FORMATS},
            dict(session._registered.sources),
            Planner(self.options, self.method),
            make_sink,
            portable_description,
            self.partitions,
            set_aside=DeadLetterBox(self.checkpoint / "dead_letters", DeadLetterLimit()).take,
            adapter=adapter,
            statistics=statistics,
        )
        log, executor = WatchedLog(LocalDisk(self.checkpoint)), WatchedExecutor(self.partitions, readers=2)
        log.hook = executor.hook = self.hook
        self.loop = loop = Loop(config, log, executor, overlapping=self.overlapping)
        loop.intake.clock = lambda: time.time() + self.ahead
        if not self.blocking:
            loop._may_block = loop.intake.may_block = lambda _: False  # type: ignore[assignment, method-assign]
        queries = session._registered.runnable
        try:
            loop.start(queries)
        except BaseException:
            self.stop()
            raise

    def _adapter(self) -> tuple[Adapter, RecentStatistics]:
        """Every other world takes every plan it finds, each planned by other statistics than the one before."""
        if self.partitions % 2:
            return StaticPlan(), RecentStatistics(given=self.session.statistics)
        rng, columns = random.Random(self._files), dict.fromkeys(FORMATS, ("k", "g"))
        adaptation = restless(rng)["adaptation"]
        adapter = AdaptivePlan(ForegroundPlanner(), self.options, self.method, adaptation, always=True)
        return adapter, DrawnStatistics(lambda: random_statistics(rng, columns))

    def stop(self) -> None:
        """The session ends, or its process does."""
        loop, self.loop = self.loop, None
        if loop is not None:
            loop.stopping = True
            loop.close()

    def drain(self) -> None:
        """Run batches until there is nothing to do."""
        assert self.loop is not None
        began, tried = time.monotonic(), False
        for _ in range(BATCHES):
            if not self.loop.run_next():
                self.loop.committer.wait()
                if self._settles() or self.loop.run_next():
                    continue
                if tried or not self.loop.intake.blocked:
                    return
                tried = True
                self.loop.intake.blocked.try_now()
            assert time.monotonic() - began < SECONDS, "it takes too long"
        raise AssertionError("batches follow each other without end")

    def _settles(self) -> bool:
        """Whether there are complete files that could still change; some time passes, if there are."""
        assert self.loop is not None
        said = [one for names in self.loop.intake.unfinished().values() for one in names]
        waits = any(one.endswith("it is being written") for one in said)
        self.ahead += 1.0 if waits else 0.0
        return waits

    def add(self, name: str) -> None:
        """Ask for one more query, which also gives the results of the past."""
        assert self.loop is not None
        self._ask(name, backfill=True)
        self.loop.add(name, self.session._registered.requests[name], self.session._registered.sinks[name])
        self.added.append(name)

    def stop_query(self, name: str) -> None:
        """Run a query no longer; all that has come by now, it has given."""
        assert self.loop is not None
        self.frozen[name] = self.given(name)
        self.loop.stop_query(name)

    # What comes of it

    def given(self, name: str) -> Counter[Any]:
        """What a query has given."""
        files = (self.root / "out" / name).glob("batch=*/*.parquet")
        return Counter(row for file in files for row in _tuples(pq.ParquetFile(file).read()))

    def wanted(self, name: str) -> Counter[Any]:
        """What it has to give, by the definition, of what the files are meant to hold."""
        query = self.session.parse(QUERIES[name])
        tables = {one.alias: self._table(one.stream.name) for one in query.inputs}
        return Counter(_tuples(reference_join(query, tables)))

    def _is_limited(self, name: str) -> bool:
        """Whether a query that was added says that it does not see all of the past."""
        program = self.loop.active_queries.program if self.loop is not None else None
        if name in self.added and program is not None and name in program.members:
            self._limited[name] = complete_from(program.members[name]) is not None
        return self._limited.get(name, False)

    def _table(self, stream: str) -> pa.Table:
        files = sorted(file for file in self.meant if file.parent == self.folder(stream))
        return table_of(row for file in files for row in self.meant[file] if is_time(row[3]))

    def wrong(self) -> dict[str, tuple[Counter[Any], Counter[Any]]]:
        """Queries whose results are not what they have to be: what is too much, and what is missing."""
        found = {}
        for name in self.session._registered.requests:
            given = self.given(name)
            wanted = self.frozen[name] if name in self.frozen else self.wanted(name)
            waits = (name in LATER and not self.ending) or self._is_limited(name)
            missing = Counter() if waits else wanted - given
            if missing or given - wanted:
                found[name] = given - wanted, missing
        return found


def table_of(rows: Iterable[Row]) -> pa.Table:
    """Tuples with the columns of all streams."""
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    kinds = (pa.int64(), pa.int64(), pa.int64(), pa.timestamp("us", "UTC"))
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    return pa.table(dict(zip(("id", "k", "g", "ts"), arrays, strict=True)))


def content_of(file: Path, rows: Rows) -> bytes:
    """The bytes of a file of a stream."""
    if file.suffix == ".parquet":
        out = pa.BufferOutputStream()
        pq.write_table(table_of(rows), out)
        return bytes(out.getvalue().to_pybytes())
    lines = [
        json.dumps({"id": i, "k": k, "g": g, "ts": _iso(when)}, separators=(",", ":")) + "\n"
        for i, k, g, when in rows
    ]
    return "".join(lines).encode()


def _iso(when: int | str | None) -> str | None:
    return when if not isinstance(when, int) else shown_time(when)


def _tuples(table: pa.Table) -> Iterable[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)
