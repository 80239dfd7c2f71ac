"""A query: what to join, and nothing about how.

Guarantees: a `Query` is in normal form, so that two spellings of one query are equal values. Inputs are
sorted by alias, predicates by their text; equalities are gathered into transitive classes (`Key`); every
predicate stands in the list that fits the number of inputs it mentions. `weft.logical.signature` goes
further: it is equal whatever the aliases.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from weft.errors import QueryError
from weft.logical.expr import (
    BOOLEAN,
    Call,
    Column,
    Expr,
    Literal,
    aliases,
    all_of,
    columns,
    conjuncts,
    identifier,
    make_call,
    rename,
    to_sql,
)
from weft.logical.schema import Stream
from weft.logical.window import UNBOUNDED, Window

__all__ = ["Input", "Join", "Key", "Output", "Query", "make_query"]


@dataclass(frozen=True, slots=True)
class Input:
    """A stream under the name a query gives it, with the window it is seen through."""

    alias: str
    stream: Stream
    window: Window = UNBOUNDED

    @property
    def event_time(self) -> Column | None:
        """The column that tells a tuple's time, if one does."""
        name = self.stream.event_time
        return self.column(name) if name else None

    def column(self, name: str) -> Column:
        """A column of this input; it must exist."""
        field = self.stream.schema.find(name)
        if field is None:
            raise QueryError(f"{self.alias} has no column {name!r}")
        return Column(self.alias, field.name, field.type)

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns of this input."""
        return tuple(Column(self.alias, field.name, field.type) for field in self.stream.schema)

    def __str__(self) -> str:
        window = "" if self.window == UNBOUNDED else f" [{self.window}]"
        name = "" if self.alias == self.stream.name else f" AS {identifier(self.alias)}"
        return f"{identifier(self.stream.name)}{window}{name}"


@dataclass(frozen=True, slots=True)
class Key:
    """Expressions that are equal in every result: one per input, of one type, sorted by alias."""

    members: tuple[Expr, ...]

    def __post_init__(self) -> None:
        names = [next(iter(aliases(member)), "") for member in self.members]
        if len(names) < 2 or names != sorted(set(names)):
            raise QueryError(f"not a join key: {', '.join(map(str, self.members))}")

    @property
    def aliases(self) -> tuple[str, ...]:
        """The inputs that share the key, sorted."""
        return tuple(next(iter(aliases(member))) for member in self.members)

    def member(self, alias: str) -> Expr | None:
        """The expression of that input, if it has the key."""
        return next((member for member in self.members if aliases(member) == {alias}), None)

    def restrict(self, kept: frozenset[str]) -> Key | None:
        """The key among fewer inputs, if two at least still share it."""
        members = tuple(member for member in self.members if aliases(member) <= kept)
        return Key(members) if len(members) > 1 else None

    def equalities(self) -> Iterator[Expr]:
        """The equalities between neighbours; they imply all the others."""
        for left, right in zip(self.members, self.members[1:], strict=False):
            yield make_call("=", (left, right), BOOLEAN)

    def __str__(self) -> str:
        return " = ".join(map(str, self.members))


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the result."""

    name: str
    expr: Expr

    def __str__(self) -> str:
        return f"{self.expr} AS {identifier(self.name)}"


@dataclass(frozen=True, slots=True)
class Join:
    """A written join, kept as written because an outer join's place matters; a leaf is an alias."""

    kind: str
    left: Join | str
    right: Join | str
    on: tuple[Expr, ...]

    KINDS = ("inner", "left", "right", "full")

    def __post_init__(self) -> None:
        if self.kind not in self.KINDS:
            raise QueryError(f"unknown join {self.kind!r}")

    @property
    def aliases(self) -> tuple[str, ...]:
        """The inputs below, as written."""
        sides = (self.left, self.right)
        return tuple(name for side in sides for name in (side.aliases if isinstance(side, Join) else (side,)))


@dataclass(frozen=True, slots=True)
class Query:
    """An n-ary join. Built by `make_query`, which normalises; built directly, it must be in normal form."""

    inputs: tuple[Input, ...]
    keys: tuple[Key, ...]
    filters: tuple[Expr, ...]
    predicates: tuple[Expr, ...]
    residuals: tuple[Expr, ...]
    projection: tuple[Output, ...]
    outer: Join | None = None
    cross: bool = False

    def __post_init__(self) -> None:
        self._check_inputs()
        self._check_predicates()
        self._check_projection()

    def _check_inputs(self) -> None:
        if not self.inputs:
            raise QueryError("a query needs at least one stream", hint="name it after FROM")
        names = [input_.alias for input_ in self.inputs]
        if names != sorted(set(names)):
            raise QueryError(f"inputs must be distinct and sorted: {', '.join(names)}")
        if self.outer is not None and sorted(self.outer.aliases) != names:
            raise QueryError("the outer joins do not cover the inputs")
        known = set(names)
        for expr in self._expressions():
            missing = aliases(expr) - known
            if missing:
                raise QueryError(f"{expr} mentions {min(missing)}, which is no input of the query")

    def _expressions(self) -> Iterator[Expr]:
        for key in self.keys:
            yield from key.members
        yield from self.conditions
        for output in self.projection:
            yield output.expr

    def _check_predicates(self) -> None:
        for expr, count in [(f, 1) for f in self.filters] + [(p, 2) for p in self.predicates]:
            if len(aliases(expr)) != count:
                raise QueryError(f"{expr} does not mention {count} input(s)")
        for expr in self.residuals:
            if len(aliases(expr)) < 3:
                raise QueryError(f"{expr} mentions fewer than three inputs")
        if not self.cross and self.outer is None:
            self._check_connected()

    def _check_connected(self) -> None:
        reached = self.component(self.inputs[0].alias)
        apart = [input_.alias for input_ in self.inputs if input_.alias not in reached]
        if apart:
            raise QueryError(
                f"cross product: nothing joins {', '.join(apart)} with {', '.join(sorted(reached))}",
                hint="add a predicate between them, or say CROSS JOIN if every pair is wanted",
            )

    def _check_projection(self) -> None:
        names = [output.name.lower() for output in self.projection]
        if not names:
            raise QueryError("a query needs at least one column", hint="SELECT * gives all")
        for name in names:
            if names.count(name) > 1:
                raise QueryError(f"two columns of the result are called {name!r}", hint="name one with AS")

    @property
    def aliases(self) -> tuple[str, ...]:
        """The inputs' names, sorted."""
        return tuple(input_.alias for input_ in self.inputs)

    @property
    def conditions(self) -> tuple[Expr, ...]:
        """All that is not an equality between inputs: filters, predicates, residuals."""
        return (*self.filters, *self.predicates, *self.residuals)

    def input(self, alias: str) -> Input:
        """The input of that name."""
        for input_ in self.inputs:
            if input_.alias == alias:
                return input_
        raise QueryError(f"the query has no input {alias!r}")

    def component(self, start: str) -> frozenset[str]:
        """The inputs that predicates connect with one, itself included."""
        edges = [frozenset(key.aliases) for key in self.keys]
        edges += [aliases(predicate) for predicate in (*self.predicates, *self.residuals)]
        reached = {start}
        while True:
            grown = reached.union(*(edge for edge in edges if edge & reached))
            if grown == reached:
                return frozenset(reached)
            reached = grown

    def columns_of(self, alias: str) -> tuple[Column, ...]:
        """The columns of an input that the query reads, its event time aside."""
        seen = {column for expr in self._expressions() for column in columns(expr)}
        return tuple(column for column in self.input(alias).columns if column in seen)

    def subquery(self, kept: Iterable[str]) -> Query:
        """The query over some of the inputs (CLASH 8.2.4).

        It has the predicates that mention no others, and gives the columns that the rest of this query needs of them.
        """
        subset = frozenset(kept)
        if self.outer is not None:
            raise QueryError("a query with outer joins has no sub-queries yet")
        needed = self._columns_needed_outside(subset)
        inputs = tuple(input_ for input_ in self.inputs if input_.alias in subset)
        every = [column for input_ in inputs for column in input_.columns]
        shown = [column for column in every if column in needed] or every
        keys = [inside for key in self.keys if (inside := key.restrict(subset))]
        where = [equality for key in keys for equality in key.equalities()]
        where += [expr for expr in self.conditions if aliases(expr) <= subset]
        outputs = (Output(f"{column.alias}_{column.name}", column) for column in shown)
        return make_query(inputs, where, outputs, cross=True)

    def _columns_needed_outside(self, subset: frozenset[str]) -> set[Column]:
        exprs = [output.expr for output in self.projection]
        exprs += [p for p in (*self.predicates, *self.residuals) if not aliases(p) <= subset]
        for key in self.keys:
            if not set(key.aliases) <= subset:
                exprs += key.members
        return {column for expr in exprs for column in columns(expr) if column.alias in subset}

    def join(self, other: Query, on: Iterable[Expr] = ()) -> Query:
        """Both queries as one: inputs, predicates and columns united (CLASH 8.2.4).

        An input that both have, by alias, must be the same in both.
        """
        shared = set(self.aliases) & set(other.aliases)
        for alias in sorted(shared):
            if self.input(alias) != other.input(alias):
                raise QueryError(
                    f"both queries have an input {alias!r}, and they differ", hint="rename one of them"
                )
        if self.outer is not None or other.outer is not None:
            raise QueryError("queries with outer joins cannot be joined yet")
        return make_query(
            {input_.alias: input_ for input_ in (*self.inputs, *other.inputs)}.values(),
            (*self._where(), *other._where(), *on),
            {output.name: output for output in (*self.projection, *other.projection)}.values(),
            cross=self.cross or other.cross,
        )

    def renamed(self, names: Mapping[str, str]) -> Query:
        """The same query with other aliases; column names of the result stay."""

        def tree(node: Join | str) -> Join | str:
            if isinstance(node, str):
                return names.get(node, node)
            on = _sorted(rename(expr, names) for expr in node.on)
            return Join(node.kind, tree(node.left), tree(node.right), on)

        outer = tree(self.outer) if self.outer is not None else None
        return make_query(
            (replace(input_, alias=names.get(input_.alias, input_.alias)) for input_ in self.inputs),
            (rename(expr, names) for expr in self._where()),
            (Output(output.name, rename(output.expr, names)) for output in self.projection),
            outer=outer if isinstance(outer, Join) else None,
            cross=self.cross,
        )

    def _where(self) -> Iterator[Expr]:
        for key in self.keys:
            yield from key.equalities()
        yield from self.conditions

    def __str__(self) -> str:
        """SQL that parses back to this query."""
        select = ", ".join(map(str, self.projection))
        where = " AND ".join(_operand_sql(expr) for expr in self._where())
        return f"SELECT {select} FROM {self._from_sql()}" + (f" WHERE {where}" if where else "")

    def _from_sql(self) -> str:
        if self.outer is not None:
            return self._join_sql(self.outer)
        return (" CROSS JOIN " if self.cross else ", ").join(map(str, self.inputs))

    def _join_sql(self, node: Join | str) -> str:
        if isinstance(node, str):
            return str(self.input(node))
        kind = {"inner": "JOIN"}.get(node.kind, f"{node.kind.upper()} OUTER JOIN")
        right = self._join_sql(node.right)
        nested = f"({right})" if isinstance(node.right, Join) else right
        return f"{self._join_sql(node.left)} {kind} {nested} ON {to_sql(all_of(node.on))}"


def _operand_sql(expr: Expr) -> str:
    is_or = isinstance(expr, Call) and expr.function == "or"
    return f"({to_sql(expr)})" if is_or else to_sql(expr)


def _sorted(exprs: Iterable[Expr]) -> tuple[Expr, ...]:
    return tuple(sorted(set(exprs), key=to_sql))


def make_query(
    inputs: Iterable[Input],
    where: Iterable[Expr],
    select: Iterable[Output],
    *,
    outer: Join | None = None,
    cross: bool = False,
) -> Query:
    """The normal form of a query; predicates may be given in any order and grouping."""
    terms = [term for expr in where for term in conjuncts(expr)]
    for term in terms:
        if not aliases(term):
            raise QueryError(f"the predicate {term} mentions no stream", hint="leave it out")
    keys, implied = _equality_classes(terms) if outer is None else ((), tuple(terms))
    ordered = tuple(sorted(inputs, key=lambda input_: input_.alias))
    query = Query(
        ordered,
        keys,
        _sorted(term for term in implied if len(aliases(term)) == 1),
        _sorted(term for term in implied if len(aliases(term)) == 2),
        _sorted(term for term in implied if len(aliases(term)) > 2),
        tuple(select),
        outer,
        cross=True,
    )
    # A cross product is marked only where there is one, so that "CROSS JOIN" plus a predicate is an inner join.
    connected = len(query.component(ordered[0].alias)) == len(ordered)
    return replace(query, cross=cross and not connected and outer is None)


def _equality_classes(terms: list[Expr]) -> tuple[tuple[Key, ...], tuple[Expr, ...]]:
    """Transitive classes of the equalities between inputs, and all other predicates.

    Where one input has several members of a class, its first stands for it and the others become filters; a constant
    that one member equals is a filter on all of them.
    """
    groups, rest = _union(terms)
    constants = _constants(rest)
    keys, extra = [], []
    for group in groups:
        firsts: dict[str, Expr] = {}
        for member in sorted(group, key=to_sql):
            (alias,) = aliases(member)
            first = firsts.setdefault(alias, member)
            if first is not member:
                extra.append(make_call("=", (first, member), BOOLEAN))
        keys.append(Key(tuple(firsts[alias] for alias in sorted(firsts))))
        values = {constants[member] for member in group if member in constants}
        extra += [make_call("=", (m, v), BOOLEAN) for m in firsts.values() for v in values]
    return tuple(sorted(keys, key=str)), (*rest, *extra)


def _union(terms: list[Expr]) -> tuple[list[set[Expr]], list[Expr]]:
    groups: list[set[Expr]] = []
    local: list[Expr] = []
    rest: list[Expr] = []
    for term in terms:
        sides = _single_sides(term)
        if sides is None:
            rest.append(term)
        elif len(aliases(term)) == 1:
            local.append(term)
        else:
            touching = [group for group in groups if group & set(sides)]
            groups = [group for group in groups if not group & set(sides)]
            groups.append(set(sides).union(*touching))
    return _with_local(groups, local, rest)


def _with_local(
    groups: list[set[Expr]], local: list[Expr], rest: list[Expr]
) -> tuple[list[set[Expr]], list[Expr]]:
    """Equalities within one input (a.x = a.y) widen the classes they touch; the others are filters."""
    pending = local
    while True:
        left: list[Expr] = []
        for term in pending:
            sides = set(_single_sides(term) or ())
            touching = [group for group in groups if group & sides]
            if not touching:
                left.append(term)
                continue
            groups = [group for group in groups if not group & sides]
            groups.append(sides.union(*touching))
        if len(left) == len(pending):
            return groups, rest + left
        pending = left


def _single_sides(term: Expr) -> tuple[Expr, Expr] | None:
    """The sides of an equality each of which is about exactly one input."""
    if isinstance(term, Call) and term.function == "=":
        left, right = term.args
        if len(aliases(left)) == 1 and len(aliases(right)) == 1:
            return left, right
    return None


def _constants(filters: Iterable[Expr]) -> dict[Expr, Literal]:
    """What each expression is fixed to; the first in text order where a query contradicts itself."""
    fixed: dict[Expr, Literal] = {}
    for term in sorted(filters, key=to_sql):
        if isinstance(term, Call) and term.function == "=" and len(aliases(term)) == 1:
            for one, other in (term.args, term.args[::-1]):
                if isinstance(other, Literal):
                    fixed.setdefault(one, other)
    return fixed
