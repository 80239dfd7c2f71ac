"""How a batch's results come to a sink: as the parts that tasks wrote, as their number, or as they are.

Guarantees: a query that failed in a batch has no results in it, and its sink is told of the batch all the same.
"""

from __future__ import annotations

from typing import Any

from weft.runtime.told import Told

__all__ = ["deliver"]


def deliver(sink: Any, name: str, number: int, told: Told) -> None:
    """Commit what a batch told of a query's results."""
    failed = name in told.failed
    if hasattr(sink, "write_part"):
        sink.commit_parts(number, [] if failed else told.parts.get(name, []))
    elif hasattr(sink, "commit_count"):
        sink.commit_count(number, told.rows(name))
    else:
        sink.commit(number, [] if failed else told.results.get(name, []))
