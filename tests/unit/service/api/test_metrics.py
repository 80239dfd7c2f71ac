"""`/metrics`, read by Prometheus' own parser, and the dashboard over it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.unit.service.api.running import Place, wait_for
from weft.service.api.metrics import (
    FAMILIES,
    OTHER,
    BoundedNames,
    Family,
    MetricHistogram,
    Metrics,
    exposition,
)
from weft.service.hub.hub import SessionHub

ROOT = Path(__file__).parents[4]
DASHBOARD = ROOT / "examples" / "grafana.json"


def read(text: str) -> dict[str, Any]:
    """The families of a text, by name."""
    return {family.name: family for family in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]


def samples(family: Any) -> dict[tuple[str, ...], float]:
    return {
        (one.name, *(f"{k}={v}" for k, v in sorted(one.labels.items()))): one.value for one in family.samples
    }


def test_a_session_in_figures(hub: SessionHub, here: Place) -> None:
    """Every family is there, and says what the hub says."""
    metrics = Metrics(hub)
    here.pair(50, "fifty")
    wait_for(lambda: hub.seen().totals.results.get("q", 0) >= 3)
    wait_for(lambda: "weft_query_latency_seconds_count" in metrics.text())
    metrics.request("GET", 200, 0.003)
    metrics.request("BREW", 999, 0.003)
    found = read(metrics.text())
    assert found.keys() == FAMILIES.keys()
    seen = hub.seen()
    assert (
        samples(found["weft_query_results"])["weft_query_results_total", "query=q"]
        == seen.totals.results["q"]
    )
    rows = samples(found["weft_stream_rows"])
    assert rows["weft_stream_rows_total", "stream=a"] == seen.totals.streams["a"].rows
    assert samples(found["weft_session_state"])["weft_session_state", "state=running"] == 1
    assert samples(found["weft_batches"])["weft_batches_total",] == seen.totals.batches
    assert samples(found["weft_state_bytes"])["weft_state_bytes",] > 0
    assert samples(found["weft_queries"])["weft_queries", "status=running"] == 1
    latency = samples(found["weft_query_latency_seconds"])
    assert latency["weft_query_latency_seconds_count", "query=q"] >= 1
    assert samples(found["weft_http_requests"]) == {
        ("weft_http_requests_total", "method=GET", "status=200"): 1,
        ("weft_http_requests_total", "method=other", "status=none"): 1,
    }


def test_counters_never_go_down(hub: SessionHub, here: Place) -> None:
    """However long the run: sums are kept, not worked out from the batches that are remembered."""
    metrics = Metrics(hub)
    before = read(metrics.text())
    batches = hub.seen().totals.batches
    for key in range(60, 65):
        here.pair(key)
    wait_for(lambda: hub.seen().totals.batches > batches)
    after = read(metrics.text())
    for name, family in before.items():
        if family.type == "counter":
            newer = samples(after[name])
            assert all(newer[key] >= value for key, value in samples(family).items()), name


@given(st.lists(st.text(max_size=8), max_size=12), st.lists(st.floats(0, 100, allow_nan=False), max_size=30))
def test_any_names_and_values_can_be_read(names: list[str], values: list[float]) -> None:
    """Quotes, line ends and half characters in names of queries too; buckets add up."""
    histogram = MetricHistogram((0.1, 1.0, 10.0))
    for value in values:
        histogram.add(value)
    labels = list(dict.fromkeys(name.encode("utf-8", "replace").decode() for name in names))
    family = Family("weft_x", "counter", 'help "me"\n', [("_total", {"query": n}, 1.0) for n in labels])
    times = Family("weft_t", "histogram", "times", histogram.samples({"q": "a"}), "")
    found = read(exposition([family, times]))
    assert [one.labels["query"] for one in found["weft_x"].samples] == labels
    buckets = [one.value for one in found["weft_t"].samples if one.name.endswith("_bucket")]
    assert buckets == [sum(v <= b for v in values) for b in (0.1, 1.0, 10.0, math.inf)]


def test_labels_are_bounded() -> None:
    """A thousand queries are no thousand time series for ever."""
    names = BoundedNames(3)
    assert [names.label(name) for name in "abcdaeb"] == ["a", "b", "c", OTHER, "a", OTHER, "b"]


def test_the_dashboard_names_metrics_that_exist() -> None:
    """Also by the ends that counters and histograms have."""
    text = DASHBOARD.read_text(encoding="utf-8")
    expressions = [
        target["expr"] for panel in json.loads(text)["panels"] for target in panel.get("targets", ())
    ]
    assert len(expressions) > 8
    used = {name for expr in expressions for name in re.findall(r"\bweft_\w+", expr)}
    known = {
        f"{name}{end}" for name in FAMILIES for end in ("", "_total", "_bucket", "_sum", "_count", "_info")
    }
    assert used <= known, used - known
    shown = {re.sub(r"_(total|bucket|sum|count|info)$", "", name) for name in used}
    for wanted in (
        "weft_stream_rows",
        "weft_query_results",
        "weft_query_latency_seconds",
        "weft_batch_seconds",
    ):
        assert wanted in shown


def test_the_dashboard_asks_for_labels_that_there_are(hub: SessionHub, here: Place) -> None:
    """A panel that groups by a label that no metric has is empty, and nobody says why."""
    metrics = Metrics(hub)
    here.pair(51, "fifty-one")
    wait_for(lambda: "weft_query_latency_seconds_count" in metrics.text())
    metrics.request("GET", 200, 0.003)
    labels = {
        sample.name: set(sample.labels)
        for family in read(metrics.text()).values()
        for sample in family.samples
    }
    content = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    for target in (target for panel in content["panels"] for target in panel.get("targets", ())):
        names = re.findall(r"\bweft_\w+", target["expr"])
        wanted = {
            label.strip()
            for group in re.findall(r"by \(([^)]*)\)", target["expr"])
            for label in group.split(",")
        } | set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
        there = set().union(*(labels.get(name, set()) for name in names))
        if any(name in labels for name in names):  # a plan that has not changed has no sample
            assert wanted <= there | {"le"}, (target["expr"], wanted - there)
    assert content["templating"]["list"][0]["type"] == "datasource"
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in content["panels"])


@pytest.mark.parametrize("text", ["weft_x 1\n", "# TYPE weft_x counter\nweft_x_total -1\n# EOF\n"])
def test_a_wrong_text_would_be_noticed(text: str) -> None:
    """The parser refuses what OpenMetrics forbids."""
    with pytest.raises(ValueError, match=r".+"):
        read(text)
