"""Disks that are full, or that refuse to be written to, for sinks that write Parquet files; streams that fail.

Whatever a sink does to the file system below a full folder may fail, as the system would let it fail; what was written
before stays. Tasks run in this process, so their sinks fail in the same way.
"""

from __future__ import annotations

import errno
import functools
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from weft.connectors.files import file_system as files
from weft.connectors.files.parquet_files import ParquetFile
from weft.connectors.files.source import FilesSource
from weft.errors import SourceError
from weft.ports.source import Part

_STEPS = ("make_directory", "write_text", "move", "set_aside", "flush", "try_writing", "remove", "names_in")


class FullDisks:
    """Folders below which some steps fail; ``steps`` are those that do, of all that sinks take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full: set[Path] = set()
        self.steps: set[str] = set()
        self.error = errno.ENOSPC
        self.failures = 0
        self.unreadable: set[str] = set()
        read = FilesSource.read

        def may_fail(source: FilesSource, stream: str, part: Part, *more: Any) -> Any:
            if stream in self.unreadable:
                raise SourceError(f"{part.what['file']} cannot be read")
            return read(source, stream, part, *more)

        monkeypatch.setattr(FilesSource, "read", may_fail)
        for name in _STEPS:
            monkeypatch.setattr(files, name, self._failing(name, getattr(files, name)))
        for name in ("write", "close"):
            method = getattr(ParquetFile, name)
            monkeypatch.setattr(ParquetFile, name, self._failing_method(name, method))

    def fill(self, folders: set[Path], rng: random.Random) -> None:
        """Let some steps fail below folders, from now on."""
        every = (*_STEPS, "write", "close")
        self.full, self.steps = folders, set(rng.sample(every, rng.randint(1, len(every))))
        self.error = rng.choice((errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.ENOTDIR))

    def free(self) -> None:
        """Let no step fail any more."""
        self.full, self.unreadable = set(), set()

    def _check(self, step: str, place: Path) -> None:
        if step in self.steps and any(place.is_relative_to(one) for one in self.full):
            self.failures += 1
            raise OSError(self.error, os.strerror(self.error), str(place))

    def _failing(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def step(path: Path, *more: Any) -> Any:
            self._check(name, path)
            return function(path, *more)

        return step

    def _failing_method(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def step(file: Any, *more: Any) -> Any:
            self._check(name, file._path)
            return method(file, *more)

        return step
