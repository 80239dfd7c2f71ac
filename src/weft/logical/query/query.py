"""A query: what to join, and nothing about how.

Guarantees: a `Query` is in normal form, so that two spellings of one query are equal values. Inputs are sorted by
alias, predicates by their text; equalities are gathered into transitive classes (`Key`); every predicate stands in the
list that fits the number of inputs it mentions; an outer join that pads no rows is an inner join
(`weft.logical.query.join_tree`). The signature of `weft.logical.query.canonical` goes further: it is equal whatever the
aliases. A column that an `Input` gives exists in its stream, or is one of those that no stream has (`PRESENT`,
`ARRIVAL`). Every `Output` has a name; the names that `star` and `with_distinct_names` give differ from each other even
if upper and lower case count as the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from textwrap import shorten

from weft.errors import QueryError, nearest
from weft.logical.arguments import checked
from weft.logical.expr.conditions import sort_predicates, terms_of
from weft.logical.expr.expression import (
    BOOLEAN,
    Call,
    Column,
    Expr,
    aliases,
    columns,
    identifier,
    rename,
    to_sql,
)
from weft.logical.query.grouping import FIRST, Grouping
from weft.logical.query.join_tree import PRESENT, Join, only_inner, simplify_joins, unseen
from weft.logical.query.keys import Key, equality_classes
from weft.logical.query.output import Output
from weft.logical.query.sorting import Sorting, is_hidden
from weft.logical.query.window import UNBOUNDED, Rows, Window
from weft.logical.schema import DataType, Stream

__all__ = [
    "ARRIVAL",
    "PRESENT",
    "Input",
    "Key",
    "Output",
    "Query",
    "connected",
    "make_query",
    "star",
    "with_distinct_names",
]


def star(shown: Iterable[Column]) -> tuple[Output, ...]:
    """Columns under the names that ``SELECT *`` gives them: alias_column, with a number where that is taken."""
    return with_distinct_names((f"{column.alias}_{column.name}", column) for column in shown)


def with_distinct_names(named: Iterable[tuple[str, Expr]]) -> tuple[Output, ...]:
    """Columns of a result under names of their own: with a number where a name is taken already."""
    outputs: dict[str, Output] = {}
    for plain, expr in named:
        name, number = plain, 1
        while name.lower() in outputs:
            number += 1
            name = f"{plain}_{number}"
        outputs[name.lower()] = Output(name, expr)
    return tuple(outputs.values())


ARRIVAL = "$arrival"
_TIMESTAMP = DataType("timestamp")


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
    def present(self) -> Column:
        """A column that no stream has. It is TRUE for every tuple, so it is NULL where an outer join finds no tuple."""
        return Column(self.alias, PRESENT, BOOLEAN)

    @property
    def time(self) -> Column:
        """The column that tells a tuple's time; of a stream without event time, one that only Weft knows."""
        return self.event_time or Column(self.alias, ARRIVAL, _TIMESTAMP)

    @property
    def unnamed(self) -> tuple[Column, ...]:
        """Columns that no stream has, and expressions may nevertheless read."""
        return (self.present, self.time) if self.event_time is None else (self.present,)

    @property
    def counted_per(self) -> tuple[Column, ...]:
        """The columns for each of whose values a `ROWS` window counts its own tuples; empty: it counts all together."""
        per = self.window.per if isinstance(self.window, Rows) else ()
        return tuple(map(self.column, per))

    def check_window(self) -> None:
        """Refuse a window of a table, and one that counts per a column that the stream does not have."""
        if self.stream.table and self.window != UNBOUNDED:
            raise QueryError(
                f"{self.stream.name} is a table, and has no window: all of its rows are looked up",
                hint="leave out the window, or register it as a stream",
            )
        for name in self.window.per if isinstance(self.window, Rows) else ():
            field = self.stream.schema.find(name)
            if field is None or field.name != name:
                raise QueryError(
                    f"{self.stream.name} has no column {name!r} to count per",
                    hint=nearest(name, self.stream.schema.names),
                )

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns of this input."""
        return tuple(Column(self.alias, field.name, field.type) for field in self.stream.schema)

    @property
    def shown(self) -> tuple[Column, ...]:
        """The columns that ``SELECT *`` gives."""
        return tuple(column for column in self.columns if column.name != self.stream.hidden)

    def __str__(self) -> str:
        window = "" if self.window == UNBOUNDED else f" [{self.window}]"
        if self.stream.definition:
            return f"({' UNION ALL '.join(map(str, self.stream.definition))}){window} AS {identifier(self.alias)}"
        name = "" if self.alias == self.stream.name else f" AS {identifier(self.alias)}"
        return f"{identifier(self.stream.name)}{window}{name}"


@dataclass(frozen=True, slots=True)
class Query:
    """An n-ary join. Built by `make_query`, which normalises; built directly, it must be in normal form.

    With a ``grouping``, ``projection`` has the columns that groups are made of. ``sorting`` is about the whole result.
    """

    inputs: tuple[Input, ...]
    keys: tuple[Key, ...]
    filters: tuple[Expr, ...]
    predicates: tuple[Expr, ...]
    residuals: tuple[Expr, ...]
    projection: tuple[Output, ...]
    outer: Join | None = None
    cross: bool = False
    grouping: Grouping | None = None
    sorting: Sorting | None = None

    def __repr__(self) -> str:
        return f"<Query {shorten(str(self), 200, placeholder=' …')}>"

    def __hash__(self) -> int:
        # It is asked for often while a query is planned, so the columns of streams and results are left out.
        return hash((self.inputs, self.keys, self.filters, self.predicates))

    def __post_init__(self) -> None:
        self._check_inputs()
        self._check_predicates()
        self._check_projection()

    def _check_inputs(self) -> None:
        if not self.inputs:
            raise QueryError("a query needs at least one stream", hint="name it after FROM")
        names = [input_.alias for input_ in self.inputs]
        if names != sorted(names) or len({name.lower() for name in names}) < len(names) or "" in names:
            raise QueryError(f"inputs must have distinct names and be sorted: {', '.join(names)}")
        if self.outer is not None and sorted(self.outer.aliases) != names:
            raise QueryError("the outer joins do not cover the inputs")
        for input_ in self.inputs:
            input_.check_window()
        known = set(names)
        for expr in self.expressions():
            missing = aliases(expr) - known
            if missing:
                raise QueryError(f"{expr} mentions {min(missing)}, which is no input of the query")
        self._check_visible()

    def _check_visible(self) -> None:
        """Refuse expressions above the joins that name an input which a semi or anti join only looks for."""
        seen, marked = set(self.visible), self.outer.marked if self.outer is not None else ()
        for expr in (*self.conditions, *(output.expr for output in self.projection)):
            hidden = unseen(expr, seen, marked)
            if hidden:
                raise QueryError(
                    f"{expr} mentions {min(hidden)}, of which a semi or anti join gives no columns"
                )

    def expressions(self) -> Iterator[Expr]:
        """All expressions of the query: keys, conditions, and what it gives."""
        for key in self.keys:
            yield from key.members
        yield from self.conditions
        yield from self.outer.conditions if self.outer is not None else ()
        for output in self.projection:
            yield output.expr

    def _check_predicates(self) -> None:
        for expr, count in [(f, 1) for f in self.filters] + [(p, 2) for p in self.predicates]:
            if len(aliases(expr)) != count:
                raise QueryError(f"{expr} does not mention {count} input(s)")
        for expr in self.residuals:
            if len(aliases(expr)) < 3:
                raise QueryError(f"{expr} mentions fewer than three inputs")
        if not self.cross:
            self._check_connected()

    def _check_connected(self) -> None:
        reached = self.component(self.inputs[0].alias)
        unjoined = [input_.alias for input_ in self.inputs if input_.alias not in reached]
        if unjoined:
            raise QueryError(
                f"cross product: nothing joins {', '.join(unjoined)} with {', '.join(sorted(reached))}",
                hint="add a predicate between them, or say CROSS JOIN if every pair is wanted",
            )

    def _check_projection(self) -> None:
        names = [output.name.lower() for output in self.outputs]
        if not names:
            raise QueryError("a query needs at least one column", hint="SELECT * gives all")
        for name in names:
            if names.count(name) > 1:
                raise QueryError(f"two columns of the result are called {name!r}", hint="name one with AS")

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The columns of the result; where there are groups, over columns of these."""
        return self.projection if self.grouping is None else self.grouping.outputs

    @property
    def shown(self) -> tuple[Output, ...]:
        """The columns of the result that sinks get: all but those that are there only to sort by them."""
        return tuple(output for output in self.outputs if not is_hidden(output.name))

    @property
    def aliases(self) -> tuple[str, ...]:
        """The inputs' names, sorted."""
        return tuple(input_.alias for input_ in self.inputs)

    @property
    def driving(self) -> tuple[str, ...]:
        """The inputs whose tuples start results, sorted: all but tables."""
        return tuple(input_.alias for input_ in self.inputs if not input_.stream.table)

    @property
    def tables(self) -> tuple[str, ...]:
        """The inputs that are tables, sorted."""
        return tuple(input_.alias for input_ in self.inputs if input_.stream.table)

    @property
    def visible(self) -> tuple[str, ...]:
        """The inputs whose columns the joins give, sorted: all, but for those that semi and anti joins look for."""
        return self.aliases if self.outer is None else tuple(sorted(self.outer.visible))

    @property
    def conditions(self) -> tuple[Expr, ...]:
        """All that is not an equality between inputs: filters, predicates, residuals."""
        return (*self.filters, *self.predicates, *self.residuals)

    @checked(QueryError)
    def input(self, alias: str) -> Input:
        """The input of that name."""
        for input_ in self.inputs:
            if input_.alias == alias:
                return input_
        raise QueryError(f"the query has no input {alias!r}")

    @property
    def edges(self) -> tuple[frozenset[str], ...]:
        """The sets of inputs that a key or a predicate connects."""
        found = [frozenset(key.aliases) for key in self.keys]
        found += [aliases(expr) for expr in (*self.predicates, *self.residuals)]
        return (*found, *(self.outer.edges if self.outer is not None else ()))

    @checked(QueryError)
    def component(self, start: str) -> frozenset[str]:
        """The inputs that predicates connect with one, itself included."""
        return connected(start, self.edges)

    @checked(QueryError)
    def columns_of(self, alias: str) -> tuple[Column, ...]:
        """The columns of an input that expressions or its window name, in order; those that no stream has come last."""
        seen = {column for expr in self.expressions() for column in columns(expr)}
        input_ = self.input(alias)
        seen.update(input_.counted_per)
        return tuple(column for column in dict.fromkeys((*input_.columns, *input_.unnamed)) if column in seen)

    def subquery(self, kept: Iterable[str]) -> Query:
        """The query over some of the inputs (CLASH 8.2.4).

        It has the predicates that mention no others, and gives the columns that the rest of this query needs of them.
        """
        subset = frozenset(kept)
        if self.outer is not None:
            raise QueryError("a query with outer joins has no sub-queries yet")
        for alias in sorted(subset):
            self.input(alias)
        needed = self._columns_needed_outside(subset)
        inputs = tuple(input_ for input_ in self.inputs if input_.alias in subset)
        every = [column for input_ in inputs for column in input_.columns]
        shown = [column for column in every if column in needed] or every
        keys = [inside for key in self.keys if (inside := key.restrict(subset))]
        where = [equality for key in keys for equality in key.equalities()]
        where += [expr for expr in self.conditions if aliases(expr) <= subset]
        return make_query(inputs, where, star(shown), cross=True)

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
            (*self.terms(), *other.terms(), *on),
            dict.fromkeys((*self.projection, *other.projection)),
            cross=self.cross or other.cross,
        )

    @checked(QueryError)
    def renamed(self, names: Mapping[str, str]) -> Query:
        """The same query with other aliases; column names of the result stay."""
        return make_query(
            (replace(input_, alias=names.get(input_.alias, input_.alias)) for input_ in self.inputs),
            (rename(expr, names) for expr in self.terms()),
            (Output(output.name, rename(output.expr, names)) for output in self.projection),
            outer=self.outer.renamed(names) if self.outer is not None else None,
            cross=self.cross,
            grouping=self.grouping,
            sorting=self.sorting,
        )

    def terms(self) -> Iterator[Expr]:
        """All conditions of WHERE: equalities between inputs, and the others."""
        for key in self.keys:
            yield from key.equalities()
        yield from self.conditions

    def __str__(self) -> str:
        """SQL that parses back to this query."""
        where = " AND ".join(_operand_sql(expr) for expr in self.terms())
        rest = f"FROM {self._from_sql()}" + (f" WHERE {where}" if where else "")
        texts = {output.name: str(output.expr) for output in self.projection}
        if self.grouping is not None:
            given = {output.name: output.expr for output in self.projection}
            texts, rest = self.grouping.output_sql(given), rest + self.grouping.group_sql(given)
        listed = [f"{texts[output.name]} AS {identifier(output.name)}" for output in self.shown]
        only = "DISTINCT " if self.grouping is not None and self.grouping.mode == FIRST else ""
        if self.sorting is not None:
            rest += self.sorting.to_sql([output.name for output in self.shown], texts)
        return f"SELECT {only}{', '.join(listed)} {rest}"

    def _from_sql(self) -> str:
        if self.outer is not None:
            return self.outer.to_sql({input_.alias: str(input_) for input_ in self.inputs})
        return (" CROSS JOIN " if self.cross else ", ").join(map(str, self.inputs))


def _operand_sql(expr: Expr) -> str:
    is_or = isinstance(expr, Call) and expr.function == "or"
    return f"({to_sql(expr)})" if is_or else to_sql(expr)


def connected(start: str, edges: Iterable[frozenset[str]]) -> frozenset[str]:
    """All that the edges connect with the start, itself included."""
    reached, pending = {start}, list(edges)
    while True:
        grown = reached.union(*(edge for edge in pending if edge & reached))
        if grown == reached:
            return frozenset(reached)
        reached = grown


def make_query(
    inputs: Iterable[Input],
    where: Iterable[Expr],
    select: Iterable[Output],
    *,
    outer: Join | None = None,
    cross: bool = False,
    grouping: Grouping | None = None,
    sorting: Sorting | None = None,
) -> Query:
    """The normal form of a query; predicates may be given in any order and grouping."""
    terms = terms_of(where)
    tree = simplify_joins(outer.normal(), terms) if outer is not None else None
    if tree is not None and only_inner(tree):
        terms += tree.conditions
        tree = None
    keys, implied = equality_classes(terms) if tree is None else ((), tuple(terms))
    ordered = tuple(sorted(inputs, key=lambda input_: input_.alias))
    query = Query(
        ordered,
        keys,
        sort_predicates(term for term in implied if len(aliases(term)) == 1),
        sort_predicates(term for term in implied if len(aliases(term)) == 2),
        sort_predicates(term for term in implied if len(aliases(term)) > 2),
        tuple(select),
        tree,
        cross=True,
        grouping=grouping,
        sorting=sorting,
    )
    # A cross product is marked only where there is one, so that "CROSS JOIN" plus a predicate is an inner join.
    complete = len(query.component(ordered[0].alias)) == len(ordered)
    return replace(query, cross=cross and not complete)
