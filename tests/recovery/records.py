"""What was recorded of every batch: the queries it was for, and what they see.

A checkpoint forgets; a run under test writes down, whenever a batch is planned, what stands and which of the past is
forgotten. A plan is never written twice, so the last record of a batch is that of the plan it was run by.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weft.logical.codec import decode
from weft.plan.physical.graph import Member
from weft.ports.source import Part
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import BatchPlan, Manifest
from weft.runtime.loop.loop import Loop
from weft.runtime.model.batch_order import ENDED
from weft.runtime.program.executable import program_of
from weft.runtime.queries.request import QueryRequest, is_inner
from weft.runtime.task.table_parts import read_table_part

FOLDER = "records"


class Recorded(Checkpoint):
    """A log that writes down what it plans."""

    before = Manifest()  # what the last batch left, which need not be committed yet
    folder: ClassVar[Path | None] = None  # for records; else beside the log
    committed: ClassVar[int] = -1  # the last batch of the log of this process

    def open(self, streams: Mapping[str, Any], **fixed: Any) -> str:
        """Look where the log stands."""
        identity = super().open(streams, **fixed)
        Recorded.committed = self.last()
        return identity

    def commit(self, manifest: Manifest) -> None:
        """Commit, and let others in this process know."""
        super().commit(manifest)
        Recorded.committed = manifest.number

    def write_plan(self, plan: BatchPlan) -> None:
        """Record, then plan; a record without a plan is written again."""
        blueprint = self.blueprint(plan.blueprint)
        record = {
            "blueprint": asdict(blueprint),
            "evicted": self.before.evicted,
            "migration": plan.migration,
            "batch_order": plan.batch_order or {},
            "files": {
                name: [
                    Path(part.what[key]).name
                    for part in parts
                    for key in ("file", "object")
                    if key in part.what
                ]
                for name, parts in plan.inputs.items()
            },
            "taken": {  # of derived streams, the batches that gave the tuples
                name: sorted({part.what["batch"] for part in parts if "batch" in part.what})
                for name, parts in plan.inputs.items()
            },
            "tables": {name: self._rows(state) for name, state in plan.cursors.items() if "digest" in state},
        }
        assert self.root is not None or self.folder is not None
        beside = self.root.parent / FOLDER if self.root is not None else Path()
        file = (self.folder or beside) / f"{plan.number}.json"
        file.parent.mkdir(exist_ok=True)
        partial = file.with_suffix(".tmp")
        partial.write_text(json.dumps(record), encoding="utf-8")
        partial.replace(file)
        super().write_plan(plan)

    def _rows(self, state: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The rows of a table's version in force."""
        parts = [decode(Part, part) for part in state["parts"]]
        return [row for part in parts for row in read_table_part(self.storage, part, _Every()).to_pylist()]


class _Every(frozenset[str]):
    """All columns."""

    def __contains__(self, name: object) -> bool:
        return True


class RecordedLoop(Loop):
    """A loop that tells its log what it records."""

    def run_next(self, *, also_empty: bool = False) -> bool:
        """The next batch."""
        assert isinstance(self.log, Recorded)
        self.log.before = self.before
        return super().run_next(also_empty=also_empty)


def record_stop(root: Path, name: str) -> None:
    """Write down that a query has been stopped, and the last batch that was planned by then."""
    planned = max((int(file.stem) for file in (root / FOLDER).glob("*.json")), default=-1)
    (root / FOLDER).mkdir(exist_ok=True)
    (root / FOLDER / f"{name}.stopped").write_text(str(planned), encoding="utf-8")


def _stopped(root: Path, name: str, batches: int) -> int:
    """The last batch that a query may be in: the one under way when it was stopped, or the one being planned."""
    file = root / FOLDER / f"{name}.stopped"
    return int(file.read_text(encoding="utf-8")) + 1 if file.exists() else batches


def recorded(root: Path, number: int) -> dict[str, Any]:
    """What was written down of a batch."""
    found: dict[str, Any] = json.loads((root / FOLDER / f"{number}.json").read_text(encoding="utf-8"))
    return found


@dataclass(frozen=True, slots=True)
class Life:
    """A query's first and last batch, what it sees of those before, by its author's names for inputs.

    ``evicted`` says, by store, below which time rows may have been forgotten when it came.
    """

    name: str
    first: int
    last: int
    member: Member
    names: Mapping[str, str]  # the author's ↦ the common ones
    evicted: Mapping[str, int]

    def sees(self, alias: str, table: pa.Table) -> NDArray[np.bool_]:
        """Which tuples of an input are there for it."""
        visibility = self.member.visibility(self.names[alias])
        batch, time = table["batch"].to_numpy(), _times(table)
        seen: NDArray[np.bool_] = batch >= visibility.batch
        if visibility.since is not None:
            seen &= time >= visibility.since
        seen |= batch >= self.first
        return seen

    def is_kept(self, alias: str, table: pa.Table) -> NDArray[np.bool_]:
        """Which of them were certainly stored when it came."""
        store = self.member.visibility(self.names[alias]).store
        since = self.evicted.get(store) if store is not None else None
        times = _times(table)
        return np.ones(len(times), np.bool_) if since is None else times >= since


def _times(table: pa.Table) -> NDArray[np.int64]:
    times: NDArray[np.int64] = table["ts"].cast(pa.int64()).to_numpy()
    return times


def _members(record: Mapping[str, Any]) -> Mapping[str, Member]:
    graph = record["blueprint"]["graph"]
    return program_of(graph).members if graph else {}


def batches_of(root: Path, stream: str, files: int) -> list[int]:
    """The batch that each file of a stream came in, by the plans; a file in no plan, or in two, is an error."""
    came: dict[str, int] = {}
    for number in range(len(list((root / FOLDER).glob("*.json")))):
        for name in recorded(root, number)["files"].get(stream, ()):
            assert name not in came, f"{stream}: {name} came in batches {came[name]} and {number}"
            came[name] = number
    names = [f"{file:03}.json" for file in range(files)]
    missing = [name for name in names if name not in came]
    assert not missing, f"{stream}: {missing} came in no batch"
    return [came[name] for name in names]


def lives(root: Path) -> dict[str, Life]:
    """The queries of users that were in some batches; none comes back once it has gone, or changes what it sees."""
    found: dict[str, Life] = {}
    batches = len(list((root / FOLDER).glob("*.json")))
    for number in range(batches):
        record = recorded(root, number)
        for name, member in _members(record).items():
            if is_inner(decode(QueryRequest, record["blueprint"]["requests"][name])):
                continue
            names = {old: new for new, old in record["blueprint"]["requests"][name]["names"]}
            known = found.get(name) or Life(name, number, number - 1, member, names, record["evicted"])
            assert known.last == number - 1, f"{known}: it comes back in batch {number}"
            assert known.member == member, f"{known}: in batch {number}, it is {member}"
            assert number <= _stopped(root, name, batches), f"{known}: it is stopped, but in batch {number}"
            assert known.first == member.first, f"{known}: it is in batch {known.first}"
            found[name] = Life(name, known.first, number, member, names, known.evicted)
    return found


def ranks(root: Path, alias: str, life: Life) -> NDArray[np.int64]:
    """The rank of an input, by its common name, in every batch until a query's last; in those before its first, 0."""
    orders = [recorded(root, number)["batch_order"]["order"] for number in range(life.first, life.last + 1)]
    return np.array([0] * life.first + [order.index(alias) for order in orders])


def has_ended(root: Path, life: Life) -> bool:
    """Whether a query was told that its input had ended."""
    clocks = recorded(root, life.last)["batch_order"]["clocks"]
    return life.name in clocks and clocks[life.name][1] >= ENDED


def is_last(root: Path, life: Life) -> bool:
    """Whether a query was in the last batch."""
    return life.last == len(list((root / FOLDER).glob("*.json"))) - 1


def read_streams(root: Path) -> list[set[str]]:
    """The streams that some query reads, by batch."""
    batches = len(list((root / FOLDER).glob("*.json")))
    return [
        {i.stream.name for member in _members(recorded(root, number)).values() for i in member.query.inputs}
        for number in range(batches)
    ]
