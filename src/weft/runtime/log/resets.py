"""Watermarks that users have asked to be set to another time, until a batch takes them up.

Guarantees: what is asked for is in the log (``resets.json``) before the asker is told so, and stays there until the
plan of a batch has it: so it takes effect once, with the next batch that is planned, whoever runs that.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from weft.runtime.log.record import read_record, write_record
from weft.runtime.log.values import Manifest
from weft.storage.storage import Storage

__all__ = ["Reset", "apply_resets", "ask_for_reset", "forget_resets", "resets_asked_for"]

_ENTRY = "resets.json"
_HINT = "delete it, and ask again for the watermarks that are to be set"


@dataclass(frozen=True, slots=True)
class Reset:
    """The time that a stream's watermark is to be, and when that was asked for, both in microseconds since 1970."""

    to: int
    asked: int


def resets_asked_for(storage: Storage) -> dict[str, Reset]:
    """What is asked for, by stream."""
    return {name: Reset(*pair) for name, pair in (read_record(storage, _ENTRY, _HINT) or {}).items()}


def ask_for_reset(storage: Storage, stream: str, to: int) -> Reset:
    """Have a stream's watermark be another time from the next batch on; the caller holds the log."""
    reset = Reset(to, time.time_ns() // 1000)
    asked = {**resets_asked_for(storage), stream: reset}
    write_record(storage, _ENTRY, {name: [one.to, one.asked] for name, one in asked.items()})
    return reset


def forget_resets(storage: Storage, done: Mapping[str, int]) -> None:
    """Delete what a plan has taken up: ``done`` says when each was asked for; others stay."""
    asked = resets_asked_for(storage)
    left = {name: one for name, one in asked.items() if done.get(name) != one.asked}
    if not left:
        storage.delete(_ENTRY)
    elif left != asked:
        write_record(storage, _ENTRY, {name: [one.to, one.asked] for name, one in left.items()})


def apply_resets(before: Manifest, resets: Mapping[str, Mapping[str, Any]]) -> Manifest:
    """The manifest that a batch begins with, given the ``resets`` of its plan; None makes a watermark unknown."""
    marks = resets.get("marks", {})
    if not marks:
        return before

    def without(known: Mapping[str, Any]) -> dict[str, Any]:
        return {name: one for name, one in known.items() if name not in marks}

    found = {**before.marks, **marks}
    return replace(
        before,
        marks={name: mark for name, mark in found.items() if mark is not None},
        newest=without(before.newest),
        moved=without(before.moved),
        proven=without(before.proven),
    )
