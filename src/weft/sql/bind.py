"""Turns a statement into a `Query`, with the streams of a catalog.

Guarantees: `parse_query` gives a query in normal form or a `SqlError`, whatever the text;
`parse_query(str(query), catalog, cross=query.cross)` is that query again. A cross product is accepted only where the
query says CROSS JOIN or the caller says ``cross``; an outer, semi or anti join ON TRUE is one, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from weft.errors import QueryError, SqlError
from weft.logical.catalog import Catalog
from weft.logical.expr.expression import Expr, all_of, count_terms
from weft.logical.expr.user_functions import UserFunction
from weft.logical.nested.flatten import Note, flatten
from weft.logical.outer.tables import check_driven
from weft.logical.query.horizon import check_times
from weft.logical.query.join_tree import TESTS, Join
from weft.logical.query.limits import DEFAULT_LIMITS, UNLIMITED, Limits
from weft.logical.query.query import Input, Query, connected, make_query
from weft.sql.expressions import bind_conditions
from weft.sql.inputs import InputBinder, check_tables, not_after, refs
from weft.sql.outputs import bind_outputs
from weft.sql.parse import parse_fragment
from weft.sql.read import TOO_DEEP, read_statement
from weft.sql.scope import Merged, Scope, Shown, using_first
from weft.sql.statement import CROSS_JOIN, InputRef, JoinRef, Relation, Statement, leaves

__all__ = ["bind", "input_order", "parse_predicate", "parse_query"]

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
    for ref, input_ in inputs.items():
        if input_.stream.is_derived:
            raise ref.called.error(
                "results cannot be in the order of the inputs in FROM where one is a query",
                'use order="outer" or order="event"',
            )
    return tuple(input_.alias for input_ in inputs.values())


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
        query = binding.query(statement)
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
    _known: dict[int, Query] = field(default_factory=dict)

    def query(self, statement: Statement) -> Query:
        """The flattened query that a statement means."""
        known = self._known.get(id(statement))
        if known is None:
            known = self._known[id(statement)] = self._bound(statement)
        return known

    def _bound(self, statement: Statement) -> Query:
        inputs = InputBinder(self.catalog, self.query).inputs(statement)
        functions = self.catalog.functions
        joins = _Joins(tuple(inputs.values()), inputs, statement.is_tree, functions)
        bound = joins.all(statement.relations)
        scope = Scope(
            bound.inputs,
            bound.merged,
            tested=bound.tested,
            padded=statement.is_outer,
            functions=functions,
            shown=bound.shown,
        )
        where = [term for piece in statement.where for term in bind_conditions(piece, scope, "WHERE")]
        if not statement.items:
            raise statement.source.error(
                statement.source.whole, "the query selects nothing", "SELECT * gives all"
            )
        outputs = bind_outputs(statement.items, scope)
        _check_terms(statement, (*bound.conditions, *where, *(o.expr for o in outputs)), self.limits)
        outer = bound.tree if statement.is_tree and isinstance(bound.tree, Join) else None
        try:
            query = make_query(inputs.values(), (*bound.pool, *where), outputs, outer=outer, cross=True)
            if not self.cross:
                _check_crosses(statement, query, inputs, bound.crosses, self.crossing)
            query = self._flattened(statement, query)
        except SqlError:
            raise
        except QueryError as error:
            raise statement.source.error(statement.source.whole, error.message, error.hint) from None
        _check_times(statement, query)
        check_tables(statement, query, inputs)
        return query

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
        _check_terms(statement, flat.expressions(), self.limits)
        return flat


def _check_terms(statement: Statement, exprs: Iterable[Expr], limits: Limits) -> None:
    count = count_terms(exprs)
    try:
        limits.check("terms", count, f"the expressions of the query have {count:,} terms")
    except QueryError as error:
        raise statement.source.error(statement.source.whole, error.message, error.hint) from None


def _check_times(statement: Statement, query: Query) -> None:
    try:
        check_times(query)
    except QueryError as error:
        if statement.where:
            raise statement.where[0].error(error.message, error.hint) from None
        raise statement.source.error(statement.source.whole, error.message, error.hint) from None


@dataclass(frozen=True, slots=True)
class _Bound:
    """A relation with its names looked up.

    ``inputs`` are those whose columns the joins above may name; ``tested`` are those to the right of semi and anti
    joins, whose columns they may not name. ``pool`` has the conditions of ON where the place of a join does not matter.
    ``crosses`` has the pairs of inputs that a CROSS JOIN brings together, ``shown`` the columns that the relation gives
    to ``*``, in SQL's order.
    """

    tree: Join | str
    inputs: tuple[Input, ...]
    merged: tuple[Merged, ...] = ()
    pool: tuple[Expr, ...] = ()
    crosses: tuple[frozenset[str], ...] = ()
    tested: tuple[Input, ...] = ()
    shown: tuple[Shown, ...] = ()

    @property
    def conditions(self) -> tuple[Expr, ...]:
        """All conditions of ON and USING."""
        return (*self.pool, *(self.tree.conditions if isinstance(self.tree, Join) else ()))


@dataclass(frozen=True, slots=True)
class _Joins:
    """Looks up the names in FROM and builds its joins."""

    every: tuple[Input, ...]
    inputs: dict[InputRef, Input]
    is_tree: bool
    functions: tuple[UserFunction, ...]

    def all(self, relations: Sequence[Relation]) -> _Bound:
        """All relations of FROM, which commas separate, joined into one."""
        first, *rest = (self.relation(relation) for relation in relations)
        for right in rest:
            first = _united(first, right)
        return first

    def relation(self, relation: Relation) -> _Bound:
        """One stream or one join."""
        if isinstance(relation, JoinRef):
            return self.join(relation)
        input_ = self.inputs[relation]
        return _Bound(input_.alias, (input_,), shown=input_.shown)

    def join(self, join: JoinRef) -> _Bound:
        """A join; its condition stays with it if the place of the join matters, and else goes into the pool."""
        left, right = self.relation(join.left), self.relation(join.right)
        both = _united(left, right)
        merged, on = self._using(join, left, right)
        shown = using_first(merged[len(merged) - len(join.using) :], both.shown)
        if join.on is not None:
            on += tuple(bind_conditions(join.on, self._scope(both), "ON", self._without()))
        if join.as_of is not None:
            on += (not_after(right.inputs[0], join.as_of, self._scope(left)),)
        if join.kind == "cross":
            pair = frozenset({left.inputs[-1].alias, right.inputs[0].alias})
            return replace(both, crosses=(*both.crosses, pair))
        if not self.is_tree:
            return replace(both, merged=merged, pool=(*both.pool, *on), shown=shown)
        if join.kind != "inner" and join.on is None and not on:
            (ref, *_) = leaves(join.right)
            raise ref.called.error(f"{join.kind.upper()} JOIN needs a condition", "add ON or USING")
        tree = Join(join.kind, left.tree, right.tree, on)
        if join.kind not in TESTS:
            return replace(both, merged=merged, tree=tree, shown=shown)
        unseen = (*both.tested, *right.inputs)
        seen = replace(both, inputs=left.inputs, merged=left.merged, shown=left.shown)
        return replace(seen, tree=tree, tested=unseen)

    def _without(self) -> str:
        """What an error says follows from a condition of ON that is never true."""
        return "nothing is joined" if self.is_tree else "the query gives no results"

    def _scope(self, both: _Bound) -> Scope:
        elsewhere = tuple(input_ for input_ in self.every if input_ not in both.inputs)
        if self.is_tree:
            return Scope(
                both.inputs,
                both.merged,
                hidden=elsewhere,
                tested=both.tested,
                functions=self.functions,
            )
        return Scope(both.inputs, both.merged, beyond=elsewhere, functions=self.functions)

    def _using(
        self, join: JoinRef, left: _Bound, right: _Bound
    ) -> tuple[tuple[Merged, ...], tuple[Expr, ...]]:
        merged: tuple[Merged, ...] = (*left.merged, *right.merged)
        equalities: tuple[Expr, ...] = ()
        for place, name in enumerate(join.using):
            if any(name.text.lower() == other.text.lower() for other in join.using[:place]):
                raise name.error(f"USING names {name.text} twice", "leave it out once")
            try:
                one, equality = Scope(left.inputs, merged).merge_using(
                    Scope(right.inputs, merged), name.text, join.kind
                )
            except QueryError as error:
                raise name.error(error.message, error.hint) from None
            merged = (
                *(old for old in merged if not (old.name == one.name and old.aliases & one.aliases)),
                one,
            )
            equalities += (equality,)
        return merged, equalities


def _united(left: _Bound, right: _Bound) -> _Bound:
    return _Bound(
        Join("inner", left.tree, right.tree, ()),
        (*left.inputs, *right.inputs),
        (*left.merged, *right.merged),
        (*left.pool, *right.pool),
        (*left.crosses, *right.crosses),
        (*left.tested, *right.tested),
        (*left.shown, *right.shown),
    )


def _check_crosses(
    statement: Statement,
    query: Query,
    inputs: Mapping[InputRef, Input],
    crosses: Sequence[frozenset[str]],
    crossing: str,
) -> None:
    """Refuse a cross product that nobody asked for, at the first stream it concerns."""
    if statement.is_tree and crossing == CROSS_JOIN:  # CROSS JOIN would not keep rows without a partner
        crossing = "give cross=True"
    aliases = {ref: input_.alias for ref, input_ in inputs.items()}
    first = next(iter(aliases.values()))
    reached = connected(first, (*query.edges, *crosses))
    for ref in refs(statement):
        if aliases[ref] not in reached:
            raise ref.called.error(
                f"cross product: nothing joins {aliases[ref]} with {', '.join(sorted(reached))}",
                f"add a predicate between them, or {crossing} if every pair is wanted",
            )
