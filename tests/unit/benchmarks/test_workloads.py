"""The papers' workloads: repeatable, valid, and what they say they are; or the benchmarks measure something else."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from benchmarks._ajoin import (
    ATR_MAX,
    ATTRIBUTES,
    OPERATORS,
    SCHEMA,
    Selection,
    Selections,
    Template,
    draw,
    query,
    similar,
    similar_query,
    similarity,
    stream_names,
    write_streams,
)
from benchmarks._clash import TABLES, Workload, random_queries, tpch_joins, tpch_queries
from benchmarks._schedule import SCENARIOS, schedule

import weft
from weft.logical.expr.expression import aliases
from weft.logical.query.canonical import signature
from weft.logical.query.window import UNBOUNDED, Window
from weft.logical.query.window import Range as RangeWindow
from weft.logical.times import parse_duration
from weft.optimizer.single.strategies import optimise
from weft.optimizer.space import Options
from weft.stats.estimate import Estimator

POOL = stream_names(8)


def planning_session() -> weft.Session:
    session = weft.Session()
    for name in POOL:
        session.stream(name, SCHEMA, event_time="ts")
    return session


def test_streams_are_uniform_repeatable_and_different(tmp_path: Path) -> None:
    """Joins of streams that are copies of each other, or that change from run to run, cannot be compared."""
    for folder in ("one", "two"):
        write_streams(tmp_path / folder, POOL[:2], 25_000, 10_000, 1_000, seed=3)
    one, two = (pq.read_table(tmp_path / folder / "s1") for folder in ("one", "two"))
    assert one.equals(two)
    assert not one["a0"].equals(pq.read_table(tmp_path / "one" / "s2")["a0"])
    assert len(list((tmp_path / "one" / "s1").iterdir())) == 3
    assert one.num_rows == 25_000
    for name in ATTRIBUTES:
        bounds = pc.min_max(one[name]).as_py()
        assert bounds == {"min": 0, "max": ATR_MAX - 1}
        assert pc.mean(one[name]).as_py() == pytest.approx((ATR_MAX - 1) / 2, rel=0.02)
    times = one["ts"].to_pylist()
    assert all(a < b for a, b in pairwise(times))
    assert (times[1_000] - times[0]).total_seconds() == 1


@pytest.mark.parametrize("n_way", [2, 3, 5])
@pytest.mark.parametrize("selections", [None, Selections(), Selections(0.5)])
def test_queries_are_repeatable_and_valid(n_way: int, selections: Selections | None) -> None:
    """Every text binds, is connected and has the template's filters and windows."""
    session = planning_session()
    rng, again = Random(5), Random(5)
    texts = [query(rng, n_way, streams=POOL, selections=selections) for _ in range(40)]
    assert texts == [query(again, n_way, streams=POOL, selections=selections) for _ in range(40)]
    assert len(set(texts)) > 35
    for text in texts:
        bound = session.parse(text)
        assert len(bound.inputs) == len(bound.component(bound.aliases[0])) == n_way
        filtered = {
            alias for one in bound.filters for alias in aliases(one)
        }  # x = 1 holds for what equals x, too
        assert filtered == (set(bound.aliases) if selections else set())
        (window,) = {input_.window for input_ in bound.inputs}
        assert window in {RangeWindow(parse_duration(f"{n} seconds")) for n in (1, 2, 3)}


def test_all_operators_windows_and_attributes_are_drawn() -> None:
    """A template of which half is never used is another template."""
    drawn = [draw(Random(seed), 3) for seed in range(200)]
    assert {one.streams for one in drawn} == {("s1", "s2", "s3")}
    assert {one.window for one in drawn} == {1, 2, 3}
    assert {selection.operator for one in drawn for selection in one.selections} == set(OPERATORS)
    assert {selection.attribute for one in drawn for selection in one.selections} == set(ATTRIBUTES)
    assert {attribute for one in drawn for _, attribute in one.used} == set(ATTRIBUTES)


@pytest.mark.parametrize("wanted", [0.05, 0.5, 0.9])
def test_selectivities_are_near_what_was_asked(tmp_path: Path, wanted: float) -> None:
    """Filters that let through less than they say make a join look cheap."""
    write_streams(tmp_path, ("s1",), 20_000, 20_000, 1_000)
    rows = pq.read_table(tmp_path / "s1")
    compare = {">": pc.greater, "<": pc.less, ">=": pc.greater_equal, "<=": pc.less_equal}
    rng, passed = Random(1), []
    for _ in range(100):
        selection = Selections(wanted, spread=0.05).draw(rng)
        kept = compare[selection.operator](rows[selection.attribute], selection.value)
        passed.append(pc.mean(kept.cast("double")).as_py())
        assert passed[-1] == pytest.approx(selection.selectivity, abs=0.02)
        assert passed[-1] == pytest.approx(wanted, abs=0.07)
    assert sum(passed) / len(passed) == pytest.approx(wanted, abs=0.02)


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("=", 7, 1),
        ("<", 0, 0),
        ("<=", 0, 1),
        (">", 499, 0),
        (">=", 499, 1),
        ("<=", 499, 500),
        ("<", 900, 500),
    ],
)
def test_the_selectivity_of_a_selection(operator: str, value: int, expected: int) -> None:
    """At the edges of the domain, too."""
    assert Selection("a0", operator, value).selectivity == expected / ATR_MAX


def test_a_pattern_is_like_itself() -> None:
    """And the paper's example of half the similarity holds, as does none at all."""
    for n_way in (2, 3, 4, 5):
        pattern = draw(Random(n_way), n_way)
        assert similarity(pattern, pattern) == 1
    pattern = Template(("a", "b"), (("a0", "a1"),), 1)
    assert similarity(Template(("a", "b"), (("a0", "a0"),), 3), pattern) == 0.5
    assert similarity(Template(("c", "d"), (("a0", "a1"),), 1), pattern) == 0


@pytest.mark.parametrize("n_way", [2, 3, 4, 5])
@pytest.mark.parametrize("percent", [0, 25, 50, 75, 100])
@pytest.mark.parametrize("streams", [(), POOL, stream_names(6)])
def test_similar_queries_are_as_alike_as_asked(n_way: int, percent: int, streams: tuple[str, ...]) -> None:
    """As near as whole numbers of streams and attributes come."""
    session = planning_session()
    for seed in range(30):
        pattern = draw(Random(seed), n_way, streams=streams)
        found = similar(Random(seed), pattern, percent, streams=streams)
        common = len(set(found.streams) & set(pattern.streams))
        assert abs(similarity(found, pattern) - percent / 100) <= common / n_way**2 / 2 + 1e-9
        text = similar_query(Random(seed), pattern, percent, streams=streams)
        assert text == str(found)
        assert len(session.parse(text).inputs) == n_way


def test_what_cannot_be_drawn_is_refused() -> None:
    """A workload that is silently another one is worse than none."""
    pattern = draw(Random(1), 2)
    with pytest.raises(ValueError, match="cannot be"):
        similar(Random(1), pattern, 101)
    with pytest.raises(ValueError, match="SC3"):
        schedule("SC3", rate=1, parallel=1)
    with pytest.raises(ValueError, match="makes no sense"):
        schedule("SC1", rate=0, parallel=1)
    with pytest.raises(ValueError, match="hardly more than"):
        random_queries(1, count=10, relations=2, span=2)
    with pytest.raises(ValueError, match="each once"):
        Template(("a", "a"), (("a0", "a0"),), 1)
    with pytest.raises(ValueError, match="chain"):
        Template(("a", "b"), (), 1)
    with pytest.raises(ValueError, match="selections"):
        Template(("a", "b"), (("a0", "a0"),), 1, (Selection("a0", "=", 1),))


def test_sc1_creates_and_sc2_also_deletes() -> None:
    """Moments at the rate; nothing is deleted that does not run, and no more run than asked."""
    first = schedule("SC1", rate=10, parallel=20)
    assert [change.kind for change in first] == ["create"] * 20
    assert first[-1].moment == pytest.approx(1.9)
    for scenario in SCENARIOS:
        changes = schedule(scenario, rate=4, parallel=7, turns=3, seed=2)
        assert changes == schedule(scenario, rate=4, parallel=7, turns=3, seed=2)
        running: set[str] = set()
        seen: set[str] = set()
        for change in changes:
            if change.kind == "create":
                assert change.name not in seen
                running.add(change.name)
                seen.add(change.name)
            else:
                running.remove(change.name)
            assert len(running) <= 7
        assert len(running) == 7
        assert [change.moment for change in changes] == [i / 4 for i in range(len(changes))]
    assert {change.kind for change in changes} == {"create", "delete"}
    assert changes != schedule("SC2", rate=4, parallel=7, turns=3, seed=3)


def check_workload(workload: Workload, count: int, span: int) -> None:
    """So many queries of that size, connected and different."""
    assert len(workload.queries) == count
    for one in workload.queries:
        assert len(one.inputs) == span
        assert len(one.component(one.aliases[0])) == span
        assert {input_.stream.name for input_ in one.inputs} == set(one.aliases)
        assert not one.filters
        assert weft_text(workload, str(one)) == one
    assert len({signature(one).text for one in workload.queries}) == count


def weft_text(workload: Workload, text: str) -> weft.Query:
    session = weft.Session()
    session.catalog = workload.catalog
    return session.parse(text)


@pytest.mark.parametrize(("relations", "span"), [(10, 3), (100, 3), (10, 5)])
@pytest.mark.parametrize("window", [UNBOUNDED, RangeWindow(parse_duration("1 second"))])
def test_random_queries_are_those_of_the_thesis(relations: int, span: int, window: Window) -> None:
    """Equal rates, selectivity 1 / rate, no duplicates; a tuple meets one partner in a relation."""
    workload = random_queries(4, count=50, relations=relations, span=span, rate=200, window=window)
    assert workload == random_queries(4, count=50, relations=relations, span=span, rate=200, window=window)
    assert workload != random_queries(5, count=50, relations=relations, span=span, rate=200, window=window)
    check_workload(workload, 50, span)
    for one in workload.queries:
        assert {input_.window for input_ in one.inputs} == {window}
        estimator = Estimator(one, workload.statistics)
        assert estimator.rates == [200] * span
        assert estimator.selectivity((1 << span) - 1) == pytest.approx(200.0 ** (1 - span))
        assert estimator.content(one.aliases[0], one.aliases[1])[0] == 200


def test_random_queries_can_be_planned() -> None:
    """With the statistics they come with."""
    workload = random_queries(1, count=5, span=4)
    costs = [optimise(one, workload.statistics, Options()).cost for one in workload.queries]
    assert all(cost is not None and cost.total > 0 for cost in costs)


@pytest.mark.parametrize("span", [2, 3, 5])
def test_tpch_queries_join_what_fits(span: int) -> None:
    """Along potential joins only; the foreign keys and the thesis's own examples are among them."""
    workload = tpch_queries(2, count=30, span=span)
    assert workload == tpch_queries(2, count=30, span=span)
    check_workload(workload, 30, span)
    joins = {frozenset(f"{name}.{column}" for name, column in edge) for edge in tpch_joins()}
    assert frozenset(("lineitem.linestatus", "orders.orderstatus")) in joins
    assert frozenset(("customer.custkey", "nation.nationkey")) in joins
    assert frozenset(("lineitem.orderkey", "orders.orderkey")) in joins
    assert frozenset(("orders.orderdate", "orders.orderkey")) not in joins
    plain = optimise(workload.queries[0], workload.statistics, Options()).cost
    assert plain is not None


def test_tpch_statistics_grow_with_the_scale() -> None:
    """Regions and nations do not."""
    one, ten = (tpch_queries(2, count=1, scale=scale).statistics for scale in (1, 10))
    for name, table in TABLES.items():
        factor = 1 if table.rows <= 25 else 10
        assert ten.stream(name).rate == pytest.approx(factor * one.stream(name).rate)
    assert ten.stream("customer").distinct == {"custkey": 1_500_000, "nationkey": 25}
    assert ten.stream("lineitem").distinct["linestatus"] == 2
