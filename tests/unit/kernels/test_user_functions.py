"""Users' functions on columns: what they are given, what they may give, and what is said when they fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from weft.bucket.bucket import build
from weft.errors import FunctionError
from weft.kernels.expr.select import Columns, evaluate, holds, passing_rows
from weft.kernels.expr.user_functions import MOST, Function, calling
from weft.kernels.probe.pair_program import program
from weft.kernels.probe.theta import CANDIDATES, Sides, theta
from weft.kernels.query_sets.predicate_index import PredicateIndex
from weft.logical.catalog import Catalog
from weft.logical.expr.expression import Expr
from weft.logical.expr.user_functions import UserFunction
from weft.logical.query.query import Input
from weft.logical.schema import DataType, Schema, Stream
from weft.sql.bind import parse_predicate, parse_query

STREAM = Stream("a", Schema.parse("k long, s string"))
OTHER = Stream("b", Schema.parse("k long"))


def parsed(text: str, **types: str) -> Expr:
    """A condition over a and b, in which these functions are called."""
    declared = tuple(UserFunction(name, DataType(type_)) for name, type_ in types.items())
    return parse_predicate(text, [Input("a", STREAM), Input("b", OTHER)], declared)


def selected(text: str, **types: str) -> Expr:
    """An expression over a."""
    declared = tuple(UserFunction(name, DataType(type_)) for name, type_ in types.items())
    return parse_query(f"SELECT {text} AS x FROM a", Catalog((STREAM,), declared)).projection[0].expr


def columns(*values: int | None) -> Columns:
    """Tuples of a."""
    return {("a", "k"): pa.array(values, pa.int64()), ("a", "s"): pa.array([f"t{v}" for v in values])}


def test_arguments_are_columns_of_one_length_with_their_nulls() -> None:
    """A function that is given a constant, or never sees NULL."""
    seen: list[list[Any]] = []

    def f(*given: Any) -> Any:
        seen.append([(type(one), one.to_pylist()) for one in given])
        return given[0]

    with calling({"f": f}):
        found = evaluate(selected("f(a.k, 7, NULL, a.k + 1)", f="long"), columns(1, None), 2)
    assert found.to_pylist() == [1, None]
    assert [values for _, values in seen[0]] == [[1, None], [7, 7], [None, None], [2, None]]
    assert all(issubclass(kind, pa.Array) for kind, _ in seen[0])


@pytest.mark.parametrize(
    ("function", "type_", "expected"),
    [
        (lambda k: k, "long", [1, 0, None]),
        (lambda k: pc.cast(k, pa.int8()), "long", [1, 0, None]),
        (lambda k: pc.cast(k, pa.float64()), "long", [1, 0, None]),
        (lambda k: k, "boolean", [True, False, None]),
        (lambda k: pa.chunked_array([k[:1], k[1:]]), "long", [1, 0, None]),
        (lambda k: pc.cast(k, pa.string()), "long", [1, 0, None]),
        (lambda k: pa.nulls(len(k)), "double", [None, None, None]),
    ],
)
def test_what_a_function_gives_is_cast_where_nothing_is_lost(
    function: Function, type_: str, expected: list[Any]
) -> None:
    """Users who must think of the width of integers."""
    with calling({"f": function}):
        assert evaluate(selected("f(a.k)", f=type_), columns(1, 0, None), 3).to_pylist() == expected


def fails_on_seven(k: Any) -> Any:
    """For one value of many."""
    if 7 in k.to_pylist():
        raise ValueError("seven")
    return k


def half_at_seven(k: Any) -> Any:
    """Not whole for one value of many."""
    return pc.if_else(pc.equal(k, 7), 0.5, pc.cast(k, pa.float64()))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (fails_on_seven, "function f raised ValueError: seven, first for a.k = 7, a.s = 't7'"),
        (half_at_seven, "function f gave double, which is no long: "),
        (lambda k, _: k[:-1], "function f gave 0 values for 1 rows, first for a.k = 1, a.s = 't1'"),
        (lambda *_: 5, "function f gave 5, not an Arrow array, first for a.k = 1"),
        (lambda *_: None, "function f gave None, not an Arrow array"),
        (lambda k: k, "function f raised TypeError: "),
        (lambda _, s: s, "function f gave string, which is no long: "),
    ],
)
def test_a_failure_names_the_function_and_the_first_arguments_it_fails_on(
    function: Function, message: str
) -> None:
    """A million rows, and no word about which."""

    def f(*given: Any) -> Any:
        return function(given[0]) if function in (fails_on_seven, half_at_seven) else function(*given)

    with calling({"f": f}), pytest.raises(FunctionError) as caught:
        evaluate(selected("f(a.k, a.s)", f="long"), columns(1, 2, 3, 7, 8, 7), 6)
    assert message in str(caught.value)
    assert "hint: it takes Arrow arrays" in str(caught.value)
    if function is half_at_seven:
        assert "first for a.k = 7" in str(caught.value)


def test_a_function_that_is_not_there_is_named() -> None:
    """A KeyError."""
    with (
        calling({"similar": fails_on_seven}),
        pytest.raises(FunctionError, match="there is no function simlar here"),
    ):
        evaluate(selected("simlar(a.k)", simlar="long"), columns(1), 1)
    with pytest.raises(FunctionError, match="there is no function similar here"):
        evaluate(selected("similar(a.k)", similar="long"), columns(1), 1)


def test_never_more_rows_at_once_than_it_can_bear_and_none_for_none() -> None:
    """A matrix of all rows with all others, within a function."""
    sizes = []

    def f(k: Any) -> Any:
        sizes.append(len(k))
        return k

    many = {("a", "k"): pa.array(np.arange(2 * MOST + 5))}
    with calling({"f": f}) as calls:
        found = evaluate(selected("f(a.k)", f="long"), many, 2 * MOST + 5)
        assert evaluate(selected("f(a.k)", f="long"), columns(), 0).to_pylist() == []
    assert found.equals(many["a", "k"])
    assert sizes == [MOST, MOST, 5]
    assert calls.counts.functions["f"].rows == 2 * MOST + 5
    assert calls.counts.functions["f"].seconds > 0


def test_null_is_not_true_and_checks_are_counted() -> None:
    """NULL that counts as true, and a selectivity that is wrong."""
    with calling({"f": lambda k: pc.greater(k, 1)}) as calls:
        assert holds(parsed("f(a.k)", f="boolean"), columns(1, 2, None, 3), 4).tolist() == [
            False,
            True,
            False,
            True,
        ]
        assert holds(parsed("NOT f(a.k)", f="boolean"), columns(1, 2, None), 3).tolist() == [
            True,
            False,
            False,
        ]
    counted = {text: (one.rows, one.passed) for text, one in calls.counts.conditions.items()}
    assert counted == {"F(a.k)": (4, 2), "NOT F(a.k)": (3, 1)}


def test_functions_see_only_what_other_conditions_let_through() -> None:
    """A dear function called for rows that a cheap condition rejects; one that fails on rows it should not see."""
    with calling({"f": lambda k: pc.equal(fails_on_seven(k), 3)}) as calls:
        conditions = [parsed("f(a.k)", f="boolean"), parsed("a.k < 5")]
        assert passing_rows(conditions, columns(3, 7, 4, None, 3), 5).tolist() == [
            True,
            False,
            False,
            False,
            True,
        ]
    assert calls.counts.functions["f"].rows == 3


def test_a_probe_calls_functions_last_and_on_bounded_numbers_of_pairs() -> None:
    """A cross product in memory, or a function called before a cheap condition."""
    condition = parsed("f(a.k, b.k) AND a.k = b.k + 1", f="boolean")
    assert program(condition) is None
    sizes: list[int] = []

    def f(one: Any, other: Any) -> Any:
        sizes.append(len(one))
        assert pc.all(pc.equal(one, pc.add(other, 1))).as_py()
        return pc.equal(pc.bit_wise_and(one, 1), 1)

    probes = pa.RecordBatch.from_pydict({"ak": pa.array(np.arange(1_000))})
    run = build(pa.RecordBatch.from_pydict({"bk": pa.array(np.arange(1_000))}))
    sides = Sides({("a", "k"): "ak"}, {("b", "k"): "bk"})
    with calling({"f": f}) as calls:
        found = theta(condition, sides, probes, [run])
    assert sorted(found.probe.tolist()) == list(range(1, 1_000, 2))
    assert (found.probe - found.stored == 1).all()
    assert calls.counts.functions["f"].rows == 999
    assert calls.counts.conditions["F(a.k, b.k)"].rows == 999
    everything = parsed("f(a.k, b.k)", f="boolean")

    def g(one: Any, other: Any) -> Any:
        sizes.append(len(one))
        return pc.less(one, other)

    with calling({"f": g}):
        theta(everything, sides, probes, [run])
    assert max(sizes) <= CANDIDATES
    assert sum(sizes) == 999 + 1_000_000


def test_a_function_of_one_side_is_computed_once_per_row_that_is_in_a_pair() -> None:
    """A function of a tuple that is computed for every partner it might have."""
    seen: dict[str, list[int]] = {"f": [], "g": []}

    def counting(name: str) -> Function:
        def function(k: Any) -> Any:
            seen[name] += k.to_pylist()
            return pc.if_else(pc.equal(k, 3), None, pc.bit_wise_and(k, 7))

        return function

    text = "f(a.k) = g(b.k) AND a.k < 500 AND f(a.k) + 1 = g(b.k) + h(a.k, b.k)"
    condition = parsed(text, f="long", g="long", h="long")
    probes = pa.RecordBatch.from_pydict({"ak": pa.array(np.arange(1_000))})
    run = build(pa.RecordBatch.from_pydict({"bk": pa.array(np.arange(900))}))
    with calling(
        {"f": counting("f"), "g": counting("g"), "h": lambda a, _: pc.add(pc.multiply(a, 0), 1)}
    ) as calls:
        found = theta(condition, Sides({("a", "k"): "ak"}, {("b", "k"): "bk"}), probes, [run])
    expected = {(a, b) for a in range(500) for b in range(900) if a % 8 == b % 8 and 3 not in (a, b)}
    assert set(zip(found.probe.tolist(), found.stored.tolist(), strict=True)) == expected
    assert len(found.probe) == len(expected)
    assert max(seen["f"].count(k) for k in range(0, 500, 50)) <= 2  # in two conditions
    assert max(seen["f"]) == 499
    assert len(seen["g"]) <= 2 * 900
    assert calls.counts.conditions["F(a.k) = G(b.k)"].rows >= len(expected)


def test_of_two_functions_the_one_that_rejects_more_per_second_is_called_first() -> None:
    """A slow function called on all pairs because of its name."""
    seen = {"slow": 0, "quick": 0}

    def slow(one: Any, other: Any) -> Any:
        seen["slow"] += len(one)
        sum(range(20 * len(one)))
        return pc.less(one, other)

    def quick(one: Any, other: Any) -> Any:
        seen["quick"] += len(one)
        return pc.less(pc.add(one, other), 10)

    probes = pa.RecordBatch.from_pydict({"ak": pa.array(np.arange(1_000))})
    run = build(pa.RecordBatch.from_pydict({"bk": pa.array(np.arange(1_000))}))
    condition = parsed("quick(a.k, b.k) AND slow(a.k, b.k)", slow="boolean", quick="boolean")
    with calling({"slow": slow, "quick": quick}):
        theta(condition, Sides({("a", "k"): "ak"}, {("b", "k"): "bk"}), probes, [run])
    assert seen["quick"] == 1_000_000
    assert seen["slow"] < 100_000


def test_in_an_index_of_many_queries_a_function_fails_for_those_that_call_it() -> None:
    """One query's function that takes all others down with it."""
    filters = {
        0: (parsed("f(a.k) < 5", f="long"),),
        1: (parsed("a.k < 5"),),
        2: (parsed("f(a.k) > 2", f="long"), parsed("a.k > 0")),
        3: (parsed("g(a.k)", g="boolean"),),
        4: (),
    }
    index = PredicateIndex.from_filters(filters)
    functions = {"f": fails_on_seven, "g": lambda k: pc.equal(k, 7)}
    failed: dict[int, FunctionError] = {}
    with calling(functions) as calls:
        good = index.query_sets(columns(1, 3, 9), 3, failed)
        assert (good[0].tolist(), failed) == ([0b10011, 0b10111, 0b10100], {})
        sets = index.query_sets(columns(1, 7, 3), 3, failed)
        assert calls.counts.functions["f"].rows == 3  # once for both conditions
        with pytest.raises(FunctionError):
            index.query_sets(columns(7), 1)
    assert sets[0].tolist() == [0b10010, 0b11000, 0b10010]
    assert set(failed) == {0, 2}


def test_a_function_of_constants_in_a_filter_is_left_to_the_run() -> None:
    """An index that calls it when it is built, and fails for all."""
    index = PredicateIndex.from_filters({0: (parsed("a.k < f(7)", f="long"),), 1: (parsed("a.k < 2"),)})
    failed: dict[int, FunctionError] = {}
    with calling({"f": fails_on_seven}):
        assert index.query_sets(columns(1), 1, failed)[0].tolist() == [0b10]
    assert set(failed) == {0}
