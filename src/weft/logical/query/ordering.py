"""In which order a query's results leave, and up to where they are complete (SplitJoin, section 5; design, section 3).

Guarantees: an `Ordering` that exists can be kept for the query it was checked with. All orders but `event` follow the
total order of arrival (design, D5): by batch, by the rank of the relation in it, by position.

- `outer`: results leave in the order of their last tuple. With a precision of k, the results of k consecutive tuples
  may be mixed: tuples are taken in blocks of k, counted over all inputs since the query's first batch.
- `inner`: also, among the results of one last tuple, from the oldest partner to the newest. Several partners are
  compared one after the other, in the order of FROM, each by its number in its stream. With a precision of k, partners
  are in order by blocks of k of these numbers.
- `event`: results leave sorted by their largest time, each once the watermarks of all its streams have passed it, or
  the input has ended; a stream without event time has that of arrival. A query that is stopped drops what it holds.

ORDER BY the time that `event` sorts by, and nothing else, is that order (`leaves_by_time`). Any other ORDER BY, and
LIMIT, are about the whole result, which is there when the input has ended (`Query.sorting`).

What a `Punctuation` says of the first rows of an output stays true whatever comes later.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

from weft.errors import ConfigError, QueryError, nearest
from weft.logical.expr.expression import Call
from weft.logical.query.grouping import UPDATE
from weft.logical.query.query import Query

__all__ = [
    "EVENT",
    "LAST",
    "ORDERS",
    "OUTER",
    "Ordering",
    "Punctuation",
    "check_ordering",
    "check_sorting",
    "leaves_by_time",
    "ordering_of",
]


OUTER, INNER, EVENT = "outer", "inner", "event"

ORDERS = ("none", OUTER, INNER, EVENT)


@dataclass(frozen=True, slots=True)
class Ordering:
    """An order that results leave in, and how precisely; ``inputs`` are those of the query as FROM names them."""

    kind: str
    precision: int = 1
    inputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in ORDERS[1:]:
            raise ConfigError(f"there is no order {self.kind!r}", hint=nearest(str(self.kind), ORDERS))
        if self.precision < 1:
            raise ConfigError(f"a precision cannot be {self.precision}", hint="use 1 or more tuples")

    @property
    def by_arrival(self) -> bool:
        """Whether the order is that of arrival."""
        return self.kind != EVENT

    @property
    def is_inner(self) -> bool:
        """Whether partners are in order too."""
        return self.kind == INNER

    @property
    def block(self) -> int:
        """The number of consecutive last tuples whose results may be mixed."""
        return self.precision if self.kind == OUTER else 1

    def renamed(self, names: Mapping[str, str]) -> Ordering:
        """The same order for a query whose inputs have other names."""
        return replace(self, inputs=tuple(names.get(alias, alias) for alias in self.inputs))

    def __str__(self) -> str:
        return f"{self.kind}, precision {self.precision}" if self.precision > 1 else self.kind


def ordering_of(order: object, precision: object = None) -> Ordering | None:
    """The order that a user asks for, checked; None if results may leave in any order.

    >>> print(ordering_of("outer", 64))
    outer, precision 64
    """
    if not isinstance(order, str) or order not in ORDERS:
        known = nearest(order, ORDERS) if isinstance(order, str) else "use " + ", ".join(map(repr, ORDERS))
        raise ConfigError(f"there is no order {reprlib.repr(order)}", hint=known)
    if precision is not None:
        if order not in (OUTER, INNER):
            raise ConfigError(
                f'order="{order}" has no precision', hint='leave it out, or use order="outer" or "inner"'
            )
        if not isinstance(precision, int) or isinstance(precision, bool) or precision < 1:
            raise ConfigError(f"a precision cannot be {reprlib.repr(precision)}", hint="use 1 or more tuples")
    return None if order == "none" else Ordering(order, precision if isinstance(precision, int) else 1)


def check_ordering(query: Query, ordering: Ordering, *, backfill: bool = False) -> None:
    """Refuse an order that a query's results cannot have."""
    if query.outer is not None:
        raise QueryError(
            f"the results of outer, semi and anti joins have no order {ordering.kind!r}: a row that waits for a "
            "partner leaves long after the tuples that came with it",
            hint='use order="none", or an inner join',
        )
    if ordering.by_arrival and backfill:
        raise QueryError(
            f"results that lie in the stored past have no order {ordering.kind!r}: when tuples came is not stored",
            hint='leave out backfill, or use order="event"',
        )
    counted = [input_.alias for input_ in query.inputs if input_.counted_per]
    if ordering.is_inner and counted:
        raise QueryError(
            f"partners of {counted[0]} have no order of arrival: they are counted per key",
            hint='use order="outer", or a window of ROWS without PER',
        )
    if ordering.is_inner and query.tables:
        raise QueryError(
            f"rows of {query.tables[0]} have no order of arrival: it is a table",
            hint='use order="outer"',
        )
    joined = [input_.stream.name for input_ in query.inputs if input_.stream.late == "join"]
    if not ordering.by_arrival and joined:
        raise QueryError(
            f"results cannot leave in the order of event time: late tuples of {joined[0]} are joined, and their "
            "results would come after later ones that have left",
            hint=f'register {joined[0]} with late="drop", or use order="outer"',
        )


def check_sorting(query: Query, order: str) -> None:
    """Refuse ORDER BY and LIMIT together with what contradicts them."""
    if order != "none":
        raise QueryError(
            f"the query has ORDER BY or LIMIT, and order={order!r}", hint="leave out one of them"
        )
    if query.grouping is not None and query.grouping.mode == UPDATE:
        raise QueryError(
            "groups that change have no place in an order, so ORDER BY and LIMIT say nothing of them",
            hint='leave out mode="update", or ORDER BY and LIMIT',
        )


def leaves_by_time(query: Query) -> bool:
    """Whether ORDER BY says what the order of event time is: the largest time of all streams, ascending."""
    sorting = query.sorting
    if sorting is None or query.outer is not None or query.grouping is not None:
        return False
    if sorting.limit is not None or sorting.offset or len(sorting.keys) != 1 or sorting.keys[0].descending:
        return False
    streams = [query.input(alias) for alias in query.driving]
    if any(one.event_time is None or one.stream.late == "join" for one in streams):
        return False
    (expr,) = (output.expr for output in query.outputs if output.name == sorting.keys[0].column)
    given = expr.args if isinstance(expr, Call) and expr.function == "greatest" else (expr,)
    return set(given) == {one.event_time for one in streams}


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=timezone.utc) - _EPOCH) // _MICROSECOND

# The last moment that Python knows, in microseconds: after the end of the input, results of all times are there.
LAST = (datetime.max.replace(tzinfo=timezone.utc) - _EPOCH) // _MICROSECOND


@dataclass(frozen=True, slots=True)
class Punctuation:
    """The first ``rows`` rows of an output are all results up to here, and only those.

    In an order of arrival: all whose last tuple is among the first ``tuples`` tuples of the query's inputs since its
    first batch. In the order of event time: all whose largest time is at most ``time``, which is the last moment that
    Python knows once the input has ended.
    """

    rows: int
    tuples: int | None = None
    time: datetime | None = None

    @classmethod
    def from_mark(cls, rows: int, mark: int, timed: bool) -> Punctuation:
        """A punctuation whose mark is a number of tuples or, if ``timed``, a time in microseconds since 1970."""
        if not timed:
            return cls(rows, tuples=mark)
        return cls(rows, time=_EPOCH + min(max(mark, _FIRST), LAST) * _MICROSECOND)
