"""The few things sinks do to a file system.

Guarantees: each function is one step that happens or does not, so a crash falls between two of them. What was
written and moved survives a loss of power, as far as the file system keeps its promises.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

__all__ = [
    "flush",
    "make_directory",
    "move",
    "names_in",
    "remove",
    "set_aside",
    "try_writing",
    "write_text",
]

_TRIED = 1 << 16  # bytes


def make_directory(path: Path) -> None:
    """See to it that a directory exists."""
    path.mkdir(parents=True, exist_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a small file at once."""
    partial = path.with_name(f".{path.name}.tmp")
    with partial.open("w", encoding="utf-8") as out:
        out.write(text)
        _flush(out.fileno())
    partial.replace(path)


def try_writing(directory: Path) -> None:
    """Write a small file and remove it; an `OSError` tells what is in the way, a full disk among others."""
    with tempfile.NamedTemporaryFile(prefix=".try-", dir=directory) as out:
        out.write(bytes(_TRIED))
        out.flush()
        _flush(out.fileno())


def move(source: Path, target: Path) -> None:
    """Rename a file or a directory, at once; the target must not be there."""
    source.rename(target)
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def set_aside(source: Path, target: Path) -> None:
    """Rename a directory at once, if it is there; after a loss of power it may have its old name again."""
    with suppress(FileNotFoundError):
        source.rename(target)


def flush(path: Path) -> None:
    """See to it that a file survives a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _flush(descriptor)
    finally:
        os.close(descriptor)


def names_in(path: Path) -> set[str]:
    """The files of a directory, which need not be there."""
    try:
        return set(os.listdir(path))
    except FileNotFoundError:
        return set()


def remove(path: Path) -> None:
    """Delete a file or a directory with all it holds; it need not be there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _flush(descriptor: int) -> None:
    os.fsync(descriptor)
