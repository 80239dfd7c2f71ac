"""The entries of a log: how they are named, which of them plans and manifests name, and how they are read and written.

Guarantees: what was written under a name is read back under that name unchanged, or refused with a `StateError` that
names the entry. An entry that was cut off, changed, emptied or copied from another name is refused. Its two lines are:

    {"entry": "state/5.json", "checksum": "9f3a…"}
    {… the content, as JSON on one line …}
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from typing import Any

from weft.errors import StateError
from weft.runtime.log.values import BatchPlan, Manifest
from weft.storage.storage import Storage

__all__ = [
    "batch_of",
    "entries_of",
    "entry",
    "is_hash",
    "numbers_of",
    "read_record",
    "write_first",
    "write_record",
]


def entry(kind: str, number: int) -> str:
    """The name of the entry of a batch."""
    return f"{kind}/{number}.json"


def numbers_of(names: Iterable[str]) -> list[int]:
    """The batches that have an entry, in their order, given the names in a folder."""
    stems = (name.removesuffix(".json") for name in names)
    return sorted(int(stem) for stem in stems if stem.isdigit())


def batch_of(name: str) -> float:
    """The batch in which a file of state was written; infinity for a file that the log did not name."""
    first = name.partition("-")[0]
    is_ours = first.isdigit() and ("." not in name or name.endswith(".tmp"))
    return int(first) if is_ours else math.inf


def is_hash(name: str) -> bool:
    """Whether a name is a hash, as the log names its files; other files are left alone."""
    return bool(name) and all(letter in "0123456789abcdef" for letter in name)


def entries_of(values: Iterable[BatchPlan | Manifest]) -> set[str]:
    """The blueprints and blobs that plans and manifests name."""
    every = list(values)
    blobs = {blob for one in every for cursor in one.cursors.values() for blob in cursor.get("blobs", ())}
    return {f"blueprints/{one.blueprint}.json" for one in every} | {f"blobs/{blob}" for blob in blobs}


_REMEDY = "restore it from a copy, or begin anew with a new checkpoint directory"


def write_record(storage: Storage, name: str, content: Any, *, flush: bool = True) -> None:
    """Keep plain data under a name.

    Without ``flush``, the entry survives a crash of the process, but perhaps not one of the machine.
    """
    body = json.dumps(content, separators=(",", ":")).encode()
    storage.put(name, _head(name, body) + b"\n" + body, flush=flush)


def write_first(storage: Storage, name: str, content: Any, *, flush: bool = True) -> bool:
    """Keep plain data under a name that has none; False if there is an entry with other content, which stays."""
    body = json.dumps(content, separators=(",", ":")).encode()
    return storage.put_if_absent(name, _head(name, body) + b"\n" + body, flush=flush)


def read_record(storage: Storage, name: str, hint: str = _REMEDY) -> Any:
    """The plain data of that name; None if there is no such entry."""
    data = storage.get(name)
    if data is None:
        return None
    head, _, body = data.partition(b"\n")
    if head != _head(name, body):
        raise StateError(f"{storage.locate(name)} is damaged: {_why(name, data)}", hint=hint)
    return json.loads(body)


def _head(name: str, body: bytes) -> bytes:
    checksum = hashlib.blake2b(body, digest_size=12).hexdigest()
    return json.dumps({"entry": name, "checksum": checksum}).encode()


def _why(name: str, data: bytes) -> str:
    if not data:
        return "it is empty"
    try:
        head = json.loads(data.partition(b"\n")[0])
        if head["entry"] != name:
            return f"it is another entry, {head['entry']}"
    except (ValueError, KeyError, TypeError):
        return "it does not begin as an entry of the log does"
    return "its checksum is wrong, so it was cut off or changed"
