"""A query with outer, semi or anti joins, taken apart: what probing finds, and what closing finds.

Guarantees: the *core* is an inner query; where `Closing.walked`, its results are just the rows in which no input is
missing, and probing finds them as those of any inner query. All other rows come from evaluating the tree, exactly as it
was written, once it is known that no partner can come any more. Conditions about one input move to that input where
this changes no row, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from weft.errors import QueryError
from weft.logical.expr.expression import Call, Expr, aliases, make_call, rename
from weft.logical.query.horizon import check_times
from weft.logical.query.join_tree import LACKS_LEFT, LACKS_RIGHT, TESTS, Join
from weft.logical.query.query import Query, make_query
from weft.logical.query.window import Rows

__all__ = ["Closing", "Side", "always", "core_and_closing", "joins", "visible"]

Side = Join | str


@dataclass(frozen=True, slots=True)
class Closing:
    """The tree of joins and the conditions on its rows; ``walked``: rows that miss nothing are found by probing."""

    tree: Join
    where: tuple[Expr, ...] = ()
    walked: bool = True

    @property
    def conditions(self) -> tuple[Expr, ...]:
        """All expressions that are evaluated on its rows, outputs aside."""
        return (*self.tree.conditions, *self.where)

    def renamed(self, names: Mapping[str, str]) -> Closing:
        """The same under other aliases."""
        return Closing(self.tree.renamed(names), tuple(rename(e, names) for e in self.where), self.walked)


def joins(side: Side, first: int = 0) -> Iterator[tuple[int, Join]]:
    """The joins of a tree, numbered: each before those of its left side, and these before those of its right side."""
    if isinstance(side, str):
        return
    yield first, side
    yield from joins(side.left, first + 1)
    yield from joins(side.right, first + 1 + sum(1 for _ in joins(side.left)))


def visible(side: Side) -> tuple[str, ...]:
    """The inputs whose tuples the rows of a side can have."""
    return (side,) if isinstance(side, str) else side.visible


def always(side: Side) -> tuple[str, ...]:
    """The inputs that no row of a side misses."""
    if isinstance(side, str):
        return (side,)
    left = () if side.kind in LACKS_LEFT else always(side.left)
    return left if side.kind in (*LACKS_RIGHT, *TESTS) else (*left, *always(side.right))


def core_and_closing(query: Query) -> tuple[Query, Closing | None]:
    """The core of a query, and what closes it; a query without outer joins is its own core."""
    if query.outer is None:
        return query, None
    for input_ in query.inputs:
        if isinstance(input_.window, Rows):
            raise QueryError(
                f"{input_.alias} [{input_.window}] cannot be part of an outer, semi or anti join: "
                "which rows are left without a partner is told by time",
                hint="use a RANGE window",
            )
        if input_.stream.late == "join":
            raise QueryError(
                f"stream {input_.stream.name} joins late tuples, which could be partners of rows that have left "
                "without one",
                hint='register it with late="drop", or a longer lateness',
            )
    tree, filters, where = _pushed(query.outer, query.conditions)
    walked = _core(query, tree, filters, where)
    core = walked or Query(query.inputs, (), _ordered(filters), (), (), query.projection, cross=True)
    core = replace(core, grouping=query.grouping, sorting=query.sorting)
    return core, Closing(tree, where, walked is not None)


def _ordered(exprs: Iterable[Expr]) -> tuple[Expr, ...]:
    return tuple(sorted(set(exprs), key=str))


def _pushed(tree: Join, where: Iterable[Expr]) -> tuple[Join, tuple[Expr, ...], tuple[Expr, ...]]:
    """The tree with conditions as far down as they can be, the filters of its inputs, and the other conditions."""
    side, filters, left = _sunk(tree, list(where))
    if isinstance(side, str):
        raise QueryError("a tree of joins has a join")
    return side, tuple(filters), tuple(left)


def _sunk(side: Side, terms: list[Expr]) -> tuple[Side, list[Expr], list[Expr]]:
    """Move conditions on the rows of a side into it: the side with them, the filters of its inputs, and the rest.

    A condition moves below a join if it is about rows that the join keeps as they are; those of ON, if rows that fail
    it have no partner and are not kept for it.
    """
    if isinstance(side, str):
        return side, [t for t in terms if aliases(t) == {side}], [t for t in terms if aliases(t) != {side}]
    left, right = set(visible(side.left)), set(visible(side.right))
    if side.kind == "inner":
        terms, rest = [*terms, *side.on], list[Expr]()
        to_left, to_right = _about(terms, left), _about(terms, right)
        on = [term for term in terms if term not in to_left + to_right]
    else:
        to_left = _about(terms, left) if side.kind not in LACKS_LEFT else []
        rest = [term for term in terms if term not in to_left]
        to_left += _about(side.on, left) if side.kind == "semi" else []
        to_right = _about(side.on, right) if side.kind not in LACKS_LEFT else []
        on = [term for term in side.on if term not in to_left + to_right]
    one, found, stuck = _sunk(side.left, to_left)
    other, more, also = _sunk(side.right, to_right)
    on += [t for t in stuck + also if side.kind == "inner" or t in side.on]
    rest += [t for t in stuck if side.kind != "inner" and t in terms]
    if (
        not on and side.kind != "inner"
    ):  # it must have a condition, and one that moved down holds for all rows that are left
        on = list(side.on)
    return replace(side, left=one, right=other, on=_ordered(on)), found + more, rest


def _about(terms: Iterable[Expr], names: set[str]) -> list[Expr]:
    """Conditions on some inputs alone."""
    return [term for term in terms if aliases(term) <= names]


def _core(query: Query, tree: Join, filters: tuple[Expr, ...], where: tuple[Expr, ...]) -> Query | None:
    """The inner query whose results are the rows that miss nothing; None if there is none that probing can answer."""
    terms = (*tree.conditions, *where)
    if any(join.kind not in ("inner", "left", "full") for _, join in joins(tree)):
        return None
    if any(len(aliases(term)) < 2 for term in terms):
        return None
    core = make_query(query.inputs, (*filters, *_present(terms)), query.projection, cross=True)
    if core.cross or set(core.filters) != set(filters):
        return None
    try:
        check_times(core)
    except QueryError:
        return None
    return core


def _present(terms: Iterable[Expr]) -> list[Expr]:
    """Conditions on rows that miss no input: COALESCE is its first argument where an equality makes that not NULL."""
    found = list(terms)
    for _ in found:
        there = {
            arg for term in found if isinstance(term, Call) and term.function == "=" for arg in term.args
        }
        found = [_first(term, there) for term in found]
    return found


def _first(expr: Expr, there: set[Expr]) -> Expr:
    if not isinstance(expr, Call):
        return expr
    args = tuple(_first(arg, there) for arg in expr.args)
    if expr.function == "coalesce" and args[0] in there and args[0].type == expr.type:
        return args[0]
    return expr if args == expr.args else make_call(expr.function, args, expr.type)
