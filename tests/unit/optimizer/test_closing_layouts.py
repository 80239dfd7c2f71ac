"""How inputs of outer joins are stored: a wrong choice stores more than needed, or twice what is there already."""

from __future__ import annotations

import pytest

from tests.unit.optimizer.queries import rates
from weft.logical.catalog import Catalog
from weft.logical.outer.outer import core_and_closing
from weft.logical.query.query import Query
from weft.logical.schema import Schema, Stream
from weft.optimizer.closing_layouts import choose_homes
from weft.optimizer.single.strategies import STRATEGIES, optimise
from weft.optimizer.space import Options
from weft.plan.join_plan import Layout, Store
from weft.plan.physical.lower import lower
from weft.sql.bind import parse_query
from weft.stats.statistics import Statistics

CATALOG = Catalog(tuple(Stream(name, Schema.parse("a long, b long, ts timestamp"), "ts") for name in "rst"))


def parse(sql: str) -> Query:
    """A query over r, s and t."""
    return parse_query(f"SELECT r.a FROM {sql}", CATALOG)


def homes(sql: str, statistics: Statistics | None = None, present: tuple[Store, ...] = ()) -> str:
    """The layouts of a query's inputs, in short."""
    core, closing = core_and_closing(parse(sql))
    assert closing is not None
    found = choose_homes(core, closing, statistics or Statistics(), 4, present)
    assert [store.aliases for store in found] == [(alias,) for alias in core.aliases]
    return " · ".join(str(store.layout) for store in found)


def stored(alias: str, column: str) -> Store:
    """A store that is there already."""
    return Store(
        (alias,),
        Layout("partitioned", 4, parse("r, s, t WHERE r.a = s.a AND s.a = t.a").input(alias).column(column)),
    )


def test_inputs_on_one_key_are_partitioned_by_it() -> None:
    """SOPJ's one hash table: nothing is copied."""
    sql = "r FULL JOIN s ON r.a = s.a FULL JOIN t ON COALESCE(r.a, s.a) = t.a"
    assert homes(sql) == "partitioned by r.a · partitioned by s.a · partitioned by t.a"


@pytest.mark.parametrize(
    ("present", "by"), [((), "a"), ((("r", "b"), ("s", "b")), "b"), ((("s", "b"),), "b")]
)
def test_what_is_there_already_costs_nothing(present: tuple[tuple[str, str], ...], by: str) -> None:
    """A second copy of a stream would be stored though somebody stores it already."""
    given = tuple(stored(*one) for one in present)
    found = homes("r LEFT JOIN s ON r.a = s.a AND r.b = s.b", present=given)
    assert found == f"partitioned by r.{by} · partitioned by s.{by}"


def test_where_no_key_is_common_the_smaller_is_replicated() -> None:
    """Every copy is stored and sent once more per partition."""
    sql = "r LEFT JOIN s ON r.a = s.a LEFT JOIN t ON r.b = t.b"
    assert homes(sql, rates(r=10, s=1000, t=10)) == "partitioned by r.a · partitioned by s.a · replicated"
    assert homes(sql, rates(r=10, s=10, t=1000)) == "partitioned by r.b · replicated · partitioned by t.b"


def test_only_what_is_looked_for_can_be_replicated() -> None:
    """However many it has: no partition could tell that a row of the other has no partner."""
    assert homes("r LEFT JOIN s ON r.a < s.a", rates(r=1, s=1000)) == "scattered · replicated"
    assert homes("r ANTI JOIN s ON r.a < s.a", rates(r=1, s=1000)) == "scattered · replicated"


def test_a_full_join_without_a_key_is_everywhere() -> None:
    """Both sides keep rows, and partners are in all partitions: one that has everything must do it."""
    assert homes("r FULL JOIN s ON r.a < s.a") == "replicated · replicated"


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "sql",
    [
        "r [RANGE 9 SECONDS] LEFT JOIN s ON r.a = s.a LEFT JOIN t ON r.b = t.b",
        "r FULL JOIN s ON r.a = s.a FULL JOIN t ON COALESCE(r.a, s.a) = t.a",
        "r FULL JOIN s ON r.a < s.a",
        "r ANTI JOIN s ON r.a = s.a SEMI JOIN t ON r.b < t.b",
    ],
)
def test_every_strategy_plans_outer_joins(sql: str, strategy: str) -> None:
    """`strategy=` would refuse them, or give a graph that loses rows; validation knows which do."""
    graph = lower(optimise(parse(sql), Statistics(), Options(strategy=strategy, partitions=4)))
    assert [sweep.query for sweep in graph.sweeps] == ["query"]
