"""What a session that is started finds in its log, and what it makes of the queries it is given.

Guarantees: a query that ran before goes on as it was, or is refused. One that has stopped stays so if it is given again
as it was; another query may have its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from weft.errors import StateError
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import Manifest
from weft.runtime.queries.active import Standing
from weft.runtime.queries.request import Asked

__all__ = ["Restore", "Resumed", "resumed"]

# Makes a sink again of what is stored of it.
Restore = Callable[[Mapping[str, Any]], Any]

Given = Mapping[str, tuple[Asked, Any]]


@dataclass(frozen=True, slots=True)
class Resumed:
    """What stands, the sinks of all queries, the queries that are to begin, and those that are to stop, with why.

    ``asked`` are all queries that batches which are to be repeated are for.
    """

    standing: Standing
    asked: Mapping[str, Asked]
    sinks: Mapping[str, Any]
    begin: Given
    stop: Mapping[str, str]


def resumed(log: Checkpoint, queries: Given, restore: Restore, before: Manifest) -> Resumed:
    """What follows from a log whose last committed batch left ``before``.

    Batches that were planned and not committed are repeated as they were planned; what is asked for comes after them.
    """
    standings = [Standing.read(log, before.standing)]
    number = before.number + 1
    while (plan := log.plan(number)) is not None:
        standings.append(Standing.read(log, plan.standing))
        number += 1
    last = standings[-1]
    asked = {name: one for standing in standings for name, one in standing.asked.items()}
    sinks = {name: _known_sink(log, name, one, queries, restore) for name, one in asked.items()}
    stops = log.stops()
    begin = {name: given for name, given in queries.items() if _is_new(name, given[0], last, stops)}
    sinks |= {name: sink for name, (_, sink) in begin.items() if name not in sinks}
    failed = {name: f"failed: {why}" for name, why in before.failed.items()}
    stopped = {
        n: why for n, (why, what) in stops.items() if n in last.asked and last.asked[n].fingerprint == what
    }
    stop = {name: why for name, why in {**stopped, **failed}.items() if name in last.asked}
    return Resumed(standings[0], asked, sinks, begin, stop)


def _is_new(name: str, asked: Asked, standing: Standing, stops: Mapping[str, tuple[str, str]]) -> bool:
    """Whether a query is to begin: it does not run, and is not one that was stopped, be it before it had begun."""
    known = (standing.former.get(name), stops.get(name, ("", ""))[1])
    return name not in standing.asked and asked.fingerprint not in known


def _known_sink(log: Checkpoint, name: str, asked: Asked, queries: Given, restore: Restore) -> Any:
    """The sink of a query that ran before: the one it was given again, or one like it."""
    place = log.storage.locate("")
    if name in queries:
        if queries[name][0].query != asked.query:
            raise StateError(
                f"{place} belongs to other streams or queries: there, query {name} is {asked.query}",
                hint="give the new query another name, or use a new checkpoint directory",
            )
        if queries[name][0].ordering != asked.ordering:
            raise StateError(
                f"{place} belongs to other queries: there, the order of query {name} is {asked.ordering or 'none'}",
                hint="ask for that order, give the new query another name, or use a new checkpoint directory",
            )
        return queries[name][1]
    if asked.sink is None:
        raise StateError(
            f"{place} belongs to other streams or queries: it knows a query {name}",
            hint="register it again with its sink, which cannot be made from what is stored",
        )
    return restore(asked.sink)
