"""The log of a session: the plan of every batch, written before it runs, and what it left, written when it is done.

Guarantees: a batch is committed by one write. A manifest names the manifests of partitions, and these every live file
of state; tasks delete the files that no kept manifest names any more. With ``flush``, what is committed survives the
death of the machine, else that of all processes. `weft.runtime.log.ownership` says which streams a log belongs to. An
entry that is missing or damaged is made again exactly where other entries determine it; otherwise a `StateError` names
it. The entries are:

    weft.json            the streams of the log, its format, whether a batch was ever committed, a query ever stopped
                         or asked for while a session ran
    state/N.json         the manifest of batch N; the last two are kept
    plan/N.json          the plan of batch N; those of the last two batches and of any that has not been committed
    plan/N-E.json        the same, as the session of epoch E runs it or takes its input back (`weft.runtime.log.plans`)
    migrated/N.json      what batch N begins with, where its graph is another than before; made again if it is missing
    blueprints/H.json    the queries and their graph, under the hash of the content
    blobs/H              bytes that the state of a cursor names, under the hash of the content
    state/buckets/       segments, each of which ends in a partition's manifest, and results that are held
    requested.json, stops.json, resets.json    what users asked for between batches (`weft.runtime.log.user_requests`)
    statistics.json      what was known of the data, as JSON; without it, it is measured again
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from weft.errors import StateError
from weft.logical.codec import encode
from weft.runtime.log.batch_folder import BatchFolders
from weft.runtime.log.entries import (
    batch_of,
    entries_of,
    entry,
    is_hash,
    numbers_of,
    read_record,
    write_record,
)
from weft.runtime.log.ownership import FORMAT, Ownership
from weft.runtime.log.plans import Plans
from weft.runtime.log.user_requests import UserRequests
from weft.runtime.log.values import BatchPlan, Blueprint, Manifest
from weft.runtime.state.segment_file import BUCKETS, NEW_DIRECTORY, RESTORE, read_manifest
from weft.storage.storage import LocalDisk, Memory, Storage

__all__ = ["FORMAT", "Checkpoint"]

_LOG = logging.getLogger("weft")

KEPT = 2  # manifests: the last one, and the one that a repetition of the last batch starts from
SWEEP = 64  # batches between two looks for files that several partitions named


class Checkpoint:
    """A log in a storage.

    A batch is planned while another thread commits the one before it, so a lock guards what both threads use.
    """

    def __init__(self, storage: Storage, *, flush: bool = False) -> None:
        self.storage, self.flush = storage, flush
        self._ownership = Ownership(storage)
        self._manifests: dict[int, Manifest] = {}  # as they were written
        self._plans = Plans(storage, self._ownership)
        self.requests = UserRequests(storage, self._ownership)
        self._pinned: set[str] = set()  # entries that the next plan will name
        self.folders = BatchFolders(storage)  # for what tasks send each other, and put down for the driver
        self._listing = -1  # up to this batch, files are looked for that nothing names
        self._guard = threading.Lock()

    @classmethod
    def at(cls, root: Path, *, flush: bool = False) -> Checkpoint:
        """The log in a directory."""
        return cls(LocalDisk(root), flush=flush)

    @classmethod
    def in_memory(cls) -> Checkpoint:
        """A log that ends with this process."""
        return cls(Memory())

    @property
    def root(self) -> Path | None:
        """The directory of the log; None if it is not on a disk."""
        return self.storage.root if isinstance(self.storage, LocalDisk) else None

    def open(self, streams: Mapping[str, Any], **also: Any) -> str:
        """Lock the log for a session with these streams, and return its identity.

        A log of another format version or in use by another session is refused. So is a log that knows a stream which
        is missing or different in ``streams``; additional streams are fine. What ``also`` says is noted with them.
        """
        identity = self._ownership.open(streams, also)
        self._check_complete()
        return identity

    def owner(self) -> dict[str, Any]:
        """The content of ``weft.json``, with the streams if the log was claimed; empty where there is no log."""
        return self._ownership.read()

    def _check_complete(self) -> None:
        """Refuse a log that has lost all of its manifests, since the session would silently begin again from nothing.

        If the plan of the very first batch is there, the plans of all batches are, and all of them are repeated.
        """
        if self._ownership.has_commits and not self._numbers("state") and 0 not in self._plans.numbers():
            raise StateError(
                f"{self.storage.locate('state')} has lost its manifests, though batches were committed",
                hint=f"restore them from a copy, or {NEW_DIRECTORY}",
            )

    def claim(self) -> None:
        """Record that the log belongs to the streams it was opened for; until then, ``weft.json`` is unchanged."""
        self._ownership.claim()

    def extend(self, streams: Mapping[str, Any]) -> None:
        """Record streams that were registered while the session runs."""
        self._ownership.add_streams(streams)

    def check_free(self, name: str) -> None:
        """Refuse a stream under the name of one that was removed."""
        self._ownership.check_free([name])

    def remove(self, streams: Iterable[str]) -> None:
        """Record that streams are read no longer; their names stay taken."""
        self._ownership.remove_streams(streams)

    def close(self) -> None:
        """Unlock the log, so that another session can open it."""
        self._ownership.close()

    def manifest(self, number: int) -> Manifest | None:
        """The manifest of a batch; None if the batch is not committed. Before the first batch it is empty."""
        if number < 0:
            return Manifest()
        if number not in self._manifests:
            hint = f"restore it, or delete it to repeat batch {number} from what the batch before left"
            data = read_record(self.storage, entry("state", number), hint)
            if data is None:
                return None
            self._manifests[number] = Manifest.from_dict(data)
        return self._manifests[number]

    def migrated_manifest(self, number: int) -> Manifest | None:
        """The manifest that a batch begins with, if its graph is another than that of the batch before."""
        data = read_record(
            self.storage,
            entry("migrated", number),
            "delete it: it will be made again when its batch is repeated",
        )
        return None if data is None else Manifest.from_dict(data)

    def write_migrated(self, number: int, manifest: Manifest) -> None:
        """Keep the manifest that a batch with a new graph begins with."""
        write_record(self.storage, entry("migrated", number), encode(manifest), flush=self.flush)
        if not manifest.partitions:
            self.list_files(number)  # no task has the partitions any more, and deletes what they had

    def last(self) -> int:
        """The last committed batch; -1 if there is none."""
        return max(self._manifests) if self._manifests else max(self._numbers("state"), default=-1)

    def commit(self, manifest: Manifest) -> None:
        """Make a batch final, unless another session has done so: then this one has to end."""
        number, put_first = manifest.number, self._ownership.lease.put_first
        put_first(entry("state", number), encode(manifest), flush=self.flush)
        self._manifests[number] = manifest
        self._ownership.note_commit()

    def tidy(self, manifest: Manifest) -> None:
        """Delete the entries and files that are not needed any more once a batch is committed."""
        old = manifest.number - KEPT
        self.folders.delete(manifest.number)
        for kind in ("state", "migrated"):
            self.storage.delete(entry(kind, old))
        self._plans.delete(old)
        with self._guard:
            dropped = [one for number, one in self._manifests.items() if number <= old]
            self._manifests = {number: one for number, one in self._manifests.items() if number > old}
            kept = list(self._manifests.values())
            for name in entries_of(dropped) - entries_of(kept) - self._in_use():
                self.storage.delete(name)
        held = set().union(*(one.held_files for one in kept))
        for name in set().union(*(one.held_files for one in dropped)) - held:
            self.storage.delete(f"{BUCKETS}/{name}")
        if manifest.number <= self._listing:
            self._clean_buckets(manifest.number, kept)

    def list_files(self, number: int) -> None:
        """Look for files that nothing names when this batch and the next ones are committed; else tasks delete them."""
        self._listing = max(self._listing, number + KEPT)

    def follow_ranges(self, before: Manifest, now: Manifest) -> None:
        """Look for files that nothing names when partitions have become others, and now and then after that.

        Several partitions may name the same file then, and no task knows when the last of them does not.
        """
        is_new = now.ranges != before.ranges and bool(before.partitions)
        if is_new:
            self._ownership.note("rehomed")
        if is_new or (self._ownership.has("rehomed") and not now.number % SWEEP):
            self.list_files(now.number)

    def _in_use(self) -> set[str]:
        """The entries that plans name, and those that a plan is about to name."""
        return entries_of(self._plans.known.values()) | self._pinned

    def clean(self) -> None:
        """Delete what a killed session left, before the first batch of this one.

        These are the files that tasks sent each other, entries that are older than the kept ones, and files that no
        kept entry names. Files of attempts at a batch that is not committed are deleted only when it is: its manifest
        may have been lost, and a user may put it back, together with the files that it names. What there is to delete
        is listed first: if this session is paused here past its lease, it does not see what its follower adds.
        """
        listed = [
            f"{folder}/{name}" for folder in ("blueprints", "blobs") for name in self.storage.list(folder)
        ]
        last = self.last()
        self.folders.clean(last)
        if isinstance(self.storage, LocalDisk):
            self.storage.delete_unfinished(
                "", "plan", "state", "migrated", "blueprints", "blobs", "dead_letters", BUCKETS
            )
        for number in (one for one in self._plans.numbers() if one <= last - KEPT):
            self._plans.delete(number)
        for kind in ("state", "migrated"):
            for number in (one for one in self._numbers(kind) if one <= last - KEPT):
                self.storage.delete(entry(kind, number))
        manifests = [self.manifest(number) for number in self._numbers("state")]
        with contextlib.suppress(StateError):  # a damaged one is made again when its batch is repeated
            manifests += [self.migrated_manifest(number) for number in self._numbers("migrated")]
        self._clean_buckets(last, [one for one in manifests if one is not None])
        plans = [plan for number in self._plans.numbers() if (plan := self.plan(number))]
        named = entries_of(plans) | entries_of(one for one in manifests if one is not None)
        self._ownership.lease.check()
        for name in listed:
            if name not in named and is_hash(name.rpartition("/")[2].removesuffix(".json")):
                self.storage.delete(name)

    def _clean_buckets(self, last: int, manifests: Iterable[Manifest]) -> None:
        """Delete files of batches up to ``last`` that no manifest names; files of later batches are being written.

        If a partition's manifest cannot be read, nothing is deleted: nobody knows what it names.
        """
        try:
            named = set().union(*map(self.files_of, manifests))
        except StateError as error:
            _LOG.warning("files that may not be needed any more stay: %s", error)
            return
        for name in self.storage.list(BUCKETS):
            if name not in named and batch_of(name) <= last:
                self.storage.delete(f"{BUCKETS}/{name}")

    def files_of(self, manifest: Manifest) -> set[str]:
        """The names of all files of state that a manifest keeps alive; the manifests of partitions are read for it."""
        partitions = (read_manifest(self.storage, file) for file in manifest.partitions.values())
        return manifest.held_files.union(*(partition.segments for partition in partitions))

    def plan(self, number: int) -> BatchPlan | None:
        """The plan of a batch; None if it has not been planned."""
        return self._plans.find(number)

    def last_plan(self, committed: int) -> BatchPlan | None:
        """The last plan of those that follow a committed batch without a gap; None if there is none."""
        return self._plans.last(committed)

    def settle_plans(self, committed: int) -> None:
        """Make the plans that follow the last committed batch this session's own, up to a gap in them."""
        self._plans.settle(committed, flush=self.flush)

    def blueprint(self, name: str) -> Blueprint:
        """The blueprint of a name that a plan or manifest has."""
        place = f"blueprints/{name}.json"
        data = read_record(self.storage, place)
        if data is None:
            raise StateError(
                f"{self.storage.locate(place)} is missing, which says what the queries run by",
                hint=RESTORE,
            )
        return Blueprint(**data)

    def write_blueprint(self, blueprint: Blueprint) -> str:
        """Keep a blueprint for as long as a plan or manifest names it, and return its name."""
        name = blueprint.name
        with self._guard:
            self._pinned.add(f"blueprints/{name}.json")
            if self.storage.get(f"blueprints/{name}.json") is None:
                write_record(self.storage, f"blueprints/{name}.json", encode(blueprint))
        return name

    def write_plan(self, plan: BatchPlan) -> None:
        """Fix what a batch will do, for this attempt and all later ones."""
        self._plans.put(plan, flush=self.flush)
        with self._guard:
            self._plans.known[plan.number] = plan
            self._pinned.clear()

    def put(self, data: bytes) -> str:
        """Keep bytes for a cursor for as long as its state names them, and return their name."""
        name = hashlib.blake2b(data, digest_size=16).hexdigest()
        with self._guard:
            self._pinned.add(f"blobs/{name}")
            if self.storage.get(f"blobs/{name}") is None:
                self.storage.put(f"blobs/{name}", data)
        return name

    def get(self, name: str) -> bytes:
        """The bytes that `put` named so."""
        data, where = self.storage.get(f"blobs/{name}"), self.storage.locate(f"blobs/{name}")
        if data is None:
            raise StateError(f"{where} is missing", hint=RESTORE)
        if hashlib.blake2b(data, digest_size=16).hexdigest() != name:
            raise StateError(f"{where} is damaged", hint=RESTORE)
        return data

    def write_statistics(self, text: str) -> None:
        """Keep what is known of the data (JSON), in place of what was kept before; refused if the log is another's."""
        with self._ownership.held():
            write_record(self.storage, "statistics.json", json.loads(text), flush=False)

    def statistics(self) -> str | None:
        """What `write_statistics` kept last; None if there is nothing, or, with a warning, if it is damaged."""
        try:
            found = read_record(self.storage, "statistics.json", "delete it: it is measured again")
        except StateError as error:
            _LOG.warning("statistics are measured again: %s", error)
            return None
        return None if found is None else json.dumps(found, ensure_ascii=False, separators=(",", ":"))

    def _numbers(self, kind: str) -> list[int]:
        return numbers_of(self.storage.list(kind))
