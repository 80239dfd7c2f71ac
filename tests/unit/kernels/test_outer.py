"""Join trees against their definition: a row too few, too many or too early is a wrong result that nobody notices."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from tests.unit.kernels.trees import Definition, Waits
from weft.kernels.outer.tree import FOREVER, JoinedRows, Relation, rows_of
from weft.logical.expr.conversion import literal
from weft.logical.expr.expression import Column, Expr
from weft.logical.expr.functions import call
from weft.logical.outer.outer import joins
from weft.logical.query.join_tree import Join
from weft.logical.schema import DataType

KINDS = ("inner", "left", "full", "semi", "anti")
TYPES = {"k": "long", "u": "long", "x": "double", "s": "string", "ts": "timestamp"}
ARROW = {
    "k": pa.int64(),
    "u": pa.int64(),
    "x": pa.float64(),
    "s": pa.string(),
    "ts": pa.timestamp("us", "UTC"),
}

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


def lines(rows: JoinedRows) -> Counter[Line]:
    """Rows as a multiset."""
    names = sorted(rows.numbers)
    columns = [rows.numbers[name].tolist() for name in names]
    numbers = zip(*columns, strict=True)
    found = zip(numbers, rows.arrived.tolist(), rows.final.tolist(), strict=True)
    return Counter((tuple(zip(names, each, strict=True)), arrived, final) for each, arrived, final in found)


def numbers_of(tree: Join | str, relations: Mapping[str, Relation], waits: Waits | None = None) -> list[Any]:
    """The rows as tuples of numbers, sorted, the inputs in the order of their names."""
    return sorted(
        tuple(number for _, number in line[0])
        for line in lines(rows_of(tree, relations, waits or {})).elements()
    )


# --- worked examples

ON_K = call("=", col("a", "k"), col("b", "k"))
ON_COALESCED = call("=", call("coalesce", col("a", "k"), col("b", "k")), col("c", "k"))


def small() -> dict[str, Relation]:
    """Two inputs: 1 is twice in both, 2 and 4 are in one of them, NULL is in both."""
    return {
        "a": relation("a", {"k": [1, 2, None, 1]}, [10, 20, 30, 40], [1, 2, 3, 4]),
        "b": relation("b", {"k": [1, 4, None, 1]}, [11, 21, 31, 41], [5, 2, 1, 3]),
    }


PAIRS = [(0, 0), (0, 3), (3, 0), (3, 3)]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("inner", PAIRS),
        ("left", [*PAIRS, (1, -1), (2, -1)]),
        ("right", [*PAIRS, (-1, 1), (-1, 2)]),
        ("full", [*PAIRS, (1, -1), (2, -1), (-1, 1), (-1, 2)]),
        ("semi", [(0,), (3,)]),
        ("anti", [(1,), (2,)]),
    ],
)
def test_each_kind_keeps_what_it_should(kind: str, expected: list[tuple[int, ...]]) -> None:
    assert numbers_of(join(kind, "a", "b", ON_K), small()) == sorted(expected)


def test_an_input_alone_is_all_of_its_tuples() -> None:
    assert lines(rows_of("a", small(), {})) == Counter(
        {((("a", number),), number + 1, -FOREVER): 1 for number in range(4)}
    )


def test_inner_joins_without_a_condition_give_every_pair() -> None:
    assert len(numbers_of(join("inner", "a", "b"), small())) == 16


def test_a_condition_on_the_kept_side_alone_does_not_remove_its_rows() -> None:
    """The classic mistake: ON a.k = 2 says which rows have partners, not which rows there are."""
    tree = join("left", "a", "b", ON_K, call("=", col("a", "k"), literal(2)))
    assert numbers_of(tree, small()) == [(0, -1), (1, -1), (2, -1), (3, -1)]


def test_a_key_that_one_side_lacks_is_taken_from_the_other() -> None:
    relations = small() | {"c": relation("c", {"k": [2, 4, 9]})}
    tree = join("full", join("full", "a", "b", ON_K), "c", ON_COALESCED)
    padded = [(1, -1, 0), (-1, 1, 1), (2, -1, -1), (-1, 2, -1), (-1, -1, 2)]
    assert numbers_of(tree, relations) == sorted([*((*pair, -1) for pair in PAIRS), *padded])


def test_a_row_arrives_with_the_last_of_its_tuples_and_is_final_when_the_first_of_them_waits_no_longer() -> (
    None
):
    tree = join("full", "a", "b", ON_K)
    rows = lines(rows_of(tree, small(), {(0, "a"): 5, (0, "b"): None}))
    assert rows[(("a", 0), ("b", 0)), 5, -FOREVER] == 1
    assert rows[(("a", 1), ("b", -1)), 2, 25] == 1
    assert rows[(("a", -1), ("b", 1)), 2, FOREVER] == 1


def test_a_row_waits_as_long_as_the_shortest_of_its_tuples_and_as_the_longest_of_its_joins() -> None:
    relations = small() | {"c": relation("c", {"k": [9]})}
    tree = join("left", join("left", "a", "b", ON_K), "c", ON_COALESCED)
    waits: Waits = {(0, "a"): 9, (0, "b"): 2, (1, "a"): 50}
    rows = lines(rows_of(tree, relations, waits))
    assert rows[(("a", 0), ("b", 0), ("c", -1)), 5, 13] == 1  # b waits until 13, a until 19
    assert rows[(("a", 1), ("b", -1), ("c", -1)), 2, 70] == 1  # for b until 70, for c until 29


def test_a_semi_join_gives_a_row_when_its_first_partner_has_come() -> None:
    rows = lines(rows_of(join("semi", "a", "b", ON_K), small(), {(0, "a"): 7}))
    assert rows == Counter({((("a", 0),), 3, -FOREVER): 1, ((("a", 3),), 4, -FOREVER): 1})


def test_a_semi_join_with_rows_that_may_turn_out_to_be_none_waits_until_all_is_known() -> None:
    relations = small() | {"c": relation("c", {"k": [1]}, [0], [1])}
    tree = join(
        "semi",
        "c",
        join("left", "a", "b", call("<", col("a", "k"), col("b", "u"))),
        call("=", col("a", "k"), col("c", "k")),
    )
    relations["b"] = relation("b", {"k": [1], "u": [0]})
    rows = lines(rows_of(tree, relations, {(0, "c"): 300, (1, "a"): 100}))
    assert rows == Counter({((("c", 0),), 1, 300): 1})  # it has partners, but these still wait for a b


def test_an_anti_join_is_final_when_no_partner_can_come() -> None:
    rows = lines(rows_of(join("anti", "a", "b", ON_K), small(), {(0, "a"): 7}))
    assert rows == Counter({((("a", 1),), 2, 27): 1, ((("a", 2),), 3, 37): 1})


def test_tuples_outside_of_the_window_are_no_partners() -> None:
    relations = {
        "a": relation("a", {"k": [1, 1]}, [10, 20], reach=5),
        "b": relation("b", {"k": [1, 1, 1]}, [7, 15, 26], reach=3),
    }
    tree = join("full", "a", "b", ON_K)
    assert numbers_of(tree, relations) == [(-1, 2), (0, 0), (0, 1), (1, -1)]


@pytest.mark.parametrize("reaches", [(2, None), (None, 2)])
def test_windows_narrower_than_a_band_of_time_are_kept(reaches: tuple[int | None, int | None]) -> None:
    times = [0, 3, 6, 9]
    relations = {
        alias: relation(alias, {"ts": times, "k": [1] * 4}, times, reach=reach)
        for alias, reach in zip("ab", reaches, strict=True)
    }
    span = literal(timedelta(microseconds=3))
    band = [call("<=", col(one, "ts"), call("+", col(other, "ts"), span)) for one, other in ("ab", "ba")]
    near = [(one, other) for one in range(4) for other in range(4) if abs(one - other) <= 1]
    earlier = 0 if reaches[0] else 1  # the side whose tuples are too old for the next ones of the other
    expected = [pair for pair in near if pair[earlier] >= pair[1 - earlier]]
    for on in ([ON_K, *band], band):
        assert numbers_of(join("inner", "a", "b", *on), relations) == expected


def test_what_a_row_lacks_has_no_window() -> None:
    """A padded row is as old as the tuples it has."""
    relations = {
        "a": relation("a", {"k": [1, 2]}, [0, 0]),
        "b": relation("b", {"k": [1]}, [0], reach=3),
        "c": relation("c", {"k": [1, 2]}, [9, 9]),
    }
    tree = join("inner", join("left", "a", "b", ON_K), "c", ON_COALESCED)
    assert numbers_of(tree, relations) == [(1, -1, 1)]


def test_nan_is_a_key_and_null_is_none() -> None:
    values = [float("nan"), -0.0, None]
    relations = {"a": relation("a", {"x": values}), "b": relation("b", {"x": [None, 0.0, float("nan")]})}
    tree = join("full", "a", "b", call("=", col("a", "x"), col("b", "x")))
    assert numbers_of(tree, relations) == [(-1, 0), (0, 2), (1, 1), (2, -1)]


def test_columns_may_be_dictionaries() -> None:
    relations = {alias: relation(alias, {"s": ["x", None, "y", "x"]}) for alias in "ab"}
    one = relations["a"]
    batch = pa.record_batch({"a.s": one.batch.column(0).dictionary_encode()})
    relations["a"] = Relation(batch, one.times, one.arrived, None)
    tree = join("left", "a", "b", call("=", col("a", "s"), col("b", "s")))
    assert numbers_of(tree, relations) == [(0, 0), (0, 3), (1, -1), (2, 2), (3, 0), (3, 3)]


def test_joins_are_numbered_from_the_top_and_from_the_left() -> None:
    low = join("left", "a", "b", ON_K)
    tree = join("inner", join("inner", low, "c"), join("inner", "d", "e"))
    assert [(number, found.aliases) for number, found in joins(tree)] == [
        (0, ("a", "b", "c", "d", "e")),
        (1, ("a", "b", "c")),
        (2, ("a", "b")),
        (3, ("d", "e")),
    ]


# --- many rows


def many(alias: str, size: int) -> Relation:
    rng = random.Random(alias)
    columns = {
        "k": [rng.choice([None, *range(size // 2)]) for _ in range(size)],
        "u": [rng.randrange(4) for _ in range(size)],
    }
    return relation(alias, columns, arrived=[rng.randrange(1, 99) for _ in range(size)])


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_many_rows_are_joined_as_duckdb_joins_them(first: str, second: str) -> None:
    relations = {alias: many(alias, 2_000) for alias in "abc"}
    connection = duckdb.connect(config={"threads": 1})
    for alias, one in relations.items():
        names = [name.removeprefix(f"{alias}.") for name in one.batch.schema.names]
        table = pa.table([*one.batch.columns, pa.array(range(2_000))], names=[*names, "n"])
        connection.register(f"{alias}_rows", table)
    seen = first in ("semi", "anti")
    on = call("=", col("a", "k"), col("c", "k")) if seen else ON_COALESCED
    on_sql = "a.k = c.k" if seen else "coalesce(a.k, b.k) = c.k"
    tree = join(second, join(first, "a", "b", ON_K, call("<", col("a", "u"), col("b", "u"))), "c", on)
    shown = ["a", *([] if seen else ["b"]), *([] if second in ("semi", "anti") else ["c"])]
    select = ", ".join(f"coalesce({alias}.n, -1)" for alias in shown)
    expected = connection.execute(
        f"SELECT {select} FROM a_rows a {first} JOIN b_rows b ON a.k = b.k AND a.u < b.u "
        f"{second} JOIN c_rows c ON {on_sql}"
    ).fetchall()
    assert numbers_of(tree, relations) == sorted(expected)


def test_the_matches_of_a_row_may_be_found_in_several_portions() -> None:
    """A theta join's pairs are made in portions; what a semi join knows of one must not be lost with the next."""
    relations = {alias: many(alias, 700) for alias in "ab"}
    relations["b"] = replace(
        relations["b"], arrived=np.arange(1, 701)
    )  # the first partner is in the first portion
    tree = join("semi", "a", "b", call("<>", col("a", "u"), col("b", "u")))
    ours, theirs = (relations[alias].batch.column(1).to_numpy() for alias in "ab")
    pairs = ours[:, None] != theirs[None, :]
    first = np.where(pairs, relations["b"].arrived[None, :], FOREVER).min(axis=1)
    rows = rows_of(tree, relations, {})
    assert rows.arrived.tolist() == np.maximum(first, relations["a"].arrived).tolist()


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
    return [
        rng.choice(
            [term, call("is null", value(rng, side, "k")), call("=", value(rng, side, "u"), literal(1))]
        )
    ]


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
    places = [(number, alias) for number, _ in joins(tree) for alias in names]
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
