"""A query as a user asked for it.

Guarantees: plain data that survives a crash: `QueryRequest` goes through JSON, with all that is needed to run the
query again, except what exists only in a process, such as a function that takes results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from weft.logical.codec import encode
from weft.logical.nested.nested import defined_streams
from weft.logical.query.ordering import Ordering
from weft.logical.query.query import Query
from weft.plan.physical.graph import CODEC

__all__ = ["DERIVED", "QueryRequest", "is_inner", "targets_of"]

DERIVED = "streams"  # the folder of a checkpoint with the rows of derived streams


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """A query under canonical names, and how its author wants it to be run.

    ``names`` are pairs of an input's canonical name and the author's. ``strategy`` is the planning strategy to be used,
    ``backfill`` says whether results that lie in the stored past are wanted, and ``ordering`` is the order in which
    results leave. ``latency`` is within how many seconds they are wanted (None: as the session says). ``sink``
    describes where they go; None if the sink cannot be made again from a description.
    """

    query: Annotated[Query, CODEC]
    names: tuple[tuple[str, str], ...] = ()
    strategy: str | None = None
    backfill: bool = False
    sink: Mapping[str, Any] | None = None
    ordering: Annotated[Ordering | None, CODEC] = None
    latency: float | None = None

    @property
    def waits(self) -> bool:
        """Whether some results may wait for the end of the input."""
        held = self.ordering is not None and not self.ordering.by_arrival
        inner = (one for stream in defined_streams(self.query).values() for one in stream.definition)
        every = (self.query, *inner)
        held = held or self.query.sorting is not None
        return held or any(query.outer is not None or query.grouping is not None for query in every)

    @property
    def fingerprint(self) -> str:
        """A hash of the query, its order and its sink, by which a query that has stopped is known again."""
        shown = {name: one for name, one in encode(self).items() if name in ("query", "sink", "ordering")}
        return hashlib.blake2b(json.dumps(shown, sort_keys=True).encode(), digest_size=12).hexdigest()


def is_inner(request: QueryRequest) -> bool:
    """Whether a query runs only because others read its results: those of a derived stream."""
    return request.sink is not None and request.sink.get("kind") == "derived"


def targets_of(requests: Mapping[str, QueryRequest], usual: float | None) -> dict[str, float]:
    """By query of a user's, within how many seconds its results are wanted, where it says so or that is ``usual``."""
    known = {name: one.latency or usual for name, one in requests.items() if not is_inner(one)}
    return {name: seconds for name, seconds in known.items() if seconds is not None}
