"""Sub-selects in conditions as joins that test for a partner.

Guarantees: EXISTS and comparisons with the rows of a sub-select mean what SQL says, NULLs included. Each becomes a mark
join with what the sub-select reads, on what its WHERE says; where a condition of WHERE asks for nothing else, a semi or
an anti join. NOT IN asks three times: that no value is equal, that none is NULL, and that, unless there are no rows at
all, the value itself is not NULL; so the first can be answered by a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from weft.errors import QueryError
from weft.logical.expr.conversion import literal
from weft.logical.expr.expression import BOOLEAN, Column, Expr, Literal, aliases, all_of
from weft.logical.expr.functions import call
from weft.logical.expr.nulls import is_null_without
from weft.logical.outer.outer import Side, always, visible
from weft.logical.query.join_tree import MARK, PRESENT, Join
from weft.logical.query.query import Input
from weft.sql.scope import Given, Inlined, Named, Scope, Shown
from weft.sql.statement import Statement

__all__ = ["Body", "Tests", "anchored", "padded_side", "padded_where"]

_TRUE, _FALSE = Literal(True, BOOLEAN), Literal(False, BOOLEAN)


@dataclass(frozen=True, slots=True)
class Body:
    """A SELECT with its names looked up: what it reads, the conditions on its rows, and what it gives.

    ``tree`` is None if it reads nothing.
    """

    tree: Side | None
    inputs: tuple[Input, ...]
    terms: tuple[Expr, ...]
    given: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class _Mark:
    """A mark join that is to be made: its right side, its condition, and the input whose presence tells its outcome."""

    body: Body
    right: Side
    on: tuple[Expr, ...]
    alias: str

    @property
    def outcome(self) -> Expr:
        return _is_there(self.alias)


@dataclass(frozen=True, slots=True)
class Tests:
    """Takes the sub-selects of conditions; ``bind`` gives the body of one, seen from a scope."""

    bind: Callable[[Statement, Scope], Body]
    marks: list[_Mark] = field(default_factory=list)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """All that the sub-selects read."""
        return tuple(input_ for mark in self.marks for input_ in mark.body.inputs)

    def exists(self, branches: tuple[Statement, ...], scope: Scope) -> Expr:
        """Whether a sub-select gives a row."""
        return _any(self._some(body, ()) for body in self._bodies(branches, scope))

    def value(self, branches: tuple[Statement, ...], scope: Scope) -> Expr | None:
        """The value of a sub-select of one column that reads nothing; None if it is another."""
        if len(branches) != 1 or branches[0].relations:
            return None
        (body,) = self._bodies(branches, scope)
        if body.tree is not None or len(body.given) != 1:
            return None
        (given,) = body.given
        return call("case", all_of(body.terms), given[1], literal(None)) if body.terms else given[1]

    def holds_for_some(
        self, operator: str, values: Sequence[Expr], branches: tuple[Statement, ...], scope: Scope
    ) -> Expr:
        """Whether a comparison is TRUE for some row of a sub-select."""
        return _any(
            self._some(body, _comparisons(operator, values, body)) for body in self._bodies(branches, scope)
        )

    def fails_for_all(
        self, operator: str, values: Sequence[Expr], branches: tuple[Statement, ...], scope: Scope
    ) -> Expr:
        """Whether a comparison is FALSE for every row of a sub-select."""
        return call("not", _any(self._not_false(operator, values, branches, scope)))

    def compared(
        self, operator: str, values: Sequence[Expr], branches: tuple[Statement, ...], scope: Scope
    ) -> Expr:
        """Whether a comparison holds with some row of a sub-select: TRUE, FALSE or NULL, as SQL says."""
        some = self.holds_for_some(operator, values, branches, scope)
        unknown = _any(self._unknown(operator, values, branches, scope))
        return call("case", some, _TRUE, unknown, literal(None), _FALSE)

    def _bodies(self, branches: tuple[Statement, ...], scope: Scope) -> Iterable[Body]:
        return (self.bind(branch, scope) for branch in branches)

    def _not_false(
        self, operator: str, values: Sequence[Expr], branches: tuple[Statement, ...], scope: Scope
    ) -> Iterable[Expr]:
        for body in self._bodies(branches, scope):
            yield self._some(body, _comparisons(operator, values, body))
        yield from self._unknown(operator, values, branches, scope)

    def _unknown(
        self, operator: str, values: Sequence[Expr], branches: tuple[Statement, ...], scope: Scope
    ) -> Iterable[Expr]:
        """Whether a comparison is NULL for some row; it may also say so where it is TRUE for another."""
        if len(values) > 1:
            for body in self._bodies(branches, scope):
                terms = _comparisons(operator, values, body)
                yield self._some(body, [call("coalesce", term, _TRUE) for term in terms])
            return
        for body in self._bodies(branches, scope):
            yield self._some(body, [_is_null(body.given[0][1])])
        for body in self._bodies(branches, scope):
            yield self._some(body, [_is_null(values[0])])

    def _some(self, body: Body, more: Iterable[Expr]) -> Expr:
        """Whether some row of a sub-select fulfils more conditions than its own."""
        terms = (*body.terms, *more)
        if body.tree is None:
            return call("coalesce", all_of(terms), _FALSE)
        alias = next(iter(always(body.tree)), None)
        if alias is None:
            raise QueryError(
                "a FULL JOIN in this sub-select cannot tell whether there is a row",
                hint="ask for either side on its own: EXISTS (…) OR EXISTS (…)",
            )
        if _FALSE in terms:
            return _FALSE
        mark = _Mark(body, body.tree, tuple(anchored(term, alias) for term in terms if term != _TRUE), alias)
        self.marks.append(mark)
        return mark.outcome

    def joined(self, tree: Side, terms: Sequence[Expr], *, once: bool = True) -> tuple[Side, list[Expr]]:
        """A tree with all tests, and the conditions that are left when semi and anti joins fulfil others.

        Unless every row must come ``once``, a test that asks for a row the SELECT around decides becomes an inner join.
        """
        rest = list(terms)
        for mark in self.marks:
            there, missing = mark.outcome, call("not", mark.outcome)
            seen = {*_seen(tree), *_seen(mark.right)}
            beyond = [term for term in mark.on if not aliases(term) <= seen]
            if beyond and (once or there not in rest):
                raise QueryError(
                    f"a sub-select inside another one names {min(aliases(beyond[0]) - seen)} of the SELECT around both",
                    hint="name it in the outer sub-select, and join the inner one with that",
                )
            if there in rest:
                rest = [*(term for term in rest if term != there), *beyond]
                kind = "inner" if beyond else "semi"
                tree = Join(kind, tree, mark.right, tuple(term for term in mark.on if term not in beyond))
            elif missing in rest:
                rest = [term for term in rest if term != missing]
                tree = Join("anti", tree, mark.right, mark.on)
            else:
                tree = Join(MARK, tree, mark.right, mark.on)
        return tree, rest

    def beside(self, left: Side, right: Side) -> tuple[Side, Side]:
        """The sides of a join, with the tests of its ON: each beside the side whose columns it names."""
        sides = [left, right]
        for mark in self.marks:
            named = set[str]().union(*map(aliases, mark.on)) - _seen(mark.right)
            place = next((p for p in (1, 0) if named <= _seen(sides[p])), None)
            if place is None:
                raise QueryError(
                    "a sub-select in ON of an outer join names columns of both sides",
                    hint="let it name those of one side, or ask in WHERE",
                )
            sides[place] = Join(MARK, sides[place], mark.right, mark.on)
        return sides[0], sides[1]


def anchored(term: Expr, alias: str) -> Expr:
    """A condition that mentions an input: one that is about none is put to the tuples of one that is there."""
    if aliases(term):
        return term
    present = Column(alias, PRESENT, BOOLEAN)
    if isinstance(term, Literal):
        return call("not", present)
    return call("case", present, term, _FALSE)


def _seen(side: Side) -> set[str]:
    """The inputs of which a side has columns, be it only whether they are there."""
    return {*visible(side), *(side.marked if isinstance(side, Join) else ())}


def _comparisons(operator: str, values: Sequence[Expr], body: Body) -> list[Expr]:
    if len(values) != len(body.given):
        raise QueryError(
            f"{len(values)} {'value is' if len(values) == 1 else 'values are'} compared with the "
            f"{len(body.given)} columns of a sub-select",
            hint="let the sub-select give as many columns as are compared",
        )
    return [call(operator, one, other) for one, (_, other) in zip(values, body.given, strict=True)]


def _is_there(alias: str) -> Expr:
    return call("not", _is_null(Column(alias, PRESENT, BOOLEAN)))


def _is_null(expr: Expr) -> Expr:
    return call("is null", expr)


def _any(outcomes: Iterable[Expr]) -> Expr:
    return call("or", *outcomes)


def padded_where(
    named: Inlined, tree: Side | None, inputs: Sequence[Input], conditions: Sequence[Expr]
) -> Inlined:
    """A lateral sub-select after LEFT JOIN: its columns are NULL where it has no row that fulfils the conditions."""
    there = named.present if tree is not None else all_of(conditions)
    if there is None:
        raise QueryError(
            "a FULL JOIN in a LATERAL sub-select after LEFT JOIN cannot tell whether there is a row",
            hint="write JOIN LATERAL, or join one side of it alone",
        )
    missing = frozenset(input_.alias for input_ in inputs)
    columns = {
        name: expr
        if tree is not None and is_null_without(expr, missing)
        else call("case", there, expr, literal(None))
        for name, expr in named.columns.items()
    }
    return replace(named, columns=columns)


def padded_side(
    names: Sequence[Named], shown: Sequence[Shown], tree: Side
) -> tuple[tuple[Named, ...], tuple[Shown, ...]]:
    """The names and columns of a side of an outer join, NULL where the join finds no row of that side.

    A constant of a sub-select would not be, nor ``coalesce(x, 0)``. Wherever there is a row of the side, one of the
    inputs that are visible in it is there.
    """
    missing = frozenset(visible(tree))
    signs = [Column(alias, PRESENT, BOOLEAN) for alias in always(tree)[:1] or visible(tree)]
    there: Expr = signs[0] if len(signs) == 1 else call("or", *signs)

    def padded(expr: Expr) -> Expr:
        return expr if is_null_without(expr, missing) else call("case", there, expr, literal(None))

    return (
        tuple(
            replace(named, columns={name: padded(expr) for name, expr in named.columns.items()})
            if isinstance(named, Inlined)
            else named
            for named in names
        ),
        tuple(replace(one, expr=padded(one.expr)) if isinstance(one, Given) else one for one in shown),
    )
