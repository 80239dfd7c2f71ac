"""Whatever calls a user's function, and wherever it is called: the answer is the definition's."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.equivalence.options import random_options
from tests.equivalence.oracle import PERIOD, Oracle, differs, run
from tests.equivalence.streams import Join, random_join
from tests.equivalence.variants import variants
from tests.local_runner import LocalRunner
from tests.shares import quick, seeds
from weft.adapting.planner import Planner
from weft.logical.catalog import Catalog
from weft.logical.expr.user_functions import UserFunction, has_user_call
from weft.logical.query.canonical import canonical
from weft.logical.schema import DataType
from weft.runtime.queries.active import ActiveQueries
from weft.runtime.queries.request import QueryRequest
from weft.runtime.queries.visibility import StateFacts
from weft.sql.bind import parse_query
from weft.stats.statistics import Statistics, StreamStatistics

BLOCKS, SEEDS, VARIANTS = 2, 8, 3
SHARED_SEEDS = 5
ON_TIME = timedelta(seconds=1000)

LONG, DOUBLE, BOOLEAN = DataType("long"), DataType("double"), DataType("boolean")


def near(one: Any, other: Any) -> Any:
    """NULL where an argument is; NaN is near nothing."""
    return pc.less_equal(pc.abs(pc.subtract(one, other)), 1.0)


def score(one: Any, other: Any) -> Any:
    """Larger the closer two numbers are; 0.9 where any is NULL, so that NULLs must arrive."""
    return pc.fill_null(
        pc.divide(1.0, pc.add(1.0, pc.cast(pc.abs(pc.subtract(one, other)), pa.float64()))), 0.9
    )


def half(value: Any) -> Any:
    """Given as another type than declared, which a safe cast mends."""
    return pc.cast(pc.divide(pc.add(value, 1), 2), pa.int16())


def odd(value: Any) -> Any:
    """True for NULL."""
    return pc.fill_null(pc.equal(pc.bit_wise_and(value, 1), 1), True)


def alike(*texts: Any) -> Any:
    """Any number of texts."""
    folded = [pc.utf8_lower(text) for text in texts]
    return pc.equal(folded[0], folded[-1])


FUNCTIONS: dict[str, tuple[Callable[..., Any], UserFunction]] = {
    "near": (near, UserFunction("near", BOOLEAN, 2, 2)),
    "score": (score, UserFunction("score", DOUBLE, 2, 2)),
    "half": (half, UserFunction("half", LONG, 1, 1)),
    "odd": (odd, UserFunction("odd", BOOLEAN, 1, 1)),
    "alike": (alike, UserFunction("alike", BOOLEAN)),
}

PAIRS = (
    *("near({a}.d, {b}.d)", "score({a}.k, {b}.k) > 0.4", "half({a}.k) = {b}.k", "half({a}.k) = half({b}.k)"),
    *("half({a}.k) < {b}.k", "{a}.k <= half({b}.k) + 1", "alike({a}.s, {b}.s)", "NOT alike({b}.s, {a}.s)"),
    *(
        "near({a}.d, {b}.d) AND score({b}.k, {a}.k) BETWEEN 0.2 AND 0.95",
        "near({a}.d, {b}.d) OR {a}.k = {b}.k",
    ),
    *("COALESCE(near({a}.d, {b}.d), odd({a}.k))", "score(half({a}.k), {b}.k) >= 0.5"),
)
TRIPLES = ("half({a}.k + {b}.k) = {c}.k", "score({a}.k + {b}.k, {c}.k) > 0.3", "near({a}.d + {b}.d, {c}.d)")
FILTERS = (
    "odd({a}.k)",
    "NOT odd({a}.k)",
    "half({a}.k) IN (0, 1)",
    "half({a}.k) = 1",
    "alike({a}.s, 'A')",
    "half({a}.k) > half(CAST(0 AS BIGINT))",
)
SHOWN = ("half({a}.k)", "score({a}.k, {b}.k)", "odd({a}.k)")


def random_functions(seed: int) -> Join:
    """A random join, or what it joins, with conditions and columns that call functions."""
    return with_functions(random.Random(seed), random_join(seed))


def with_functions(rng: random.Random, join: Join) -> Join:
    """A join with more conditions and columns, which call functions."""
    names = list(join.query.aliases)
    a, b = rng.sample(names, 2)
    more = [rng.choice(PAIRS).format(a=a, b=b)]
    if len(names) > 2 and rng.random() < 0.3:
        one, two, three = rng.sample(names, 3)
        more.append(rng.choice(TRIPLES).format(a=one, b=two, c=three))
    if rng.random() < 0.4:
        more.append(rng.choice(FILTERS).format(a=rng.choice(names)))
    text = str(join.query)
    if rng.random() < 0.3:
        text = text.replace("SELECT ", f"SELECT {rng.choice(SHOWN).format(a=a, b=b)} AS f, ", 1)
    head, _, where = text.partition(" WHERE ")
    kept = [] if len(names) == 2 and rng.random() < 0.5 else [f"({where})"]
    text = f"{head} WHERE {' AND '.join([*kept, *(f'({one})' for one in more)])}"
    catalog = replace(join.catalog, functions=tuple(declared for _, declared in FUNCTIONS.values()))
    functions = {name: function for name, (function, _) in FUNCTIONS.items()}
    return replace(join, query=parse_query(text, catalog), catalog=catalog, functions=functions)


def check(seed: int) -> int:
    """One random join in several variants; how many results it has."""
    join = random_functions(seed)
    oracle = Oracle.of(join)
    for graph, policy, partitions in variants(join, seed, VARIANTS):
        runner = run(join, graph, partitions=partitions, driver=policy)
        wrong = differs(oracle, runner.results(), runner.metrics)
        assert not wrong, f"seed {seed}, {policy}, {partitions}: {wrong}: {join.query}"
        assert any(batch.functions for batch in runner.metrics) or not runner.results().num_rows
    return int(oracle.found.num_rows)


@pytest.mark.parametrize("block", quick(range(BLOCKS)))
def test_every_variant_answers_like_the_definition(block: int) -> None:
    """A function that is called on the wrong pairs, twice on one, or not at all."""
    found = [check(seed) for seed in seeds(SEEDS, block)]
    assert sum(count > 0 for count in found) >= len(found) // 4


def test_no_function_is_a_key() -> None:
    """If a function failed where tuples are stored or sent, queries that do not call it would lose tuples."""
    for seed in seeds(40):
        query = random_functions(seed).query
        assert not any(has_user_call(member) for key in query.keys for member in key.members)


def together(seed: int) -> dict[str, Join]:
    """Three queries over the same streams, of which none has late tuples, that have some conditions in common."""
    rng, join = random.Random(seed), random_join(seed, windows=("", "[RANGE 5 SECONDS]"))
    streams = [replace(s, lateness=ON_TIME if s.event_time else s.lateness) for s in join.catalog.streams]
    catalog = Catalog(tuple(streams))
    join = replace(join, catalog=catalog, query=parse_query(str(join.query), catalog))
    found = (with_functions(rng, join) for _ in range(3))
    return {f"q{i}": replace(one, query=canonical(one.query).query) for i, one in enumerate(found)}


def test_queries_that_share_what_they_can_answer_each_like_the_definition() -> None:
    """A filter or a probe whose function is called for one query and taken for another's."""
    for seed in seeds(SHARED_SEEDS):
        joins = together(seed)
        rng = random.Random(seed)
        rates = {name: StreamStatistics(rate=10 ** rng.uniform(0, 4)) for name in joins["q0"].tables}
        options = random_options(seed, "auto")
        requests = {name: QueryRequest(join.query) for name, join in joins.items()}
        decision = Planner(options)(ActiveQueries(), requests, Statistics(rates), StateFacts())
        first = joins["q0"]
        runner = LocalRunner(decision.graph, partitions=options.partitions, functions=first.functions)
        for number, batch in enumerate(first.batches):
            parts = {name: first.tables[name].slice(a, b - a) for name, (a, b) in batch.items()}
            runner.process_all(parts, now=number * PERIOD)
        for name, join in joins.items():
            wrong = differs(Oracle.of(join), runner.results(name), runner.metrics)
            assert not wrong, f"seed {seed}, {name}: {wrong}: {join.query}"
