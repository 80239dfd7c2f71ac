"""What was observed and measured, against streams whose rates and selectivities are known."""

from __future__ import annotations

import pytest

from tests.shares import quick
from tests.unit.runtime.workload import COLUMNS, RATES, run, session
from weft.errors import StatisticsError
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.rules import ProbeRule
from weft.plan.show.observation import EVENT_TIME, WALL_CLOCK, Observation
from weft.runtime.observe.batch_statistics import measured
from weft.runtime.observe.metrics import Backlog, BatchMetrics
from weft.runtime.observe.observations import observed
from weft.stats.input_figures import InputFigures, StepFigures
from weft.stats.statistics import Statistics

CHAIN = """SELECT v.x, c.y FROM v [RANGE 3 SECONDS], w [RANGE 2 SECONDS], c [RANGE 3 SECONDS]
           WHERE v.vid = w.vid AND w.uid = c.uid AND v.x < 3"""
PAIR = "SELECT v.x, w.uid FROM v [RANGE 3 SECONDS], w [RANGE 2 SECONDS] WHERE v.vid = w.vid"


def about(value: float, tolerance: float = 0.1) -> object:
    """Near a value, relatively."""
    return pytest.approx(value, rel=tolerance)


def by_last_step(graph: PhysicalGraph) -> float:
    """Results per second, as predicted."""
    lasts = [list(graph.probes(alias))[-1].estimate for alias in graph.query.aliases]
    return sum(last.outgoing for last in lasts if last)


@pytest.mark.parametrize("strategy", ["flat", "left_deep"])
@pytest.mark.parametrize("partitions", quick([3, 1]))
def test_observed_figures_are_those_of_the_streams(strategy: str, partitions: int) -> None:
    """In the units of the plan: per second of stream, without copies."""
    planned = session(partitions=partitions).query(CHAIN, strategy=strategy)
    seen = observed(planned.graph, run(planned, 20, 0.25).metrics)
    assert (seen.batches, seen.clock, seen.seconds) == (80, EVENT_TIME, about(20, 0.01))
    assert {alias: seen.rate(one.rows) for alias, one in seen.inputs.items()} == {
        alias: about(rate, 0.01) for alias, rate in RATES.items()
    }
    first = {alias: next(planned.graph.probes(alias)) for alias in RATES}
    passed = {**RATES, "v": RATES["v"] * 0.3}
    probes = {alias: seen.rate(seen.steps[rule.edge].probes) for alias, rule in first.items()}
    assert probes == {alias: about(rate) for alias, rate in passed.items()}
    assert seen.stores["c"].rows == about(RATES["c"] * 3, 0.5)  # eviction lags by a batch and up to a run
    assert seen.results == sum(
        seen.steps[list(planned.graph.probes(alias))[-1].edge].matches for alias in RATES
    )
    assert len(seen.hops) == planned.graph.hops + 1


@pytest.mark.parametrize("batch", quick([1.0, 0.5, 5.0]))
@pytest.mark.parametrize("strategy", ["flat", "left_deep"])
def test_measured_statistics_are_the_truth(batch: float, strategy: str) -> None:
    """However long the batches are next to the windows, and whatever is stored."""
    planned = session().query(CHAIN, strategy=strategy)
    found = measured(Statistics(), planned.graph, run(planned, 30, batch).metrics)
    assert {name: stream.rate for name, stream in found.streams.items()} == {
        name: about(rate, 0.01) for name, rate in RATES.items()
    }
    assert found.selectivities == {
        "v.vid = w.vid": about(1 / 50, 0.15 if batch < 5 else 0.25),  # windows are shorter than such batches
        "c.uid = w.uid": about(1 / 80, 0.15),
        "v.x < 3": about(0.3),
    }
    assert found.origin == "measured"


def test_planning_again_predicts_what_was_observed() -> None:
    """The point of measuring; by default a thousand tuples a second and 10,000 values are assumed."""
    planned = session().query(CHAIN, strategy="flat")
    metrics = run(planned, 30).metrics
    seen = observed(planned.graph, metrics)
    again = session(measured(Statistics(), planned.graph, metrics)).query(CHAIN, strategy="flat").graph
    results = seen.rate(seen.results)
    assert results is not None
    assert by_last_step(planned.graph) < results / 50
    assert by_last_step(again) == about(results, 0.15)
    assert again.cost is not None
    rates = {store.store: store.rate for store in again.cost.stores}
    assert rates == {("c",): about(200), ("v",): about(30), ("w",): about(300)}


def test_without_windows_what_was_stored_counts() -> None:
    """The horizon is a guess about the future; the pairs compared so far are known."""
    sql = "SELECT v.x, w.uid FROM v, w WHERE v.vid = w.vid"
    planned = session().query(sql)
    found = measured(Statistics(), planned.graph, run(planned, 10).metrics)
    assert found.selectivities == {"v.vid = w.vid": about(1 / 50, 0.05)}


def test_rows_windows_count_what_they_hold() -> None:
    """A hundred tuples, not all that are still in the store."""
    sql = "SELECT v.x, w.uid FROM v [ROWS 100], w [ROWS 100] WHERE v.vid = w.vid"
    planned = session().query(sql)
    found = measured(Statistics(), planned.graph, run(planned, 8, batch=0.1).metrics)
    assert found.selectivities == {"v.vid = w.vid": about(1 / 50, 0.2)}


def test_conditions_checked_together_share_what_they_let_through() -> None:
    """One of them cannot be told from the other, but the plan needs only their product."""
    sql = """SELECT v.x, c.y FROM v [RANGE 3 SECONDS], c [RANGE 3 SECONDS]
             WHERE v.vid = c.uid AND v.x < c.y AND v.x <> 1 AND v.vid > 9"""
    planned = session().query(sql)
    found = measured(Statistics(), planned.graph, run(planned, 20).metrics).selectivities
    assert found["v.x <> 1"] * found["v.vid > 9"] == about(0.9 * 0.8)
    assert found["c.uid = v.vid"] * found["v.x < c.y"] == about(0.45 / 80, 0.2)


def test_conditions_that_let_nothing_through_are_not_impossible() -> None:
    """With 0 every plan would seem to cost nothing."""
    sql = "SELECT v.x, w.uid FROM v [RANGE 3 SECONDS], w [RANGE 2 SECONDS] WHERE v.vid = w.vid AND w.uid < 0"
    planned = session().query(sql)
    found = measured(Statistics(), planned.graph, run(planned, 5).metrics).selectivities
    assert 0 < found["w.uid < 0"] < 0.001


def test_the_last_batches_are_measured_from_the_one_before() -> None:
    """A long run must notice that the data changed; after a restart, what came before is not known."""
    planned = session().query(PAIR)
    metrics = run(planned, 20).metrics
    seen = observed(planned.graph, metrics, last=5)
    assert (seen.batches, seen.seconds) == (5, about(5, 0.01))
    assert seen.rate(seen.inputs["w"].rows) == about(300, 0.02)
    for found in (
        measured(Statistics(), planned.graph, metrics, last=10),
        measured(Statistics(), planned.graph, metrics[10:]),
    ):
        assert found.selectivities == {"v.vid = w.vid": about(1 / 50, 0.15)}
    assert measured(Statistics(), planned.graph, metrics[-1:]) == Statistics()
    with pytest.raises(StatisticsError, match="1 or more"):
        observed(planned.graph, metrics, last=0)


def test_nothing_observed_changes_nothing() -> None:
    """A query that has not run yet is explained and planned as before."""
    planned = session().query(PAIR)
    seen = observed(planned.graph, [])
    assert (seen.batches, seen.seconds, seen.results, seen.stores) == (0, 0.0, 0, {})
    assert seen.rate(1) is None
    assert measured(Statistics(), planned.graph, []) == Statistics()


def test_without_event_time_the_wall_clock_counts() -> None:
    """Batches arrive a second apart here; the last one takes its own time."""
    planned = session(event_time=False).query(PAIR)
    seen = observed(planned.graph, run(planned, 10).metrics)
    assert seen.clock == WALL_CLOCK
    assert 9 <= seen.seconds < 12
    assert all(seen.rate(seen.inputs[name].rows) == about(RATES[name], 0.2) for name in ("v", "w"))


def test_a_stream_that_pauses_or_lies_behind_does_not_stretch_time() -> None:
    """Rates are by the input that got furthest, from where it was."""
    planned = session().query(PAIR)
    hour = 3_600_000_000
    metrics = [
        _batch(
            0, v=InputFigures(10, oldest=hour, newest=hour + 1_000_000), w=InputFigures(1, oldest=0, newest=1)
        ),
        _batch(1, v=InputFigures(10, oldest=hour, newest=hour + 2_000_000), w=InputFigures(0)),
    ]
    assert observed(planned.graph, metrics).seconds == 2.0
    assert observed(planned.graph, metrics, last=1).seconds == 1.0


def test_copies_are_not_tuples() -> None:
    """A probe sent to three partitions is one probe; a tuple replicated to three is one tuple."""
    sql = "SELECT v.x, w.uid FROM v [RANGE 3 SECONDS], w [RANGE 2 SECONDS] WHERE v.x < w.uid"
    planned = session(partitions=3).query(sql)
    seen = observed(planned.graph, run(planned, 5).metrics)
    rules = [rule for rule in planned.graph.rules if isinstance(rule, ProbeRule)]
    assert any(rule.estimate and rule.estimate.copies == 3 for rule in rules) or any(
        store.layout.kind == "replicated" for store in planned.graph.stores
    )
    for rule in rules:
        assert seen.rate(seen.steps[rule.edge].probes) == about(RATES[rule.start], 0.02)
    for store in planned.graph.stores:
        assert RATES[store.name] * 1.5 < seen.stores[store.name].rows < RATES[store.name] * 5.5


def test_set_aside_and_waiting_tuples_are_shown_per_input() -> None:
    """The user sees where data is lost or late."""
    planned = session().query(PAIR)
    first = _batch(0, v=InputFigures(10, late=1, untimed=2, malformed=3), w=InputFigures(5))
    second = _batch(1, v=InputFigures(10, late=1), w=InputFigures(5), backlog={"v": Backlog(7)})
    seen = observed(planned.graph, [first, second])
    assert (seen.inputs["v"], seen.backlog) == (InputFigures(20, 2, 2, 3), {"v": 7})


def test_an_observation_that_cannot_be_is_refused() -> None:
    """Valid by construction."""
    with pytest.raises(StatisticsError):
        Observation(-1, 0.0, EVENT_TIME, 0)
    with pytest.raises(StatisticsError):
        Observation(1, 1.0, "sundial", 0)


def _batch(number: int, backlog: dict[str, Backlog] | None = None, **inputs: InputFigures) -> BatchMetrics:
    steps = {"v: 1": StepFigures(1, 1)}
    return BatchMetrics(number, tuple(sorted(COLUMNS)), inputs, steps, {}, 0, backlog=backlog or {})
