"""OpenTelemetry gets the metrics that `/metrics` has, and a trace of every batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.service.api.running import place, running_hub, wait_for
from weft.service.api.metrics import FAMILIES, Metrics
from weft.service.telemetry.otel import OtelTelemetry

pytest.importorskip("opentelemetry.sdk", reason='needs pip install "weft[otel]"')

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


def values(reader: InMemoryMetricReader) -> dict[str, dict[tuple[tuple[str, Any], ...], float]]:
    """All that was collected: by metric and attributes."""
    data = reader.get_metrics_data()
    assert data is not None
    metrics = data.resource_metrics[0].scope_metrics[0].metrics
    return {
        metric.name: {
            tuple(sorted((point.attributes or {}).items())): point.value  # type: ignore[union-attr]
            for point in metric.data.data_points
        }
        for metric in metrics
    }


def test_metrics_and_traces_say_what_batches_did(tmp_path: Path) -> None:
    """One span for each batch, with its hops inside; counters under the names that dashboards know."""
    here, spans, reader = place(tmp_path), InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider([reader])
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    with running_hub(tmp_path) as hub:
        telemetry = OtelTelemetry(hub, Metrics(hub), meters, tracers)
        here.pair(1)
        wait_for(lambda: hub.query("q").results == 1)
        wait_for(
            lambda: any((span.attributes or {}).get("weft.results") for span in spans.get_finished_spans())
        )
        found = values(reader)
        telemetry.close()
    counted = {name.removesuffix("_count").removesuffix("_sum") for name in found}
    assert counted <= set(FAMILIES)
    assert found["weft_query_results"] == {(("query", "q"),): 1}
    assert found["weft_stream_rows"][(("stream", "a"),)] == 1
    assert found["weft_session_state"][(("state", "running"),)] == 1
    assert found["weft_batch_seconds_count"][()] >= 1
    batches = [span for span in spans.get_finished_spans() if span.name == "batch"]
    (with_result,) = [span for span in batches if (span.attributes or {})["weft.results"] == 1]
    parent = with_result.context.span_id if with_result.context is not None else None
    inside = [span for span in spans.get_finished_spans() if span.parent and span.parent.span_id == parent]
    assert {"read", "hop 1"} <= {span.name for span in inside}
    assert all((span.start_time or 0) >= (with_result.start_time or 0) for span in inside)
    assert (with_result.attributes or {})["weft.query.q.results"] == 1


def test_nothing_is_told_of_batches_after_the_end(tmp_path: Path) -> None:
    """A service that stops telling goes on."""
    here, spans = place(tmp_path), InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    with running_hub(tmp_path) as hub:
        telemetry = OtelTelemetry(hub, Metrics(hub), MeterProvider(), tracers)
        telemetry.close()
        spans.clear()
        here.pair(1)
        wait_for(lambda: hub.query("q").results == 1)
        assert not spans.get_finished_spans()
