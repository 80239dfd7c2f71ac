"""`weft serve` on a real Spark: a query by request, live results, metrics, and a stop between batches."""

from __future__ import annotations

import signal
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.unit.service.api.process import serving
from tests.unit.service.api.running import wait_for

PIPELINE = """
streams:
  a: {event_time: ts, source: {rate: 2000, columns: {k: {uniform: 100}, ts: timestamps}}}
  b: {event_time: ts, source: {rate: 2000, seed: 2, columns: {k: {uniform: 100}, ts: timestamps}}}
queries:
  q: SELECT a.k, a.ts FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k
options: {partitions: 2}
checkpoint: ck
master: local[2]
"""


def test_a_service_on_spark(tmp_path: Path) -> None:
    """It answers while Spark starts, takes a query, and ends with the batch under way committed."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    with serving(file) as (client, process):
        client.create("SELECT b.k FROM a [RANGE 1 SECOND], b [RANGE 2 SECONDS] WHERE a.k = b.k", name="more")
        page = next(client.follow("more"))
        assert page.rows
        assert {one.name: one.status for one in client.queries()} == {"q": "running", "more": "running"}
        wait_for(lambda: client.overview().latency != {})
        found = {one.name for one in text_string_to_metric_families(client.metrics())}  # type: ignore[no-untyped-call]
        assert "weft_query_latency_seconds" in found
        assert client.graph().hops >= 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    assert list((tmp_path / "ck" / "state").glob("*.json"))
