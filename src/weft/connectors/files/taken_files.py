"""Which files of a folder have been taken.

Guarantees: a name that was taken stays so for as long as its file is there, and for at least ten minutes after it was
first missed: a file that is out of sight for a moment is not read twice. Names whose files are gone are forgotten
afterwards, so what is kept is bounded by what is in the folder. The state that goes into every batch names at most
about a thousand files itself; the others stand in blobs, which are few, sorted and compressed, and of which a name is
rewritten a logarithmic number of times.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from weft.errors import StateError
from weft.ports.source import Blobs

__all__ = ["TakenNames"]

_MOST_IN_STATE = 1000
_FORGET_AFTER = 600.0  # seconds for which a file must have been gone


class TakenNames:
    """A set of names that is kept in blobs, and in a short list of those that were added since the last blob."""

    def __init__(self, state: Mapping[str, Any], blobs: Blobs, most: int | None = None) -> None:
        self._blobs, self._most = blobs, _MOST_IN_STATE if most is None else most
        self._pieces = [(name, _unpacked(name, blobs.get(name))) for name in state.get("blobs", ())]
        self._since: list[str] = list(state.get("since", ()))
        self._all = {name for _, piece in self._pieces for name in piece} | set(self._since)
        # The names of files that were gone when names were last moved to a blob, and since when they have been gone.
        self._gone: dict[str, float] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._all

    def __len__(self) -> int:
        return len(self._all)

    def not_taken(self, names: AbstractSet[str]) -> AbstractSet[str]:
        """Those of ``names``, the names of all files there are, that have not been taken."""
        for name in self._gone.keys() & names:  # it is back
            del self._gone[name]
        return names - self._all

    def add(self, name: str) -> None:
        """Remember a name."""
        if name not in self._all:
            self._all.add(name)
            self._since.append(name)

    def state(self, present: Collection[str] | None, now: float) -> dict[str, Any]:
        """The set as plain data; ``present`` are the files that are there ``now`` (None: not known)."""
        if len(self._since) > self._most:
            self._move_to_blob(present, now)
        return {"blobs": [name for name, _ in self._pieces], "since": list(self._since)}

    def _move_to_blob(self, present: Collection[str] | None, now: float) -> None:
        forgotten = frozenset[str]() if present is None else self._missed(present, now)
        names, pieces = self._since, self._pieces
        everything = len(forgotten) * 2 > len(self._all)
        while pieces and (everything or len(pieces[-1][1]) <= 2 * len(names)):
            names = [*pieces[-1][1], *names]
            pieces = pieces[:-1]
        kept = sorted(set(names) - forgotten)
        self._all -= forgotten.intersection(names)
        self._pieces = [*pieces, (self._blobs.put(_packed(kept)), kept)] if kept else pieces
        self._since = []

    def _missed(self, present: Collection[str], now: float) -> frozenset[str]:
        """The names that may be forgotten: those whose files have been gone for long enough."""
        gone = self._all.difference(present)
        self._gone = {name: min(self._gone.get(name, now), now) for name in gone}
        return frozenset(name for name, since in self._gone.items() if now - since >= _FORGET_AFTER)


def _packed(names: Collection[str]) -> bytes:
    return zlib.compress("\0".join(names).encode(), 1)


def _unpacked(blob: str, data: bytes) -> list[str]:
    try:
        return zlib.decompress(data).decode().split("\0")
    except (zlib.error, UnicodeDecodeError) as error:
        raise StateError(
            f"the names of files that were read, {blob}, are damaged: {error}",
            hint="restore it from a copy of the checkpoint",
        ) from None
