"""Join trees against their definition: a row too few, too many or too early is a wrong result that nobody notices."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.kernels.columns import less, same
from weft.kernels.outer import FOREVER, Relation, Rows, nodes, rows_of
from weft.logical.expr import Call, Column, Expr, Literal
from weft.logical.functions import call, literal
from weft.logical.join import Join
from weft.logical.schema import DataType

KINDS = ("inner", "left", "full", "semi", "anti")
TYPES = {"k": "long", "u": "long", "x": "double", "s": "string", "ts": "timestamp"}
ARROW = {"k": pa.int64(), "u": pa.int64(), "x": pa.float64(), "s": pa.string(), "ts": pa.timestamp("us", "UTC")}
BEGIN = datetime(1970, 1, 1)

Waits = dict[tuple[int, str], int | None]
Line = tuple[tuple[tuple[str, int], ...], int, int]


def col(alias: str, name: str) -> Column:
    return Column(alias, name, DataType(TYPES[name]))


def join(kind: str, left: Join | str, right: Join | str, *on: Expr) -> Join:
    return Join(kind, left, right, on)


def relation(
    alias: str,
    columns: Mapping[str, Sequence[Any]],
    times: Sequence[int] | None = None,
    arrived: Sequence[int] | None = None,
    reach: int | None = None,
) -> Relation:
    """An input; without times, all tuples are of time 0, and of batch 1."""
    size = len(next(iter(columns.values())))
    batch = pa.record_batch(
        {f"{alias}.{name}": pa.array(values, ARROW[name]) for name, values in columns.items()}
    )
    return Relation(
        batch,
        np.array(times if times is not None else [0] * size, np.int64),
        np.array(arrived if arrived is not None else [1] * size, np.int64),
        reach,
    )


def lines(rows: Rows) -> Counter[Line]:
    """Rows as a multiset."""
    names = sorted(rows.numbers)
    columns = [rows.numbers[name].tolist() for name in names]
    numbers = zip(*columns, strict=True)
    found = zip(numbers, rows.arrived.tolist(), rows.final.tolist(), strict=True)
    return Counter((tuple(zip(names, each, strict=True)), arrived, final) for each, arrived, final in found)


def numbers_of(tree: Join | str, relations: Mapping[str, Relation], waits: Waits | None = None) -> list[Any]:
    """The rows as tuples of numbers, sorted, the inputs in the order of their names."""
    return sorted(tuple(number for _, number in line[0]) for line in lines(rows_of(tree, relations, waits or {})).elements())


# --- the definition, row by row


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
                arrived = max(one.arrived, min(other.arrived for other in found))
                yield Row(one.tuples, arrived, max(one.final, min(other.final for other in found)))
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


# --- random trees


def random_relation(rng: random.Random, alias: str) -> Relation:
    size = rng.choice([0, 1, 2, 4, 6, 8])
    times = [rng.randrange(20) for _ in range(size)]
    pools: dict[str, list[Any]] = {
        "k": [1, 1, 2, 3, None],
        "u": [1, 2, None],
        "x": [0.0, -0.0, 1.5, float("nan"), None],
        "s": ["", "a", "abcdefghi", "b", None],
    }
    columns: dict[str, list[Any]] = {
        name: [rng.choice(pool) for _ in range(size)] for name, pool in pools.items()
    }
    columns["ts"] = [None if rng.random() < 0.1 else time for time in times]
    arrived = [rng.randrange(1, 5) for _ in range(size)]
    return relation(alias, columns, times, arrived, rng.choice([None, None, 0, 3, 8]))


def random_tree(rng: random.Random, names: list[str]) -> tuple[Join | str, list[str]]:
    """A tree over the inputs, and those that are visible above it."""
    if len(names) == 1:
        return names[0], names
    cut = rng.randrange(1, len(names))
    left, ours = random_tree(rng, names[:cut])
    right, theirs = random_tree(rng, names[cut:])
    kind = rng.choice(KINDS)
    terms = random_terms(rng, ours, theirs)
    return join(kind, left, right, *terms), ours if kind in ("semi", "anti") else ours + theirs


def random_terms(rng: random.Random, ours: list[str], theirs: list[str]) -> list[Expr]:
    terms: list[Expr] = []
    if rng.random() < 0.75:
        names = rng.choice([["k"], ["k"], ["x"], ["s"], ["k", "u"], ["k", "s"]])
        terms += [call("=", value(rng, ours, name), value(rng, theirs, name)) for name in names]
    if not terms or rng.random() < 0.5:
        terms += rng.choice([theta, theta, one_sided, distance, between])(rng, ours, theirs)
    return terms


def value(rng: random.Random, names: list[str], column: str) -> Expr:
    """A column of some input, or the first of two that is there."""
    if len(names) > 1 and rng.random() < 0.5:
        return call("coalesce", *(col(alias, column) for alias in rng.sample(names, 2)))
    return col(rng.choice(names), column)


def theta(rng: random.Random, ours: list[str], theirs: list[str]) -> list[Expr]:
    name = rng.choice(["k", "u", "x", "s"])
    one, other = value(rng, ours, name), value(rng, theirs, name)
    compared = call(rng.choice(["<", "<=", ">", ">=", "<>"]), one, other)
    if rng.random() < 0.3:
        return [call("or", compared, call("is null", value(rng, ours, "u")))]
    return [compared]


def one_sided(rng: random.Random, ours: list[str], theirs: list[str]) -> list[Expr]:
    side = rng.choice([ours, theirs])
    term = call("<", value(rng, side, "u"), literal(2))
    return [rng.choice([term, call("is null", value(rng, side, "k")), call("=", value(rng, side, "u"), literal(1))])]


def distance(rng: random.Random, ours: list[str], theirs: list[str]) -> list[Expr]:
    """A band of time, in both directions or in one."""
    one, other = value(rng, ours, "ts"), value(rng, theirs, "ts")
    terms = [
        call("<=", one, call("+", other, literal(timedelta(microseconds=rng.randrange(6))))),
        call("<", other, call("+", one, literal(timedelta(microseconds=rng.randrange(6))))),
    ]
    return rng.choice([terms, terms[:1], terms[1:]])


def between(rng: random.Random, ours: list[str], theirs: list[str]) -> list[Expr]:
    """A band of numbers."""
    middle, low = value(rng, theirs, "k"), value(rng, ours, "u")
    return [call("<=", low, middle), call("<", middle, call("+", value(rng, ours, "k"), literal(1)))]


def random_waits(rng: random.Random, tree: Join, names: list[str]) -> Waits:
    places = [(number, alias) for number, _ in nodes(tree) for alias in names]
    return {place: rng.choice([None, 0, 5, 9, -2]) for place in places if rng.random() < 0.9}


@pytest.mark.parametrize("seed", range(8))
def test_random_trees_give_what_their_definition_says(seed: int) -> None:
    rng = random.Random(seed)
    for number in range(100):
        names = ["a", "b", "c", "d"][: rng.choice([2, 2, 3, 3, 4])]
        relations = {alias: random_relation(rng, alias) for alias in names}
        tree, _ = random_tree(rng, rng.sample(names, len(names)))
        assert isinstance(tree, Join)
        waits = random_waits(rng, tree, names)
        definition = Definition(relations, waits).rows(tree)
        expected = Counter((tuple(sorted(row.tuples)), row.arrived, row.final) for row in definition)
        assert lines(rows_of(tree, relations, waits)) == expected, f"case {number}: {tree}"
