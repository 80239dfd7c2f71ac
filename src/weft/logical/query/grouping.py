"""What a query with aggregates makes of the rows of its join.

Guarantees: a query with a `Grouping` is a join whose projection gives the columns that groups are made of, and the
grouping says what becomes of them: which are keys, what is aggregated, and which expressions over keys and aggregates
are the result. Its columns have no alias: they are those of a group, by the names of keys and aggregates.

FILTER (WHERE c) is no part of it: every aggregate passes over NULL, so ``sum(x) FILTER (WHERE c)`` is
``sum(CASE WHEN c THEN x END)``. A window is a key, too: the time by which a row falls into it stands in the projection,
and the group has its start and its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from weft.errors import QueryError
from weft.logical.expr.expression import Call, Column, Expr, Literal, to_sql, transform
from weft.logical.query.output import Output
from weft.logical.schema import DataType
from weft.logical.times import format_duration

__all__ = [
    "AGGREGATES",
    "APPEND",
    "FIRST",
    "GROUP",
    "MODES",
    "UPDATE",
    "WINDOW_CALLS",
    "WINDOW_END",
    "WINDOW_START",
    "Aggregate",
    "GroupWindow",
    "Grouping",
    "aggregate_name",
    "aggregate_type",
]

GROUP = ""  # the alias of the columns of a group
APPEND, UPDATE, FIRST = "append", "update", "first"
MODES = (APPEND, UPDATE)
_TIMESTAMP = DataType("timestamp")
WINDOW_START = Column(GROUP, "start", _TIMESTAMP)
WINDOW_END = Column(GROUP, "end", _TIMESTAMP)

# The aggregates by name, and what those are called that have another name besides.
_SYNONYMS = {"mean": "avg", "std": "stddev_samp", "stddev": "stddev_samp", "variance": "var_samp"}
AGGREGATES = frozenset(
    (
        *("count", "sum", "avg", "min", "max", "any_value", "count_distinct", "approx_count_distinct"),
        *("stddev_samp", "stddev_pop", "var_samp", "var_pop", "bool_and", "bool_or", "every", "count_if"),
        *_SYNONYMS,
    )
)
# Calls that name an edge of the window of GROUP BY.
WINDOW_CALLS = tuple(f"{kind}_{side}" for kind in ("tumble", "hop", "session") for side in ("start", "end"))
_LONG, _DOUBLE = DataType("long"), DataType("double")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate under a name; ``argument`` is the column of the join that it is over, None if rows are counted.

    ``most`` is how many hashes an estimate is made of.
    """

    name: str
    function: str
    argument: str | None
    type: DataType
    most: int = 0

    @property
    def column(self) -> Column:
        """Its value, in the expressions of the result."""
        return Column(GROUP, self.name, self.type)


@dataclass(frozen=True, slots=True)
class GroupWindow:
    """A window of time as a key: ``column`` of the join is the time by which rows fall into it.

    Windows are ``size`` long and begin every ``slide``, counted from 1970. Without a ``slide`` they are sessions: they
    end when for ``size`` nothing has come.
    """

    column: str
    size: timedelta
    slide: timedelta | None

    def __post_init__(self) -> None:
        if self.size <= timedelta(0) or (self.slide is not None and self.slide <= timedelta(0)):
            raise QueryError("a window of time is longer than nothing", hint="write '10 minutes'")
        if self.slide is not None and self.slide > self.size:
            raise QueryError(
                f"windows of {format_duration(self.size)} that begin every {format_duration(self.slide)} "
                "leave times out",
                hint="let them begin at least as often as they end",
            )

    @property
    def is_session(self) -> bool:
        """Whether windows end when nothing comes."""
        return self.slide is None

    def to_sql(self, time: Expr) -> str:
        """The window over a time, as GROUP BY has it."""
        if self.slide is None:
            return f"session_window({to_sql(time)}, '{_seconds(self.size)}')"
        return f"window({to_sql(time)}, '{_seconds(self.size)}', '{_seconds(self.slide)}')"


def _seconds(span: timedelta) -> str:
    micros = span // timedelta(microseconds=1)
    return f"{micros} microseconds" if micros % 1_000_000 else f"{micros // 1_000_000} seconds"


@dataclass(frozen=True, slots=True)
class Grouping:
    """How rows of a join become groups.

    ``keys`` are columns of the join. ``outputs`` and ``having`` are over columns of groups. ``mode`` says when groups
    leave: once, when they are complete (`APPEND`); whenever they have changed (`UPDATE`); or once, when they are first
    seen (`FIRST`), as for SELECT DISTINCT.
    """

    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    outputs: tuple[Output, ...]
    having: Expr | None = None
    window: GroupWindow | None = None
    mode: str = APPEND

    def shown_keys(self) -> tuple[str, ...]:
        """The columns of the result that tell groups apart, by which later rows replace earlier ones."""
        plain = [output for output in reversed(self.outputs) if isinstance(output.expr, Column)]
        names = {output.expr.name: output.name for output in plain if isinstance(output.expr, Column)}
        found = [names.get(key) for key in self.keys]
        if self.window is not None:
            found.append(names.get(WINDOW_START.name) or names.get(WINDOW_END.name))
        missing = found.index(None) if None in found else None
        if missing is not None:
            what = "the window" if missing == len(self.keys) else f"key {missing + 1}"
            raise QueryError(
                f"{what} of GROUP BY is not selected, so nobody could tell which group has changed",
                hint="select all keys of GROUP BY, and window.start",
            )
        return tuple(name for name in found if name is not None)

    def output_sql(self, given: Mapping[str, Expr]) -> dict[str, str]:
        """The expressions of the result by name; ``given`` are the columns of the join by name."""
        return {output.name: self._sql(output.expr, given) for output in self.outputs}

    def group_sql(self, given: Mapping[str, Expr]) -> str:
        """GROUP BY and HAVING."""
        if self.mode == FIRST:
            return ""
        keys = [to_sql(given[name]) for name in self.keys]
        keys += [self.window.to_sql(given[self.window.column])] if self.window is not None else []
        by = f" GROUP BY {', '.join(keys)}" if keys else ""
        return by + (f" HAVING {self._sql(self.having, given)}" if self.having is not None else "")

    def _sql(self, expr: Expr, given: Mapping[str, Expr]) -> str:
        """An expression over columns of groups as its author could have written it."""
        aggregates = {one.name: one for one in self.aggregates}

        def leaf(node: Column | Literal) -> Expr:
            if not isinstance(node, Column) or node.alias != GROUP:
                return node
            if node in (WINDOW_START, WINDOW_END):
                named = "session_window" if self.window is not None and self.window.is_session else "window"
                return Column(named, node.name, node.type)
            if node.name not in aggregates:
                return given[node.name]
            one = aggregates[node.name]
            argument = Literal(1, DataType("int")) if one.argument is None else given[one.argument]
            precision = (Literal(one.most**-0.5, DataType("double")),) if one.most else ()
            return Call(one.function, (argument, *precision), one.type)

        return to_sql(transform(expr, leaf))


def aggregate_name(written: str) -> str:
    """The name by which an aggregate is known here, as it may be written."""
    return _SYNONYMS.get(written.lower(), written.lower())


def aggregate_type(function: str, argument: DataType | None) -> DataType:
    """The type of an aggregate over values of a type, as Spark has it."""
    if function in ("count", "count_distinct", "approx_count_distinct"):
        return _LONG
    if argument is None:
        raise QueryError(f"{function} needs an argument", hint=f"write {function}(x)")
    if function in ("min", "max", "any_value"):
        return argument
    if not argument.is_numeric:
        raise QueryError(f"{function} of a {argument}", hint="it takes numbers; CAST makes one of a text")
    if function != "sum":
        return _DOUBLE
    if argument.name == "decimal":
        return DataType("decimal", min(38, argument.precision + 10), argument.scale)
    return _LONG if argument.is_integer else _DOUBLE
