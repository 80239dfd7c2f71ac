"""Sub-selects united with the query around them, so that all inputs are one n-way join (CLASH 8.2.4).

Guarantees: the flattened query gives the same results, whatever the data. With the time of a row of a sub-select being
the latest of its tuples' times, the latest time of a result is that of its tuples, so the windows of other inputs stay
as they are. A window inside a sub-select of several inputs becomes conditions on the times of these inputs alone: each
other is at most so much later. A window on such a sub-select says that one of its tuples is that recent. What cannot be
said by a tree of joins over windows and conditions stays an input of its own, with the reason in a `Note`.

A condition of a sub-select at a leaf of a tree of outer, semi and anti joins is put where it decides the same rows as
it did below: at the join that brings the sub-select in, if this drops what has no partner or pads nothing of it; above
the joins that keep the rows of the sub-select, each once. Where there is no such place, `_why_not_in_tree` says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import permutations

from weft.errors import QueryError
from weft.logical.expr.conversion import literal
from weft.logical.expr.expression import (
    BOOLEAN,
    Column,
    Expr,
    Literal,
    Replaced,
    aliases,
    columns,
    grown_terms,
    substituted,
)
from weft.logical.expr.functions import call
from weft.logical.expr.nulls import is_null_without
from weft.logical.nested.nested import latest_time, settled
from weft.logical.outer.outer import joins
from weft.logical.query.horizon import TimeBounds, time_bounds
from weft.logical.query.join_tree import ASOF, LACKS_LEFT, LACKS_RIGHT, Join
from weft.logical.query.query import PRESENT, Input, Output, Query, make_query
from weft.logical.query.window import UNBOUNDED, Range, Rows, Window
from weft.logical.schema import ROW_TIME

__all__ = ["Note", "flatten"]


_MOST_TERMS = 500  # by which expressions may grow when others replace their columns


@dataclass(frozen=True, slots=True)
class Note:
    """What became of a sub-select: it was flattened, or, for a reason, it runs as a stream of its own."""

    alias: str
    inputs: tuple[str, ...]
    reason: str = ""

    def __str__(self) -> str:
        if self.reason:
            return f"{self.alias} is a stream of its own: {self.reason}"
        if self.inputs == (self.alias,):
            return f"{self.alias} is flattened"
        return f"{self.alias} is flattened into {', '.join(self.inputs)}"


def flatten(query: Query) -> tuple[Query, tuple[Note, ...]]:
    """The query with the derived streams among its inputs united with it, as far as that can be done.

    A sub-select of tables alone has to be: its rows are no stream.
    """
    every: dict[str, Note] = {}
    while True:
        query, notes, is_done = _flattened_once(query)
        every |= {note.alias: note for note in notes}
        if is_done:  # else what was inside may have become an input that can be flattened
            _check_tables_united(query, every)
            return settled(query), tuple(every.values())


def _check_tables_united(query: Query, notes: Mapping[str, Note]) -> None:
    for input_ in query.inputs:
        if input_.stream.table and input_.stream.is_derived:
            raise QueryError(
                f"{input_.alias} reads tables alone, and cannot be united with the join around it: "
                f"{notes[input_.alias].reason}",
                hint="join the tables themselves, and compute expressions of them in the outer SELECT",
            )


def _flattened_once(query: Query) -> tuple[Query, tuple[Note, ...], bool]:
    reasons = {input_.alias: _why_not(query, input_) for input_ in query.inputs if input_.stream.is_derived}
    chosen = [alias for alias, why in reasons.items() if not why]
    parts = {alias: _Part.of(query, query.input(alias)) for alias in chosen}
    while (windowed := next(_unclear_windows(query, parts), None)) is not None:
        reasons[windowed[0]] = windowed[1]
        del parts[windowed[0]]
    notes = tuple(
        Note(alias, parts[alias].query.aliases if alias in parts else (), why)
        for alias, why in reasons.items()
    )
    return (_united(query, parts), notes, False) if parts else (query, notes, True)


@dataclass(frozen=True, slots=True)
class _Part:
    """A sub-select that is flattened.

    ``input_`` is the input that it was and ``query`` its query, under the names that its inputs have in the flattened
    query. ``given`` is what each of its columns stands for. It may be ``alone`` in FROM.
    """

    input_: Input
    query: Query
    given: Mapping[str, Expr]
    alone: bool

    @classmethod
    def of(cls, query: Query, input_: Input) -> _Part:
        """A sub-select, its inputs under names that no other input of the query has."""
        (inner,) = input_.stream.definition
        alone = len(query.inputs) == 1
        renamed = inner if alone else inner.renamed(_names(query, input_, inner))
        shown = zip(input_.stream.shown, renamed.projection, strict=True)
        given = {name: output.expr for name, output in shown}
        given[PRESENT] = renamed.inputs[0].present
        time = latest_time(renamed) if input_.stream.hidden else None
        return cls(input_, renamed, given if time is None else {**given, ROW_TIME: time}, alone)

    def inputs(self) -> Iterator[Input]:
        """The inputs, with the windows that they have in the flattened query."""
        single = len(self.query.inputs) == 1
        window = _moved(self.input_.window, self.given) if single else UNBOUNDED
        for input_ in self.query.inputs:
            yield input_ if self.alone else replace(input_, window=window)

    def conditions(self, others: Iterable[Expr]) -> Iterator[Expr]:
        """WHERE, with what the windows say; ``others`` are the times of the other inputs of the flattened query."""
        query = self.query
        yield from query.terms()
        if self.alone or len(query.inputs) == 1:
            return
        for one, other in permutations(query.inputs, 2):
            if isinstance(other.window, Range):
                yield _within(_time(one), _time(other), other.window.duration)
        if isinstance(self.input_.window, Range):
            yield from self._window(query, self.input_.window.duration, others)

    def _window(self, query: Query, duration: timedelta, others: Iterable[Expr]) -> Iterator[Expr]:
        """One tuple of the sub-select is recent enough; so no tuple of it is much older, which bounds state."""
        bounds = time_bounds(query)
        newest = [one for one in query.inputs if not _is_never_newest(query, one.alias, bounds)]
        for other in others:
            yield call("or", *(_within(other, _time(input_), duration) for input_ in newest))
            for input_ in query.inputs:
                after = [bounds[one.alias, input_.alias] for one in newest if one is not input_]
                yield _within(other, _time(input_), duration + max((timedelta(0), *after)))


def _is_never_newest(query: Query, alias: str, bounds: TimeBounds) -> bool:
    """Whether another input is always as new as this one; of two that are always equally new, the first counts."""
    for other in query.aliases:
        if other != alias and bounds[alias, other] <= timedelta(0):
            equal = bounds[other, alias] <= timedelta(0)
            if not equal or other < alias:
                return True
    return False


def _names(query: Query, input_: Input, inner: Query) -> dict[str, str]:
    """By inner alias, a name that no input of the query has; a sub-select of one input gives it its own name."""
    if len(inner.inputs) == 1:
        return {inner.aliases[0]: input_.alias}
    taken, names = {alias.lower() for alias in query.aliases}, dict[str, str]()
    for alias in inner.aliases:
        name, number = f"{input_.alias}_{alias}", 1
        while name.lower() in taken:
            number += 1
            name = f"{input_.alias}_{alias}_{number}"
        taken.add(name.lower())
        names[alias] = name
    return names


def _moved(window: Window, given: Mapping[str, Expr]) -> Window:
    """The window of a sub-select of one input, as the window of that input."""
    if not isinstance(window, Rows):
        return window
    names = {column.name for name in window.per for column in columns(given[name])}
    return Rows(window.count, tuple(sorted(names)))


def _time(input_: Input) -> Expr:
    time = input_.event_time
    assert time is not None
    return time


def _within(one: Expr, other: Expr, duration: timedelta) -> Expr:
    return call("<=", one, call("+", other, literal(duration)))


def _why_not(query: Query, input_: Input) -> str:
    """Why a sub-select cannot be flattened, leaving aside what its window says of other inputs; empty if it can."""
    (inner,) = input_.stream.definition
    if inner.grouping is not None:
        return "it has aggregates"
    part = _Part.of(query, input_)
    if grown_terms(query.expressions(), {input_.alias: part.given}) > _MOST_TERMS:
        return "its expressions would become too large"
    mentioned = {
        column.name
        for expr in query.expressions()
        for column in columns(expr)
        if column.alias == input_.alias
    }
    if ROW_TIME in mentioned and ROW_TIME not in part.given:
        return "its time is asked for, and some of its streams have no event time"
    if ROW_TIME in mentioned and len(inner.inputs) > 1 < len(query.inputs):
        return "its time is compared with others, and that is the latest of several"
    if any(_is_decided(term, part) for term in _conditions(query)):
        return "a condition is about a constant that it selects"
    if len(query.inputs) == 1:
        return ""
    if inner.outer is not None:
        return "an outer, semi or anti join is below another join"
    if len(inner.inputs) == 1:
        return _why_not_counted(input_, inner, part.given) or _why_not_in_tree(
            query, input_.alias, part.query, part.given
        )
    if isinstance(input_.window, Rows) or any(isinstance(one.window, Rows) for one in inner.inputs):
        return "a window counts rows"
    ranged = any(isinstance(one.window, Range) for one in inner.inputs)
    if ranged and any(one.event_time is None for one in inner.inputs):
        return "a window is about arrival times"
    if query.outer is not None and (ranged or input_.window != UNBOUNDED):
        return "a window is below an outer, semi or anti join"
    return _why_not_in_tree(query, input_.alias, part.query, part.given)


def _conditions(query: Query) -> Iterator[Expr]:
    yield from query.terms()
    yield from query.outer.conditions if query.outer is not None else ()


def _is_decided(term: Expr, part: _Part) -> bool:
    """Whether a condition mentions no stream any more, once the columns of a sub-select are replaced."""
    flat = substituted(term, {part.input_.alias: part.given})
    return not aliases(flat) and flat != Literal(True, BOOLEAN)


def _why_not_counted(input_: Input, inner: Query, given: Mapping[str, Expr]) -> str:
    if not isinstance(input_.window, Rows):
        return ""
    if inner.filters:
        return "a window counts its rows, and it has a condition"
    if not all(isinstance(given[name], Column) for name in input_.window.per):
        return "a window counts per an expression"
    return ""


def _unclear_windows(query: Query, parts: Mapping[str, _Part]) -> Iterator[tuple[str, str]]:
    """The sub-selects of several inputs whose window cannot be said by conditions, and why."""
    for alias, part in parts.items():
        if part.alone or len(part.query.inputs) == 1 or not isinstance(part.input_.window, Range):
            continue
        if None in (*_times(query, parts, alias), *(one.event_time for one in part.query.inputs)):
            yield alias, "its window is about arrival times"
            continue
        bounds = time_bounds(part.query)
        if any(pair not in bounds for pair in permutations(part.query.aliases, 2)):
            yield alias, "it has a window, and its streams have none that would bound what must be stored"


def _times(query: Query, parts: Mapping[str, _Part], alias: str) -> Iterator[Expr | None]:
    """The times of the tuples of all other inputs."""
    for input_ in query.inputs:
        if input_.alias in parts and input_.alias != alias:
            yield from (one.event_time for one in parts[input_.alias].query.inputs)
        elif input_.alias != alias:
            yield input_.event_time


def _united(query: Query, parts: Mapping[str, _Part]) -> Query:
    given = {alias: part.given for alias, part in parts.items()}
    inputs = [input_ for input_ in query.inputs if input_.alias not in parts]
    inputs += [input_ for part in parts.values() for input_ in part.inputs()]
    where = [substituted(term, given) for term in query.terms()]
    tree, leaves = query.outer, dict[str, tuple[Join | str, tuple[Expr, ...]]]()
    for alias, part in parts.items():
        times = (time for time in _times(query, parts, alias) if time is not None)
        terms = tuple(part.conditions(times))
        if part.alone:
            tree = part.query.outer
        if part.alone or tree is None:
            where += terms
        else:
            leaves[alias] = _joined_leaf(part.query.aliases, terms)
    if tree is not None and leaves:
        tree, above = _rebuild_tree(tree, leaves, given)
        where += above
    outputs = (Output(output.name, substituted(output.expr, given)) for output in query.projection)
    united = make_query(inputs, where, outputs, outer=tree, cross=True, grouping=query.grouping)
    return replace(united, sorting=query.sorting)


Side = Join | str
# By alias of a sub-select: what stands in the tree in its place, and the conditions of it that need a place.
_Leaves = Mapping[str, tuple[Side, tuple[Expr, ...]]]


def _why_not_in_tree(query: Query, alias: str, inner: Query, given: Mapping[str, Expr]) -> str:
    """Why a sub-select without outer joins cannot become a part of a query's tree; empty if it can."""
    if query.outer is None:
        return ""
    if len(inner.inputs) > 1 and any(
        join.right == alias for _, join in joins(query.outer) if join.kind in ASOF
    ):
        return "it has the versions of an ASOF JOIN, which are one stream"
    if len(inner.inputs) == 1 and inner.filters and _has_place(query.outer, alias) is None:
        return "it has a condition, and is below a full outer join"
    used = {c.name for expr in query.expressions() for c in columns(expr) if c.alias == alias}
    missing = frozenset(inner.aliases)
    if _is_padded(query.outer, alias) and not all(is_null_without(given[name], missing) for name in used):
        return (
            "it is below an outer join, and selects an expression that need not be NULL without its streams"
        )
    return ""


def _joined_leaf(names: Sequence[str], conditions: Sequence[Expr]) -> tuple[Side, tuple[Expr, ...]]:
    """The inputs of a sub-select as a leaf of a tree, and the conditions that need a place above it."""
    if len(names) == 1:
        return names[0], tuple(conditions)
    side: Side = names[0]
    seen, terms = {names[0]}, list(conditions)
    for name in names[1:]:
        seen.add(name)
        on = tuple(term for term in terms if aliases(term) <= seen)
        terms = [term for term in terms if term not in on]
        side = Join("inner", side, name, on)
    return side, ()


def _rebuild_tree(tree: Join, leaves: _Leaves, given: Replaced) -> tuple[Join, tuple[Expr, ...]]:
    """The tree with the inputs of sub-selects in place of these, and the conditions that go into WHERE."""
    sides: list[Side] = []
    rising: list[tuple[Expr, ...]] = []
    for side in (tree.left, tree.right):
        found = _rebuild_tree(side, leaves, given) if isinstance(side, Join) else leaves.get(side, (side, ()))
        sides.append(found[0])
        rising.append(found[1])
    on = tuple(substituted(term, given) for term in tree.on)
    here, above = ((*rising[0], *rising[1]), ()) if tree.kind == "inner" else (rising[1], rising[0])
    return Join(tree.kind, sides[0], sides[1], (*on, *here)), above


def _has_place(tree: Join, alias: str) -> bool | None:
    """Whether a condition on a leaf finds a place in the tree; False: only above it; None: nowhere."""
    on_left = alias == tree.left or (isinstance(tree.left, Join) and alias in tree.left.aliases)
    side = tree.left if on_left else tree.right
    below = _has_place(side, alias) if isinstance(side, Join) else False
    if below is not False:
        return below
    if tree.kind in LACKS_LEFT:
        return None
    return tree.kind == "inner" or not on_left  # rows that fail it have no partner; else the join keeps them


def _is_padded(tree: Join, alias: str) -> bool:
    """Whether rows of the tree can lack a tuple of an input."""
    left = tree.left if isinstance(tree.left, Join) else None
    right = tree.right if isinstance(tree.right, Join) else None
    if alias == tree.left or (left and alias in left.aliases):
        return tree.kind in LACKS_LEFT or (left is not None and _is_padded(left, alias))
    return tree.kind in LACKS_RIGHT or (right is not None and _is_padded(right, alias))
