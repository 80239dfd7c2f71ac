"""How the entries and files of a log are named, and which entries plans and manifests name."""

from __future__ import annotations

import math
from collections.abc import Iterable

from weft.runtime.log.values import BatchPlan, Manifest

__all__ = ["batch_of", "entries_of", "entry", "is_hash", "numbers_of"]


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
