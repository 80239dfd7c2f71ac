"""GROUP BY, HAVING, DISTINCT and aggregates become a `Grouping` over the columns of a join.

Guarantees: what a grouped SELECT gives is made of its keys and of aggregates, or is refused with the column that is
neither. Equal aggregates are computed once. Keys may be named by their position in SELECT or by the name that SELECT
gives them, where FROM has no column of that name, as in Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import NamedTuple

from sqlglot import exp

from weft.errors import QueryError
from weft.logical.expr.conversion import cast, literal
from weft.logical.expr.expression import Call, Column, Expr, Literal, all_of, make_call, to_sql
from weft.logical.expr.functions import call
from weft.logical.query.grouping import (
    AGGREGATES,
    APPEND,
    FIRST,
    GROUP,
    WINDOW_END,
    WINDOW_START,
    Aggregate,
    Grouping,
    GroupWindow,
    aggregate_type,
)
from weft.logical.query.output import Output
from weft.logical.query.sorting import Sorting
from weft.logical.schema import DataType
from weft.logical.times import parse_duration
from weft.sql.expressions import bind_conditions, bind_expression
from weft.sql.outputs import bind_outputs, bind_sorting
from weft.sql.scope import Scope
from weft.sql.source import Piece, bare_node
from weft.sql.statement import Item, Statement
from weft.sql.values.constants import interval

__all__ = ["GroupBinder", "Grouped", "bind_selected", "is_grouped"]

_WINDOWS = ("window", "session_window", "tumble", "hop", "session")
_NOT_A_KEY = "name it after GROUP BY, or put it into an aggregate, as in max(x) or any_value(x)"
_MOST = 400  # hashes of an estimate: about 5 % off, as Spark's default


def is_grouped(statement: Statement) -> bool:
    """Whether a SELECT gives groups: it says so, or it has an aggregate."""
    if statement.group or statement.having or statement.distinct:
        return True
    return any(_has_aggregate(item.value.node) for item in statement.items)


def _has_aggregate(node: exp.Expr) -> bool:
    parts = node.walk(prune=lambda part: isinstance(part, exp.Query | exp.Window))
    return any(isinstance(part, exp.Anonymous) and part.name.lower() in AGGREGATES for part in parts)


class Grouped(NamedTuple):
    """The columns of the join that groups are made of, and the grouping."""

    projection: tuple[Output, ...]
    grouping: Grouping


class _Span(NamedTuple):
    """A window of GROUP BY: the time it is over, and how long and how often windows are."""

    time: Expr
    size: timedelta
    slide: timedelta | None


def bind_selected(
    statement: Statement, scope: Scope, *, inner: bool, plain: bool
) -> tuple[tuple[Output, ...], Grouping | None, Sorting | None]:
    """The columns that a join gives, the groups that are made of them if the SELECT gives groups, and how it sorts.

    An ``inner`` SELECT is one that sees another around it; ``plain`` is that of `bind_outputs`.
    """
    if is_grouped(statement):
        return bind_groups(statement, scope, inner=inner, plain=plain)
    outputs = bind_outputs(statement.items, scope, plain=plain)
    hidden, sorting = bind_sorting(statement, outputs, scope)
    return (*outputs, *hidden), None, sorting


def bind_groups(
    statement: Statement, scope: Scope, *, inner: bool, plain: bool
) -> tuple[tuple[Output, ...], Grouping, Sorting | None]:
    """The columns of the join, the grouping and the sorting of a SELECT that gives groups, not an ``inner`` one."""
    if inner:
        raise statement.source.error(
            statement.source.whole,
            "a sub-select of a condition, or a lateral one, has no aggregates",
            "write it after FROM, as in FROM s JOIN (SELECT k, max(x) AS m … GROUP BY k, ts) AS d ON s.k = d.k",
        )
    groups = GroupBinder.of(statement, scope)
    seen = replace(scope, groups=groups)
    outputs = bind_outputs(statement.items, seen, plain=plain)
    if statement.sided:
        outputs = outputs[:-1]
        groups.keys.extend(dict.fromkeys(output.expr for output in outputs))
    hidden, sorting = bind_sorting(statement, outputs, seen)
    return *groups.finish((*outputs, *hidden), statement), sorting


@dataclass
class GroupBinder:
    """Collects the keys and aggregates of a SELECT while its expressions are bound; `Scope.groups` is one of these."""

    scope: Scope
    keys: list[Expr] = field(default_factory=list)
    window: _Span | None = None
    _aggregates: dict[tuple[str, Expr | None, int], Aggregate] = field(default_factory=dict)

    @classmethod
    def of(cls, statement: Statement, scope: Scope) -> GroupBinder:
        """One that knows the keys of a statement."""
        found = cls(scope)
        for piece in statement.group:
            found._add_key(piece, statement.items)
        return found

    def _add_key(self, piece: Piece, items: Sequence[Item]) -> None:
        piece = self._meant(piece, items)
        node = bare_node(piece.node)
        if isinstance(node, exp.Anonymous) and node.name.lower() in _WINDOWS:
            if self.window is not None:
                raise piece.error("GROUP BY has two windows of time", "group by one of them")
            try:
                self.window = self._span(node.name.lower(), node, piece)
            except QueryError as error:
                raise piece.source.blame(node, error) from None
            return
        if _has_aggregate(node):
            raise piece.error("an aggregate cannot be a key of GROUP BY", "leave it out")
        key = bind_expression(piece, self.scope)
        if key.type.is_nested:
            raise piece.error(f"a {key.type} cannot be a key of GROUP BY", "group by a field of it")
        if key not in self.keys:
            self.keys.append(key)

    def _meant(self, piece: Piece, items: Sequence[Item]) -> Piece:
        """What a key stands for, if it is the position or the name of an item of SELECT."""
        node = bare_node(piece.node)
        if isinstance(node, exp.Literal) and not node.is_string:
            if not node.name.isdigit() or not 1 <= int(node.name) <= len(items):
                raise piece.error(
                    f"SELECT has no column {node.name}", f"write a number from 1 to {len(items)}"
                )
            return items[int(node.name) - 1].value
        if isinstance(node, exp.Column) and not node.table and not self.scope.has_column(node.name):
            named = [i for i in items if i.alias is not None and i.alias.text.lower() == node.name.lower()]
            if named:
                return named[0].value
        return piece

    def _span(self, name: str, node: exp.Anonymous, piece: Piece) -> _Span:
        """The window that a call stands for."""
        arguments = node.expressions
        most = 3 if name in ("window", "hop") else 2
        if not 2 <= len(arguments) <= most or (name == "hop" and len(arguments) < 3):
            raise QueryError(
                f"{name} takes a time and {'two durations' if name == 'hop' else 'a duration'}",
                hint="write window(ts, '10 minutes') or window(ts, '10 minutes', '5 minutes')",
            )
        time = bind_expression(replace(piece, node=arguments[0]), self.scope)
        if time.type.name != "timestamp":
            raise QueryError(f"{name} is over a timestamp, and {to_sql(time)} is a {time.type}")
        spans = [_duration(one) for one in arguments[1:]]
        if name in ("session_window", "session"):
            return _Span(time, spans[0], None)
        size, slide = (spans[1], spans[0]) if name == "hop" else (spans[0], spans[-1])
        return _Span(time, size, slide)

    def edge(self, name: str, node: exp.Anonymous, piece: Piece) -> Expr:
        """The start or the end of the window of GROUP BY, as `tumble_start(ts, …)` names it."""
        kind, _, side = name.rpartition("_")
        span = self._span(kind, node, piece)
        if span != self.window:
            raise QueryError(f"GROUP BY has no such {kind}", hint=f"write the same {kind} after GROUP BY")
        return WINDOW_START if side == "start" else WINDOW_END

    def named_edge(self, names: Sequence[str]) -> Expr | None:
        """The start or the end of the window of GROUP BY, if a name, in its parts, means that and nothing in FROM."""
        if self.window is None or self.scope.has_input(names[0]) or self.scope.has_column(names[0]):
            return None
        own = "session_window" if self.window.slide is None else "window"
        edges = {f"{own}.start": WINDOW_START, f"{own}.end": WINDOW_END}
        edges |= {"window_start": WINDOW_START, "window_end": WINDOW_END}
        return edges.get(".".join(names).lower())

    def aggregate(self, function: str, args: Sequence[Expr], condition: Expr | None, distinct: bool) -> Expr:
        """The value of an aggregate over arguments, of rows that fulfil a condition."""
        if function in ("bool_and", "every", "bool_or"):
            function = "max" if function == "bool_or" else "min"
        if function == "count_if":
            (one,) = args
            condition = one if condition is None else all_of([one, condition])
            function, args = "count", ()
        if distinct and function not in ("min", "max", "any_value"):
            if function != "count":
                raise QueryError(f"{function}(DISTINCT …)", hint="DISTINCT is there for count")
            function = "count_distinct"
        most = 0
        if function == "approx_count_distinct":
            args, most = args[:1], _hashes(args[1:])
        if len(args) > 1:
            raise QueryError(f"{function} of {len(args)} values", hint="give it one")
        argument = args[0] if args else None
        if function == "count" and isinstance(argument, Literal) and argument.value is not None:
            argument = None
        if condition is not None:
            argument = call("case", condition, literal(1) if argument is None else argument, literal(None))
        if function == "avg" and argument is not None and argument.type.name == "decimal":
            return self._mean(argument)
        return self._value(function, argument, most)

    def _mean(self, argument: Expr) -> Expr:
        """The mean of decimals: four more digits than they have, as in Spark."""
        total = self._value("sum", argument, 0)
        count = cast(self._value("count", argument, 0), DataType("decimal", 20, 0))
        kind = argument.type
        scale = min(kind.scale + 4, 37)
        return cast(call("/", total, count), DataType("decimal", min(38, kind.precision + 4), scale))

    def _value(self, function: str, argument: Expr | None, most: int) -> Expr:
        key = (function, argument, most)
        if key not in self._aggregates:
            kind = aggregate_type(function, None if argument is None else argument.type)
            self._aggregates[key] = Aggregate(f"a{len(self._aggregates)}", function, None, kind, most)
        return self._aggregates[key].column

    def finish(self, outputs: Sequence[Output], statement: Statement) -> Grouped:
        """The columns of the join and the grouping, for bound outputs and HAVING."""
        having = None
        if statement.having:
            scope = replace(self.scope, groups=self)
            terms = [term for one in statement.having for term in bind_conditions(one, scope, "HAVING")]
            having = self._over_groups(all_of(terms))
        if statement.distinct:
            return self._distinct(outputs, statement)
        shown = tuple(Output(one.name, self._over_groups(one.expr)) for one in outputs)
        projection = {f"k{place}": key for place, key in enumerate(self.keys)}
        window, names = None, tuple(projection)
        if self.window is not None:
            projection["w"] = self.window.time
            window = GroupWindow("w", self.window.size, self.window.slide)
        aggregates = []
        for (_, argument, _), one in self._aggregates.items():
            name = None if argument is None else _named(projection, argument)
            aggregates.append(replace(one, argument=name))
        if not projection:
            projection["one"] = literal(1)
        grouping = Grouping(names, tuple(aggregates), shown, having, window, APPEND)
        return Grouped(tuple(Output(name, expr) for name, expr in projection.items()), grouping)

    def _distinct(self, outputs: Sequence[Output], statement: Statement) -> Grouped:
        if self.keys or self._aggregates or self.window is not None or statement.having:
            raise statement.source.error(
                statement.source.whole,
                "DISTINCT of groups is not supported",
                "leave out DISTINCT; rows of different groups differ in their keys",
            )
        names = {output.name: f"k{place}" for place, output in enumerate(outputs)}
        shown = tuple(Output(o.name, Column(GROUP, names[o.name], o.expr.type)) for o in outputs)
        projection = tuple(Output(names[o.name], o.expr) for o in outputs)
        return Grouped(projection, Grouping(tuple(names.values()), (), shown, mode=FIRST))

    def _over_groups(self, expr: Expr) -> Expr:
        """An expression over columns of groups; a column that is neither a key nor in an aggregate is refused."""
        if expr in self.keys:
            return Column(GROUP, f"k{self.keys.index(expr)}", expr.type)
        if isinstance(expr, Call):
            args = [self._over_groups(arg) for arg in expr.args]
            return make_call(expr.function, args, expr.type)
        if isinstance(expr, Column) and expr.alias != GROUP:
            raise QueryError(
                f"{to_sql(expr)} is neither a key of GROUP BY nor in an aggregate", hint=_NOT_A_KEY
            )
        return expr


def _duration(node: exp.Expr) -> timedelta:
    bare = bare_node(node)
    if isinstance(bare, exp.Interval):
        found = interval(bare).value
    elif isinstance(bare, exp.Literal) and bare.is_string:
        found = parse_duration(bare.name)
    else:
        found = None
    if not isinstance(found, timedelta):
        raise QueryError(
            "the length of a window is a constant", hint="write '10 minutes' or INTERVAL '10' MINUTE"
        )
    return found


def _hashes(args: Sequence[Expr]) -> int:
    """How many hashes an estimate is made of; an argument is the part by which it may be off."""
    if not args:
        return _MOST
    off = args[0].value if isinstance(args[0], Literal) else None
    if len(args) > 1 or not isinstance(off, float) or not 0.002 <= off <= 0.5:
        raise QueryError(
            "approx_count_distinct takes by what part it may be off",
            hint="write approx_count_distinct(x, 0.05)",
        )
    return round(1 / off**2)


def _named(projection: dict[str, Expr], expr: Expr) -> str:
    """The name of an expression in a projection, which gets it if it lacks it."""
    for name, known in projection.items():
        if known == expr:
            return name
    name = f"x{len(projection)}"
    projection[name] = expr
    return name
