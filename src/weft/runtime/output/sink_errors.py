"""What is said of a sink that cannot take results.

Guarantees: whatever a sink raises becomes a `SinkError` that names the query, the sink with its place, and what to do.
An error of the checkpoint (`StateError`), which a sink may meet where results pass through it, is not the sink's.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

from weft.errors import SinkError, StateError, WeftError
from weft.ports.sink import Sink

__all__ = ["name_of", "sink_error"]

_PLACES = ("path", "table", "topic")
_FULL = (errno.ENOSPC, errno.EDQUOT)


def sink_error(query: str, sink: Sink, error: Exception) -> SinkError:
    """The error of a query whose sink raised one; an error of the checkpoint is raised as it is."""
    if isinstance(error, StateError):
        raise error
    if isinstance(error, SinkError):
        return error
    name = name_of(sink)
    if isinstance(error, OSError) and error.errno:
        where = f" ({error.filename})" if error.filename else ""
        why, remedy = f"{os.strerror(error.errno)}{where}", _remedy(error.errno)
    else:
        text = error.message if isinstance(error, WeftError) else str(error)
        why, remedy = f"{type(error).__name__}: {text}", "see to it that the sink can take results"
    return SinkError(f"the sink of query {query}, {name}, failed: {why}", hint=remedy)


def name_of(sink: Sink) -> str:
    """The kind of a sink and its place, for people.

    >>> from types import SimpleNamespace
    >>> name_of(SimpleNamespace(describe=lambda: {"kind": "parquet", "path": "/data/out"}))
    'parquet /data/out'
    """
    describe = getattr(sink, "describe", None)
    known = describe() if callable(describe) else None
    if not isinstance(known, Mapping):
        return f"a {type(sink).__name__}"
    place = next((str(known[one]) for one in _PLACES if known.get(one)), "")
    return f"{known.get('kind', type(sink).__name__)} {place}".rstrip()


def _remedy(number: int) -> str:
    if number in _FULL:
        return "make room there"
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "give this user permission to write there"
    return "put the sink's place back as it was"
