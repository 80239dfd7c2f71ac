"""How much memory a task may work with, and what follows from it (design, D14).

Guarantees: `Session(memory=…)` is what one task may use for its work, beside what its libraries take and the stores
that it maps. Without one, tasks share half of what the machine has, or of what its container may have. Everything that
is bounded by it is a fixed part of it, so that a session with the same memory does the same in the same portions.
"""

from __future__ import annotations

import os
import re
import reprlib
from pathlib import Path

from weft.errors import ConfigError

__all__ = ["batch_bytes", "bytes_of", "machine_memory", "portion_bytes", "task_memory"]

_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_HINT = 'use a number of bytes, or a text as in "2 GB"'

_LEAST = 1 << 26  # with less, a task cannot work
_MOST = 1 << 32  # a task gets more only if users ask for it: the rest is for the files that tasks map

# A portion of matches is in memory several times over: row numbers, columns, what is computed of them, what is
# written. Beyond some size larger portions are no faster, since they leave the caches anyway.
_PORTIONS = 16
_LARGEST_PORTION = 1 << 26

# Input is in memory as it was read, as it is sent and as it is stored, sorted.
_COPIES = 4


def bytes_of(value: str | int, what: str = "memory") -> int:
    """A number of bytes, given as such or as a text.

    >>> bytes_of("2 GB"), bytes_of("1.5kb"), bytes_of(1000)
    (2147483648, 1536, 1000)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?B?)\s*", str(value), re.IGNORECASE)
    if not isinstance(value, str) or found is None:
        raise ConfigError(f"{what} cannot be {reprlib.repr(value)}", hint=_HINT)
    unit = found[2].upper()
    return int(float(found[1]) * _UNITS[unit if unit in _UNITS else f"{unit}B"])


def machine_memory(groups: Path = Path("/sys/fs/cgroup")) -> int:
    """The bytes that the machine has, or the container that this runs in may use."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            text = (groups / name).read_text(encoding="utf-8").strip()
        except OSError:
            continue
        if text.isdigit():
            found.append(int(text))
    return min(found)


def task_memory(memory: str | int | None, tasks: int) -> int:
    """The bytes that each of so many tasks at a time may work with.

    >>> task_memory("256 MB", 8) >> 20
    256
    """
    if memory is None:
        return max(_LEAST, min(_MOST, machine_memory() // 2 // max(1, tasks)))
    given = bytes_of(memory)
    if given < _LEAST:
        raise ConfigError(
            f"no task gets anywhere with {given:,} bytes", hint=f"give it {_LEAST >> 20} MB at least"
        )
    return given


def portion_bytes(memory: str | int | None, tasks: int) -> int:
    """About how many bytes of matches a task makes, and gives away, together.

    >>> portion_bytes("64 MB", 2) >> 20, portion_bytes("2 GB", 2) >> 20
    (4, 64)
    """
    return min(_LARGEST_PORTION, task_memory(memory, tasks) // _PORTIONS)


def batch_bytes(memory: str | int | None, tasks: int) -> int:
    """How many bytes of input, decoded, a batch may take that so many tasks share.

    >>> batch_bytes("1 GB", 4) >> 20
    1024
    """
    return task_memory(memory, tasks) * max(1, tasks) // _COPIES
