"""What requests bring, and what answers are made of, as the OpenAPI description has them.

Guarantees: an answer is what the value's type says in the description. A value that was just written is not written
again: many who ask for the same get the same bytes.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Annotated, Any

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from weft.service.hub.values import ColumnInfo, NewQuery, NewStream

__all__ = [
    "PlanBody",
    "QueryBody",
    "ResultsBody",
    "StreamBody",
    "reply",
]


Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^/\\\x00-\x1f]*$")]
Duration = Annotated[str, Field(max_length=100, examples=["10 minutes"])]
Sql = Annotated[str, Field(max_length=200_000, examples=["SELECT a.k FROM a, b WHERE a.k = b.k"])]


class PlanBody(BaseModel):
    """A query that is to be planned and not run."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sql: Sql
    strategy: Annotated[str, Field(max_length=100)] | None = None
    cross: bool = False
    emit_unmatched_after: Duration | None = None
    order: Annotated[str, Field(max_length=100)] = "none"
    precision: Annotated[int, Field(ge=1, le=2**31)] | None = None

    def query(self) -> NewQuery:
        """As the hub takes it."""
        return NewQuery(**self.model_dump())


class QueryBody(PlanBody):
    """A query that is to run; ``sink`` is as in pipeline files, and without one the service keeps its last results."""

    name: Name | None = None
    sink: Annotated[str, Field(max_length=200)] | dict[str, Any] | None = None
    backfill: bool = False
    latency: Duration | None = None


class StreamBody(BaseModel):
    """A stream that is to be followed; ``source`` is as in pipeline files."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Name
    source: dict[str, Any]
    columns: Annotated[str, Field(max_length=20_000, examples=["k long, ts timestamp"])] | None = None
    event_time: Annotated[str, Field(max_length=200)] | None = None
    lateness: Duration | None = None
    late: Annotated[str, Field(max_length=100)] | None = None
    idle_after: Duration | None = None
    ahead: Duration | None = None
    shed: Annotated[str, Field(max_length=100)] | None = None

    def stream(self) -> NewStream:
        """As the hub takes it."""
        said = self.model_dump()
        return NewStream(schema=said.pop("columns"), **said)


class WatermarkBody(BaseModel):
    """The time that a stream's watermark is to be."""

    model_config = ConfigDict(extra="forbid", strict=True)

    to: Annotated[str, Field(max_length=100, examples=["2026-01-31T12:00:00Z"])]


class ResultsBody(BaseModel):
    """Results ``first`` to ``last`` of a query, of which ``newest`` is the number of the newest.

    ``missed`` of those asked for are gone. Numbers are since ``origin``; when they have begun anew, ``restarted``.
    """

    query: str
    origin: str
    restarted: bool
    first: int
    last: int
    newest: int
    missed: int
    columns: list[ColumnInfo]
    rows: list[dict[str, Any]]


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
