"""Paths that users give, as paths of this machine's file system; the path on which processes of ours find modules.

Guarantees: what comes out is absolute, so that it means the same place when the working directory has changed, and in
Spark's tasks.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from urllib.parse import unquote, urlparse

__all__ = ["local_path", "own_python"]


def own_python(module: str, *arguments: str) -> list[str]:
    """The command by which a process of Weft's own runs a module.

    The process finds what this one finds, this Weft above all, but neither the working directory nor that of a program
    is on its path: a file of a user's there, such as `types.py`, cannot take the place of a library. If Weft itself is
    found there, that comes last.
    """
    beside = {os.path.realpath(folder) for folder in ("", os.path.dirname(sys.argv[0]))}
    searched = [folder for folder in sys.path if folder and os.path.realpath(folder) not in beside]
    own = str(Path(__file__).parents[2])
    first = [] if os.path.realpath(own) in beside else [own]
    code = (
        f"import sys; sys.path[:0] = [place for place in {first!r} if place not in sys.path]; "
        f"sys.path += [place for place in {[*searched, own]!r} if place not in sys.path]; "
        "sys.argv = sys.argv[1:]; from runpy import run_module; "
        "run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
    )
    return [
        sys.executable,
        "-I",
        "-c",
        code,
        module,
        *arguments,
    ]  # -I: without PYTHONPATH and working directory


def local_path(path: str | Path) -> Path | None:
    """The absolute path of a path or a ``file:`` URI; None: it is a URI of another storage.

    >>> str(local_path("file:///data/my%20results")), local_path("s3://bucket/results")
    ('/data/my results', None)
    """
    text = str(path)
    if text.startswith("file:"):
        uri = urlparse(text)
        return Path(unquote(uri.path)).absolute() if uri.netloc in ("", "localhost") else None
    if re.match(r"[A-Za-z][\w+.-]+:/", text):
        return None
    return Path(text).absolute()
