"""What a tree of joins gives, by its definition: pair by pair and row by row, without any index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.unit.kernels.columns import less, same
from weft.kernels.outer.tree import FOREVER, Relation
from weft.logical.expr.expression import Call, Column, Expr, Literal
from weft.logical.outer.outer import joins
from weft.logical.query.join_tree import Join

Waits = dict[tuple[int, str], int | None]


@dataclass(frozen=True)
class Row:
    """The numbers of the tuples of a row, by input."""

    tuples: tuple[tuple[str, int], ...]
    arrived: int
    final: int

    @property
    def present(self) -> dict[str, int]:
        return {alias: number for alias, number in self.tuples if number >= 0}


class Definition:
    """What a tree gives, pair by pair and without any index."""

    def __init__(self, relations: Mapping[str, Relation], waits: Waits) -> None:
        self.relations, self.waits = relations, waits
        self.values = {alias: one.batch.to_pydict() for alias, one in relations.items()}
        self.count = -1

    def rows(self, tree: Join | str) -> list[Row]:
        if isinstance(tree, str):
            arrived = self.relations[tree].arrived.tolist()
            return [Row(((tree, number),), batch, -FOREVER) for number, batch in enumerate(arrived)]
        self.count += 1
        node = self.count
        left, right = self.rows(tree.left), self.rows(tree.right)
        matches = {one: [other for other in right if self.match(tree, one, other)] for one in left}
        return list(self.joined(node, tree, left, right, matches))

    def joined(
        self, node: int, tree: Join, left: list[Row], right: list[Row], matches: dict[Row, list[Row]]
    ) -> Iterator[Row]:
        for one in left:
            found = matches[one]
            if tree.kind == "semi" and found:
                late = any(below.kind in ("left", "full", "anti") for _, below in joins(tree.right))
                arrived = one.arrived if late else max(one.arrived, min(other.arrived for other in found))
                yield Row(one.tuples, arrived, max(one.final, self.wait(node, one)) if late else one.final)
            if tree.kind == "anti" and not found:
                yield Row(one.tuples, one.arrived, max(one.final, self.wait(node, one)))
            if tree.kind in ("left", "full") and not found:
                yield self.padded(node, one, self.visible(tree.right))
            if tree.kind in ("inner", "left", "full"):
                for other in found:
                    arrived, final = max(one.arrived, other.arrived), max(one.final, other.final)
                    yield Row(one.tuples + other.tuples, arrived, final)
        if tree.kind == "full":
            matched = {other for found in matches.values() for other in found}
            for other in right:
                if other not in matched:
                    yield self.padded(node, other, self.visible(tree.left))

    def padded(self, node: int, row: Row, missing: Sequence[str]) -> Row:
        tuples = row.tuples + tuple((alias, -1) for alias in missing)
        return Row(tuples, row.arrived, max(row.final, self.wait(node, row)))

    def visible(self, tree: Join | str) -> list[str]:
        if isinstance(tree, str):
            return [tree]
        right = [] if tree.kind in ("semi", "anti") else self.visible(tree.right)
        return self.visible(tree.left) + right

    def wait(self, node: int, row: Row) -> int:
        waits = {alias: self.waits.get((node, alias)) for alias in row.present}
        times = [self.time(alias, row) + wait for alias, wait in waits.items() if wait is not None]
        return min(times, default=FOREVER)

    def time(self, alias: str, row: Row) -> int:
        return int(self.relations[alias].times[row.present[alias]])

    def match(self, tree: Join, left: Row, right: Row) -> bool:
        both = Row(left.tuples + right.tuples, 0, 0)
        newest = max(self.time(alias, both) for alias in both.present)
        for alias in both.present:
            reach = self.relations[alias].reach
            if reach is not None and newest - self.time(alias, both) > reach:
                return False
        return all(self.value(term, both.present) is True for term in tree.on)

    def value(self, expr: Expr, row: Mapping[str, int]) -> Any:
        if isinstance(expr, Literal):
            return expr.value
        if isinstance(expr, Column):
            name = f"{expr.alias}.{expr.name}"
            value = self.values[expr.alias][name][row[expr.alias]] if expr.alias in row else None
            return value.replace(tzinfo=None) if isinstance(value, datetime) else value
        return apply(expr, [self.value(arg, row) for arg in expr.args])


def apply(expr: Call, args: list[Any]) -> Any:
    if expr.function == "coalesce":
        return next((arg for arg in args if arg is not None), None)
    if expr.function == "is null":
        return args[0] is None
    if expr.function in ("and", "or"):
        decisive = expr.function == "or"
        return decisive if decisive in args else None if None in args else not decisive
    if None in args:
        return None
    if expr.function == "not":
        return not args[0]
    if expr.function in ("+", "-"):
        return args[0] + args[1] if expr.function == "+" else args[0] - args[1]
    if expr.function in ("=", "<>"):
        return same(*args) == (expr.function == "=")
    return less(*args, or_equal=expr.function == "<=")
