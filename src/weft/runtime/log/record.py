"""Entries of the log with a checksum, so that damage is noticed.

Guarantees: what was written under a name is read back under that name unchanged, or refused with a `StateError` that
names the entry. An entry that was cut off, changed, emptied or copied from another name is refused. Its two lines are:

    {"entry": "state/5.json", "checksum": "9f3a…"}
    {… the content, as JSON on one line …}
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from weft.errors import StateError
from weft.storage.storage import Storage

__all__ = ["read_record", "write_first", "write_record"]

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
