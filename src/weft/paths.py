"""Paths that users give, as paths of this machine's file system.

Guarantees: what comes out is absolute, so that it means the same place when the working directory has changed, and in
Spark's tasks.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlparse

__all__ = ["local_path"]


def local_path(path: str | Path) -> Path | None:
    """The absolute path of a path or a ``file:`` URI; None: it is a URI of another storage.

    >>> str(local_path("file:///data/my%20results")), local_path("s3://bucket/results")
    ('/data/my results', None)
    """
    text = str(path)
    if text.startswith("file:"):
        found = urlparse(text)
        return Path(unquote(found.path)).absolute() if found.netloc in ("", "localhost") else None
    if re.match(r"[A-Za-z][\w+.-]+:/", text):
        return None
    return Path(text).absolute()
