"""Turns a statement into a `Query`, with the streams of a catalog.

Guarantees: `parse_query` gives a query in normal form or a `SqlError`, whatever the text;
`parse_query(str(query), catalog, cross=query.cross)` is that query again. A cross product is accepted only where the
query says CROSS JOIN or the caller says ``cross``; an outer, semi or anti join ON TRUE is one, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from weft.errors import QueryError, SqlError
from weft.logical.catalog import Catalog
from weft.logical.expr.expression import BOOLEAN, Column, Expr, Literal, aliases, all_of
from weft.logical.expr.user_functions import UserFunction
from weft.logical.nested.flatten import Note, flatten
from weft.logical.outer.outer import Side, always, visible
from weft.logical.outer.tables import check_driven
from weft.logical.query.grouping import Grouping
from weft.logical.query.join_tree import LACKS_LEFT, LACKS_RIGHT, PRESENT, TESTS, Join, only_inner
from weft.logical.query.limits import DEFAULT_LIMITS, UNLIMITED, Limits
from weft.logical.query.query import Input, Output, Query, make_query
from weft.logical.query.sorting import Sorting
from weft.sql.expressions import bind_conditions
from weft.sql.groups.binding import bind_selected
from weft.sql.inputs import (
    BoundInput,
    InputBinder,
    check_crosses,
    check_lateral,
    check_reading,
    check_tables,
    check_terms,
    check_times,
    column_names,
    common_names,
    not_after,
)
from weft.sql.parse import parse_fragment
from weft.sql.read import TOO_DEEP, read_statement
from weft.sql.scope import Inlined, Merged, Named, Scope, Shown, using_first
from weft.sql.statement import InputRef, JoinRef, Name, Relation, SelectRef, Statement, leaves
from weft.sql.subselects.tests import Body, Tests, anchored, padded_side, padded_where

__all__ = ["bind", "input_order", "parse_predicate", "parse_query"]

_TRUE = Literal(True, BOOLEAN)
_MOST_INPUTS = 64  # of a query with its sub-selects


def parse_query(sql: str, catalog: Catalog, *, cross: bool = False, limits: Limits = DEFAULT_LIMITS) -> Query:
    """The query that a SELECT statement states.

    >>> from weft.logical.schema import Schema, Stream
    >>> schema = Schema.parse("vid long, ts timestamp")
    >>> catalog = Catalog((Stream("videos", schema), Stream("views", schema)))
    >>> print(parse_query("select v.vid from videos [range 1 hour] v join views using (vid)", catalog))
    SELECT v.vid AS vid FROM videos [RANGE 1 HOUR] AS v, views WHERE v.vid = views.vid
    """
    return bind(read_statement(sql, limits), catalog, cross=cross, limits=limits)[0]


def input_order(statement: Statement, catalog: Catalog) -> tuple[str, ...]:
    """The names of a statement's inputs in the order of FROM, which a `Query` does not keep."""
    # The size was checked when the statement was bound.
    inputs = InputBinder(catalog, _Binding(catalog, True, "", UNLIMITED).query).inputs(statement)
    for ref, (input_, _) in inputs.items():
        if input_.stream.is_derived:
            raise ref.called.error(
                "results cannot be in the order of the inputs in FROM where one is a query",
                'use order="outer" or order="event"',
            )
    return tuple(input_.alias for input_, _ in inputs.values())


def parse_predicate(
    text: str, inputs: Mapping[str, Input] | Sequence[Input], functions: tuple[UserFunction, ...] = ()
) -> Expr:
    """The predicate that a text means among some inputs, in normal form.

    >>> from weft.logical.schema import Schema, Stream
    >>> videos = Stream("videos", Schema.parse("vid long, ts timestamp"))
    >>> print(parse_predicate("v.vid > w.vid", [Input("v", videos), Input("w", videos)]))
    w.vid < v.vid
    """
    scope = Scope(tuple(inputs.values() if isinstance(inputs, Mapping) else inputs), functions=functions)
    try:
        return all_of(bind_conditions(parse_fragment(text), scope, "a predicate"))
    except RecursionError:
        raise SqlError("the predicate is nested too deeply", text=text, start=0, end=len(text)) from None


def bind(
    statement: Statement, catalog: Catalog, *, cross: bool = False, limits: Limits = DEFAULT_LIMITS
) -> tuple[Query, tuple[Note, ...]]:
    """The query that a statement means, with every name looked up, and what became of its sub-selects."""
    binding = _Binding(catalog, cross or statement.cross, statement.crossing, limits)
    try:
        query = binding.bound(statement)
    except RecursionError:
        raise statement.source.error(statement.source.whole, *TOO_DEEP) from None
    try:
        check_driven(query)
    except QueryError as error:
        raise statement.source.error(statement.source.whole, error.message, error.hint) from None
    return query, tuple(dict.fromkeys(binding.notes))


@dataclass(frozen=True, slots=True)
class _Binding:
    """Binds a statement and its sub-selects, each of them once; ``notes`` says what became of them."""

    catalog: Catalog
    cross: bool
    crossing: str
    limits: Limits
    notes: list[Note] = field(default_factory=list)
    nesting: int = 0
    _known: dict[int, Query] = field(default_factory=dict)

    def query(self, statement: Statement) -> Query:
        """The flattened query that a sub-select means."""
        known = self._known.get(id(statement))
        if known is None:
            known = self._known[id(statement)] = replace(self, nesting=self.nesting + 1).bound(statement)
        return known

    def bound(self, statement: Statement) -> Query:
        """The flattened query that a statement means."""
        taken: set[str] = set()
        inputs = InputBinder(self.catalog, self.query).inputs(statement, taken)
        try:
            read = self._read(statement, inputs, taken, None)
            outer = read.tree if isinstance(read.tree, Join) and not only_inner(read.tree) else None
            query = make_query(
                read.every, read.terms, read.outputs, outer=outer, cross=True, grouping=read.grouping
            )
            query = replace(query, sorting=read.sorting)
            if not self.cross:
                check_crosses(statement, query, inputs, read.crosses, self.crossing)
            query = self._flattened(statement, query)
        except SqlError:
            raise
        except QueryError as error:
            raise statement.source.error(statement.source.whole, error.message, error.hint) from None
        check_times(statement, query)
        check_tables(statement, query, inputs)
        return query

    def _read(
        self,
        statement: Statement,
        inputs: Mapping[InputRef, BoundInput],
        taken: set[str],
        around: Scope | None,
        *,
        once: bool = True,
        selects: bool = True,
    ) -> _Read:
        """All clauses of a SELECT with their names looked up, seen from the SELECT ``around`` it if there is one.

        Rows need not come ``once`` if only their existence is asked for. What it ``selects`` need not be named then.
        """
        tests = self._tests(taken)
        joins = _Joins(self, inputs, statement.is_tree, taken, around, tests)
        bound = joins.all(statement.relations) if statement.relations else _NOTHING
        scope = Scope(
            bound.inputs,
            bound.merged,
            tested=bound.tested,
            padded=statement.is_outer,
            functions=self.catalog.functions,
            shown=bound.shown,
            around=around,
            sub_selects=tests,
        )
        where = [term for piece in statement.where for term in bind_conditions(piece, scope, "WHERE")]
        if not statement.items:
            raise statement.source.error(
                statement.source.whole, "the query selects nothing", "SELECT * gives all"
            )
        inside = around is not None
        outputs, grouping, sorting = (
            bind_selected(statement, scope, inner=inside, plain=statement.plain or inside or self.nesting > 0)
            if selects
            else ((), None, None)
        )
        conditions = (*bound.conditions, *where)
        check_terms(statement, (*conditions, *(o.expr for o in outputs)), self.limits)
        if bound.tree is None:
            if tests.marks:
                raise statement.source.error(
                    statement.source.whole,
                    "a sub-select of a sub-select that reads nothing",
                    "name it in FROM",
                )
            return _Read(None, (), tuple(where), outputs, (), grouping)
        tree, terms = tests.joined(bound.tree, (*bound.pool, *where), once=once)
        anchor = always(tree)[:1] or visible(tree)[:1]
        settled = tuple(anchored(term, anchor[0]) for term in terms)
        return _Read(tree, (*bound.every, *tests.inputs), settled, outputs, bound.crosses, grouping, sorting)

    def _tests(self, taken: set[str]) -> Tests:
        """What takes the sub-selects of conditions; their inputs get aliases that are not taken."""

        def body(statement: Statement, scope: Scope) -> Body:
            return self.body(statement, scope, taken, once=False)

        return Tests(body)

    def body(self, statement: Statement, around: Scope, taken: set[str], *, once: bool) -> Body:
        """A sub-select that sees the SELECT around it; of one that need not give its rows ``once``, duplicates may."""
        inputs = InputBinder(self.catalog, self.query).inputs(statement, taken)
        try:
            read = self._read(statement, inputs, taken, around, once=once)
        except SqlError:
            raise
        except QueryError as error:
            raise statement.source.error(statement.source.whole, error.message, error.hint) from None
        given = tuple((output.name, output.expr) for output in read.outputs)
        return Body(read.tree, read.every, read.terms, given)

    def _flattened(self, statement: Statement, query: Query) -> Query:
        if not any(input_.stream.is_derived for input_ in query.inputs):
            return query
        flat, notes = flatten(query)
        self.notes.extend(notes)
        if len(flat.inputs) > _MOST_INPUTS:
            raise QueryError(
                f"with its sub-selects, the query joins {len(flat.inputs)} streams",
                hint=f"use sub-selects less often; {_MOST_INPUTS} streams can be joined",
            )
        check_terms(statement, flat.expressions(), self.limits)
        return flat


@dataclass(frozen=True, slots=True)
class _Bound:
    """A relation with its names looked up.

    ``inputs`` are those whose columns the joins above may name; ``tested`` are those to the right of semi and anti
    joins, whose columns they may not name. ``pool`` has the conditions of ON where the place of a join does not matter.
    ``crosses`` has the pairs of inputs that a CROSS JOIN brings together, ``shown`` the columns that the relation gives
    to ``*``, in SQL's order.
    """

    tree: Side | None
    inputs: tuple[Named, ...]
    every: tuple[Input, ...] = ()
    merged: tuple[Merged, ...] = ()
    pool: tuple[Expr, ...] = ()
    crosses: tuple[frozenset[str], ...] = ()
    tested: tuple[Named, ...] = ()
    shown: tuple[Shown, ...] = ()

    @property
    def conditions(self) -> tuple[Expr, ...]:
        """All conditions of ON and USING."""
        return (*self.pool, *(self.tree.conditions if isinstance(self.tree, Join) else ()))


_NOTHING = _Bound(None, ())


class _Read(NamedTuple):
    """A SELECT with its names looked up; ``tree`` is None if it reads nothing."""

    tree: Side | None
    every: tuple[Input, ...]
    terms: tuple[Expr, ...]
    outputs: tuple[Output, ...]
    crosses: tuple[frozenset[str], ...]
    grouping: Grouping | None = None
    sorting: Sorting | None = None


@dataclass(frozen=True, slots=True)
class _Joins:
    """Looks up the names in FROM and builds its joins."""

    binding: _Binding
    inputs: Mapping[InputRef, BoundInput]
    is_tree: bool
    taken: set[str]
    around: Scope | None
    tests: Tests

    def all(self, relations: Sequence[Relation]) -> _Bound:
        """All relations of FROM, which commas separate, joined into one."""
        first = self.relation(relations[0], None)
        for relation in relations[1:]:
            right = self.relation(relation, first)
            first = self._paired(first, right, "inner", right.pool if self.is_tree else ())
        return first

    def relation(self, relation: Relation, left: _Bound | None) -> _Bound:
        """One stream, one sub-select or one join; a lateral sub-select sees what is to its ``left``."""
        if isinstance(relation, JoinRef):
            return self.join(relation)
        if isinstance(relation, SelectRef) and relation.lateral:
            return self._lateral(relation, left or _NOTHING)
        input_, named = self.inputs[relation]
        return _Bound(input_.alias, (named,), (input_,), shown=named.shown)

    def _lateral(self, ref: SelectRef, left: _Bound) -> _Bound:
        """A lateral sub-select, its conditions in the pool: they decide with which rows to its left its rows go."""
        if len(ref.branches) != 1:
            raise ref.place.error(
                "UNION ALL in a LATERAL sub-select", "write a LATERAL sub-select for each branch"
            )
        body = self.binding.body(ref.branches[0], self._scope(left), self.taken, once=True)
        names = column_names(ref, body.given) or tuple(name for name, _ in body.given)
        given = {name: expr for name, (_, expr) in zip(names, body.given, strict=True)}
        there = always(body.tree)[:1] if body.tree is not None else ()
        present = Column(there[0], PRESENT, BOOLEAN) if there else None
        named = Inlined(ref.called.text, given, names, present)
        return _Bound(body.tree, (named,), body.inputs, pool=body.terms, shown=named.shown)

    def join(self, join: JoinRef) -> _Bound:
        """A join; its condition stays with it if the place of the join matters, and else goes into the pool."""
        left = self.relation(join.left, None)
        right = self.relation(join.right, left)
        lateral = isinstance(join.right, SelectRef) and join.right.lateral
        if join.kind in LACKS_LEFT:
            left = _padded(left)
        if join.kind in LACKS_RIGHT and not lateral:
            right = _padded(right)
        both = _united(left, right)
        using = join.using or (common_names(join, left.shown, right.shown) if join.natural else ())
        merged, on = self._using(join, using, left, right)
        shown = using_first(merged[len(merged) - len(using) :], both.shown)
        tests = self.binding._tests(self.taken) if self.is_tree else self.tests
        for piece, clause in ((join.on, "ON"), (join.match, "MATCH_CONDITION")):
            if piece is not None:
                scope = replace(self._scope(both), sub_selects=tests)
                on += tuple(bind_conditions(piece, scope, clause))
        if join.as_of is not None:
            versions = right.every[0]
            on += (not_after(versions, join.as_of, self._scope(left)),)
        if lateral:
            check_lateral(join)
        check_reading(join, left.tree is not None, lateral or right.tree is not None)
        ends = [side.every[place].alias for side, place in ((left, -1), (right, 0)) if side.every]
        if any(
            not aliases(term) and term != _TRUE for term in on
        ):  # if it is never true, there are no pairs at all
            both = replace(both, crosses=(*both.crosses, frozenset(ends)))
            left = replace(left, crosses=both.crosses)
        if join.kind == "cross":
            crosses = (*both.crosses, frozenset(ends))
            return replace(
                self._paired(left, right, "inner", right.pool if self.is_tree else ()), crosses=crosses
            )
        if join.kind not in ("inner", "cross") and join.on is None and not on and not join.natural:
            (ref, *_) = leaves(join.right)
            raise ref.called.error(f"{join.kind.upper()} JOIN needs a condition", "add ON or USING")
        if not self.is_tree:
            return replace(both, merged=merged, pool=(*both.pool, *on), shown=shown)
        if lateral:
            if join.kind == "left" and isinstance(right.inputs[0], Inlined):
                padded = padded_where(right.inputs[0], right.tree, right.every, (*right.pool, *on))
                right = replace(right, inputs=(padded,), shown=padded.shown)
            right = replace(right, pool=())
            on = (*on, *both.pool)
            shown = using_first(merged[len(merged) - len(using) :], (*left.shown, *right.shown))
        sides = (
            tests.beside(left.tree, right.tree) if left.tree is not None and right.tree is not None else None
        )
        if sides is not None:
            left, right = replace(left, tree=sides[0]), replace(right, tree=sides[1])
        paired = self._paired(left, right, join.kind, on, tests.inputs)
        if join.kind not in TESTS:
            return replace(paired, merged=merged, shown=shown)
        unseen = (*both.tested, *right.inputs)
        return replace(paired, inputs=left.inputs, merged=left.merged, shown=left.shown, tested=unseen)

    def _paired(
        self, left: _Bound, right: _Bound, kind: str, on: Sequence[Expr], tested: tuple[Input, ...] = ()
    ) -> _Bound:
        """Two relations joined; ``on`` stays with the join if places matter. One that reads nothing adds no join."""
        both = replace(_united(left, right), every=(*left.every, *right.every, *tested))
        if left.tree is None or right.tree is None:
            if on and kind == "inner" and self.is_tree:
                raise QueryError(
                    "a LATERAL sub-select that reads nothing has a condition, beside an outer join",
                    hint="write the condition in WHERE of the whole query",
                )
            return replace(both, tree=right.tree if left.tree is None else left.tree)
        if not self.is_tree:
            return both
        anchor = always(right.tree)[:1] or visible(right.tree)[:1]
        settled = tuple(anchored(term, anchor[0]) for term in on if term != _TRUE)
        return replace(both, tree=Join(kind, left.tree, right.tree, settled), pool=())

    def _scope(self, both: _Bound) -> Scope:
        every = (named for _, named in self.inputs.values())
        elsewhere = tuple(named for named in every if named not in both.inputs)
        functions = self.binding.catalog.functions
        seen = Scope(
            both.inputs, both.merged, functions=functions, around=self.around, sub_selects=self.tests
        )
        if self.is_tree:
            return replace(seen, hidden=elsewhere, tested=both.tested)
        return replace(seen, beyond=elsewhere)

    def _using(
        self, join: JoinRef, using: Sequence[Name], left: _Bound, right: _Bound
    ) -> tuple[tuple[Merged, ...], tuple[Expr, ...]]:
        merged: tuple[Merged, ...] = (*left.merged, *right.merged)
        equalities: tuple[Expr, ...] = ()
        for place, name in enumerate(using):
            operator = ">=" if join.ordered and place == len(using) - 1 else "="
            if any(name.text.lower() == other.text.lower() for other in using[:place]):
                raise name.error(f"USING names {name.text} twice", "leave it out once")
            try:
                one, equality = Scope(left.inputs, merged).merge_using(
                    Scope(right.inputs, merged), name.text, join.kind, operator
                )
            except QueryError as error:
                raise name.error(error.message, error.hint) from None
            merged = (
                *(old for old in merged if not (old.name == one.name and old.aliases & one.aliases)),
                one,
            )
            equalities += (equality,)
        return merged, equalities


def _padded(side: _Bound) -> _Bound:
    """A side of an outer join that a row may lack."""
    if side.tree is None:  # which `check_reading` refuses
        return side
    inputs, shown = padded_side(side.inputs, side.shown, side.tree)
    return replace(side, inputs=inputs, shown=shown)


def _united(left: _Bound, right: _Bound) -> _Bound:
    sides = [side.tree for side in (left, right) if side.tree is not None]
    return _Bound(
        Join("inner", sides[0], sides[1], ()) if len(sides) > 1 else next(iter(sides), None),
        (*left.inputs, *right.inputs),
        (*left.every, *right.every),
        (*left.merged, *right.merged),
        (*left.pool, *right.pool),
        (*left.crosses, *right.crosses),
        (*left.tested, *right.tested),
        (*left.shown, *right.shown),
    )
