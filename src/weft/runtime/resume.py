"""What a session that is started finds in its checkpoint, and what it makes of the queries it is given.

Guarantees: a query that ran before goes on as it was, or is refused; one that has stopped stays so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.errors import StateError
from weft.runtime.asked import Asked
from weft.runtime.checkpoint import Checkpoint, Manifest
from weft.runtime.standing import Standing

__all__ = ["Restore", "Resumed", "resumed"]

# Makes a sink again of what is stored of it.
Restore = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Resumed:
    """What stands, the sinks of all queries, the queries that are to begin, and those that are to stop, with why."""

    standing: Standing
    sinks: Mapping[str, Any]
    begin: Mapping[str, tuple[Asked, Any]]
    stop: Mapping[str, str]


def resumed(
    checkpoint: Checkpoint,
    queries: Mapping[str, tuple[Asked, Any]],
    restore: Restore,
    before: Manifest,
    last: int,
) -> Resumed:
    """What follows from a checkpoint whose last batch left ``before``."""
    plan = checkpoint.plan(last + 1) or checkpoint.plan(last)
    standing = Standing() if plan is None else Standing.from_blueprint(checkpoint.blueprint(plan.standing))
    sinks = {
        name: _known_sink(checkpoint.root, name, asked, queries, restore)
        for name, asked in standing.asked.items()
    }
    known = {*standing.asked, *standing.stopped}
    begin = {name: given for name, given in queries.items() if name not in known}
    sinks |= {name: sink for name, (_, sink) in begin.items()}
    failed = {name: f"failed: {why}" for name, why in before.failed.items()}
    stop = {name: why for name, why in {**checkpoint.stops(), **failed}.items() if name in sinks}
    return Resumed(standing, sinks, begin, stop)


def _known_sink(
    root: Path, name: str, asked: Asked, queries: Mapping[str, tuple[Asked, Any]], restore: Restore
) -> Any:
    """The sink of a query that ran before: the one it was given again, or one like it."""
    if name in queries:
        if queries[name][0].query != asked.query:
            raise StateError(
                f"{root} belongs to other streams or queries: there, query {name} is {asked.query}",
                hint="give the new query another name, or use a new checkpoint directory",
            )
        if queries[name][0].ordering != asked.ordering:
            raise StateError(
                f"{root} belongs to other queries: there, the order of query {name} is {asked.ordering or 'none'}",
                hint="ask for that order, give the new query another name, or use a new checkpoint directory",
            )
        return queries[name][1]
    if asked.sink is None:
        raise StateError(
            f"{root} belongs to other streams or queries: it knows a query {name}",
            hint="register it again with its sink, which cannot be made from what is stored",
        )
    return restore(asked.sink)
