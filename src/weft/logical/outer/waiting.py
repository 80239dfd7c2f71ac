"""How long rows of a tree of joins wait for a partner, and how long tuples are needed for that.

Guarantees: at every join of the tree a match must be inside the windows of the tuples it has, so a tuple x with
`RANGE W` has partners of at most τ(x) + W; a bound on event times in ON says the same. `waits` says per join how long
after each tuple of its preserved side a partner, or something that makes or breaks one, can come; `spans` how long a
tuple of an input is needed. No bound is shorter than the tree allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta

from weft.errors import QueryError
from weft.logical.outer.asof import asof_joins
from weft.logical.outer.outer import Side, always, core_and_closing, joins, visible
from weft.logical.query.horizon import distances
from weft.logical.query.join_tree import ASOF, LACKS_LEFT, MARK, Join
from weft.logical.query.query import Query
from weft.logical.query.window import Range

__all__ = [
    "AT_ONCE",
    "check_closing",
    "completing_inputs",
    "limit_waiting",
    "never_closed",
    "reaches",
    "spans",
    "waits",
]

Waits = dict[tuple[int, str], timedelta | None]

_NONE = timedelta(0)

# A row of a table is there before every tuple that it can be a partner of: longer before it than times can be apart.
AT_ONCE = -timedelta(days=50_000_000)


class _Times:
    """How far apart in time the tuples of a tree's rows can be."""

    def __init__(self, query: Query, tree: Join) -> None:
        self.query, self.tree = query, tree
        self.numbers = {id(join): number for number, join in joins(tree)}
        self.found: Waits = {}
        for number, join in sorted(joins(tree), reverse=True):  # what is below first
            if join.kind != "inner":
                self._wait(number, join)

    def later(self, join: Join, one: str, other: str) -> timedelta | None:
        """How much later than a tuple of ``other`` one of ``one`` can be if they meet at a join; None: any."""
        if self.query.input(one).stream.table:
            return AT_ONCE
        window = self.query.input(other).window
        stated = [window.duration] if isinstance(window, Range) else []
        for term in join.on:
            stated += [bound for pair, bound in distances(self.query, term) if pair == (one, other)]
        return min(stated, default=None)

    def _wait(self, number: int, join: Join) -> None:
        for side, away in ((join.left, join.right), (join.right, join.left)):
            if side is join.right and join.kind not in LACKS_LEFT:
                continue
            for name in visible(side):
                self.found[number, name] = self._settled(join, name, away)
        if join.kind in ASOF and join.kind in LACKS_LEFT:  # a left row may still turn to a better version
            turning = _most([self.found[number, name] for name in visible(join.left)])
            for name in visible(join.right):
                self.found[number, name] = _sum(self.found[number, name], turning)

    def _settled(self, join: Join, name: str, away: Side) -> timedelta | None:
        """How long after a tuple all that can be its partner on the other side is there, and final."""
        if all(self.query.input(other).stream.table for other in visible(away)):
            return AT_ONCE
        spans = [_NONE, *(self.later(join, other, name) for other in visible(away))]
        for _, below in joins(away):
            if below.kind != "inner" and set(visible(below.left)) <= set(visible(away)):
                spans += self._below(join, name, below)
        return _most(spans)

    def _below(self, join: Join, name: str, below: Join) -> Iterator[timedelta | None]:
        number = self.numbers[id(below)]
        for side in (below.left, below.right) if below.kind in LACKS_LEFT else (below.left,):
            every = [(z, _sum(self.later(join, z, name), self.found[number, z])) for z in visible(side)]
            sure = [span for z, span in every if z in always(side) and span is not None]
            yield min(sure) if sure else _most([span for _, span in every])

    def lateness(self, one: str, other: str) -> timedelta | None:
        """How much later than a tuple of ``other`` a tuple of ``one`` can be that affects its rows; None: any."""
        return _lateness(self, self.tree, one, other)


def _lateness(times: _Times, side: Side, one: str, other: str) -> timedelta | None:
    if one == other or isinstance(side, str):
        return _NONE
    for below in (side.left, side.right):
        if isinstance(below, Join) and {one, other} <= set(below.aliases):
            return _lateness(times, below, one, other)
    ways = []
    for mine in _doors(side, one):
        for theirs in _doors(side, other):
            through = _sum(_within(times, side, one, mine), times.later(side, mine, theirs))
            ways.append(_sum(through, _within(times, side, theirs, other)))
    return _most(ways)


def _doors(side: Join, name: str) -> tuple[str, ...]:
    """The inputs that link an input to a join: itself if it is visible there, else those of its side that are."""
    below = side.left if name in _names(side.left) else side.right
    return (name,) if name in visible(below) else visible(below)


def _within(times: _Times, side: Join, one: str, other: str) -> timedelta | None:
    """`_lateness` within one side of a join."""
    below = side.left if one in _names(side.left) else side.right
    return _lateness(times, below, one, other)


def _names(side: Side) -> tuple[str, ...]:
    return (side,) if isinstance(side, str) else side.aliases


def _sum(one: timedelta | None, other: timedelta | None) -> timedelta | None:
    return None if one is None or other is None else one + other


def _most(spans: Iterable[timedelta | None]) -> timedelta | None:
    """The longest; None, which is without end, is longer than any."""
    every = list(spans)
    return None if None in every else max((span for span in every if span is not None), default=_NONE)


def waits(query: Query, tree: Join) -> Waits:
    """Per join, by number, and input of a preserved side: how long after its tuple a partner can come; None: for ever.

    The same for the left sides of semi joins, where it says how long it takes until all partners are known.
    """
    return dict(_Times(query, tree).found)


def spans(query: Query, tree: Join) -> dict[str, timedelta | None]:
    """Per input: how long after a tuple's time something can depend on it; None: for ever."""
    times = _Times(query, tree)
    found = {}
    for name in query.aliases:
        every = [_NONE, *(times.lateness(other, name) for other in query.aliases if other != name)]
        every += [_sum(times.lateness(other, name), wait) for (_, other), wait in times.found.items()]
        found[name] = _most(every)
    return found


def reaches(query: Query, tree: Join) -> dict[str, timedelta | None]:
    """Per input: how much older than its tuple another can be whose rows it affects; None: without limit."""
    times = _Times(query, tree)
    versions = {use.versions for use in asof_joins(query, tree)}  # of which only the latest matters
    every = [name for name in query.driving if name not in versions]
    others = {name: [other for other in every if other != name] for name in query.aliases}
    return {name: _most([_NONE, *(times.lateness(name, o) for o in others[name])]) for name in query.aliases}


def completing_inputs(query: Query, tree: Join) -> frozenset[str]:
    """The inputs whose tuples can add a row after its other tuples have waited long enough: it then leaves at once."""
    times, known = _Times(query, tree), dict(joins(tree))
    found: set[str] = set()
    if AT_ONCE in times.found.values():
        return frozenset(query.driving)
    for (number, waiting), wait in times.found.items():
        join = known[number]
        away = visible(join.right if waiting in visible(join.left) else join.left)
        for name in query.aliases:
            later = times.lateness(name, waiting)
            if name not in away and wait is not None and (later is None or later > wait):
                found.add(name)
    return frozenset(found & set(query.driving))


def limit_waiting(query: Query, span: timedelta) -> Query:
    """The query, changed so that rows which would wait for a partner for ever wait for so long and no longer.

    The inputs for whose tuples the wait has no end get a `RANGE` window of that length, unless they have one.
    """
    core, closing = core_and_closing(query)
    never = never_closed(core, closing.tree) if closing else ()
    if closing is None or not never:
        return query
    endless = {name for (_, name), wait in waits(core, closing.tree).items() if wait is None}
    lacking = {input_.alias for input_ in query.inputs if not isinstance(input_.window, Range)}
    chosen = lacking & set(never) or lacking & endless
    inputs = tuple(
        replace(input_, window=Range(span)) if input_.alias in chosen else input_ for input_ in query.inputs
    )
    return limit_waiting(replace(query, inputs=inputs), span) if chosen else query


def check_closing(query: Query, name: str) -> None:
    """Refuse a query some of whose rows would never leave, if its streams do not end."""
    core, closing = core_and_closing(query)
    never = never_closed(core, closing.tree) if closing else ()
    if never:
        raise QueryError(
            f"query {name} would never give the rows of {', '.join(never)} that have no partner: "
            "one may come at any time",
            hint='give a window, as in [RANGE 10 MINUTES], or emit_unmatched_after="10 minutes"; '
            "if the input ends, use session.run_available()",
        )


def never_closed(query: Query, tree: Join) -> tuple[str, ...]:
    """The inputs whose tuples, left without a partner, could wait for one for ever."""
    found: list[str] = []
    known = waits(query, tree)
    for number, join in joins(tree):
        waiting = (join.left,) if join.kind in ("left", "anti", MARK, *ASOF) else ()
        for side in (join.left, join.right) if join.kind in LACKS_LEFT else waiting:
            sure = [known[number, name] for name in always(side) if known[number, name] is not None]
            if not sure and _most(known[number, name] for name in visible(side)) is None:
                found += [n for n in visible(side) if known[number, n] is None and n not in found]
    return tuple(found)
