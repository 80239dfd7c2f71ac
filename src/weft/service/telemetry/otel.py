"""OpenTelemetry: the metrics of `/metrics`, and a trace of every batch, for whoever collects them.

Guarantees: metrics have the names and labels that `/metrics` has, from the same figures. A batch is a span with one for
reading and one for each hop inside, as long as their slowest tasks, and its rows, results and backlog as attributes.
Where to send them is said by OpenTelemetry's own variables (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME` and the
others). Spans are made when a batch is committed and sent by OpenTelemetry's threads: no batch waits for them.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import weft
from weft.errors import ConfigError
from weft.service.api.metrics import Family, Metrics
from weft.service.figures import BatchFigures
from weft.service.hub.hub import SessionHub

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import TracerProvider

__all__ = ["OtelTelemetry", "otel_telemetry"]

FRESH = 0.5  # seconds within which metrics are read together


class OtelTelemetry:
    """Follows a hub, and gives what it does to the providers of OpenTelemetry that it was made with."""

    def __init__(
        self, hub: SessionHub, metrics: Metrics, meters: MeterProvider, tracers: TracerProvider
    ) -> None:
        self._metrics = metrics
        self._families_read, self._read_at = list[Family](), -math.inf
        self._tracer = tracers.get_tracer("weft", weft.__version__)
        self._providers: tuple[Any, ...] = (meters, tracers)
        meter = meters.get_meter("weft", weft.__version__)
        for family in metrics.families():
            self._observe(meter, family)
        self._end = hub.follow(lambda batch, _: self._trace(batch))

    def _observe(self, meter: Any, family: Family) -> None:
        """Have a family of `/metrics` read whenever metrics are collected; a histogram as its count and sum."""
        if family.kind == "histogram":
            for end in ("_count", "_sum"):
                reading = self._reading(family.name, end)
                meter.create_observable_counter(family.name + end, [reading], family.unit, family.help)
        elif family.kind == "counter":
            reading = self._reading(family.name, "_total")
            meter.create_observable_counter(family.name, [reading], family.unit, family.help)
        else:
            reading = self._reading(family.name, None)
            meter.create_observable_gauge(family.name, [reading], family.unit, family.help)

    def _reading(self, name: str, end: str | None) -> Callable[[CallbackOptions], Iterable[Observation]]:
        from opentelemetry.metrics import Observation

        def read(options: CallbackOptions) -> Iterable[Observation]:  # noqa: ARG001
            samples = (
                sample for family in self._families() if family.name == name for sample in family.samples
            )
            for ending, labels, value in samples:
                if end is None or ending == end:
                    yield Observation(value, dict(labels))

        return read

    def _families(self) -> list[Family]:
        """What `/metrics` says, worked out once for all that are read at a time."""
        now = time.monotonic()
        if now - self._read_at > FRESH:
            self._families_read, self._read_at = self._metrics.families(), now
        return self._families_read

    def _trace(self, batch: BatchFigures) -> None:
        from opentelemetry.trace import set_span_in_context

        began = _nanos(batch.started)
        attributes: Mapping[str, int | float | str] = {
            "weft.batch": batch.number,
            "weft.rows": batch.rows,
            "weft.results": sum(batch.results.values()),
            "weft.backlog": sum(batch.backlog.values()),
            "weft.state_bytes": sum(store.bytes for store in batch.stores),
            **{f"weft.query.{name}.results": count for name, count in batch.results.items()},
        }
        span = self._tracer.start_span("batch", attributes=dict(attributes), start_time=began)
        inside, at = set_span_in_context(span), batch.started
        for number, seconds in enumerate(batch.hops):
            name = "read" if number == 0 else f"hop {number}"
            part = self._tracer.start_span(name, inside, start_time=_nanos(at))
            at += seconds
            part.end(_nanos(at))
        span.end(_nanos(batch.started + batch.elapsed))

    def close(self) -> None:
        """Send what is left, and no more."""
        self._end()
        for provider in self._providers:
            provider.shutdown()


def _nanos(seconds: float) -> int:
    return int(seconds * 1e9)


def otel_telemetry(hub: SessionHub, metrics: Metrics) -> OtelTelemetry:
    """Send metrics and traces as OpenTelemetry's variables say, by OTLP over HTTP."""
    for needed in ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"):
        if not _is_there(needed):
            raise ConfigError(f"telemetry needs {needed}", hint="pip install 'weft[otel]'")
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = {"service.name": os.environ.get("OTEL_SERVICE_NAME", "weft"), "service.version": weft.__version__}
    resource = Resource.create(named)
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource=resource)
    return OtelTelemetry(hub, metrics, meters, tracers)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
