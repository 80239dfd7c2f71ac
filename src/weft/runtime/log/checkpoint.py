"""The log of a session: the plan of every batch, written before it runs, and what it left, written when it is done.

Guarantees: a batch is committed by one write. A manifest names every live file of state, so files of committed batches
that none of the kept manifests names are nobody's and are deleted. `weft.runtime.log.ownership` says whose a log is.
What is missing or damaged is made again exactly, where other entries tell it, or a `StateError` names it:

    weft.json            whose log this is, its format, whether a batch was ever committed and a query ever stopped
    state/N.json         the manifest of batch N; the last two are kept
    plan/N.json          the plan of batch N; those of the last two batches and of any that has not been committed
    migrated/N.json      what batch N begins with, where its graph is another than before; made again if it is missing
    blueprints/H.json    the queries and their graph, under the hash of the content
    blobs/H              what cursors keep, under the hash of the content
    state/buckets/       the files of state
    stops.json           queries that were asked to stop, and what they were
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import shutil
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from weft.errors import StateError
from weft.runtime.log.ownership import BUCKETS, FORMAT, NEW_DIRECTORY, Ownership
from weft.runtime.log.record import read_record, write_record
from weft.runtime.log.values import BatchPlan, Blueprint, Manifest
from weft.storage.storage import LocalDisk, Memory, Storage

__all__ = ["BUCKETS", "FORMAT", "Checkpoint"]

KEPT = 2  # manifests: the last one, and the one that a repetition of the last batch starts from


class Checkpoint:
    """A log in a storage.

    A batch is planned while another is committed, in another thread: what both use is guarded by a lock.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._ownership = Ownership(storage)
        self._manifests: dict[int, Manifest] = {}  # as they were written
        self._plans: dict[int, BatchPlan] = {}
        self._pinned: set[str] = set()  # entries that the next plan will name
        self._guard = threading.Lock()

    @classmethod
    def at(cls, root: Path) -> Checkpoint:
        """The log in a directory."""
        return cls(LocalDisk(root))

    @classmethod
    def in_memory(cls) -> Checkpoint:
        """A log that ends with this process."""
        return cls(Memory())

    @property
    def root(self) -> Path | None:
        """The directory it is in, if it is in one."""
        return self.storage.root if isinstance(self.storage, LocalDisk) else None

    def open(self, streams: Mapping[str, Any], **fixed: Any) -> str:
        """Take the log for streams, and give its identity.

        One of another version or in use is refused, and so is one whose streams are not all here as they were; more
        of them may have come. What is ``fixed`` is as it was when the log was made.
        """
        identity = self._ownership.open(streams, fixed)
        self._check_complete()
        return identity

    def owner(self) -> dict[str, Any]:
        """Whose log this is, as far as it says; nothing where there is no log."""
        return self._ownership.read()

    def _check_complete(self) -> None:
        """Refuse a log that has lost all of its manifests: it would begin again from nothing, without a word.

        Where the plan of the very first batch is there, so are those of all batches, and they are repeated.
        """
        if self._ownership.has_commits and not self._numbers("state") and 0 not in self._numbers("plan"):
            raise StateError(
                f"{self.storage.locate('state')} has lost its manifests, though batches were committed",
                hint=f"restore them from a copy, or {NEW_DIRECTORY}",
            )

    def claim(self) -> None:
        """Make the log that of the streams it was opened for; until then it is as it was."""
        self._ownership.claim()

    def extend(self, streams: Mapping[str, Any]) -> None:
        """Remember streams that came while the session runs."""
        self._ownership.add_streams(streams)

    def close(self) -> None:
        """Let the log go."""
        self._ownership.close()

    def manifest(self, number: int) -> Manifest | None:
        """What a batch left; None if it is not committed. The one before the first batch is empty."""
        if number < 0:
            return Manifest()
        if number not in self._manifests:
            hint = f"restore it, or delete it to repeat batch {number} from what the batch before left"
            data = read_record(self.storage, _entry("state", number), hint)
            if data is None:
                return None
            self._manifests[number] = Manifest.from_dict(data)
        return self._manifests[number]

    def migrated_manifest(self, number: int) -> Manifest | None:
        """What a batch begins with, where its plan is another than that of the batch before."""
        data = read_record(
            self.storage,
            _entry("migrated", number),
            "delete it: it will be made again when its batch is repeated",
        )
        return None if data is None else Manifest.from_dict(data)

    def write_migrated(self, number: int, manifest: Manifest) -> None:
        """Fix what a batch begins with."""
        write_record(self.storage, _entry("migrated", number), manifest.to_dict())

    def last(self) -> int:
        """The last committed batch; -1 if there is none."""
        return max(self._manifests) if self._manifests else max(self._numbers("state"), default=-1)

    def commit(self, manifest: Manifest) -> None:
        """Make a batch final."""
        write_record(self.storage, _entry("state", manifest.number), manifest.to_dict())
        self._manifests[manifest.number] = manifest
        self._ownership.note_commit()

    def tidy(self, manifest: Manifest) -> None:
        """Delete what nobody needs any more now that a batch is final."""
        old = manifest.number - KEPT
        self._close_exchange(manifest.number)
        for kind in ("plan", "state", "migrated"):
            self.storage.delete(_entry(kind, old))
        with self._guard:
            dropped = [one for number, one in self._manifests.items() if number <= old]
            self._manifests = {number: one for number, one in self._manifests.items() if number > old}
            self._plans = {number: one for number, one in self._plans.items() if number > old}
            for entry in _entries_of(dropped) - _entries_of(self._manifests.values()) - self._in_use():
                self.storage.delete(entry)
        self._clean_buckets(manifest.number, self._manifests.values())

    def _in_use(self) -> set[str]:
        """The entries that plans name, and those that a plan is about to name."""
        return _entries_of(self._plans.values()) | self._pinned

    def exchange(self, number: int) -> Path:
        """A folder for what the tasks of a batch send each other; it goes when the batch is done."""
        if self.root is None:
            raise ValueError("a log in memory has no folders")
        return self.root / "exchange" / str(number)

    def _close_exchange(self, number: int) -> None:
        """Delete what the tasks of a batch sent each other."""
        if self.root is not None and os.path.isdir(folder := f"{self.root}/exchange/{number}"):
            shutil.rmtree(folder, ignore_errors=True)

    def clean(self) -> None:
        """Delete what a session that was killed left: what tasks sent each other, and files that nothing names.

        Before the first batch, also manifests that are too old to be of use. What an attempt left at a batch that is
        not committed goes when it is: a manifest that was lost may be put back, with the files that it names.
        """
        if self.root is not None:
            shutil.rmtree(self.root / "exchange", ignore_errors=True)
        last = self.last()
        for kind in ("plan", "state", "migrated"):
            for number in self._numbers(kind):
                if number <= last - KEPT:
                    self.storage.delete(_entry(kind, number))
        manifests = [self.manifest(number) for number in self._numbers("state")]
        with contextlib.suppress(StateError):  # one that is damaged is made again
            manifests += [self.migrated_manifest(number) for number in self._numbers("migrated")]
        self._clean_buckets(last, [one for one in manifests if one is not None])
        plans = [plan for number in self._numbers("plan") if (plan := self.plan(number))]
        named = _entries_of(plans) | _entries_of(one for one in manifests if one is not None)
        for folder in ("blueprints", "blobs"):
            for name in self.storage.list(folder):
                if f"{folder}/{name}" not in named and _is_hash(name.removesuffix(".json")):
                    self.storage.delete(f"{folder}/{name}")

    def _clean_buckets(self, last: int, manifests: Iterable[Manifest]) -> None:
        """Delete files of batches up to ``last`` that no manifest names; later ones are being written."""
        named = set().union(*(manifest.files() for manifest in manifests))
        for name in self.storage.list(BUCKETS):
            if name not in named and _batch_of(name) <= last:
                self.storage.delete(f"{BUCKETS}/{name}")

    def plan(self, number: int) -> BatchPlan | None:
        """What a batch was planned to do."""
        if number not in self._plans:
            data = read_record(self.storage, _entry("plan", number))
            if data is None:
                return None
            self._plans[number] = BatchPlan.from_dict(data)
        return self._plans[number]

    def forget_plans_beyond(self, committed: int) -> None:
        """Delete plans that do not follow on the last committed batch without a gap.

        The plan that led to them is lost, so the batch before them will be planned anew, and they with it.
        """
        expected = committed + 1
        for number in self._numbers("plan"):
            if number == expected:
                expected += 1
            elif number > committed:
                self._plans.pop(number, None)
                self.storage.delete(_entry("plan", number))

    def blueprint(self, name: str) -> Blueprint:
        """What a plan or manifest says its queries run by."""
        entry = f"blueprints/{name}.json"
        data = read_record(self.storage, entry)
        if data is None:
            raise StateError(
                f"{self.storage.locate(entry)} is missing, which says what the queries run by",
                hint=f"restore it from a copy, or {NEW_DIRECTORY}",
            )
        return Blueprint(**data)

    def write_blueprint(self, blueprint: Blueprint) -> str:
        """Keep what queries run by under its name, for as long as a plan or manifest names it."""
        name = blueprint.name
        with self._guard:
            self._pinned.add(f"blueprints/{name}.json")
            if self.storage.get(f"blueprints/{name}.json") is None:
                write_record(self.storage, f"blueprints/{name}.json", blueprint.to_dict())
        return name

    def write_plan(self, plan: BatchPlan) -> None:
        """Fix what a batch will do, for this attempt and all later ones."""
        write_record(self.storage, _entry("plan", plan.number), plan.to_dict(), flush=False)
        with self._guard:
            self._plans[plan.number] = plan
            self._pinned.clear()

    def put(self, data: bytes) -> str:
        """Keep bytes for a cursor, for as long as its state names them; their name."""
        name = hashlib.blake2b(data, digest_size=16).hexdigest()
        with self._guard:
            self._pinned.add(f"blobs/{name}")
            if self.storage.get(f"blobs/{name}") is None:
                self.storage.put(f"blobs/{name}", data)
        return name

    def get(self, name: str) -> bytes:
        """The bytes of that name."""
        data, where = self.storage.get(f"blobs/{name}"), self.storage.locate(f"blobs/{name}")
        if data is None:
            raise StateError(f"{where} is missing", hint=f"restore it from a copy, or {NEW_DIRECTORY}")
        if hashlib.blake2b(data, digest_size=16).hexdigest() != name:
            raise StateError(f"{where} is damaged", hint=f"restore it from a copy, or {NEW_DIRECTORY}")
        return data

    def stops(self) -> dict[str, tuple[str, str]]:
        """The queries that were ever asked to stop: why, and a fingerprint; it need not have happened yet."""
        found = read_record(self.storage, "stops.json")
        if found is None and self._ownership.has_stops:
            raise StateError(
                f"{self.storage.locate('stops.json')} is missing, which says which queries were stopped",
                hint=f"restore it from a copy, or {NEW_DIRECTORY}",
            )
        return {name: (why, what) for name, (why, what) in (found or {}).items()}

    def write_stop(self, name: str, reason: str, fingerprint: str) -> None:
        """Remember that a query is to stop, and what it is: another may have its name one day."""
        write_record(self.storage, "stops.json", {**self.stops(), name: (reason, fingerprint)})
        self._ownership.note_stop()

    def forget_stop(self, name: str) -> None:
        """A query of that name is to run again."""
        found = self.stops()
        if found.pop(name, None) is not None:
            write_record(self.storage, "stops.json", found)

    def _numbers(self, kind: str) -> list[int]:
        found = (name.removesuffix(".json") for name in self.storage.list(kind))
        return sorted(int(stem) for stem in found if stem.isdigit())


def _entry(kind: str, number: int) -> str:
    return f"{kind}/{number}.json"


def _batch_of(name: str) -> float:
    """The batch in which a file of state was written; a file with another kind of name is none of the log's."""
    first = name.partition("-")[0]
    is_ours = first.isdigit() and ("." not in name or name.endswith(".tmp"))
    return int(first) if is_ours else math.inf


def _is_hash(name: str) -> bool:
    """Whether a name is one that the log gives; others are none of its business."""
    return bool(name) and all(letter in "0123456789abcdef" for letter in name)


def _entries_of(values: Iterable[BatchPlan | Manifest]) -> set[str]:
    """The blueprints and blobs that plans and manifests name."""
    every = list(values)
    blobs = {blob for one in every for cursor in one.cursors.values() for blob in cursor.get("blobs", ())}
    return {f"blueprints/{one.blueprint}.json" for one in every} | {f"blobs/{blob}" for blob in blobs}
