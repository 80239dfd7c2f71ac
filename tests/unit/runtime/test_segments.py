"""A partition in segments: nothing is lost, nothing stays for ever, and what is damaged is named."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.runtime.joins import times
from weft.bucket.bounds import Bounds
from weft.errors import StateError
from weft.logical.codec import decode, encode
from weft.runtime.hop.admission import admit
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.state.open_segments import OpenSegments, Underway
from weft.runtime.state.partition import LAG, PartitionState
from weft.runtime.state.partition_manifest import (
    PartitionFile,
    PartitionManifest,
    Share,
    StoredRun,
    StoreTotals,
    moment_of,
)
from weft.runtime.state.segment_file import BUCKETS, flush_segments, read_manifest, write_segment
from weft.runtime.state.stores import Forget, make_run
from weft.session.session import Session
from weft.storage.storage import LocalDisk, Memory, Storage

PAIR = "SELECT a.id AS a, b.id AS b FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS] WHERE a.k = b.k"
SECOND = 1_000_000


def program() -> ExecutableGraph:
    """A join of two streams on one key."""
    session = Session()
    for name in "ab":
        session.stream(name, "id long, k long, ts timestamp", event_time="ts")
    return ExecutableGraph(session.query(PAIR, name="q").graph)


@dataclass
class Partition:
    """A partition to which batches add rows."""

    storage: Storage
    program: ExecutableGraph = field(default_factory=program)
    manifest: PartitionManifest = field(default_factory=PartitionManifest)
    file: PartitionFile | None = None
    number: int = -1
    begun: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.open_segments = OpenSegments(self.storage)
        self.begun = {plan.identity: 0 for plan in self.program.stores.values()}

    def run(self, rows: dict[str, int], since: float | None = None, *, in_hops: bool = False) -> None:
        """Run a batch that adds so many rows to the stores of inputs, and forgets those before a second."""
        self.number += 1
        before = self.open_segments.manifest(0, self.file)
        state, hops = self._state(before, Underway()), self.program.graph.hops
        for plan in self.program.stores.values():
            alias = plan.node.aliases[0]
            if rows.get(alias):
                state.add(plan, alias, make_run(plan, self._batch(alias, rows[alias]), self.number))
        if in_hops:
            state = self._state(before, state.put_down())
        forget = Forget(since=None if since is None else int(since * SECOND), reach=SECOND)
        for hop in range(1, 1 + hops):
            state.settle(hop, ("a", "b"), dict.fromkeys(self.begun, forget))
        file, self.manifest = state.finish()
        self.file = file or self.file

    def _state(self, before: PartitionManifest, underway: Underway) -> PartitionState:
        runs = before.since(self.begun)
        return PartitionState(self.open_segments, self.number, 0, self.program, before, runs, underway)

    def _batch(self, alias: str, rows: int) -> pa.RecordBatch:
        moment = [self.number + n / rows for n in range(rows)]
        columns = {"id": range(rows), "k": [n % 7 for n in range(rows)], "ts": times(moment)}
        return admit(self.program, alias, pa.table(columns)).batch

    def stored(self) -> dict[str, int]:
        """How many rows can be read, by input."""
        found = {}
        segments = OpenSegments(self.storage)
        manifest = segments.manifest(0, self.file)
        for plan in self.program.stores.values():
            runs = manifest.since(self.begun).get(plan.identity, ())
            found[plan.node.aliases[0]] = sum(segments.open(0, run).batch.num_rows for run in runs)
        return found

    @property
    def names(self) -> set[str]:
        """The files that there are."""
        return set(self.storage.list(BUCKETS))


def on_disk(root: Path) -> LocalDisk:
    """A storage with a folder for segments."""
    (root / BUCKETS).mkdir(parents=True)
    return LocalDisk(root)


@pytest.fixture(params=["disk", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """Each of the storages that there are."""
    return on_disk(tmp_path) if request.param == "disk" else Memory()


@pytest.mark.parametrize("in_hops", [False, True])
def test_a_batch_adds_one_file_and_all_rows_are_there(storage: Storage, in_hops: bool) -> None:
    """Whatever is merged with what; where hops run in different processes, the first one leaves a file too."""
    one, rng, wanted = Partition(storage), random.Random(3), {"a": 0, "b": 0}
    for _ in range(25):
        before, rows = one.names, {name: rng.choice((0, 3, 40)) for name in "ab"}
        one.run(rows, in_hops=in_hops)
        wanted = {name: wanted[name] + rows[name] for name in "ab"}
        assert one.stored() == wanted
        assert len(one.names - before) <= 1 + in_hops
        assert one.manifest.segments <= one.names


def test_files_and_bytes_stay_few(tmp_path: Path) -> None:
    """Runs are merged and expire, and leave holes in segments: these are given up, and deleted in the end."""
    one, rng = Partition(on_disk(tmp_path)), random.Random(5)
    for number in range(120):
        one.run({name: rng.choice((5, 50, 400)) for name in "ab"}, since=number - 20)
        named = one.manifest.segments | {name for _, name in one.manifest.retired}
        assert one.names == named, "what is named nowhere is never deleted"
        recent = [name for since, name in one.manifest.retired if since + LAG > number]
        assert len(recent) == len(one.manifest.retired)
        live = sum(run.length + 64 for runs in one.manifest.runs.values() for run in runs)
        held = sum(size for name, size in one.manifest.sizes.items())
        assert held <= 2 * live + 64 * len(one.manifest.sizes)
    assert len(one.manifest.sizes) <= 24
    assert sum(one.stored().values()) < 0.5 * 120 * 2 * 400


def test_a_run_that_is_copied_keeps_the_batch_it_was_made_in(tmp_path: Path) -> None:
    """Queries that came after it are added to its query-sets by that."""
    one = Partition(on_disk(tmp_path))
    one.run({"a": 1000, "b": 1})
    for number in range(1, 12):
        one.run(
            {"a": 0, "b": 1}, since=number if number == 6 else None
        )  # the large run goes, the small ones stay
    moved = [run for runs in one.manifest.runs.values() for run in runs]
    assert all(run.written <= int(run.segment.split("-")[0]) for run in moved)
    assert one.stored()["a"] == 0


def test_a_partition_without_a_change_is_not_written(storage: Storage) -> None:
    """And needs no segment to be opened; what expires is a change."""
    one = Partition(storage)
    one.run({"a": 5, "b": 5})
    names, manifest = one.names, one.manifest
    one.run({}, since=-10)
    assert (one.names, one.manifest) == (names, manifest)
    one.run({}, since=50)
    assert one.stored() == {"a": 0, "b": 0}
    assert len(one.names) == 2
    for _ in range(LAG):
        one.run({})
    assert one.names == one.manifest.segments


def test_a_store_that_begins_anew_has_nothing_of_what_it_had(storage: Storage) -> None:
    """Queries stopped, and others came that keep the same store, while this partition had nothing to do."""
    one = Partition(storage)
    one.run({"a": 5, "b": 5})
    store = next(plan.identity for plan in one.program.stores.values() if plan.node.aliases == ("a",))
    one.number = 7
    one.begun[store] = moment_of(8)
    assert one.stored() == {"a": 0, "b": 5}
    one.run({"a": 2})
    assert one.stored() == {"a": 2, "b": 5}


@pytest.mark.parametrize(
    "damage", ["missing", "empty", "cut off", "longer", "manifest", "runs", "of another"]
)
def test_a_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    """A wrong byte anywhere would change answers in silence."""
    one = Partition(on_disk(tmp_path))
    one.run({"a": 500, "b": 5})
    assert one.file is not None
    path = tmp_path / BUCKETS / one.file.name
    content = path.read_bytes()
    changed = {
        "empty": b"",
        "cut off": content[:-10],
        "longer": content + b"x",
        "manifest": content[:-100] + bytes([content[-100] ^ 1]) + content[-99:],
        "runs": content[:2000] + bytes([content[2000] ^ 1]) + content[2001:],
    }
    path.unlink()
    if damage == "of another":
        write_segment(one.storage, one.file.name, [], PartitionManifest(5))
    elif damage != "missing":
        path.write_bytes(changed[damage])
    with pytest.raises(StateError, match=one.file.name):
        one.stored()


def test_a_file_that_is_restored_is_read_by_the_process_that_found_it_damaged(tmp_path: Path) -> None:
    """A session that is started again in the same program would be told for ever that the file is damaged."""
    one = Partition(on_disk(tmp_path))
    one.run({"a": 500, "b": 5})
    assert one.file is not None
    path = tmp_path / BUCKETS / one.file.name
    content = path.read_bytes()
    runs = read_manifest(one.storage, one.file).since(one.begun)
    (first,) = next(iter(runs.values()))
    reader = OpenSegments(one.storage)
    path.unlink()
    path.write_bytes(content[:2000] + bytes([content[2000] ^ 1]) + content[2001:])
    with pytest.raises(StateError, match=one.file.name):
        reader.open(0, first)
    path.unlink()
    path.write_bytes(content)
    assert reader.open(0, first).batch.num_rows == 500


def test_a_partition_manifest_goes_through_bytes(tmp_path: Path) -> None:
    """Also to the disk and, flushed, past a death of the machine."""
    whole = StoredRun("0-1-f", 0, 10, 0, Bounds(3, 9, None, None))
    piece = StoredRun("0-1-f", 0, 10, 0, Bounds(3, 9, 1, 2, 5, 1 << 63), layout="hash(a.k)")
    part = StoredRun("0-1-f", 0, 10, 0, Bounds(3, 9, 1, 2), Share(0, 7, "{}", "a.t", (4,)), "hash(a.x)")
    runs = {"a by k": (whole, piece, part, replace(whole, layout="hash(a.k)")), "b": ()}
    manifest = PartitionManifest(4, runs, {"4-1-m": 0, "0-1-f": 64}, ((3, "1-1-x"), (4, "2-1-y")))
    assert PartitionManifest.from_bytes(manifest.to_bytes()) == manifest
    storage = on_disk(tmp_path)
    file = write_segment(storage, "4-1-m", [], manifest)
    flush_segments(storage, ["4-1-m"])
    assert PartitionFile.from_text(str(file)) == file
    assert read_manifest(storage, file) == manifest
    assert len(str(file)) < 100


def test_totals_say_where_rows_may_be() -> None:
    """Exactly, while there are few gaps; then those that are least wide are forgotten."""
    some = StoreTotals.of_bounds(
        [Bounds(1, 9, 0, 10), Bounds(2, 9, 5, 20), Bounds(4, 9, 90, 100), Bounds(1, 9)]
    )
    assert some == StoreTotals(8, 36, 4, 1, ((0, 20), (90, 100)))
    assert [some.reaches(low, low + 5) for low in (-5, 15, 20, 21, 85, 86, 100, 101)] == [
        *(False, True, True, False, False, True, True, False)
    ]
    both = some.plus(StoreTotals.of_bounds([Bounds(1, 9, 21, 89)]))
    assert both == StoreTotals(9, 45, 5, 2, ((0, 100),))
    many = StoreTotals.of_bounds(Bounds(1, 1, 100 * n, 100 * n + (98 if n == 3 else 50)) for n in range(9))
    assert len(many.spans) == 8
    assert (300, 450) in many.spans
    assert decode(StoreTotals, encode(many)) == many
