"""Which rows of the two sides of a join match.

Guarantees: every pair of rows for which all terms are true (not false, not NULL) and whose tuples are inside each
other's windows is given once, grouped by the left row, a bounded number at a time. Pairs are searched for by the first
of these that there is:

1. equalities between the sides: one index over all of them together;
2. two bounds on one value of the right side, the windows, or one bound: an order of time or of values;
3. every pair.

Terms that concern one side only are checked on its rows before the search. A bound only narrows the search; its term is
checked again on the pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.bucket import FARTHEST, Bucket, build, column
from weft.bucket.compiled import Ints, Longs, frozen
from weft.bucket.index import by_hash, by_value
from weft.bucket.memory import take
from weft.kernels.expr.select import holds
from weft.kernels.outer.relation import FURTHEST_APART, TreeRows, WindowSpan
from weft.kernels.probe.band import Band, band_portions
from weft.kernels.probe.equality import in_order, probe_portions
from weft.kernels.probe.ranges import Window
from weft.kernels.probe.theta import Sides, residual, theta_portions
from weft.logical.expr.bands import read_band
from weft.logical.expr.conversion import literal
from weft.logical.expr.expression import BOOLEAN, Call, Expr, Literal, aliases, all_of, columns
from weft.logical.expr.functions import call

__all__ = ["Pairs", "matching_pairs"]

Pairs = tuple[Ints, Ints]

_ROW, _CLOCK, _VALUE = "$row", "$clock", "$value"
_TRUE = Literal(True, BOOLEAN)


def matching_pairs(on: Sequence[Expr], left: TreeRows, right: TreeRows) -> Iterator[Pairs]:
    """The pairs (left row, right row) that match."""
    terms = _sorted_out(on, left.aliases, right.aliases)
    ours, theirs = _Side.of(left, terms.left), _Side.of(right, terms.right)
    if not len(ours) or not len(theirs):
        return
    for some_left, some_right in _Search(terms, ours, theirs).pairs():
        yield ours.original(some_left), theirs.original(some_right)


class _Comparison(NamedTuple):
    """A term that compares a value of the left row with one of the right row."""

    operator: str  # "=", "<" or "<="
    left: Expr
    right: Expr
    lower: bool  # whether the left value is the smaller one


@dataclass(frozen=True, slots=True)
class _Terms:
    """The terms of a join: of either side, equalities between the sides, all others, and the bounds among these."""

    left: list[Expr]
    right: list[Expr]
    equal: list[_Comparison]
    rest: list[Expr]
    bounds: list[_Comparison]


def _sorted_out(on: Sequence[Expr], left: frozenset[str], right: frozenset[str]) -> _Terms:
    terms = _Terms([], [], [], [], [])
    for term in on:
        found = _comparison(term, left, right)
        if aliases(term) <= left:
            terms.left.append(term)
        elif aliases(term) <= right:
            terms.right.append(term)
        elif found is not None and found.operator == "=":
            terms.equal.append(found)
        else:
            terms.rest.append(term)
            terms.bounds.extend(() if found is None else (found,))
    return terms


def _comparison(term: Expr, left: frozenset[str], right: frozenset[str]) -> _Comparison | None:
    if not isinstance(term, Call) or term.function not in ("=", "<", "<="):
        return None
    small, great = term.args
    times = read_band(small, great) if term.function != "=" else None
    if times is not None and times[1].alias in right:  # shifted so that the right value is a column
        small, great = call("-", times[0], literal(times[2])), times[1]
    for ours, theirs, lower in ((small, great, True), (great, small, False)):
        if aliases(ours) <= left and aliases(theirs) <= right:
            return _Comparison(term.function, ours, theirs, lower)
    return None


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """The rows of a side for which its own terms are true."""

    part: TreeRows
    chosen: Ints | None  # None means all rows

    @classmethod
    def of(cls, part: TreeRows, terms: Sequence[Expr]) -> _Side:
        if not terms or not len(part):
            return cls(part, None)
        true = holds(all_of(terms), part.columns(terms), len(part))
        return cls(part, None if true.all() else frozen(np.flatnonzero(true).astype(np.int32)))

    def __len__(self) -> int:
        return len(self.part) if self.chosen is None else self.chosen.size

    @property
    def span(self) -> WindowSpan | None:
        span = self.part.span
        return span if span is None or self.chosen is None else span.chosen(self.chosen)

    def values(self, expr: Expr) -> Any:
        return self.part.values(expr, self.chosen)

    def columns(self, exprs: Sequence[Expr]) -> dict[str, Any]:
        """The columns that the expressions name, under their full names."""
        return {".".join(key): values for key, values in self.part.columns(exprs, self.chosen).items()}

    def original(self, rows: Ints) -> Ints:
        """The numbers of rows in the whole part."""
        return rows if self.chosen is None else take(self.chosen, rows)


class _Reach(NamedTuple):
    """How far the windows of rows reach beyond their newest tuples: the least and the greatest distance of all rows."""

    least: int
    most: int

    @classmethod
    def of(cls, span: WindowSpan) -> _Reach:
        ahead = span.until - span.newest
        return cls(int(ahead.min()), int(ahead.max()))

    @property
    def bounded(self) -> bool:
        """Whether some window is bounded, so that there are times outside of it."""
        return self.least < FURTHEST_APART


class _Clock(NamedTuple):
    """A time of every right row, and the window in which each left row looks for it."""

    times: Longs
    window: Window


class _Found(NamedTuple):
    """Pairs of a left row and a row of a bucket; ``rows`` maps these to right rows, if the bucket reordered them."""

    run: Bucket
    pairs: Iterator[Pairs]
    rows: Ints | None = None


class _Search:
    """One search for the matches of two sides, neither of them empty."""

    def __init__(self, terms: _Terms, left: _Side, right: _Side) -> None:
        self.terms, self.left, self.right = terms, left, right
        self.band = _best_band(terms.bounds)
        self.windows = _windows(left.span, right.span)
        clock = self._band_clock()
        # The windows are checked again only where the clock of the search does not check them exactly.
        self.unchecked = (
            None if self.windows is None or (clock is None and self.windows.exact) else self.windows
        )
        self.clock = clock or (None if self.windows is None else self.windows.clock)

    def pairs(self) -> Iterator[Pairs]:
        """The pairs of rows that match."""
        rest = self.terms.rest
        probes = _batch({_ROW: pa.nulls(len(self.left))}, self.left.columns(rest))
        rows = np.arange(len(self.right), dtype=np.int32)
        clock = {} if self.clock is None else {_CLOCK: pa.array(self.clock.times)}
        found = self._found(probes, {_ROW: pa.array(rows), **clock, **self.right.columns(rest)})
        pairs = found.pairs
        if rest:
            pairs = residual(all_of(rest), _sides(rest, self.right.part.aliases), probes, found.run, pairs)
        if found.rows is not None:
            pairs = _originals(pairs, found.rows)
        return pairs if self.unchecked is None else self.unchecked.inside(pairs)

    def _found(self, probes: pa.RecordBatch, stored: Mapping[str, Any]) -> _Found:
        """Candidate pairs, by the first way to search that the terms allow (see the top of this file)."""
        time, window = (None, None) if self.clock is None else (_CLOCK, self.clock.window)
        if self.terms.equal:
            keys = {
                f"$key{number}": self.right.values(one.right) for number, one in enumerate(self.terms.equal)
            }
            order = by_hash(*keys)
            run = build(_batch(stored, keys), layout=order, event_time=time)
            wanted = in_order([self.left.values(one.left) for one in self.terms.equal])
            rows = column(run.batch, _ROW).to_numpy()
            return _Found(run, probe_portions(wanted, run, order, window=window), frozen(rows))
        if self.band and not _is_time(self.band[0].right) and (window is None or len(self.band) == 2):
            order = by_value(_VALUE)
            values = {_VALUE: self.right.values(self.band[0].right)}
            run = build(_batch(stored, values), indexes=[order], event_time=time)
            return _Found(run, band_portions(self._limits(), run, order, window=window))
        run = build(_batch(stored), indexes=[] if time is None else [by_value(time)], event_time=time)
        return _Found(run, theta_portions(_TRUE, Sides({}, {}), probes, run, window=window))

    def _limits(self) -> Band:
        sides = {one.lower: self.left.values(one.left) for one in self.band}
        is_open = {one.lower: one.operator == "<" for one in self.band}
        return Band(sides.get(True), sides.get(False), is_open.get(True, False), is_open.get(False, False))

    def _band_clock(self) -> _Clock | None:
        """The clock for searching by a band of times; a band with one bound is used only if there are no windows."""
        if not self.band or not _is_time(self.band[0].right) or (len(self.band) < 2 and self.windows):
            return None
        times = _times(self.right.values(self.band[0].right))
        limits = {one.lower: _times(self.left.values(one.left)) for one in self.band}
        if not all(map(_near, (times, *limits.values()))):
            return None
        size = len(self.left)
        low, high = limits.get(True, np.full(size, -FARTHEST)), limits.get(False, np.full(size, FARTHEST))
        return _Clock(times, Window(low, high))


@dataclass(frozen=True, slots=True, eq=False)
class _Windows:
    """The windows of both sides; ``exact`` says that checking the clock checks all of them."""

    left: WindowSpan
    right: WindowSpan
    clock: _Clock
    exact: bool

    def inside(self, pairs: Iterator[Pairs]) -> Iterator[Pairs]:
        """The pairs of rows that are inside each other's windows."""
        left_newest, left_until = frozen(self.left.newest), frozen(self.left.until)
        right_newest, right_until = frozen(self.right.newest), frozen(self.right.until)
        for ours, theirs in pairs:
            inside = take(right_newest, theirs) <= take(left_until, ours)
            inside &= take(left_newest, ours) <= take(right_until, theirs)
            yield ours[inside], theirs[inside]


def _windows(left: WindowSpan | None, right: WindowSpan | None) -> _Windows | None:
    """The windows of both sides; None if no window is bounded, so that they rule nothing out.

    The search takes the longest reach of all right rows. Where right rows have several tuples their reaches differ, so
    the windows are then not `exact` and are checked again.
    """
    if left is None or right is None:
        return None
    ours, theirs = _Reach.of(left), _Reach.of(right)
    if not ours.bounded and not theirs.bounded:
        return None
    window = Window(left.newest, left.until, before=min(theirs.most, FURTHEST_APART))
    exact = theirs.least == theirs.most or not theirs.bounded
    return _Windows(left, right, _Clock(right.newest, window), exact)


def _originals(pairs: Iterator[Pairs], rows: Ints) -> Iterator[Pairs]:
    for ours, theirs in pairs:
        yield ours, take(rows, theirs)


def _best_band(bounds: Sequence[_Comparison]) -> list[_Comparison]:
    """A lower and an upper bound of one value, if there are such; otherwise one bound, or an empty list."""
    for first in bounds:
        for second in bounds:
            if first.right == second.right and first.lower and not second.lower:
                return [first, second]
    return list(bounds[:1])


def _is_time(expr: Expr) -> bool:
    return expr.type.name == "timestamp"


def _times(values: Any) -> Longs:
    """Timestamps in microseconds. NULL becomes an arbitrary one, since pairs with NULL are dropped later."""
    known = pc.fill_null(values.view(pa.int64()), 0)
    times: Longs = known.to_numpy(zero_copy_only=False)
    return frozen(times)


def _near(times: Longs) -> bool:
    return bool(times.min() >= -FARTHEST and times.max() <= FARTHEST)


def _batch(*columns: Mapping[str, Any]) -> pa.RecordBatch:
    """One batch of all the columns."""
    return pa.RecordBatch.from_pydict({name: values for some in columns for name, values in some.items()})


def _sides(terms: Sequence[Expr], right: frozenset[str]) -> Sides:
    named = {(one.alias, one.name): f"{one.alias}.{one.name}" for term in terms for one in columns(term)}
    return Sides(
        {key: name for key, name in named.items() if key[0] not in right},
        {key: name for key, name in named.items() if key[0] in right},
    )
