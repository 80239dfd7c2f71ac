"""What becomes of files that have been read.

Guarantees: a file is deleted or moved only after all its parts were released, and only if it still is the file that was
read. An archive keeps the folders that a file was in. What cannot be cleaned stays and is warned of; the run goes on. A
file that has grown since it was taken is warned of, cleaned or not: what was added to it has not been read.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterable, Mapping
from itertools import chain, count
from typing import Any

from weft.errors import SourceError
from weft.ports.source import Part

__all__ = [
    "Cleaner",
    "check_archive",
]

_LOGGER = logging.getLogger("weft")


class Cleaner:
    """Deletes or archives the files of one stream."""

    def __init__(
        self, stream: str, root: str, clean: str | None, archive: str | None, state: Mapping[str, Any]
    ) -> None:
        self._stream, self._root, self._clean, self._archive = stream, root, clean, archive
        self._released: dict[str, list[int]] = {
            name: list(groups) for name, groups in state.get("released", {}).items()
        }

    def state(self) -> dict[str, Any]:
        """The row groups that were released, of files that were not yet released as a whole."""
        return (
            {"released": {name: list(groups) for name, groups in self._released.items()}}
            if self._released
            else {}
        )

    def release(self, parts: Iterable[tuple[str, Part]]) -> None:
        """Note that these parts, by the names of their files, will not be read again, and clean files that are done."""
        for name, part in parts:
            if self._is_done(name, part):
                self._released.pop(name, None)
                try:
                    self._finish(name, part)
                except OSError as error:
                    self._warn(f"file {part.what['file']} could not be cleaned: {error}")

    def _is_done(self, name: str, part: Part) -> bool:
        if self._clean is None or "row_groups" not in part.what:
            return True
        first, count = part.what["row_groups"]
        groups = self._released.setdefault(name, [])
        groups.extend(group for group in range(first, first + count) if group not in groups)
        return len(groups) >= int(part.what["of"])

    def _finish(self, name: str, part: Part) -> None:
        path = part.what["file"]
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            return
        if size != part.what["size"]:
            self._warn(
                f"file {path} had {part.what['size']:,} bytes when it was read and has {size:,} now: what was added is "
                "not read; write files under a hidden name and rename them when they are complete"
            )
        elif self._clean == "delete":
            os.remove(path)
        elif self._clean == "archive" and self._archive is not None:
            target = os.path.join(self._archive, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.move(path, _free(target))

    def _warn(self, message: str) -> None:
        _LOGGER.warning("stream %s: %s", self._stream, message)


def _free(path: str) -> str:
    """A path at which nothing is yet, so that nothing in an archive is overwritten."""
    others = (f"{path}.{number}" for number in count(1))
    return next(candidate for candidate in chain([path], others) if not os.path.lexists(candidate))


def check_archive(root: str, archive: str, *, recursive: bool) -> None:
    """Refuse an archive whose files would be found as new ones."""
    inside = os.path.realpath(archive) + os.sep
    within = os.path.realpath(root) + os.sep
    if inside == within or (recursive and inside.startswith(within)):
        raise SourceError(
            f"files: the archive {archive} lies in the folder that is read, {root}",
            hint="name a folder beside it",
        )
