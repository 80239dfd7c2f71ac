"""Values as JSON answers.

Guarantees: an answer is what the value's type says in the OpenAPI description. A value that was just written is not
written again: many who ask for the same get the same bytes.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

from fastapi import Response
from pydantic import TypeAdapter

__all__ = ["reply"]


@lru_cache(maxsize=64)
def _writer(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


_written: dict[Any, tuple[object, bytes]] = {}
_lock = threading.Lock()


def reply(kind: Any, value: object, status: int = 200) -> Response:
    """A value of a type as an answer."""
    known = _written.get(kind)
    if known is None or known[0] is not value:
        known = value, _writer(kind).dump_json(value)
        with _lock:
            _written[kind] = known
    return Response(known[1], status, media_type="application/json")
