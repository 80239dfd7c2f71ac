"""The segments and partition manifests that a process has open (design, D3).

Guarantees: a run is read as it was written, or refused with a `StateError` that names its file. Segments stay mapped
from batch to batch, until the manifest of their partition names them no more. A run of few bytes that this process
wrote stays in memory and is not mapped; a segment that this process wrote need not be verified, if it is still the
same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weft.bucket import codec
from weft.bucket.bounds import PLACES
from weft.bucket.bucket import Bucket, build, column
from weft.bucket.columns import longs, taken
from weft.bucket.compiled import Mask
from weft.bucket.index import by_hash
from weft.bucket.merge import between
from weft.bucket.sort import hashes_of
from weft.bucket.words import key_words
from weft.errors import StateError
from weft.plan.physical.graph import CODEC
from weft.runtime.model.columns import key_name, values_of
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.store_plans import StorePlan
from weft.runtime.state.partition_manifest import PartitionFile, PartitionManifest, Share, StoredRun
from weft.runtime.state.segment_file import BUCKETS, RESTORE, padded, read_manifest, write_segment
from weft.runtime.state.settling import MergeSpeed
from weft.runtime.state.upgrade import upgrade_run
from weft.storage.storage import Memory, Storage

__all__ = ["OpenSegments", "Underway", "open_segments_of"]

SMALL = 1 << 16  # a run of fewer bytes stays in memory after it is written, and is not mapped

Run = StoredRun | Bucket  # in a segment, or not yet

_Part = tuple[int, int, int, Share | None]  # where a run begins in its segment, and what belongs to it


@dataclass
class Underway:
    """What a batch has done in a partition so far: runs that inputs added to stores, and stores that are settled."""

    added: dict[tuple[str, str], list[Run]] = field(default_factory=dict)  # by store and input
    settled: dict[str, list[Run]] = field(default_factory=dict)  # by store
    segments: dict[str, int] = field(default_factory=dict)  # that hops have written, and their bytes


@dataclass
class _Segment:
    """A segment: mapped, if it had to be, and the runs of it that are open, by where they begin."""

    data: Any = None
    stamp: tuple[int, ...] | None = None  # that of its file, if this process wrote it
    open: dict[int, Bucket] = field(default_factory=dict)
    upgraded: dict[_Part, tuple[ExecutableGraph, Bucket]] = field(default_factory=dict)


@dataclass
class _OpenPartition:
    """What is known of a partition: the place of its manifest, the manifest, and all segments that were used."""

    file: str = ""
    manifest: PartitionManifest = field(default_factory=PartitionManifest)
    used: set[str] = field(default_factory=set)


class OpenSegments:
    """The open segments of a storage, by name, and the manifests of partitions.

    ``underway`` is what the batch has done so far in each partition whose hops all run in this process. ``deleted`` are
    retired files that are gone. ``merge_speed`` is how fast this process merges runs.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.underway: dict[int, Underway] = {}
        self.deleted: set[str] = set()
        self.merge_speed = MergeSpeed()
        self._segments: dict[str, _Segment] = {}
        self._partitions: dict[int, _OpenPartition] = {}
        self._written: dict[str, PartitionManifest] = {}

    def manifest(self, partition: int, file: PartitionFile | None) -> PartitionManifest:
        """The manifest of a partition that the driver's manifest names; what the one before needed is closed."""
        current = self._partitions.setdefault(partition, _OpenPartition())
        name = "" if file is None else file.name
        if current.file != name:
            manifest = PartitionManifest()
            if file is not None:
                manifest = self._written.get(name) or read_manifest(self.storage, file)
            for gone in current.used - manifest.segments:
                self._segments.pop(gone, None)
                self._written.pop(gone, None)
            self.deleted.clear()
            self._partitions[partition] = current = _OpenPartition(name, manifest, set(manifest.segments))
        return current.manifest

    def rehomed(
        self,
        partition: int,
        files: Mapping[int, PartitionFile],
        make: Callable[[Sequence[PartitionManifest]], PartitionManifest],
    ) -> PartitionManifest:
        """What ``make`` makes of the manifests of other partitions, in their order, for one that begins with it."""
        every = [files[number] for number in sorted(files)]
        name = " ".join([str(partition), *(file.name for file in every)])
        current = self._partitions.get(partition)
        if current is None or current.file != name:
            found = make(
                [self._written.get(file.name) or read_manifest(self.storage, file) for file in every]
            )
            used = set(found.segments) | (current.used if current is not None else set())
            self._partitions[partition] = current = _OpenPartition(name, found, used)
        return current.manifest

    def open(self, partition: int, run: StoredRun) -> Bucket:
        """A run as it was written, without the rows that do not belong to it any more."""
        whole, bounds = self._whole(partition, run), run.bounds
        if bounds.low > whole.bounds.low or whole.bounds.high > bounds.high:
            whole = between(whole, bounds.low, bounds.high)
        return whole if run.share is None else _rows_of_share(whole, run.share)

    def _whole(self, partition: int, run: StoredRun) -> Bucket:
        if isinstance(self.storage, Memory):
            bucket: Bucket = self.storage.objects[f"{BUCKETS}/{run.segment}"][0][run.offset]
            return bucket
        segment = self._segment(partition, run.segment)
        if run.offset not in segment.open:
            name = self.storage.locate(f"{BUCKETS}/{run.segment}")
            try:
                segment.open[run.offset] = codec.decode(
                    self._bytes(segment, run), verify=segment.stamp is None, name=name
                )
            except StateError:
                segment.data = segment.stamp = None  # a file that is restored is mapped and verified anew
                raise
        return segment.open[run.offset]

    def open_for(self, partition: int, run: StoredRun, program: ExecutableGraph, plan: StorePlan) -> Bucket:
        """A run, upgraded for the queries of a program."""
        segment = self._segment(partition, run.segment)
        part = run.offset, run.bounds.low, run.bounds.high, run.share
        upgraded = segment.upgraded.get(part)
        if upgraded is None or upgraded[0] is not program:
            upgraded = program, upgrade_run(program, plan, self.open(partition, run), run.written)
            segment.upgraded[part] = upgraded
        return upgraded[1]

    def content(self, partition: int, run: StoredRun) -> Any:
        """A run as `write` takes it, if it is to be copied to another segment."""
        whole, found = self._whole(partition, run), self.open(partition, run)
        if found is not whole or isinstance(self.storage, Memory):
            return self.packed(found)
        return self._bytes(self._segment(partition, run.segment), run)

    def write(
        self,
        partition: int,
        name: str,
        runs: Sequence[Any],
        manifest: PartitionManifest | None = None,
        open_runs: Sequence[tuple[StoredRun, Bucket]] = (),
    ) -> PartitionFile:
        """Write a segment of runs as `packed` gives them; ``open_runs`` are in it, and stay open if they are small."""
        file = write_segment(self.storage, name, runs, manifest)
        self._partitions.setdefault(partition, _OpenPartition()).used.add(name)
        if manifest is not None:
            self._written[name] = manifest
        if not isinstance(self.storage, Memory):
            segment = self._segments[name] = _Segment(stamp=_stamp(self._path(name)) or None)
            segment.open.update((place.offset, run) for place, run in open_runs if run.bounds.bytes < SMALL)
        return file

    def packed(self, run: Bucket) -> Any:
        """A run as `write` takes it."""
        return run if isinstance(self.storage, Memory) else codec.encode_in_pieces(run)

    def length(self, packed: Any) -> int:
        """How many bytes a packed run has; in memory, where a segment is a list, it counts as one."""
        return 1 if isinstance(self.storage, Memory) else int(packed.size)

    def size(self, packed: Any) -> int:
        """How much room a packed run takes in a segment."""
        return 1 if isinstance(self.storage, Memory) else padded(packed.size)

    def delete(self, names: Iterable[str]) -> None:
        """Delete files that no kept manifest names."""
        for name in names:
            if name not in self.deleted:
                self.storage.delete(f"{BUCKETS}/{name}")
                self.deleted.add(name)

    def _segment(self, partition: int, name: str) -> _Segment:
        if name not in self._segments:
            self._segments[name] = _Segment()
            self._partitions.setdefault(partition, _OpenPartition()).used.add(name)
        return self._segments[name]

    def _bytes(self, segment: _Segment, run: StoredRun) -> pa.Buffer:
        where = self.storage.locate(f"{BUCKETS}/{run.segment}")
        if segment.data is None:
            segment.data = self._mapped(run.segment, where)
            if segment.stamp is not None and segment.stamp != _stamp(self._path(run.segment)):
                segment.stamp = None  # it is another file by now, which has to be verified
        if run.offset + run.length > segment.data.size:
            raise StateError(f"{where} is cut off", hint=RESTORE)
        return segment.data.slice(run.offset, run.length)

    def _mapped(self, name: str, where: str) -> pa.Buffer:
        path = self._path(name)
        try:
            if path is None:
                data = self.storage.open_local(f"{BUCKETS}/{name}")
                if data is None:
                    raise StateError(f"{where} is missing", hint=RESTORE)
                return data
            if not path.stat().st_size:
                raise StateError(f"{where} is cut off: it is empty", hint=RESTORE)
            with pa.memory_map(str(path)) as file:
                return file.read_buffer()
        except OSError as error:
            raise StateError(f"{where} cannot be read: {error.strerror or error}", hint=RESTORE) from error

    def _path(self, name: str) -> Path | None:
        return self.storage.path(f"{BUCKETS}/{name}")


def _stamp(path: Path | None) -> tuple[int, ...]:
    """Size, time of change and inode of a file, which differ if it was changed or replaced; empty if it is gone."""
    try:
        if path is None:
            return ()
        status = path.stat()
    except OSError:
        return ()
    return status.st_size, status.st_mtime_ns, status.st_ino


def _rows_of_share(run: Bucket, share: Share) -> Bucket:
    """The rows of a share, as a bucket with the same orders; rows without a key are with the greatest hashes."""
    if not share.heavy and run.layout == by_hash(key_name(CODEC.loads(share.value))):
        low = max(share.low, run.bounds.low)
        part = between(run, low, max(low, min(share.high, run.bounds.high)))
        return replace(part, bounds=replace(part.bounds, low=run.bounds.low, high=run.bounds.high))
    places = _places(run, share)
    kept: Mask = places >= np.uint64(share.low)
    if share.high < PLACES:
        kept &= places < np.uint64(share.high)
    if kept.all():
        return run
    rows = np.flatnonzero(kept).astype(np.int32)
    columns = {name: taken(column(run.batch, name), rows) for name in run.batch.schema.names}
    others = [order for order in run.orders if order != run.layout]
    found = build(
        pa.RecordBatch.from_pydict(columns), layout=run.layout, indexes=others, event_time=run.event_time
    )
    return replace(found, bounds=replace(found.bounds, low=run.bounds.low, high=run.bounds.high))


def _places(run: Bucket, share: Share) -> NDArray[np.uint64]:
    """Where every row belongs: the hash of its value, or of its clock if the value is heavy."""
    every = np.arange(run.batch.num_rows, dtype=np.int32)
    words = key_words([values_of(run.batch, CODEC.loads(share.value))])
    places: NDArray[np.uint64] = hashes_of(words.values, every).copy()
    if share.heavy:
        heavy = np.isin(words.values, np.asarray(share.heavy, np.int64))
        clocks = hashes_of(longs(column(run.batch, share.clock)), every)
        places[heavy] = clocks[heavy]
    if words.valid is not None:
        places[~words.valid] = np.uint64(PLACES - 1)
    return places


_BY_STORAGE: dict[Storage, OpenSegments] = {}


def open_segments_of(storage: Storage) -> OpenSegments:
    """The open segments of a storage; a process keeps those of one storage, and drops those of the one before."""
    if isinstance(storage, Memory):
        kept: OpenSegments = storage.objects.setdefault("open segments", OpenSegments(storage))
        return kept
    if storage not in _BY_STORAGE:
        _BY_STORAGE.clear()
        _BY_STORAGE[storage] = OpenSegments(storage)
    return _BY_STORAGE[storage]
