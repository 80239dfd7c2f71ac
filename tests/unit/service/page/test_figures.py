"""What the page shows, worked out without a browser: trends, charts, versions of plans, details, the demo's balance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

from tests.unit.plan.test_drawing import QUERIES, seen_graph, session, shared_graph
from tests.unit.service.api.running import JOIN, place, running_hub, wait_for
from weft.connectors.memory.sink import to_memory
from weft.logical.schema import DataType, Field, Schema, Stream
from weft.plan.physical.rules import ProbeRule
from weft.runtime.loop.handle import Running
from weft.runtime.observe import progress
from weft.service.demo import PIPELINE
from weft.service.demo_controls import QUERIES as DEMO_QUERIES
from weft.service.demo_controls import Balance, balance_of
from weft.service.figures import BatchFigures, RunTotals, StoreFigures
from weft.service.hub.describing import stream_info
from weft.service.hub.lifecycle import Seen
from weft.service.hub.values import NewQuery
from weft.service.page.charts import CHARTS, Trend, chart_data, chart_options
from weft.service.page.demo import balance_text
from weft.service.page.overview import stream_cells
from weft.service.page.plan import details, version_reason
from weft.service.page.visit import PageModel, PlanVersions, what_happened
from weft.service.pipeline import load_pipeline
from weft.stats.histogram import Histogram, Latency
from weft.stats.input_figures import InputFigures, TupleCounts
from weft.testing import LocalRun


def batch(number: int, started: float, rows: int, **more: object) -> BatchFigures:
    streams = {"a": InputFigures(rows)}
    stores = (StoreFigures("", "a", rows, 10 * rows),)
    return replace(BatchFigures(number, started, 0.25, streams, {"q": 2 * rows}, stores), **more)  # type: ignore[arg-type]


def test_a_trend_sums_up_seconds() -> None:
    """Quick batches would fill the chart with the last moments alone."""
    trend = Trend(kept=3)
    for number in range(20):
        trend.add(batch(number, 100 + number * 0.25, 3))
    seconds = trend.seconds()
    assert [one.at for one in seconds] == [103, 104, 105]
    assert (seconds[1].batches, seconds[1].rows, seconds[1].results, seconds[1].state) == (4, 12, 24, 30)


def test_a_chart_has_gaps_where_nothing_ran() -> None:
    trend = Trend()
    trend.add(batch(0, 100.0, 3))
    trend.add(batch(1, 160.0, 5))
    for name in CHARTS:
        lines = chart_data(name, trend.seconds())
        assert len(lines) == len(chart_options(name)["series"])
    rows = chart_data("Throughput", trend.seconds())[0]
    assert rows == [[100_000, 3], [101_000, None], [160_000, 5]]


def stream_row(watermark: int, newest: int | None, now: float) -> tuple[str, ...]:
    """The row of a stream with a watermark and a newest event time, in seconds since 1970."""
    said = {"a": InputFigures(3, newest=None if newest is None else newest * 1_000_000)}
    one = batch(0, now - 1, 3, streams=said, watermarks={"a": watermark * 1_000_000})
    stream = Stream("a", Schema((Field("ts", DataType("timestamp")),)), "ts")
    seen = Seen(RunTotals().plus(one), (one,))
    return stream_cells(stream_info(stream, None, "file", ["q"], seen, now, TupleCounts(3)))


@pytest.mark.parametrize(
    ("watermark", "newest", "text"),
    [
        (1_700_000_000 - 4, 1_700_000_000 - 2, "4.0 s"),  # live: behind the clock, two seconds on the way
        (1_700_000_000 + 4, 1_700_000_000 + 4, "0 ms"),  # clocks differ
        (1_000_000_000 - 5, 1_000_000_000, "5.0 s (data of 2001-09-09 01:46)"),
        (1_000_000_000, None, "0 ms (data of 2001-09-09 01:46)"),
    ],
)
def test_a_watermark_is_behind_the_clock_or_behind_old_data(
    watermark: int, newest: int | None, text: str
) -> None:
    """A stream of last year's files would be said to be a year late, and nobody would see how late it is."""
    assert stream_row(watermark, newest, 1_700_000_000.0)[3] == text


def test_latency_is_shown_where_it_is_measured() -> None:
    trend = Trend()
    trend.add(batch(0, 100.0, 3))
    assert chart_data("Latency", trend.seconds())[0] == [[100_000, None]]
    trend.add(batch(1, 101.0, 3, latency={"q": Latency(processing=Histogram.of([20_000] * 10))}))
    p50 = chart_data("Latency", trend.seconds())[0]
    assert p50[1][1] == pytest.approx(20, rel=0.1)


def test_versions_of_a_plan_say_what_happened() -> None:
    made = session({"pairs": QUERIES["pairs"]})
    run = LocalRun(made)
    made._last_run = Running(run._loop)
    versions = PlanVersions(made)
    run.batch({})
    made.query(QUERIES["chain"], name="chain", sink=to_memory())
    run.batch({})
    run.batch({})
    first, second = versions.look()
    assert (first.title, first.first, first.last) == (first.title, 0, 0)
    assert first.title.startswith("the first plan, for ")
    assert (second.title, second.first, second.last) == ("+ chain", 1, 2)
    assert len(second.batches) == 2
    run.stop_query("pairs")
    run.batch({})
    assert versions.look()[-1].title == "− pairs"
    assert second.observation() is not None


def test_a_plan_shows_the_changes_of_its_tasks() -> None:
    """They are no plans of their own: they would be shown with the next plan only, as if it came of them."""
    made = session({"pairs": QUERIES["pairs"]})
    run = LocalRun(made)
    made._last_run = Running(run._loop)
    versions = PlanVersions(made)
    run.batch({})
    run._loop.scaling.ask(3)
    run.batch({})
    made.query(QUERIES["chain"], name="chain", sink=to_memory())
    run.batch({})
    first, second = versions.look()
    assert [(one.batch, one.tasks) for one in first.scalings] == [(1, 3)]
    assert "3 tasks were asked for" in first.reason
    assert "batch 1: scaled up · asked for · 3 tasks were asked for · 2 → 3 tasks" in version_reason(first)
    assert (second.changes, second.scalings) == ((), ())
    titles = [(one.first, one.title) for one in versions.beginnings()]
    assert (1, "scaled up, 2 → 3 tasks · asked for · 3 tasks were asked for") in titles
    assert len(titles) == 3


def test_queries_and_orders_are_told_apart() -> None:
    graph, _ = seen_graph()
    assert what_happened(graph, graph) == "another order of probes"
    others = seen_graph()[0]
    assert what_happened(others, shared_graph({"pairs": QUERIES["pairs"]})) == "− chain, − star"


def test_details_compare_what_was_expected() -> None:
    graph, seen = seen_graph()
    rule = next(rule for rule in graph.rules if isinstance(rule, ProbeRule))
    shown = details(graph, f"step:{rule.edge}", seen, {})
    assert shown is not None
    assert shown.users == rule.users
    assert shown.rows[0] == ("tuples in/s", "?", "10.5")
    store = details(graph, f"store:{graph.stores[0].name}", seen, {})
    assert store is not None
    assert ("rows", "?", "20") in store.rows
    for part in ("input:a", f"result:{graph.rules[-1].edge}"):
        assert details(graph, part, seen, {}) is not None
    for part in ("step:nothing", "store:nothing", "input:nothing", "result:nothing", "", "x:y"):
        assert details(graph, part, seen, {}) is None


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        ([], None),
        ([4, 3, 5], Balance(3, 3, 0, 0)),
        ([1, 2, 4, 4], Balance(4, 4, 1, 1)),
    ],
)
def test_what_is_lost_or_repeated_is_counted(numbers: list[int], found: Balance | None) -> None:
    balance = balance_of(pa.chunked_array([numbers], pa.int64()))
    assert balance == found
    if balance is not None:
        assert ("exactly once" in balance_text(balance)) == (not balance.missing and not balance.twice)


def test_the_demo_s_queries_can_be_planned() -> None:
    """A click would give an error."""
    pipeline = load_pipeline(PIPELINE)
    for name, text in {**DEMO_QUERIES, "audit": "SELECT v.n FROM videos AS v"}.items():
        assert pipeline.session.query(text, name=name).graph.members


def test_the_log_knows_queries_of_which_the_session_has_forgotten_the_batches(tmp_path: Path) -> None:
    """It was put together from what the session remembers when somebody looks, the last batches and graphs."""
    here = place(tmp_path)
    with patch.object(progress, "KEPT", 2), running_hub(tmp_path) as hub:
        model = PageModel(hub)
        model.follow()
        here.pair(1)
        wait_for(lambda: hub.query("q").status == "running" and bool(hub.batches()))
        hub.create(NewQuery(JOIN, "more"))
        wait_for(lambda: hub.query("more").status == "running")
        for number in range(8):
            here.pair(number)
            hub.session.process_all_available()
        wait_for(lambda: hub.health().batch == hub.session.batches_after(-1)[-1][1].number)
        texts = [one.text for one in model.events()]
        assert any(text.endswith("the first plan, for q") for text in texts), texts
        assert any(text.endswith(": + more") for text in texts), texts
