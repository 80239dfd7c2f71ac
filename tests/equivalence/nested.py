"""Joins of all kinds by nested loops, from what was written: the definition once more, with nothing but Python.

A row is the tuples it has, by alias; what is not there is NULL. Conditions are read by the parser, each on its own, and
evaluated here.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from tests.equivalence.outer import Branch, OuterJoin, seen
from weft.logical.expr.expression import Call, Column, Expr, Literal
from weft.logical.query.query import Input
from weft.logical.query.window import Range
from weft.sql.expressions import bind_expression
from weft.sql.parse import parse_fragment
from weft.sql.scope import Scope
from weft.testing import TIME

Row = dict[str, dict[str, Any]]
Value = Callable[[Row], Any]


def nested_join(outer: OuterJoin, tables: Mapping[str, pa.Table]) -> Counter[tuple[Any, ...]]:
    """The results of a random join over tables by alias."""
    loops = _Loops({input_.alias: input_ for input_ in outer.join.query.inputs}, tables)
    rows = loops.rows(outer.tree)
    names = outer.tree.visible
    where = [loops.value(term, names) for term in outer.where]
    shown = [loops.value(text, names) for text in outer.shown.values()]
    kept = (row for row in rows if all(term(row) is True for term in where))
    return Counter(tuple(_comparable(value(row)) for value in shown) for row in kept)


class _Loops:
    def __init__(self, inputs: Mapping[str, Input], tables: Mapping[str, pa.Table]) -> None:
        self.inputs = inputs
        self.tables = tables

    def rows(self, node: Branch | str) -> list[Row]:
        """What a join gives."""
        if isinstance(node, str):
            return [{node: values} for values in _plain(self.tables[node]).to_pylist()]
        left, right = self.rows(node.left), self.rows(node.right)
        names = (*seen(node.left), *seen(node.right))
        on = [self.value(term, names) for term in node.on]
        partners = [
            [place for place, other in enumerate(right) if self._match(row | other, on)] for row in left
        ]
        return list(_joined(node.kind, left, right, partners))

    def _match(self, row: Row, on: Sequence[Value]) -> bool:
        return all(term(row) is True for term in on) and self._within(row)

    def _within(self, row: Row) -> bool:
        """Whether all tuples that are there lie in their windows when the newest of them comes."""
        times = {alias: self._time(alias, values) for alias, values in row.items()}
        newest = max((time for time in times.values() if time is not None), default=None)
        for alias, time in times.items():
            window = self.inputs[alias].window
            if isinstance(window, Range) and (
                time is None or newest is None or newest - time > window.duration / timedelta(microseconds=1)
            ):
                return False
        return True

    def _time(self, alias: str, values: Mapping[str, Any]) -> int | None:
        name = self.inputs[alias].stream.event_time
        if name is None:
            return int(values[TIME])
        time: int | None = _comparable(values[name])
        return time

    def value(self, text: str, names: Sequence[str]) -> Value:
        """What a text means in a row of these inputs."""
        if text.startswith("provenance"):
            return _provenance(text, names)
        inputs = tuple(self.inputs[name] for name in names)
        return _compiled(bind_expression(parse_fragment(text), Scope(inputs)))


def _joined(kind: str, left: list[Row], right: list[Row], partners: list[list[int]]) -> list[Row]:
    pairs = [row | right[place] for row, places in zip(left, partners, strict=True) for place in places]
    alone = [row for row, places in zip(left, partners, strict=True) if not places]
    found = {place for places in partners for place in places}
    others = [row for place, row in enumerate(right) if place not in found]
    return {
        "inner": pairs,
        "left": pairs + alone,
        "right": pairs + others,
        "full": pairs + alone + others,
        "semi": [row for row, places in zip(left, partners, strict=True) if places],
        "anti": alone,
    }[kind]


def _plain(table: pa.Table) -> pa.Table:
    columns = {
        name: table[name].cast(pa.timestamp("us")) if pa.types.is_timestamp(table[name].type) else table[name]
        for name in table.schema.names
    }
    return pa.table(columns)


def _comparable(value: Any) -> Any:
    """A time in microseconds; anything else as it is."""
    return (
        (value - datetime(1970, 1, 1)) // timedelta(microseconds=1) if isinstance(value, datetime) else value
    )


def _provenance(text: str, names: Sequence[str]) -> Value:
    """The names of the inputs that a row has, or whether they are not just one: ``provenance <> 'r1'``."""

    def shown(row: Row) -> str:
        return ", ".join(name for name in names if name in row)

    if text == "provenance":
        return shown
    unwanted = text.split("'")[1]
    return lambda row: shown(row) != unwanted


_STRICT: dict[str, Callable[..., Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    "+": operator.add,
    "-": operator.sub,
    "not": operator.not_,
    "cast": lambda value: value,
    "in": lambda needle, *options: needle in options,
}


def _compiled(expr: Expr) -> Value:
    if isinstance(expr, Literal):
        constant = expr.value
        return lambda _: constant
    if isinstance(expr, Column):
        alias, name = expr.alias, expr.name
        return lambda row: row[alias][name] if alias in row else None
    args = [_compiled(arg) for arg in expr.args]
    special = _special(expr, args)
    if special is not None:
        return special
    function = _STRICT[expr.function]

    def strict(row: Row) -> Any:
        values = [arg(row) for arg in args]
        return None if None in values else function(*values)

    return strict


def _special(expr: Call, args: Sequence[Value]) -> Value | None:
    """What may be something where an argument is NULL."""
    match expr.function:
        case "and" | "or":
            absorbing = expr.function == "or"
            return lambda row: _connective([arg(row) for arg in args], absorbing)
        case "is null":
            return lambda row: args[0](row) is None
        case "coalesce":
            return lambda row: next((v for arg in args if (v := arg(row)) is not None), None)
        case "case":
            when, then, otherwise = args
            return lambda row: then(row) if when(row) is True else otherwise(row)
    return None


def _connective(values: Sequence[bool | None], absorbing: bool) -> bool | None:
    if absorbing in values:
        return absorbing
    return None if None in values else not absorbing
