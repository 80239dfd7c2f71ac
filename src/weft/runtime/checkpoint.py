"""What survives a crash: the plan of every batch, written before it runs, and what it left, written when it is done.

Guarantees: a batch is committed by one rename. A manifest names every live bucket file, so files that none of the kept
manifests names are nobody's and are deleted. A checkpoint belongs to one set of streams and queries and to one format
version, and to one running session at a time.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from weft.bucket.bounds import Bounds
from weft.errors import StateError

__all__ = ["FORMAT", "Blueprint", "Checkpoint", "HeldRun", "Manifest", "Plan", "RunFile", "Runs"]

_NEW = "use a new checkpoint directory"

FORMAT = 5
KEPT = 2  # manifests: the last one, and the one a replay of the last batch starts from
TICKS = 4  # batches for which a tick is kept, since one of them may be replayed


@dataclass(frozen=True, slots=True)
class RunFile:
    """A bucket file of a store's partition."""

    name: str
    bounds: Bounds

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunFile:
        """What `dataclasses.asdict` made."""
        return cls(data["name"], Bounds(**data["bounds"]))


@dataclass(frozen=True, slots=True)
class HeldRun:
    """A file with results that wait to leave, from its row ``first`` on: so many, the first of them of that time."""

    name: str
    first: int
    rows: int
    time: int
    bytes: int


# By graph, store (its identity) and partition.
Runs = dict[str, dict[str, dict[int, tuple[RunFile, ...]]]]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a batch left: live buckets, how far the streams are, what came and went so far, and its metrics.

    ``marks`` to ``oldest`` are by stream, ``kept`` and ``evicted`` by graph and store (`relay.Facts`), ``results`` by
    query, ``metrics`` by graph; ``failed`` says why queries could not be answered, which stops them; ``closed`` up to
    which time rows of queries with outer joins are closed; ``dealt`` how many tuples have been dealt out to the
    partitions of stores, by graph, store and read task; ``held`` are results that wait to leave, by query.
    """

    number: int = -1
    runs: Runs = field(default_factory=dict)
    marks: Mapping[str, int] = field(default_factory=dict)
    active: Mapping[str, int] = field(default_factory=dict)
    arrived: Mapping[str, int] = field(default_factory=dict)
    newest: Mapping[str, int] = field(default_factory=dict)
    oldest: Mapping[str, int] = field(default_factory=dict)
    kept: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)
    evicted: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    results: Mapping[str, int] = field(default_factory=dict)
    records: Mapping[str, int] = field(default_factory=dict)  # seen and bad, of all streams
    metrics: Mapping[str, Any] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    closed: Mapping[str, int] = field(default_factory=dict)
    dealt: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)
    held: Mapping[str, tuple[HeldRun, ...]] = field(default_factory=dict)

    def files(self) -> set[str]:
        """The files it names: buckets, and results that wait."""
        return {run.name for runs in self.held.values() for run in runs} | {
            run.name
            for stores in self.runs.values()
            for partitions in stores.values()
            for runs in partitions.values()
            for run in runs
        }

    def of(self, graph: str, store: str, partition: int) -> tuple[RunFile, ...]:
        """The runs of a store's partition, oldest first."""
        return self.runs.get(graph, {}).get(store, {}).get(partition, ())

    def bytes_of(self, graph: str, store: str) -> int:
        """How much a store holds."""
        partitions = self.runs.get(graph, {}).get(store, {}).values()
        return sum(run.bounds.bytes for runs in partitions for run in runs)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a batch will do: the time it began at, the queries that stand, and per graph its blueprint and its turn.

    ``relays`` are the jobs to be done before it, by graph; ``changed`` the graphs that are others than before.
    """

    number: int
    now: int
    standing: str
    graphs: Mapping[str, str]
    turns: Mapping[str, Mapping[str, Any]]
    relays: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Blueprint:
    """The queries that run, as they were asked, the plan for them and its graph as JSON ("" if there are none).

    ``stopped`` are the names of those that ran before, ``fresh`` counts changes since all was planned at once.
    """

    graph: str
    plan: str
    asked: Mapping[str, Mapping[str, Any]]
    stopped: Mapping[str, str] = field(default_factory=dict)  # name ↦ why
    fresh: int = 0

    @property
    def name(self) -> str:
        """What its file is called: equal blueprints have equal names."""
        return hashlib.blake2b(json.dumps(asdict(self)).encode(), digest_size=12).hexdigest()


@dataclass(slots=True)
class Checkpoint:
    """A checkpoint directory."""

    root: Path
    _lock: int | None = None
    _owned: dict[str, Any] = field(default_factory=dict)
    _claimed: dict[str, Any] = field(default_factory=dict)

    @property
    def buckets(self) -> Path:
        """Where bucket files are."""
        return self.root / "state" / "buckets"

    @property
    def ticks(self) -> Path:
        """Where files appear that make Spark begin a batch though no stream has brought anything."""
        return self.root / "ticks"

    def open(self, streams: Mapping[str, Any], **fixed: Any) -> str:
        """Take the directory for streams, and give its identity.

        One of another version or in use is refused, and so is one whose streams are not all here as they were; more
        of them may have come. What is ``fixed`` is as it was when the checkpoint was made.
        """
        self.buckets.mkdir(parents=True, exist_ok=True)
        for kind in ("plan", "relaid", "blueprints", "ticks"):
            (self.root / kind).mkdir(exist_ok=True)
        self._take_lock()
        file = self.root / "weft.json"
        found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        if found:
            self._check_format(found)
        if "streams" in found:
            self._check_same(found["streams"], streams)
            for name, value in fixed.items():
                if found[name] != value:
                    raise StateError(
                        f"{self.root} was made with {name} {found[name]}, not {value}", hint=_NEW
                    )
        identity: str = found.get("identity") or uuid.uuid4().hex
        self._owned = {"format": FORMAT, "identity": identity}
        self._claimed = {"streams": dict(streams), **fixed}
        if not found:
            _write(file, self._owned)
        return identity

    def claim(self) -> None:
        """Make the directory that of the streams it was opened for; until then it is as it was."""
        _write(self.root / "weft.json", {**self._owned, **self._claimed})

    def _check_format(self, found: Mapping[str, Any]) -> None:
        if found.get("format") != FORMAT:
            raise StateError(
                f"{self.root} has format {found.get('format')}, this version of Weft reads {FORMAT}",
                hint=_NEW,
            )

    def _check_same(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        for name, what in old.items():
            if name not in new:
                raise StateError(
                    f"{self.root} belongs to other streams or queries: it knows a stream {name}",
                    hint=f"register it again, or use a new checkpoint directory for these: {', '.join(new)}",
                )
            if json.loads(json.dumps(new[name])) != what:
                raise StateError(
                    f"{self.root} belongs to other streams or queries: there, stream {name} is {what}",
                    hint=_NEW,
                )

    def _take_lock(self) -> None:
        self._lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            self._lock = None
            raise StateError(
                f"{self.root} is in use by another session", hint="stop it, or use another checkpoint"
            ) from None

    def close(self) -> None:
        """Let the directory go."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def manifest(self, number: int) -> Manifest | None:
        """What a batch left; None if it is not committed. The one before the first batch is empty."""
        return Manifest() if number < 0 else _read_manifest(self._file("state", number))

    def relaid(self, number: int) -> Manifest | None:
        """What a batch begins with, where its plan is another than that of the batch before."""
        return _read_manifest(self._file("relaid", number))

    def write_relaid(self, number: int, manifest: Manifest) -> None:
        """Fix what a batch begins with."""
        _write(self._file("relaid", number), asdict(manifest))

    def last(self) -> int:
        """The last committed batch; -1 if there is none."""
        return max(self._numbers("state"), default=-1)

    def commit(self, manifest: Manifest) -> None:
        """Make a batch final, then delete what nobody needs any more."""
        _write(self._file("state", manifest.number), asdict(manifest))
        for kind in ("plan", "state", "relaid"):
            for number in self._numbers(kind):
                if number <= manifest.number - KEPT:
                    self._file(kind, number).unlink(missing_ok=True)
        for file in self.ticks.iterdir():
            if int(file.name.split("-")[0]) <= manifest.number - TICKS:
                file.unlink(missing_ok=True)
        self.clean()

    def tick(self) -> None:
        """Make Spark begin a batch."""
        name = f"{self.last() + 1}-{uuid.uuid4().hex}"
        partial = self.root / f".{name}.tmp"
        partial.write_text(name, encoding="utf-8")
        partial.replace(self.ticks / name)

    def exchange(self, number: int) -> Path:
        """A folder for what the tasks of a batch send each other; it goes when the batch is done."""
        folder = self.root / "exchange" / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def clean(self) -> None:
        """Delete what tasks sent each other, and files that no kept manifest or plan names."""
        shutil.rmtree(self.root / "exchange", ignore_errors=True)
        manifests = [self.manifest(number) for number in self._numbers("state")]
        manifests += [self.relaid(number) for number in self._numbers("relaid")]
        named = set().union(*(manifest.files() for manifest in manifests if manifest))
        plans = [self.plan(number) for number in self._numbers("plan")]
        drawn = {f"{plan.standing}.json" for plan in plans if plan}
        for folder, wanted in ((self.buckets, named), (self.root / "blueprints", drawn)):
            for file in folder.iterdir():
                if file.name not in wanted:
                    file.unlink(missing_ok=True)

    def plan(self, number: int) -> Plan | None:
        """What a batch was planned to do."""
        file = self._file("plan", number)
        if not file.exists():
            return None
        data = json.loads(file.read_text(encoding="utf-8"))
        return Plan(**{**data, "changed": tuple(data["changed"])})

    def blueprint(self, name: str) -> Blueprint:
        """A graph that a plan names."""
        file = self.root / "blueprints" / f"{name}.json"
        return Blueprint(**json.loads(file.read_text(encoding="utf-8")))

    def write_blueprint(self, blueprint: Blueprint) -> str:
        """Keep a graph under its name, for as long as a plan names it."""
        file = self.root / "blueprints" / f"{blueprint.name}.json"
        if not file.exists():
            _write(file, asdict(blueprint))
        return blueprint.name

    def write_plan(self, plan: Plan) -> None:
        """Fix what a batch will do, for this attempt and all later ones."""
        _write(self._file("plan", plan.number), asdict(plan))

    def stops(self) -> dict[str, str]:
        """The queries that were ever asked to stop, and why; it need not have happened yet."""
        file = self.root / "stops.json"
        found: dict[str, str] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        return found

    def write_stop(self, name: str, reason: str) -> None:
        """Remember that a query is to stop."""
        _write(self.root / "stops.json", {**self.stops(), name: reason})

    def _file(self, kind: str, number: int) -> Path:
        return self.root / kind / f"{number}.json"

    def _numbers(self, kind: str) -> list[int]:
        return sorted(int(file.stem) for file in (self.root / kind).glob("*.json"))


def _read_manifest(file: Path) -> Manifest | None:
    if not file.exists():
        return None
    data = json.loads(file.read_text(encoding="utf-8"))
    runs = {
        graph: {
            store: {
                int(partition): tuple(RunFile.from_dict(run) for run in found)
                for partition, found in partitions.items()
            }
            for store, partitions in stores.items()
        }
        for graph, stores in data.pop("runs").items()
    }
    held = {query: tuple(HeldRun(**run) for run in found) for query, found in data.pop("held").items()}
    return Manifest(runs=runs, held=held, **data)


def _write(file: Path, data: object) -> None:
    partial = file.with_name(f".{file.name}.tmp")
    with partial.open("w", encoding="utf-8") as out:
        json.dump(data, out)
        out.flush()
        os.fsync(out.fileno())
    partial.replace(file)
