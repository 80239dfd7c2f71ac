"""What SQL has and Weft does not support, and the errors that say so.

Guarantees: a part of the syntax tree that is not supported is refused, never dropped; the error names it,
points at it and, where there is one, says the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from weft.errors import QueryError, SqlError
from weft.logical.expr.functions import similar_functions
from weft.sql.source import Span, SqlText

__all__ = ["refuse_arguments", "unknown_function", "unsupported"]

_OUTSIDE = "Weft only joins; do it with Spark on the result, as in session.query(…).dataframe()"
_GROUPED = "do it with Spark on the result: session.query(…).dataframe().groupBy(…)"
_FLAT = (
    "join it in FROM: SEMI JOIN keeps the rows that IN and EXISTS keep, ANTI JOIN those that NOT EXISTS keeps, "
    "and those that NOT IN keeps where neither side is NULL"
)
_VALUE = "join it in FROM, as in a LEFT JOIN b ON b.k = a.k, where b has at most one row for each row of a"
_EXPLODE = "name the elements, as in x[0], or explode the list with Spark before it becomes a stream"
_NO_CLOCK = "the same tuples must always give the same result; compare event times with each other"

_ORDER = "write ORDER BY, LIMIT and OFFSET after the whole query: rows of a sub-select have no order"

_NODES: dict[type[exp.Expr], tuple[str, str | None]] = {
    exp.Subquery: ("a sub-select as a value", _VALUE),
    exp.Query: ("a sub-select as a value", _VALUE),
    exp.Exists: ("EXISTS with a sub-select", _FLAT),
    exp.SubqueryPredicate: ("ANY or ALL here", "write it right after a comparison, as in x > ALL (SELECT …)"),
    exp.Except: ("EXCEPT ALL", "EXCEPT gives every row once, and is there"),
    exp.Intersect: ("INTERSECT ALL", "INTERSECT gives every row once, and is there"),
    exp.Values: ("VALUES", 'register the rows as a table, as in session.table("t", pyarrow.table(…))'),
    exp.Window: ("a window function (OVER)", _OUTSIDE),
    exp.WithinGroup: ("WITHIN GROUP", _OUTSIDE),
    exp.Filter: ("FILTER", _OUTSIDE),
    exp.Distinct: ("DISTINCT in a function", _OUTSIDE),
    exp.Star: ("* here", "name the columns"),
    exp.Alias: ("a name (AS) here", None),
    exp.JSONExtract: ("access to JSON", None),
    exp.Lambda: ("a lambda", None),
    exp.Tuple: ("a list in parentheses", "compare the values one by one"),
    exp.Placeholder: ("a parameter", "write the value"),
    exp.Parameter: ("a parameter", "write the value"),
    exp.SessionParameter: ("a parameter", "write the value"),
    exp.CurrentDate: ("CURRENT_DATE", _NO_CLOCK),
    exp.CurrentTimestamp: ("CURRENT_TIMESTAMP", _NO_CLOCK),
    exp.Escape: ("ESCAPE", "a backslash escapes % and _: write x LIKE '10\\%'"),
    exp.Concat: ("a string right after another", "write || between them"),
    exp.Transform: ("TRANSFORM", None),
    exp.QueryTransform: ("TRANSFORM", None),
    exp.Collate: ("COLLATE", None),
    exp.AtTimeZone: ("AT TIME ZONE", "times are UTC"),
    exp.HexString: ("a binary constant", None),
    exp.Lateral: ("LATERAL with a function", _EXPLODE),
    exp.Unnest: ("UNNEST", _EXPLODE),
    exp.Anonymous: ("a table function", "a window is written FROM videos [RANGE 10 MINUTES] AS v"),
}

_ARGUMENTS: dict[str, tuple[str, str | None]] = {
    "with_": (
        "WITH (a common table expression) here",
        "write it before the first SELECT, or in a sub-select of FROM",
    ),
    "qualify": ("QUALIFY", _OUTSIDE),
    "windows": ("WINDOW", "a stream's window is written FROM videos [RANGE 10 MINUTES] AS v"),
    "order": ("ORDER BY in a sub-select", _ORDER),
    "sort": ("SORT BY", "write ORDER BY"),
    "cluster": ("CLUSTER BY", None),
    "distribute": ("DISTRIBUTE BY", "Weft decides how state is partitioned"),
    "limit": ("LIMIT in a sub-select", _ORDER),
    "offset": ("OFFSET in a sub-select", _ORDER),
    "hint": ("a hint", "Weft decides how to join"),
    "hints": ("a hint", "Weft decides how to join"),
    "laterals": ("LATERAL VIEW", _EXPLODE),
    "pivots": ("PIVOT", _OUTSIDE),
    "sample": ("TABLESAMPLE", None),
    "query": ("IN with a sub-select", _FLAT),
    "unnest": ("IN UNNEST", None),
    "symmetric": ("BETWEEN SYMMETRIC", None),
    "except_": ("EXCEPT after *", "name the columns"),
    "replace": ("REPLACE after *", "name the columns"),
    "rename": ("RENAME after *", "name the columns"),
    "db": ("a name with two dots", "write alias.column"),
    "catalog": ("a name with two dots", "write alias.column"),
    "into": ("INTO", "results go to the query's sink"),
    "locks": ("FOR UPDATE", None),
    "match": ("MATCH_RECOGNIZE", None),
    "safe": ("TRY_CAST", "write CAST"),
    "version": ("an older version of a stream", None),
    "columns": ("renaming columns in FROM", None),
}
_SIGNS = {"a hint": "/*+"}

# Functions that combine many rows; Weft has none of them, and says so rather than "unknown function".
_AGGREGATES = frozenset(
    name.lower()
    for function in exp.ALL_FUNCTIONS
    if issubclass(function, exp.AggFunc)
    for name in function.sql_names()
) | {"collect_list", "collect_set", "mean", "first", "last", "any", "some", "every", "percentile"}

_VOLATILE = frozenset(
    (
        *("current_date", "current_time", "current_timestamp", "curdate", "localtimestamp", "now"),
        *("rand", "random", "randn", "uuid"),
    )
)


def unknown_function(written: str, own: Iterable[str] = ()) -> QueryError:
    """The error for a function that does not exist or is not supported.

    ``own`` are the functions that users registered.
    """
    name = written.lower()
    if name in _AGGREGATES:
        return QueryError(f"there is no aggregate {written} yet", hint=_GROUPED)
    if name in _VOLATILE:
        return QueryError(f"{written} is not supported", hint=_NO_CLOCK)
    return QueryError(
        f"there is no function {written}",
        hint=f"{similar_functions(name, own)}; or register a function of your own: session.function",
    )


def unsupported(source: SqlText, node: exp.Expr) -> SqlError:
    """The error for a node that is not supported."""
    span = source.span(node)
    for kind in type(node).__mro__:
        if kind in _NODES:
            name, hint = _NODES[kind]
            return source.error(_from_keyword(source, name, span), f"{name} is not supported", hint)
    return source.error(span, f"{source.text_of(span)} is not supported")


def refuse_arguments(source: SqlText, node: exp.Expr, *understood: str) -> None:
    """Raise an error if a node has an argument other than those that are ``understood``."""
    for key, value in node.args.items():
        if key in understood or value is None or value is False or value == []:
            continue
        name, hint = _ARGUMENTS.get(key, (key.strip("_").replace("_", " ").upper(), None))
        parts = [part for part in _listed(value) if isinstance(part, exp.Expr)]
        span = source.span(*parts) if parts else source.span(node)
        raise source.error(_from_keyword(source, name, span), f"{name} is not supported", hint)


def _listed(value: object) -> Iterable[object]:
    return value if isinstance(value, list) else [value]


def _from_keyword(source: SqlText, name: str, span: Span) -> Span:
    """The span, beginning with its clause's keyword if that stands outside parentheses."""
    keyword = source.clause(_SIGNS.get(name, name.split()[0]))
    if keyword is None or keyword[0] > span[1]:
        return span
    return source.close_span((keyword[0], max(keyword[1], span[1])))
