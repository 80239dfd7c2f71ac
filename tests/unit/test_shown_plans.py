"""What is shown before a session starts is what runs: for one query and for many, whatever they ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import weft
from tests.unit.planner_cases import SCHEMA, STREAMS, Case, random_case
from weft.connectors.memory.source import TableSource
from weft.logical.query.query import Query
from weft.optimizer.joint.methods import JointResult, optimise_all
from weft.plan.physical.graph import PhysicalGraph

CASES = 24

PAIR = "SELECT a.v FROM a [RANGE 1 MINUTE], b [RANGE 1 MINUTE] WHERE a.k = b.k"
TUPLES = pa.table(
    {
        **{name: pa.array([1, 2], pa.int64()) for name in ("k", "j", "m", "v")},
        "ts": pa.array([datetime(2024, 1, 1, tzinfo=timezone.utc)] * 2, pa.timestamp("us", "UTC")),
    }
)


def session_in(root: Path, **settings: Any) -> tuple[weft.Session, Mapping[str, TableSource]]:
    """A session that runs in this process, and the tables its streams are read from."""
    session = weft.Session(checkpoint=root, execution="local", **settings)
    sources = {name: TableSource(SCHEMA) for name in STREAMS}
    for name, source in sources.items():
        session.stream(name, source, event_time="ts")
    return session, sources


def session_of(case: Case, root: Path) -> tuple[weft.Session, Mapping[str, TableSource]]:
    """The queries that run first in a case."""
    session, sources = session_in(root, options=case.options, statistics=case.statistics[0])
    for name in case.running[0]:
        text, strategy = str(case.queries[name]), case.strategies.get(name)
        session.query(text, name=name, sink=weft.to_count(), strategy=strategy, cross=True)
    return session, sources


def first_graph(session: weft.Session, sources: Mapping[str, TableSource]) -> PhysicalGraph:
    """The graph that batch 0 runs by, with a few tuples of every stream."""
    for source in sources.values():
        source.offer(TUPLES)
    session.start(ends=True)
    try:
        session.process_all_available()
    finally:
        session.stop()
    assert session._last_run is not None
    history = session._last_run.loop.history
    number, metrics = history.batches[0]
    assert metrics.number == 0
    return history.graphs[number]


def check(seed: int, root: Path) -> Counter[str]:
    """A random workload, shown and run; and what was met."""
    case = random_case(seed)
    session, sources = session_of(case, root)
    shown, whole = {one.name: one.explain() for one in session.queries}, session.explain()
    before = session.shared_graph
    graph = first_graph(session, sources)
    assert before == graph, f"seed {seed}"
    assert {one.name: one.explain() for one in session.queries} == shown, f"seed {seed}"
    assert all(text in whole for text in shown.values())
    return Counter(
        {
            "a lone query": len(graph.members) == 1,
            "a shared store": any(len(store.users) > 1 for store in graph.stores),
            "an intermediate result": any(len(store.aliases) > 1 for store in graph.stores),
            "an outer join": bool(graph.sweeps),
            "a strategy of its own": bool(case.strategies),
        }
    )


def test_what_is_shown_is_what_runs(tmp_path: Path) -> None:
    """Else users judge, and tune, a plan that never runs."""
    met: Counter[str] = Counter()
    for seed in range(CASES):
        met.update(check(seed, tmp_path / str(seed)))
    assert len(+met) == 5, met


def test_a_lone_query_runs_as_shown(tmp_path: Path) -> None:
    """Under its author's names, though it runs under those it may share with others."""
    session, sources = session_in(tmp_path)
    planned = session.query("SELECT x.v FROM a AS x, b AS y WHERE x.k = y.k", sink=weft.to_memory())
    shown, text = planned.graph, planned.explain()
    assert text == session.explain()
    assert [store.name for store in shown.stores] == ["x", "y"]
    graph = first_graph(session, sources)
    assert [store.name for store in graph.stores] == ["a", "b"]
    assert (planned.graph, planned.explain()) == (shown, text)
    assert planned.results().num_rows == 2


def test_a_query_is_shown_with_those_it_will_share_with(tmp_path: Path) -> None:
    """Whichever was registered first; a query without a sink is in nobody's way."""
    session, sources = session_in(tmp_path)
    first = session.query(PAIR, name="first", sink=weft.to_count(), strategy="flat")
    assert "2 queries" not in session.explain()
    session.query(f"{PAIR} AND a.v > 5", name="second", sink=weft.to_count())
    session.query("SELECT a.v FROM a, b WHERE a.j = b.j", name="only shown")
    assert "2 queries · 2 stores · 2 probes" in session.explain()
    shown = first.graph
    assert {member.name for member in first_graph(session, sources).members} == {"first", "second"}
    assert first.graph == shown


def test_queries_are_planned_together_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session with a hundred of them would not be ready within minutes."""
    session, sources = session_in(tmp_path)
    sizes: list[int] = []

    def counted(queries: Mapping[str, Query], *given: Any, **more: Any) -> JointResult:
        sizes.append(len(queries))
        return optimise_all(queries, *given, **more)

    monkeypatch.setattr("weft.adapting.planner.optimise_all", counted)
    for number in range(5):
        session.query(f"{PAIR} AND a.v > {number}", sink=weft.to_count())
    assert sizes == [1] * 5
    session.explain()
    assert [planned.explain() for planned in session.queries]
    first_graph(session, sources)
    assert sizes == [*[1] * 5, 5]


def test_a_query_under_a_used_name_is_not_shown_as_the_one_before(tmp_path: Path) -> None:
    """Its plan would be that of a query that has stopped."""
    session, sources = session_in(tmp_path)
    session.query(PAIR, name="other", sink=weft.to_count())
    session.query(PAIR, name="q", sink=weft.to_count())
    for source in sources.values():
        source.offer(TUPLES)
    session.start(ends=True)
    try:
        session.process_all_available()
        session.stop_query("q")
        session.process_all_available()
        again = session.query("SELECT a.v FROM a, c WHERE a.j = c.j", name="q", sink=weft.to_count())
        before = again.graph.sources
        session.process_all_available()
        assert [source.alias for source in again.graph.sources] == [one.alias for one in before] == ["a", "c"]
    finally:
        session.stop()


def test_what_is_learnt_before_the_start_is_shown(tmp_path: Path) -> None:
    """Since it is what the start will know."""
    session, _ = session_in(tmp_path)
    planned = session.query(PAIR, sink=weft.to_count())
    before = planned.graph.cost
    session.selectivity("a.k = b.k", 1)
    assert planned.graph.cost != before
