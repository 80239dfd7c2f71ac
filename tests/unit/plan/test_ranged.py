"""Stores that are partitioned by ranges of a value, and the probes that reach some of them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.local_runner import LocalRunner
from weft import Session
from weft.errors import PlanError
from weft.kernels.route import partition as route
from weft.optimizer.cost import Weights, crowding
from weft.optimizer.single.strategies import optimise
from weft.optimizer.space import Options
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.lower import lower
from weft.plan.physical.rules import Edge, ProbeRule
from weft.plan.schedule import ALL, SPAN
from weft.runtime.program.access_paths import choose_access
from weft.stats.statistics import Statistics
from weft.testing import reference_join

BAND = "SELECT r.id AS i, s.id AS j FROM r, s WHERE r.x BETWEEN s.x - 10 AND s.x + 10"


def _session(**selectivities: float) -> Session:
    session = Session(options=Options(partitions=8))
    for name in ("r", "s", "t"):
        session.stream(name, "id long, x int, y double, k int")
    for predicate, value in selectivities.items():
        session.selectivity(predicate, value)
    return session


def _edges(graph: PhysicalGraph) -> set[str]:
    return {graph.edge(rule.edge).kind for rule in graph.rules if isinstance(rule, ProbeRule)}


def test_a_band_is_partitioned_by_its_ranges() -> None:
    planned = _session().query(BAND)
    assert _edges(planned.graph) == {SPAN}
    assert "partitioned by ranges of r.x, 160 each" in planned.explain()
    assert "span s.x - 10 to s.x + 10" in planned.explain()


def test_a_band_that_lets_nearly_all_through_is_scattered() -> None:
    """All values would be in one range, and one partition would have all the work."""
    session = _session(**{"r.x <= s.x + 10": 0.9, "r.x >= s.x - 10": 0.9})
    planned = session.query(BAND)
    assert _edges(planned.graph) == {ALL}
    assert {store.layout.kind for store in planned.graph.stores} == {"scattered"}


def test_what_is_said_of_a_band_counts_for_both_bounds() -> None:
    session = _session(**{"r.x BETWEEN s.x - 10 AND s.x + 10": 0.81})
    planned = session.query(BAND)
    assert _edges(planned.graph) == {ALL}
    assert sorted(session.statistics.selectivities.values()) == pytest.approx([0.9, 0.9])


def test_an_equality_is_preferred_to_a_band() -> None:
    planned = _session().query(f"{BAND} AND r.k = s.k")
    assert {str(store.layout.by) for store in planned.graph.stores} == {"r.k", "s.k"}


def test_crowding_grows_with_what_a_band_lets_through() -> None:
    found = [crowding(part, 8) for part in (0.0, 1e-6, 0.002, 0.05, 0.5, 1.0)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (1.0, 8.0)


def test_a_span_needs_two_ends() -> None:
    planned = _session().query(BAND)
    edge = next(e for e in planned.graph.edges if e.kind == SPAN)
    with pytest.raises(PlanError, match="until"):
        replace(edge, until=None)
    with pytest.raises(PlanError, match="until"):
        Edge("e", "a", "b", SPAN, 1, planned.query.inputs[0].column("x"), None, False, edge.until)


def test_a_graph_whose_span_is_too_short_is_refused() -> None:
    graph = _session().query(BAND).graph
    edges = tuple(replace(e, until=e.by) if e.kind == SPAN else e for e in graph.edges)
    with pytest.raises(PlanError, match="it must be span"):
        replace(graph, edges=edges)


def test_a_graph_with_spans_survives_json() -> None:
    graph = _session().query(BAND).graph
    assert PhysicalGraph.from_json(graph.to_json()) == graph


@pytest.mark.parametrize("partitions", [1, 3, 8])
def test_rows_go_to_every_partition_of_their_cells_once(partitions: int) -> None:
    rows = pa.RecordBatch.from_pydict({"i": [0, 1, 2, 3, 4]})
    first = pa.array([0, -1, 5, None, 7])
    last = pa.array([0, 1, 500, 3, 6])
    targets, owners = route.in_cells(first, last, partitions)
    parts = route.split(rows, targets, partitions, owners)
    found = Counter((p, i) for p, part in enumerate(parts) for i in part.column("i").to_pylist())
    wanted = {0: [0], 1: [-1, 0, 1], 2: range(5, 501), 3: [], 4: []}
    homes = {c: int(route.partitions([pa.array([c])], partitions)[0]) for c in range(-1, 501)}
    assert found == Counter({(homes[c], i): 1 for i, cells in wanted.items() for c in cells})


def test_the_most_selective_band_is_searched() -> None:
    text = "SELECT r.id FROM r, s WHERE r.x > s.x AND r.y > s.y"
    given = {"r.x > s.x": 0.5, "r.y > s.y": 0.001}
    session = _session(**given)
    assert "order of r.y" in session.query(text).explain()
    turned = _session(**dict(zip(given, reversed(given.values()), strict=True)))
    assert "order of r.x" in turned.query(text).explain()


def test_explain_and_the_runtime_search_alike() -> None:
    planned = _session().query("SELECT r.id FROM r, s WHERE r.x BETWEEN s.x - 1 AND s.x + 1 AND r.y < s.y")
    for rule in planned.graph.probes("s"):
        access = choose_access(rule, frozenset({"r"}), "r.$time", None, False)
        assert f"order of {access.stored[0]}" in planned.explain()


@pytest.mark.parametrize("seed", range(4))
def test_intermediate_results_can_be_kept_by_ranges(seed: int) -> None:
    """Each result still once: what is stored is in one partition, whoever else goes to several."""
    rng = random.Random(seed)
    session = _session()
    session.options = Options(partitions=8, weights=Weights(hop=0.0))
    text = """SELECT r.id AS i, s.id AS j, t.id AS k FROM r, s, t
              WHERE r.k = s.k AND s.x BETWEEN t.x - 3 AND t.x + 3 AND r.y BETWEEN t.y - 2 AND t.y + 2"""
    query = session.parse(text)
    tables = {
        name: pa.table(
            {
                "id": range(60),
                "x": pa.array([rng.choice([None, *range(-40, 40)]) for _ in range(60)], pa.int32()),
                "y": [rng.choice([float("nan"), float("inf"), rng.uniform(-9, 9)]) for _ in range(60)],
                "k": pa.array([rng.randrange(4) for _ in range(60)], pa.int32()),
            }
        )
        for name in ("r", "s", "t")
    }
    wanted = Counter(map(tuple, (row.values() for row in reference_join(query, tables).to_pylist())))
    met = set()
    for strategy in ("flat", "left_deep", "chain", "auto"):
        graph = session.query(text, strategy=strategy).graph
        met |= _edges(graph)
        runner = LocalRunner(graph, partitions=8)
        for start in range(0, 60, 20):
            runner.process({name: table.slice(start, 20) for name, table in tables.items()})
        assert Counter(map(tuple, (row.values() for row in runner.results().to_pylist()))) == wanted
    assert SPAN in met
    assert wanted


def test_a_plan_alone_is_lowered_without_ranks() -> None:
    planned = _session().query(BAND)
    assert {e.kind for e in lower(optimise(planned.query, Statistics())).edges} == {
        e.kind for e in planned.graph.edges
    }
