"""Functions of texts that are JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence

from weft.errors import QueryError
from weft.logical.expr.builtin.entry import Function, define
from weft.logical.expr.conversion import STRING
from weft.logical.expr.expression import Expr, Literal, make_call, to_sql
from weft.logical.expr.rules import fitted, mismatch
from weft.logical.schema import DataType

__all__ = ["JSON", "path_steps"]

# As Spark reads a path: blanks are skipped before names and places, and a star alone stands for all.
_STEP = re.compile(
    r"\.(?!\*)\s*(?!\s)([^.\[]+)|\s*\['(?!\*'\])\s*(?!\s)([^'?]+)'\]|\[\s*(\d{1,18})\]", re.ASCII
)


def path_steps(path: str) -> tuple[str | int, ...] | None:
    """The names and places that a path into JSON goes by; None if it is no such path.

    >>> path_steps("$.a[0]['b c']")
    ('a', 0, 'b c')
    """
    if not path.startswith("$"):
        return None
    steps: list[str | int] = []
    at = 1
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return None
        steps.append(int(step[3]) if step[3] else step[1] or step[2])
        at = step.end()
    return tuple(steps)


def _value_at(function: str, args: Sequence[Expr]) -> Expr:
    text, path = fitted(args[0], "string"), fitted(args[1], "string")
    if text is None or path is None:
        raise mismatch(function, args, "it takes a text and a path")
    if not isinstance(path, Literal):
        raise QueryError(f"{function} needs a constant: {to_sql(path)}", hint="write the value itself")
    if path.value is not None and path_steps(str(path.value)) is None:
        raise QueryError(
            f"{function} does not read the path {path.value}", hint="go by names and places, as in '$.a.b[0]'"
        )
    return make_call(function, (text, path), STRING)


def _keys(function: str, args: Sequence[Expr]) -> Expr:
    text = fitted(args[0], "string")
    if text is None:
        raise mismatch(function, args, "it takes a text")
    return make_call(function, (text,), DataType("array<string>"))


JSON: tuple[Function, ...] = (
    define(
        "get_json_object",
        (_value_at, 2, 2),
        "get_json_object(s, path)",
        "The value that a path of names and places leads to, as a text; NULL where there is none, or s is no JSON.",
        """get_json_object('{"a": {"b": [5, 6]}}', '$.a.b[1]') → 6""",
        """get_json_object('{"a": {"b": [5, 6]}}', '$.a') → {"b":[5,6]}""",
    ),
    define(
        "json_array_length",
        "string -> int",
        "json_array_length(s)",
        "How many elements an array in JSON has; NULL where s is none.",
        "json_array_length('[5, [6, 7]]') → 2",
    ),
    define(
        "json_object_keys",
        (_keys, 1, 1),
        "json_object_keys(s)",
        "The keys of an object in JSON; NULL where s is none.",
        """json_object_keys('{"a": 1, "b": 2}') → ['a', 'b']""",
    ),
)
