"""A query's answer from the definitions (design, section 3), by brute force in DuckDB.

Guarantees: shares no code with the runtime: predicates go to DuckDB as SQL, windows are checked on whole results. A
table holds all tuples of an input that take part; the definitions need no batches and no order of arrival, except for
two things, which are columns of the table where they matter: `TIME`, the time of tuples whose stream names no event
time, in microseconds; and `POSITION`, the place of a tuple in the total order over all inputs, for `ROWS` windows.

Where there are outer, semi or anti joins, DuckDB joins along the same tree. Two rows match if ON holds and their
tuples, as far as there are any, lie within the windows of their inputs; WHERE is applied to what the whole tree gives.

A join with the latest version first finds that version for every row of its left side, by a window function.

A table has the same rows throughout or, with the columns `FROM` and `UNTIL`, in versions: a row is there from one batch
on, and until another. A result then has the rows that were there in the batch of the last of its tuples, which the
column `BATCH` of each stream tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from inspect import Parameter, Signature
from typing import Any

import numpy as np
import pyarrow as pa
import sqlglot
from numpy.typing import NDArray
from sqlglot import exp

from weft.errors import ConfigError, QueryError
from weft.logical.expr.expression import Expr, identifier, to_sql, type_sql
from weft.logical.expr.user_functions import has_user_call, user_calls
from weft.logical.outer.asof import choice_of
from weft.logical.outer.outer import always
from weft.logical.query.join_tree import ASOF, LACKS_LEFT, MARK, Join
from weft.logical.query.query import PRESENT, Input, Query
from weft.logical.query.window import Range, Rows
from weft.logical.schema import DataType
from weft.testing.grouped import reference_groups

__all__ = [
    "BATCH",
    "FROM",
    "POSITION",
    "TIME",
    "UNTIL",
    "define_functions",
    "groups_of",
    "groups_of_rows",
    "inside_counts",
    "join_within_times",
    "reference_join",
]


TIME, POSITION = "__time", "__position"
BATCH, FROM, UNTIL = "__batch", "__from", "__until"

_ROW = "__row"


def reference_join(
    query: Query, tables: Mapping[str, pa.Table], functions: Mapping[str, Callable[..., Any]] | None = None
) -> pa.Table:
    """The results of a query over tables by alias, in no particular order.

    Without `ROWS` windows a table needs only the columns of its stream. ``functions`` are those that the query calls.
    """
    joined = join_within_times(query, tables, functions)
    if any(isinstance(input_.window, Rows) for input_ in query.inputs):
        positions = {alias: _column(tables, alias, POSITION) for alias in query.driving}
        joined = joined.filter(pa.array(inside_counts(query, joined, positions, groups_of(query, tables))))
    rows = joined.select([output.name for output in query.projection])
    return groups_of_rows(query, rows)


def groups_of_rows(query: Query, rows: pa.Table) -> pa.Table:
    """The results of a query whose join gave these rows: the rows themselves, or their groups."""
    return rows if query.grouping is None else reference_groups(_connection(), query, rows, _transpiled)


def join_within_times(
    query: Query, tables: Mapping[str, pa.Table], functions: Mapping[str, Callable[..., Any]] | None = None
) -> pa.Table:
    """The results before `ROWS` windows are applied: their columns, and per input the number of its row.

    That number is NULL where an outer join found no tuple. Inputs that a semi or anti join looks for have none.
    """
    if query.outer is not None and any(isinstance(input_.window, Rows) for input_ in query.inputs):
        raise QueryError("ROWS windows have no meaning in outer, semi and anti joins", hint="use RANGE")
    if any(map(has_user_call, query.expressions())):
        with _connected() as connection:  # functions stay with the connection that they are defined for
            define_functions(connection, query, functions or {})
            return _timely(connection, query, tables)
    return _timely(_connection(), query, tables)


def _timely(connection: Any, query: Query, tables: Mapping[str, pa.Table]) -> pa.Table:
    for place, alias in enumerate(query.aliases):
        connection.register(f"input_{place}", _plain(tables[alias]))
    # DuckDB 2.0 fails on some trees of joins when it optimises them; without, it joins along the tree.
    connection.execute(f"PRAGMA {'enable' if query.outer is None else 'disable'}_optimizer")
    versioned = frozenset(alias for alias in query.tables if FROM in tables[alias].schema.names)
    latest = list(_asof_joins(query.outer))
    try:
        for number, join in enumerate(latest):  # those below come first
            chosen = _latest_sql(query, join, _sources(query), versioned)
            connection.execute(f"CREATE OR REPLACE TEMP TABLE latest_{number} AS {chosen}")
        return connection.sql(_sql(query, versioned)).to_arrow_table()
    finally:
        for number in range(len(latest)):
            connection.execute(f"DROP TABLE IF EXISTS latest_{number}")
        for place in range(len(query.aliases)):
            connection.unregister(f"input_{place}")


def row_column(alias: str) -> str:
    """The column of `join_within_times` that says which row of an input a result has."""
    return f"{_ROW}.{alias}"


def groups_of(query: Query, tables: Mapping[str, pa.Table]) -> dict[str, NDArray[np.int64]]:
    """For every input with a `ROWS` window, which tuples are counted together: those with the same number."""
    numbers = {}
    connection = _connection()
    for input_ in query.inputs:
        if not isinstance(input_.window, Rows):
            continue
        per = ", ".join(map(_quoted, input_.window.per)) or "1"
        connection.register("counted", _plain(tables[input_.alias]))
        text = f"SELECT dense_rank() OVER (ORDER BY {per}) AS number FROM counted ORDER BY {_ROW}"
        numbers[input_.alias] = connection.sql(text).to_arrow_table()["number"].to_numpy()
        connection.unregister("counted")
    return numbers


def inside_counts(
    query: Query,
    joined: pa.Table,
    positions: Mapping[str, NDArray[np.int64]],
    groups: Mapping[str, NDArray[np.int64]],
) -> NDArray[np.bool_]:
    """Which results have, of every input with `ROWS n`, one of its last n tuples when their last tuple arrives.

    ``groups`` says which tuples of these inputs are counted together.
    """
    inside = np.ones(joined.num_rows, np.bool_)
    if not any(isinstance(input_.window, Rows) for input_ in query.inputs):
        return inside
    places = {alias: positions[alias][joined[row_column(alias)].to_numpy()] for alias in query.driving}
    last = np.max(list(places.values()), axis=0)
    for input_ in query.inputs:
        if isinstance(input_.window, Rows):
            group = groups[input_.alias]
            counted = group[joined[row_column(input_.alias)].to_numpy()]
            for number in np.unique(counted):
                every = np.sort(positions[input_.alias][group == number])
                some = counted == number
                newer = np.searchsorted(every, last[some], "right")
                newer -= np.searchsorted(every, places[input_.alias][some], "right")
                inside[some] &= newer < input_.window.count
    return inside


@lru_cache(maxsize=1)
def _connection() -> Any:
    return _connected()


def _connected() -> Any:
    try:
        import duckdb
    except ImportError:
        raise ConfigError("the reference needs DuckDB", hint="pip install duckdb") from None
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET threads = 1")
    # DuckDB 2.0 loses NULLs of outer joins in the merge joins above them; nested loops keep them.
    connection.execute("SET nested_loop_join_threshold = 1000000000")
    connection.execute("SET merge_join_threshold = 1000000000")
    return connection


def _plain(table: pa.Table) -> pa.Table:
    """A table with the numbers of its rows, and its times as plain timestamps in UTC."""
    columns = {}
    for field in table.schema:
        values = table[field.name]
        is_time = pa.types.is_timestamp(field.type)
        columns[field.name] = values.cast(pa.timestamp("us"), safe=False) if is_time else values
    if PRESENT not in columns:
        columns[PRESENT] = pa.chunked_array([pa.array(np.ones(table.num_rows, np.bool_))])
    columns[_ROW] = pa.chunked_array([pa.array(np.arange(table.num_rows))])
    return pa.table(columns)


def _column(tables: Mapping[str, pa.Table], alias: str, name: str) -> NDArray[np.int64]:
    if name not in tables[alias].schema.names:
        raise QueryError(
            f"the table of {alias} has no column {name}", hint="a ROWS window needs the total order"
        )
    values: NDArray[np.int64] = tables[alias][name].to_numpy()
    return values


def _sql(query: Query, versioned: frozenset[str]) -> str:
    shown = [f"{_transpiled(o.expr)} AS {_quoted(o.name)}" for o in query.projection]
    shown += [f"{_quoted(a)}.{_ROW} AS {_quoted(row_column(a))}" for a in query.visible]
    sources = _sources(query)
    origin = ", ".join(sources.values())
    if query.outer is not None:
        origin = _joined(query, query.outer, sources, versioned)
    text = f"SELECT {', '.join(shown)} FROM {origin}"
    where = _all(
        [*_conditions(query), *(_in_force(query, query.aliases, versioned) if query.outer is None else ())]
    )
    return text + (f" WHERE {where}" if where else "")


def _sources(query: Query) -> dict[str, str]:
    return {alias: f"input_{place} AS {_quoted(alias)}" for place, alias in enumerate(query.aliases)}


def _asof_joins(node: Join | str | None) -> Iterator[Join]:
    """The joins with the latest version, those below first."""
    if isinstance(node, Join):
        yield from _asof_joins(node.left)
        yield from _asof_joins(node.right)
        if node.kind in ASOF:
            yield node


def _latest_sql(query: Query, node: Join, sources: Mapping[str, str], versioned: frozenset[str]) -> str:
    """For every row of a join's left side that has a version, as the numbers of its tuples, the latest one's number."""
    right = str(node.right)
    rows = [f"{_quoted(alias)}.{_ROW}" for alias in _visible(node.left)]
    values = [f"{_quoted(right)}.{_quoted(c.name)}" for c in query.columns_of(right) if c.name != PRESENT]
    choice = choice_of(query, node)
    value = _time(query.input(right)) if choice is None else _transpiled(choice.value)
    by = f"{value} {'DESC' if choice is None or choice.latest else 'ASC'}"
    order = [by, *(f"{one} DESC NULLS LAST" for one in sorted(values))]
    shown = ", ".join(
        f"{row} AS row_{place}" for place, row in enumerate([*rows, f"{_quoted(right)}.{_ROW}"])
    )
    origin = _joined(query, replace(node, kind="inner"), sources, versioned)
    ranked = f"row_number() OVER (PARTITION BY {', '.join(rows)} ORDER BY {', '.join(order)})"
    return f"SELECT {shown} FROM {origin} QUALIFY {ranked} = 1"


def _visible(side: Join | str) -> tuple[str, ...]:
    return (side,) if isinstance(side, str) else side.visible


def _conditions(query: Query) -> Iterator[str]:
    for key in query.keys:
        yield from map(_transpiled, key.equalities())
    yield from map(_transpiled, query.conditions)
    if query.outer is None:
        yield from _within(query.inputs)


def _joined(query: Query, node: Join | str, sources: Mapping[str, str], versioned: frozenset[str]) -> str:
    """A join and those below it; ON says what makes two rows partners, windows included."""
    if isinstance(node, str):
        return sources[node]
    left, right = (_joined(query, side, sources, versioned) for side in (node.left, node.right))
    if node.kind == MARK:
        return _marked(query, node, left, sources, versioned)
    if node.kind in ASOF:
        number, names = list(_asof_joins(query.outer)).index(node), _visible(node.left)
        same = [
            f"latest_{number}.row_{place} IS NOT DISTINCT FROM {_quoted(alias)}.{_ROW}"
            for place, alias in enumerate(names)
        ]
        last = f"{_quoted(str(node.right))}.{_ROW} = latest_{number}.row_{len(names)}"
        unused = "RIGHT JOIN" if node.kind in LACKS_LEFT else "JOIN"
        chosen = f"(latest_{number} {unused} {right} ON {last})"
        side = node.kind.removeprefix("asof").upper() or "INNER"
        return f"({left} {side} JOIN {chosen} ON {' AND '.join(same)})"
    together = replace(node, kind="inner").visible
    _check_versions(query, node, versioned)
    terms = [*map(_transpiled, node.on), *_within([query.input(alias) for alias in together])]
    sides = [{side} if isinstance(side, str) else set(side.aliases) for side in (node.left, node.right)]
    new = frozenset(name for side in sides if not side & set(query.driving) for name in side)
    on = _all([*terms, *_in_force(query, together, versioned & new)])
    return f"({left} {node.kind.upper()} JOIN {right} ON {on or 'TRUE'})"


def _marked(
    query: Query, node: Join, left: str, sources: Mapping[str, str], versioned: frozenset[str]
) -> str:
    """The rows of a left side, each once, and whether an inner join finds a partner for it."""
    names, alias = _visible(node.left), always(node.right)[0]
    rows = ", ".join(f"{_quoted(name)}.{_ROW} AS row_{place}" for place, name in enumerate(names))
    inner = _joined(query, replace(node, kind="inner"), sources, versioned)
    matched = f"(SELECT DISTINCT {rows}, TRUE AS {_quoted(PRESENT)} FROM {inner}) AS {_quoted(alias)}"
    same = [
        f"{_quoted(alias)}.row_{place} IS NOT DISTINCT FROM {_quoted(name)}.{_ROW}"
        for place, name in enumerate(names)
    ]
    return f"({left} LEFT JOIN {matched} ON {' AND '.join(same)})"


def _within(inputs: Sequence[Input]) -> Iterator[str]:
    """That every tuple of some inputs, where it is there, is inside its window when the newest of them comes."""
    timed = [input_ for input_ in inputs if not input_.stream.table]
    times = [_time(input_) for input_ in timed]
    newest = f"greatest({', '.join(times)})"
    for input_, time in zip(timed, times, strict=True):
        if isinstance(input_.window, Range):
            inside = f"{newest} - {time} <= {input_.window.duration.total_seconds() * 1e6:.0f}"
            yield f"{_quoted(input_.alias)}.{_ROW} IS NULL OR {inside}"


def _check_versions(query: Query, node: Join, versioned: frozenset[str]) -> None:
    """Refuse a tree for which ON cannot say which version a row has: all streams must be below, and none waits."""
    below = set(node.aliases)
    late = versioned & below and (set(query.driving) - below or node.kind == "full")
    waits = versioned and node.kind != "inner" and not below & set(query.tables)
    if late or waits:
        raise QueryError(
            "the reference knows versions of tables only where inner joins of all streams come before them"
        )


def _in_force(query: Query, together: Iterable[str], versioned: frozenset[str]) -> Iterator[str]:
    """That rows of tables were there in the batch of the last of some tuples."""
    names = list(together)
    batches = ", ".join(f"{_quoted(alias)}.{BATCH}" for alias in names if alias in query.driving)
    for alias in (alias for alias in names if alias in versioned):
        ends = f"{_quoted(alias)}.{FROM}", f"{_quoted(alias)}.{UNTIL}"
        yield f"greatest({batches}) >= {ends[0]} AND greatest({batches}) < {ends[1]}"


def _all(conditions: Iterable[str]) -> str:
    return " AND ".join(f"({condition})" for condition in conditions)


def _time(input_: Input) -> str:
    alias = _quoted(input_.alias)
    if input_.stream.event_time is None:
        return f"{alias}.{TIME}"
    return f"epoch_us({alias}.{_quoted(input_.stream.event_time)})"


def _transpiled(expr: Expr) -> str:
    """An expression in DuckDB's words; what overflows is NULL, where DuckDB would stop."""
    text: str = sqlglot.parse_one(to_sql(expr), read="spark").transform(_or_null).sql("duckdb")
    return text


def _or_null(node: Any) -> Any:
    if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Neg | exp.Abs) and not isinstance(
        node.parent, exp.Anonymous
    ):
        return exp.Anonymous(this="TRY", expressions=[node.copy()])
    return node


def _quoted(name: str) -> str:
    return sqlglot.transpile(identifier(name), read="spark", write="duckdb", identify=True)[0]


def define_functions(connection: Any, query: Query, functions: Mapping[str, Callable[..., Any]]) -> None:
    """Make users' functions DuckDB's, each for the types it is called with."""
    kinds: dict[str, tuple[list[str], str]] = {}
    for expr in query.expressions():
        for call in user_calls(expr):
            kind = [_duckdb_type(arg.type) for arg in call.args], _duckdb_type(call.type)
            if kinds.setdefault(call.function, kind) != kind:
                raise QueryError(f"the reference takes {call.function} with one kind of arguments only")
    for name, (parameters, returns) in kinds.items():
        connection.create_function(
            name,
            _adapted(functions[name], len(parameters)),
            parameters,
            returns,
            type="arrow",
            null_handling="special",
        )


def _adapted(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """A function of so many arrays; DuckDB reads off its signature how many it takes."""

    def adapted(*columns: Any) -> Any:
        return function(*(c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns))

    names = (Parameter(f"x{i}", Parameter.POSITIONAL_ONLY) for i in range(count))
    adapted.__signature__ = Signature(list(names))  # type: ignore[attr-defined]
    return adapted


def _duckdb_type(type_: DataType) -> str:
    """A type by DuckDB's name; times are plain, as in `_plain`."""
    if type_.name == "timestamp":
        return "TIMESTAMP"
    return str(sqlglot.exp.DataType.build(type_sql(type_), dialect="spark").sql("duckdb"))
